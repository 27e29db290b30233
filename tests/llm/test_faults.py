"""Everything a provider can do wrong (trust R1): each case ends in a reply or one clear error, tokens recorded."""

import asyncio
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import msgspec
import pytest
import trustme

from parley.egress import Egress
from parley.llm.exchange import retry_after
from parley.testing.scripted_model import ScriptedCall, ScriptedReply, ScriptedUsage
from parley.testing.scripted_wire import render
from parley.turn.model import ModelErrorKind
from tests.llm.wired import QUICK, SILENCE, WIRES, MakeWired, Wired, impatient, outcome, prompt

FULL = ScriptedReply(
    text=["The quick brown fox ", "jumps — über ", "den 🦊 Zaun. "] * 3,
    calls=[ScriptedCall("lookup", '{"q": "ünïcödé 🎉 \\n"}', id="c1", pieces=4)],
    usage=ScriptedUsage(50, 20, 10),
)
TEXT = "".join(FULL.text)
STEPS = 24


def changed(
    *, cut_at: int | None = None, reset_at: int | None = None, hang_at: int | None = None, unfinished: bool = False
) -> ScriptedReply:
    """The full reply with something wrong."""
    return msgspec.structs.replace(FULL, cut_at=cut_at, reset_at=reset_at, hang_at=hang_at, unfinished=unfinished)


