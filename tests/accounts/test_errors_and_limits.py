"""How every "no" looks on the wire, and what is refused before any work (contract §10, trust T19)."""

import json
import logging
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.http.limits import MOST_BYTES, NOT_TEXT, TOO_DEEP, json_fault
from tests.accounts.desk import Desk


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


async def test_unknown_routes_and_methods_are_json(still: Desk) -> None:
    for path in ("/nope", "/v1/auth/me", "/auth/me/", "/api-keys/"):
        answer = await still.web.get(path, headers=still.owner.headers())
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not found"})
    answer = await still.web.patch("/auth/me", headers=still.owner.headers())
    assert answer.status_code == 405
    assert set(answer.json()) == {"detail"}
    assert answer.headers["allow"] == "GET"


async def test_a_401_names_the_scheme(still: Desk) -> None:
    assert (await still.web.get("/auth/me")).headers["www-authenticate"] == "Bearer"


async def test_a_malformed_request_is_told_where_and_why_but_never_what(still: Desk) -> None:
    secret = "hunter2-hunter2"
    body = {"name": {"password": secret}, "rate_limit_per_minute": secret, "expires_at": secret}
    answer = await still.web.post("/api-keys", json=body, headers=still.owner.headers())
    assert answer.status_code == 422
    assert [each["loc"] for each in answer.json()["detail"]] == [
        ["body", "name"],
        ["body", "expires_at"],
        ["body", "rate_limit_per_minute"],
    ]
    assert secret not in answer.text
    quoted = await still.web.post("/probe/quote", json={"text": secret})
    assert quoted.status_code == 422
    assert secret not in quoted.text


async def test_a_body_that_is_not_json_is_422(still: Desk) -> None:
    headers = {**still.owner.headers(), "Content-Type": "application/json"}
    answer = await still.web.post("/api-keys", content=b'{"name": ', headers=headers)
    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], list)


async def test_an_empty_body_with_a_json_content_type_is_fine(still: Desk) -> None:
    headers = {**still.owner.headers(), "Content-Type": "application/json"}
    assert (await still.web.get("/auth/me", headers=headers)).status_code == 200
    assert (await still.web.post("/organizations/invite/preview", headers=headers)).status_code == 200


async def test_a_denial_keeps_its_flat_envelope(still: Desk) -> None:
    answer = await still.web.get("/probe/denied")
    assert answer.status_code == 402
    assert set(answer.json()) == {"code", "layer", "key", "current", "limit", "reason"}
    assert answer.json()["layer"] == "credit"


@pytest.fixture
def caught() -> Iterator[list[logging.LogRecord]]:
    """What the error renderer logs."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, keep = logging.getLogger("parley.http.errors"), Keep()
    logger.addHandler(keep)
    yield records
    logger.removeHandler(keep)


async def test_a_bug_is_a_fixed_sentence_and_an_id_that_is_in_the_log(
    still: Desk, caught: list[logging.LogRecord]
) -> None:
    answer = await still.web.get("/probe/bug")
    assert answer.status_code == 500
    assert set(answer.json()) == {"detail", "error_id"}
    assert "xyzzy" not in answer.text
    (record,) = caught
    assert answer.json()["error_id"] in record.getMessage()
    assert record.exc_info is not None
    assert "xyzzy" in str(record.exc_info[1])
    assert (await still.web.get("/auth/me", headers=still.owner.headers())).status_code == 200


class TestBodies:
    async def post(
        self, still: Desk, content: bytes | AsyncIterator[bytes], path: str = "/probe/body"
    ) -> httpx.Response:
        return await still.web.post(path, content=content, headers={"Content-Type": "application/json"})

    async def test_a_body_up_to_one_mebibyte_passes_and_a_larger_one_does_not(self, still: Desk) -> None:
        text = b'"' + b"x" * (MOST_BYTES - 2) + b'"'
        assert (await self.post(still, text)).json() == {"bytes": MOST_BYTES}
        answer = await self.post(still, text + b" ")
        assert answer.status_code == 413
        assert set(answer.json()) == {"detail"}

    async def test_a_body_without_a_length_is_counted_as_it_comes(self, still: Desk) -> None:
        async def pieces(count: int) -> AsyncIterator[bytes]:
            for _ in range(count):
                yield b" " * 65_536

        assert (await self.post(still, pieces(16))).json() == {"bytes": MOST_BYTES}
        assert (await self.post(still, pieces(17))).status_code == 413

    async def test_an_upload_may_be_larger_where_uploads_go_and_has_its_own_limit(self, still: Desk) -> None:
        async def send(path: str, size: int) -> httpx.Response:
            headers = {"Content-Type": "multipart/form-data; boundary=x"}
            return await still.web.post(path, content=b"x" * size, headers=headers)

        async def stream(size: int) -> AsyncIterator[bytes]:
            for _ in range(size // 50_000):
                yield b"x" * 50_000

        assert (await send("/probe/upload", 3_000_000)).json() == {"bytes": 3_000_000}
        assert (await send("/probe/upload", 3_000_001)).status_code == 413
        assert (await send("/probe/body", 2_000_000)).status_code == 413
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = await still.web.post("/probe/upload", content=stream(4_000_000), headers=headers)
        assert answer.status_code == 413

    async def test_depth_64_passes_and_65_does_not(self, still: Desk) -> None:
        assert (await self.post(still, nested(64))).status_code == 200
        answer = await self.post(still, nested(65))
        assert (answer.status_code, answer.json()) == (400, {"detail": TOO_DEEP})
        assert (await self.post(still, b'{"a":' * 65 + b"1" + b"}" * 65)).status_code == 400
        assert (await self.post(still, nested(100_000))).status_code == 400

    async def test_what_no_store_can_hold_is_refused_in_body_path_and_query(self, still: Desk) -> None:
        for text in (b'{"name":"a\\u0000b"}', b'{"name":"\\ud800"}', b'{"name":"\\uDC00\\uD83D"}'):
            answer = await self.post(still, text, "/organizations")
            assert (answer.status_code, answer.json()) == (400, {"detail": NOT_TEXT})
        for path in ("/api-keys/%00", "/auth/me/organizations?role=%00"):
            assert (await still.web.get(path, headers=still.owner.headers())).status_code == 400


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b'"\\ud83d\\ude00"', None),
        (b'"\\\\u0000"', None),
        (b'"\\\\\\u0000"', NOT_TEXT),
        (b'"' + b"[" * 500 + b'"', None),
        (b'"\\"' + b"[" * 500 + b'"', None),
        (b"[" * 65, TOO_DEEP),
        (b"[]" * 500, None),
        (b'"' + b'\\"[' * 300_000, None),
        (b"\\" * 1_000_000, None),
        (b'"\\ud800', None),
        (b"\xff\xfe[", None),
    ],
    ids=str,
)
@pytest.mark.timeout(30)
def test_faults_are_seen_through_strings_and_escapes_and_quickly(body: bytes, fault: str | None) -> None:
    assert json_fault(body) == fault


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=40,
)


@given(documents, st.booleans())
def test_any_shallow_document_passes(document: object, ascii_only: bool) -> None:
    assert json_fault(json.dumps(document, ensure_ascii=ascii_only).encode()) is None


@given(documents, st.integers(65, 90))
def test_any_document_wrapped_too_deep_is_refused(document: object, levels: int) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"[":', b"}")):
        body = opening * levels + json.dumps(document).encode() + closing * levels
        assert json_fault(body) == TOO_DEEP
