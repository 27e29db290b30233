"""What comes out of an action: plain, bounded, and without the credential's secrets."""

import base64
import html
import json
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from urllib.parse import quote, quote_plus
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from parley.integrations import ActionFailed
from parley.integrations.results import REDACTED, RESULT_BYTES, Scrubber, plain
from parley.turn.model import JsonValue

ANY = st.characters(exclude_categories=["Cs"])
SECRETS = st.text(ANY, min_size=9, max_size=60).filter(lambda text: REDACTED not in text)
SURROUNDINGS = st.text(ANY, max_size=40)
NOBODY = Scrubber(())


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    when: datetime
    parts: list[int]


@dataclass
class Row:
    price: Decimal
    colour: Colour


# ── scrubbing ───────────────────────────────────────────────────────────────────────────────────


def scrub(value: JsonValue, secrets: list[str]) -> JsonValue:
    return Scrubber(secrets).value(value)


@settings(deadline=None)
@given(SECRETS, SURROUNDINGS, SURROUNDINGS)
def test_a_secret_is_found_in_every_form_it_travels_in(secret: str, before: str, after: str) -> None:
    raw = f"{before}{secret}{after}"
    for seen in (
        raw,
        quote(raw, safe=""),
        quote_plus(raw),
        json.dumps(raw),
        json.dumps(raw, ensure_ascii=False),
        base64.b64encode(raw.encode()).decode(),
        base64.urlsafe_b64encode(raw.encode()).decode(),
        "Basic " + base64.b64encode(f"{before}:{secret}".encode()).decode(),
    ):
        assert REDACTED in str(scrub(seen, [secret]))


@given(SECRETS, SURROUNDINGS)
def test_the_secret_itself_is_gone_and_its_surroundings_stay(secret: str, around: str) -> None:
    cleaned = str(scrub(f"{around}\n{secret}\n{around}", [secret]))
    assert secret not in cleaned.replace(REDACTED, "")
    assert secret in around or cleaned == f"{around}\n{REDACTED}\n{around}"


def test_secrets_are_removed_from_keys_and_nested_values() -> None:
    value = scrub({"sk-secret-1": [{"url": "https://x.test/?key=sk-secret-1"}], "n": 3}, ["sk-secret-1"])
    assert value == {REDACTED: [{"url": f"https://x.test/?key={REDACTED}"}], "n": 3}


def test_the_lines_of_a_private_key_are_removed_one_by_one() -> None:
    body = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"]
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----"])
    assert scrub(f"refused: {body[1]}", [key]) == f"refused: {REDACTED}"
    assert scrub("-----BEGIN PRIVATE KEY-----", [key]) == "-----BEGIN PRIVATE KEY-----"


def test_a_text_too_short_to_be_a_secret_does_not_blacken_words() -> None:
    assert scrub("the latest test", ["test"]) == "the latest test"


def test_percent_escapes_in_lower_case_are_found() -> None:
    assert scrub("token=ab%2fcd%2b%3d%3dxyz", ["ab/cd+==xyz"]) == f"token={REDACTED}"


@settings(deadline=None)
@given(SECRETS, st.integers(1, 4))
def test_a_secret_is_found_however_often_it_was_quoted(secret: str, times: int) -> None:
    for ascii_only in (True, False):
        seen = f"refused: {secret}"
        for _ in range(times):
            seen = json.dumps(seen, ensure_ascii=ascii_only)
        cleaned = str(scrub(seen, [secret]))
        assert REDACTED in cleaned
        assert secret not in cleaned.replace(REDACTED, "")


@pytest.mark.parametrize("secret", ['pass"word', "pass/word+1", "päss wörd", "tab\tline", "a&b<c>'d\""])
def test_a_secret_is_found_in_the_escapes_of_web_pages_and_of_addresses_in_addresses(secret: str) -> None:
    for seen in (html.escape(secret), quote(quote(secret, safe=""), safe=""), json.dumps(quote(secret, safe=""))):
        assert scrub(f"was {seen} here", [secret]) in (f"was {REDACTED} here", f'was "{REDACTED}" here')