def positions(wire: str) -> list[int]:
    """Byte positions all over the body, the very first and the last included."""
    size = sum(len(event) for _, event in render(FULL, wire, "model-1"))
    return sorted({*range(0, size, size // STEPS), 1, size - 1})


@dataclass(frozen=True)
class Fault:
    """A faulty reply and how the call has to end; ``kind`` None is a whole reply."""

    name: str
    reply: ScriptedReply
    kind: ModelErrorKind | None


def error_body(code: str, message: str = "SECRET-PROVIDER-TEXT") -> bytes:
    return f'{{"type":"error","error":{{"type":"{code}","code":"{code}","message":"{message}"}}}}'.encode()


STATUS_FAULTS: list[tuple[str, int, bytes, ModelErrorKind]] = [
    ("400", 400, error_body("invalid_request_error"), "request"),
    ("400 with a page", 400, b"<html>bad</html>", "request"),
    ("401", 401, error_body("authentication_error"), "auth"),
    ("401 without a body", 401, b"", "auth"),
    ("402", 402, error_body("billing_error"), "auth"),
    ("403", 403, error_body("permission_error"), "auth"),
    ("404", 404, error_body("not_found_error"), "request"),
    ("413", 413, error_body("request_too_large"), "context"),
    ("422", 422, b'{"detail":"SECRET-PROVIDER-TEXT"}', "request"),
    ("context by code", 400, error_body("context_length_exceeded"), "context"),
    ("context by text", 400, error_body("invalid_request_error", "prompt is too long: 9 > 8 maximum"), "context"),
    ("context by another text", 400, error_body("x", "exceeds the maximum number of tokens allowed"), "context"),
    ("no credit left", 429, error_body("insufficient_quota"), "auth"),
    ("a list as error", 400, b'[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]', "request"),
    ("a text as error", 400, b'{"error":"SECRET-PROVIDER-TEXT"}', "request"),
    ("deeply nested error", 400, b"[" * 60_000, "request"),
    ("301", 301, b"", "request"),
    ("204", 204, b"", "request"),
    ("429", 429, error_body("rate_limit_error"), "rate"),
    ("500", 500, error_body("api_error"), "down"),
    ("502 with a page", 502, b"<html>Bad gateway</html>", "down"),
    ("503", 503, error_body("service_unavailable"), "down"),
    ("504", 504, b"", "down"),
    ("529", 529, error_body("overloaded_error"), "down"),
]
RETRIED = {"429", "500", "502 with a page", "503", "504", "529"}

GARBAGE: list[tuple[str, bytes, ModelErrorKind]] = [
    ("an empty body", b"", "garbled"),
    ("a web page", b"<!doctype html><html><body>Hi</body></html>", "garbled"),
    ("plain JSON", b'{"choices":[{"message":{"content":"hi"}}]}', "garbled"),
    ("random bytes", bytes(range(256)) * 8, "garbled"),
    ("JSON that is cut", b'data: {"type":"message_start","choices":[\n\n', "garbled"),
    ("JSON of another kind", b"data: [1,2,3]\n\n", "garbled"),
    ("a number", b"data: 17\n\n", "garbled"),
    ("null", b"data: null\n\n", "garbled"),
    ("invalid UTF-8", b'data: {"type":"\xff","choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n', "garbled"),
    ("a lone surrogate", b'data: {"type":"\\ud83d","choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', "garbled"),
    ("wrong types", b'data: {"type":7,"choices":"x"}\n\n', "garbled"),
    ("deep nesting", b'data: {"error":' + b"[" * 50_000 + b"\n\n", "garbled"),
    ("only comments", b": keep\n\n: alive\n\n", "garbled"),
    ("an error event", b"event: error\ndata: " + error_body("overloaded_error") + b"\n\n", "down"),
    ("a rate error event", b"data: " + error_body("rate_limit_error") + b"\n\n", "rate"),
    ("an auth error event", b"data: " + error_body("authentication_error") + b"\n\n", "auth"),
    ("a context error event", b"data: " + error_body("context_length_exceeded") + b"\n\n", "context"),
    ("a nameless error event", b'data: {"type":"error","error":"SECRET-PROVIDER-TEXT"}\n\n', "down"),
]


@pytest.mark.parametrize(("wire", "at"), [(wire, at) for wire in WIRES for at in positions(wire)])
async def test_a_reply_cut_in_two_at_any_byte_is_the_same_reply(wired_as: MakeWired, wire: str, at: int) -> None:
    seen = await wired_as(wire).ask(changed(cut_at=at))
    assert (seen.text, seen.whole().text) == (TEXT, TEXT)
    assert seen.whole().calls[0].arguments == FULL.calls[0].arguments
    assert (seen.whole().usage.input, seen.whole().usage.output, seen.whole().usage.cached) == (50, 20, 10)


@pytest.mark.parametrize(("wire", "at"), [(wire, at) for wire in WIRES for at in positions(wire)])
async def test_a_reset_at_any_byte_ends_in_one_error_or_a_whole_reply(wired_as: MakeWired, wire: str, at: int) -> None:
    wired = wired_as(wire)
    seen = await wired.ask(changed(reset_at=at))
    assert TEXT.startswith(seen.text), "no text twice"
    if seen.reply is not None:
        assert seen.reply.text == TEXT
    else:
        assert seen.failure().kind in ("down", "garbled")
        assert seen.failure().text.startswith(seen.text)
        assert not seen.text or seen.failure().usage.output > 0
    requests = await wired.requests()
    assert len(requests) == 1 or not seen.text, "what was seen is never asked for again"


@pytest.mark.parametrize(("wire", "at"), [(wire, at) for wire in WIRES for at in positions(wire)[::6]])
async def test_silence_at_any_byte_ends_within_the_idle_limit(wired_as: MakeWired, wire: str, at: int) -> None:
    wired = wired_as(wire)
    async with asyncio.timeout(20):
        seen = await wired.ask(changed(hang_at=at), limits=SILENCE)
    if seen.reply is None:
        assert seen.failure().kind == "down"
        assert "0.3 seconds" in seen.failure().public
    assert (await wired.provider.dropped(wired.key))[0].dropped


async def test_silence_instead_of_headers_ends_within_the_idle_limit(wired: Wired) -> None:
    seen = await wired.ask(ScriptedReply(hang_at=-1), limits=SILENCE)
    assert seen.failure().kind == "down"
    assert len(await wired.requests()) == 1, "the provider may be at work: no second request"


@pytest.mark.parametrize(("name", "status", "body", "kind"), STATUS_FAULTS, ids=[case[0] for case in STATUS_FAULTS])
async def test_a_status_is_a_clear_class_of_error(
    wired: Wired, name: str, status: int, body: bytes, kind: ModelErrorKind
) -> None:
    faulty = ScriptedReply(status=status, raw=body)
    failure = (await wired.ask(*[faulty] * 5)).failure()
    assert failure.kind == kind
    assert "SECRET" not in failure.public
    assert wired.key not in str(failure)
    assert failure.public.endswith(".")
    assert failure.usage.output == 0
    assert len(await wired.requests()) == (4 if name in RETRIED else 1)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
async def test_what_passes_by_itself_is_tried_again(wired: Wired, status: int) -> None:
    faulty = ScriptedReply(status=status, raw=error_body("x"))
    seen = await wired.ask(faulty, faulty, ScriptedReply(text=["at last"]))
    assert seen.text == "at last"
    assert len(await wired.requests()) == 3


async def test_a_connection_lost_before_the_first_byte_is_tried_again(wired: Wired) -> None:
    seen = await wired.ask(changed(reset_at=0), ScriptedReply(text=["at last"]))
    assert seen.text == "at last"


async def test_retry_after_is_waited_for(wired: Wired) -> None:
    faulty = ScriptedReply(status=429, headers={"retry-after": "0.4"}, raw=b"{}")
    began = time.monotonic()
    assert (await wired.ask(faulty, ScriptedReply(text=["ok"]))).text == "ok"
    assert time.monotonic() - began >= 0.4


async def test_a_retry_after_beyond_the_bound_fails_at_once(wired: Wired) -> None:
    faulty = ScriptedReply(status=429, headers={"retry-after": "3600"}, raw=b"{}")
    async with asyncio.timeout(20):
        assert (await wired.ask(faulty, ScriptedReply(text=["ok"]))).failure().kind == "rate"
    assert len(await wired.requests()) == 1


async def test_a_retry_after_date_in_the_past_means_now(wired: Wired) -> None:
    past = format_datetime(datetime.now(UTC) - timedelta(minutes=1), usegmt=True)
    faulty = ScriptedReply(status=503, headers={"retry-after": past}, raw=b"{}")
    assert (await wired.ask(faulty, ScriptedReply(text=["ok"]))).text == "ok"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("", None),
        ("2", 2.0),
        ("0.25", 0.25),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("-5", None),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after(value, now=60.0) == seconds


@pytest.mark.parametrize(("name", "body", "kind"), GARBAGE, ids=[case[0] for case in GARBAGE])
async def test_garbage_is_one_clear_error(wired: Wired, name: str, body: bytes, kind: ModelErrorKind) -> None:
    failure = (await wired.ask(ScriptedReply(raw=body))).failure()
    assert failure.kind in (kind, "down" if name == "a nameless error event" else kind)
    assert "SECRET" not in failure.public
    assert len(await wired.requests()) == 1


@pytest.mark.parametrize(("name", "body", "kind"), GARBAGE[4:11], ids=[case[0] for case in GARBAGE[4:11]])
async def test_garbage_after_text_keeps_the_text_and_counts_tokens(
    wired: Wired, name: str, body: bytes, kind: ModelErrorKind
) -> None:
    begun = ScriptedReply(text=["Half an ", "answer"], unfinished=True)
    start = b"".join(event for _, event in render(begun, wired.wire, "model-1"))
    seen = await wired.ask(ScriptedReply(raw=start + body, cut_at=len(start)))
    assert seen.text == "Half an answer"
    assert seen.failure().kind == kind
    assert seen.failure().text == "Half an answer"
    assert seen.failure().usage.output > 0


@pytest.mark.parametrize("kind", ["text", "line"])
async def test_an_endless_reply_is_stopped_at_the_size_cap(wired: Wired, kind: str) -> None:
    seen = await wired.ask(ScriptedReply(text=["go"], unfinished=True, endless=kind))
    assert seen.failure().kind == "garbled"
    assert "longer than" in seen.failure().public
    assert (await wired.provider.dropped(wired.key))[0].dropped


async def test_endless_signs_of_life_are_stopped_at_the_time_cap(wired: Wired) -> None:
    seen = await wired.ask(ScriptedReply(unfinished=True, endless="comment"), limits=impatient(reply_seconds=0.3))
    assert seen.failure().kind == "garbled"
    assert (await wired.provider.dropped(wired.key))[0].dropped


async def test_one_huge_event_is_refused(wired: Wired) -> None:
    seen = await wired.ask(ScriptedReply(text=["x" * 1_500_000]))
    assert seen.failure().kind == "garbled"
    assert seen.text == ""


async def test_ten_megabytes_of_arguments_are_refused_while_they_come(wired: Wired) -> None:
    call = ScriptedCall("lookup", '{"q":"' + "x" * 10_000_000 + '"}', pieces=400)
    seen = await wired.ask(ScriptedReply(calls=[call]), limits=impatient(reply_bytes=64 << 20))
    assert seen.failure().kind == "garbled"
    assert (await wired.provider.dropped(wired.key))[0].dropped


async def test_ten_megabytes_of_arguments_in_one_event_are_refused(wired: Wired) -> None:
    call = ScriptedCall("lookup", '{"q":"' + "x" * 10_000_000 + '"}')
    seen = await wired.ask(ScriptedReply(calls=[call]), limits=impatient(event_bytes=32 << 20, reply_bytes=64 << 20))
    assert seen.failure().kind == "garbled"


async def test_an_unfinished_stream_is_not_taken_for_a_reply(wired: Wired) -> None:
    seen = await wired.ask(changed(unfinished=True))
    assert seen.failure().kind == "down"
    assert seen.failure().text == TEXT


async def test_events_after_the_end_change_nothing(wired: Wired) -> None:
    whole = b"".join(event for _, event in render(FULL, wired.wire, "model-1"))
    seen = await wired.ask(ScriptedReply(raw=whole + whole))
    assert seen.whole().text == TEXT


async def test_nobody_listening_is_a_provider_that_cannot_be_reached(wired: Wired) -> None:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    seen = await outcome(wired.model(base_url=f"http://127.0.0.1:{port}"), prompt())
    assert seen.failure().kind == "down"
    assert "could not be reached" in seen.failure().public


@pytest.mark.parametrize("base_url", ["ftp://127.0.0.1", "http://", "not a url", "http://exa mple"])
async def test_an_address_that_is_none_is_a_bad_request(wired: Wired, base_url: str) -> None:
    failure = (await outcome(wired.model(base_url=base_url), prompt())).failure()
    assert failure.kind in ("request", "down")


async def test_a_forbidden_address_is_told_in_the_guards_own_words(wired: Wired) -> None:
    egress = Egress((), {})
    wired.session = egress.tenant_session()
    failure = (await wired.ask(ScriptedReply(text=["never"]))).failure()
    await egress.close()
    assert failure.kind == "request"
    assert "127.0.0.1" in failure.public
    assert await wired.requests() == []


async def test_an_untrusted_certificate_says_so_and_is_not_tried_again(wired: Wired) -> None:
    accepted: list[int] = []

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(1)
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        seen = await outcome(wired.model(base_url=f"https://127.0.0.1:{port}"), prompt())
    assert seen.failure().kind == "down"
    assert "certificate" in seen.failure().public
    assert not accepted


async def test_a_server_that_speaks_no_http_is_garbled(wired: Wired) -> None:
    async def chatter(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n\r\n" * 50)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(chatter, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        seen = await outcome(wired.model(base_url=f"http://127.0.0.1:{port}"), prompt())
    assert seen.failure().kind in ("garbled", "down")


async def test_keys_and_provider_texts_stay_out_of_the_logs(wired: Wired, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    for body in (error_body("authentication_error", f"bad key {wired.key}"), b"{" + wired.key.encode()):
        await wired.ask(ScriptedReply(status=401, raw=body))
    assert "401" in caplog.text
    assert wired.key not in caplog.text
    assert "bad key" not in caplog.text


async def test_a_decompression_bomb_is_capped(wired: Wired, session: aiohttp.ClientSession) -> None:
    limits = impatient(reply_bytes=200_000)
    seen = await wired.ask(ScriptedReply(raw=b": pad\n" * 100_000), limits=limits)
    assert seen.failure().kind == "garbled"
    assert QUICK.reply_bytes > limits.reply_bytes
