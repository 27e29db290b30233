"""What a request may carry that no schema describes: cursors, file names, forms, JSON under other names.

On both stores, since what one takes the other may refuse (a NUL, half a character). ``PARLEY_FUZZ_EXAMPLES``
sets how many requests there are of each kind.
"""

import asyncio
import os
from collections.abc import Callable
from urllib.parse import quote

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import bounded
from tests.stage import Client, Stage, says

EXAMPLES = int(os.environ.get("PARLEY_FUZZ_EXAMPLES", "40"))
SECONDS = 30.0
TEXTS = st.text(max_size=30) | st.sampled_from(
    ["\0", "a\0.txt", "../../x.txt", "..\\x.txt", "\u202etxt.exe", "a" * 300]
)


def tried[T](strategy: st.SearchStrategy[T], check: Callable[[T], None]) -> None:
    """Check many values of a strategy, the same ones each time."""

    @bounded(EXAMPLES)
    @given(strategy)
    def each(value: T) -> None:
        check(value)

    each()


def headers_of(client: Client) -> dict[str, str]:
    return {**client.headers, "Connection": "close"}


async def test_any_cursor_gives_a_suffix_of_the_run(stage: Stage) -> None:
    turn = await stage.turn(says("One ", "two ", "three."))
    url = f"{stage.client.base_url}/assistant/chat/{turn.chat_id}/listen/{turn.run_id}"

    def frames(answer: requests.Response) -> list[bytes]:
        assert answer.status_code == 200, answer.text
        return [frame for frame in answer.content.split(b"\n\n") if frame and b'"heartbeat"' not in frame]

    answer = await asyncio.to_thread(requests.get, url, headers=headers_of(stage.client), timeout=SECONDS)
    whole = frames(answer)
    numbers = st.integers(-2, 2**70).map(str) | st.text(st.characters(categories=["Nd"]), max_size=4)
    cursors = st.lists(numbers, max_size=4).map(".".join) | st.text(max_size=12) | TEXTS

    def check(cursor: str) -> None:
        if "\0" in cursor:
            return
        got = frames(requests.get(f"{url}?after={quote(cursor)}", headers=headers_of(stage.client), timeout=SECONDS))
        # Cut within a piece of text, its rest comes as a frame of its own.
        assert len(got) <= len(whole) and got[1:] == whole[len(whole) - len(got) + 1 :], (cursor, got)
        header = cursor.encode("utf-8", "ignore").replace(b"\r", b"").replace(b"\n", b"").strip()
        with_header = {**headers_of(stage.client), "Last-Event-ID": header}
        answer = requests.get(url, headers=with_header, timeout=SECONDS)
        # A header with control characters is refused by the parser of HTTP itself.
        assert answer.status_code == 400 or len(frames(answer)) <= len(whole), (cursor, answer.text)

    await asyncio.to_thread(tried, cursors, check)


async def test_any_file_name_and_any_form_is_taken_or_refused(stage: Stage) -> None:
    base = (await stage.client.post("/knowledge-bases", {"name": "Fuzz"})).body["id"]
    url = f"{stage.client.base_url}/knowledge-bases/{base}/documents"
    names = st.tuples(TEXTS, st.sampled_from([".txt", ".md", "", ".exe"])).map("".join)
    raw = names.map(lambda name: name.encode("utf-8", "surrogatepass")) | st.binary(max_size=20).map(
        lambda b: b + b".txt"
    )
    forms = st.tuples(raw, TEXTS | st.sampled_from(['{"a": "\\u0000"}', '{"a": "\\ud83d"}', "[" * 90, '{"a": 1e999}']))

    def check(form: tuple[bytes, str]) -> None:
        name, metadata = form
        body = _multipart(name, metadata.encode("utf-8", "surrogatepass"))
        kind = {**headers_of(stage.client), "Content-Type": "multipart/form-data; boundary=edge"}
        answer = requests.post(url, data=body, headers=kind, timeout=SECONDS)
        assert answer.status_code in (201, 400, 422), (form, answer.status_code, answer.text)
        if answer.status_code == 201:
            kept = answer.json()["filename"]
            assert kept.isprintable() and "/" not in kept and kept not in ("", ".", ".."), kept

    await asyncio.to_thread(tried, forms, check)


def _multipart(name: bytes, metadata: bytes) -> bytes:
    quoted = name.replace(b"\r", b"").replace(b"\n", b"").replace(b'"', b"%22")
    return b"".join(
        (
            b'--edge\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n',
            metadata.replace(b"--edge", b""),
            b'\r\n--edge\r\nContent-Disposition: form-data; name="file"; filename="',
            quoted,
            b'"\r\nContent-Type: text/plain\r\n\r\nSome words. ',
            os.urandom(8).hex().encode(),
            b"\r\n--edge--\r\n",
        )
    )


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", ""])
@pytest.mark.parametrize("hostile", ['"\\u0000"', '"\\ud83d"', "[" * 90 + "]" * 90])
async def test_json_under_another_name_is_held_to_the_same_limits(stage: Stage, kind: str, hostile: str) -> None:
    bodies = {
        "/v1/chat/completions": '{"messages": [{"role": "user", "content": %s}], "model": "%s"}',
        "/mcp": '{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": %s, "y": "%s"}}',
    }
    for path, body in bodies.items():
        answer = await _sent(stage.client, path, (body % (hostile, "openai/gpt-4o")).encode(), kind)
        assert answer.status_code == 400, (path, answer.text)


async def _sent(client: Client, path: str, body: bytes, kind: str) -> requests.Response:
    headers = {**headers_of(client), **({"Content-Type": kind} if kind else {})}
    return await asyncio.to_thread(requests.post, client.base_url + path, data=body, headers=headers, timeout=SECONDS)