def test_base64_of_a_quoted_secret_is_found() -> None:
    body = json.dumps({"password": 'c4n"ary/1234567890'})
    assert REDACTED in str(scrub(base64.b64encode(body.encode()).decode(), ['c4n"ary/1234567890']))


@pytest.mark.parametrize("secret", ["\\" * 60 + "x", '\\"' * 40, "/" * 60, "\n" * 60 + "a", "\\a" * 30])
def test_no_answer_makes_the_search_slow(secret: str) -> None:
    # Of the processor: how busy the machine is does not count. A search that is not linear takes hours.
    began = time.process_time()
    for hostile in ("\\" * 300_000, '\\"' * 150_000, "/" * 300_000, "\\n" * 150_000, "%25" * 100_000, "\\a" * 150_000):
        scrub(hostile, [secret])
    assert time.process_time() - began < 20


def test_a_text_that_is_looked_at_whole_keeps_its_beginning() -> None:
    key = "\n".join(
        ["-----BEGIN PRIVATE KEY-----", *["MIIEvQIBADANBgkqhkiG9w0BAQEF/ASC+"] * 24, "-----END PRIVATE KEY-----"]
    )
    said = Scrubber([key]).head("a" * 1_500, 1_200)
    assert said == "a" * 1_200


# ── plain values ────────────────────────────────────────────────────────────────────────────────


def test_models_rows_and_special_values_become_json() -> None:
    when = datetime(2026, 6, 20, 10, tzinfo=UTC)
    value = plain(
        {
            "model": Model(when=when, parts=[1]),
            "row": Row(Decimal("1.10"), Colour.RED),
            "set": {3},
            "pair": (1, None),
            "id": UUID(int=7),
            "text": b"plain",
            "bytes": b"\xff\x00",
            7: True,
        },
        NOBODY,
    )
    assert value == {
        "model": {"when": "2026-06-20T10:00:00+00:00", "parts": [1]},
        "row": {"price": "1.10", "colour": "red"},
        "set": [3],
        "pair": [1, None],
        "id": "00000000-0000-0000-0000-000000000007",
        "text": "plain",
        "bytes": "/wA=",
        "7": True,
    }


def test_numbers_json_cannot_carry_are_replaced() -> None:
    assert plain([math.nan, math.inf, 2**64, -(2**70), 1.5], NOBODY) == [
        None, None, str(2**64), str(-(2**70)), 1.5,
    ]  # fmt: skip


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=30,
    )
)
def test_whatever_comes_out_can_be_encoded(value: object) -> None:
    msgspec.json.encode(plain(value, NOBODY))


def test_a_lone_surrogate_does_not_stop_the_result() -> None:
    assert plain("a\ud800b", NOBODY) == "a?b"


def test_a_result_too_large_is_cut_by_structure_and_says_what_is_missing() -> None:
    value = plain({"rows": [{"text": "x" * 1000}] * 10_000, "total": 10_000}, NOBODY)
    assert isinstance(value, dict)
    rows = value["rows"]
    assert isinstance(rows, list)
    assert rows[0] == {"text": "x" * 1000}
    assert str(rows[-1]).endswith("more items left out]")
    assert len(msgspec.json.encode(value)) < RESULT_BYTES * 1.1


def test_a_text_too_large_keeps_its_head() -> None:
    value = plain("é" * 100, NOBODY, max_bytes=51)
    assert value == "é" * 25 + "… [150 more bytes left out]"


@given(st.integers(0, 120), st.integers(1, 120))
def test_a_secret_across_the_cut_leaves_no_part_of_itself(offset: int, room: int) -> None:
    secret = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    value = str(plain("." * offset + secret + "." * 200, Scrubber([secret]), max_bytes=room))
    assert secret[:SHORTEST_TELLING] not in value


SHORTEST_TELLING = 3


def test_deep_nesting_ends() -> None:
    value: object = "bottom"
    for _ in range(500):
        value = [value]
    assert "nested too deeply" in str(plain(value, NOBODY))


def test_a_failure_is_one_sentence_of_at_most_500_characters() -> None:
    failed = ActionFailed("x" * 900, attempted=True)
    assert len(failed.public) == 500
    assert failed.public.endswith("…")
