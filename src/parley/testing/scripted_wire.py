"""What a scripted model replies, and how that looks in each wire format."""

from collections.abc import Iterator

import msgspec


class ScriptedCall(msgspec.Struct, omit_defaults=True):
    """One tool call. ``arguments`` is sent as it is, in so many ``pieces``; an ``id`` of None is left out."""

    name: str
    arguments: str = "{}"
    id: str | None = "call_1"
    pieces: int = 1


class ScriptedUsage(msgspec.Struct, omit_defaults=True):
    """Tokens to report; ``input`` includes ``cached``."""

    input: int = 10
    output: int = 5
    cached: int = 0


class ScriptedReply(msgspec.Struct, omit_defaults=True):
    """One answer to one request: what is said, how fast, and what goes wrong.

    ``redacted`` is thinking that only Anthropic's servers can read. ``delay`` is the seconds before each
    text piece, ``paced`` sends exactly one event every so many seconds. With ``barrier`` the reply waits
    after ``barrier_after`` events until it is released. Positions (``cut_at``, ``reset_at``, ``hang_at``)
    count bytes of the body; ``hang_at`` −1 sends not even headers. ``raw`` replaces the body; a
    ``status`` other than 200 sends it at once.
    """

    text: list[str] = []
    thinking: list[str] = []
    redacted: str = ""
    calls: list[ScriptedCall] = []
    usage: ScriptedUsage | None = msgspec.field(default_factory=ScriptedUsage)
    finish: str | None = None
    unfinished: bool = False
    delay: float = 0.0
    paced: float = 0.0
    barrier: str = ""
    barrier_after: int = 0
    status: int = 200
    headers: dict[str, str] = {}
    raw: bytes | None = None
    cut_at: int | None = None
    reset_at: int | None = None
    hang_at: int | None = None
    endless: str = ""


def render(reply: ScriptedReply, wire: str, model: str) -> list[tuple[float, bytes]]:
    """The body as events, each with the seconds to wait before it. ``wire`` is openai or anthropic."""
    if reply.raw is not None:
        return [(0.0, reply.raw)]
    events = _openai(reply, model) if wire == "openai" else _anthropic(reply, model)
    return [(reply.delay if is_text else 0.0, event) for is_text, event in events]


def endless_event(kind: str, wire: str) -> bytes:
    """What an endless reply of this kind (text, line, comment) repeats."""
    if kind == "line":
        return b"x" * 65_536
    if kind == "comment":
        return b": still here\n\n"
    text = "no end in sight " * 512
    if wire == "openai":
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        return _data({"id": "chatcmpl-1", "created": 1, "model": "scripted", "choices": [choice]})
    return _named("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}})


def _pieces(call: ScriptedCall) -> Iterator[str]:
    size = max(1, -(-len(call.arguments) // call.pieces))
    for start in range(0, len(call.arguments), size):
        yield call.arguments[start : start + size]


def _data(value: object) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _named(name: str, value: dict[str, object]) -> bytes:
    return f"event: {name}\n".encode() + _data({"type": name, **value})


def _openai(reply: ScriptedReply, model: str) -> Iterator[tuple[bool, bytes]]:
    def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(
            {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
        )

    yield False, chunk({"role": "assistant", "content": ""})
    for piece in reply.thinking:
        yield False, chunk({"reasoning_content": piece})
    for piece in reply.text:
        yield True, chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        yield from ((False, chunk({"tool_calls": [delta]})) for delta in _call_deltas(index, call))
    if reply.unfinished:
        return
    yield False, chunk({}, reply.finish or ("tool_calls" if reply.calls else "stop"))
    if reply.usage is not None:
        figures = {
            "prompt_tokens": reply.usage.input,
            "completion_tokens": reply.usage.output,
            "total_tokens": reply.usage.input + reply.usage.output,
            "prompt_tokens_details": {"cached_tokens": reply.usage.cached},
        }
        yield False, _data({"id": "chatcmpl-1", "created": 1, "model": model, "choices": [], "usage": figures})
    yield False, b"data: [DONE]\n\n"


def _call_deltas(index: int, call: ScriptedCall) -> Iterator[dict[str, object]]:
    head: dict[str, object] = {"index": index, "type": "function", "function": {"name": call.name, "arguments": ""}}
    if call.id is not None:
        head["id"] = call.id
    yield head
    for piece in _pieces(call):
        yield {"index": index, "function": {"arguments": piece}}


def _anthropic(reply: ScriptedReply, model: str) -> Iterator[tuple[bool, bytes]]:
    usage = reply.usage or ScriptedUsage(0, 0, 0)
    started = {
        "input_tokens": usage.input - usage.cached,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": min(1, usage.output),
    }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": started}
    yield False, _named("message_start", {"message": message})
    yield False, _named("ping", {})
    index = 0
    if reply.thinking:
        deltas: list[dict[str, object]] = [{"type": "thinking_delta", "thinking": piece} for piece in reply.thinking]
        signature: dict[str, object] = {"type": "signature_delta", "signature": "c2lnbmVk"}
        yield from _block(index, {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signature])
        index += 1
    if reply.redacted:
        yield from _block(index, {"type": "redacted_thinking", "data": reply.redacted}, [])
        index += 1
    if reply.text:
        yield from _block(
            index, {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in reply.text]
        )
        index += 1
    for call in reply.calls:
        opened: dict[str, object] = {"type": "tool_use", "name": call.name, "input": {}}
        if call.id is not None:
            opened["id"] = call.id
        yield from _block(
            index, opened, [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(call)]
        )
        index += 1
    if reply.unfinished:
        return
    stop = reply.finish or ("tool_use" if reply.calls else "end_turn")
    delta: dict[str, object] = {"delta": {"stop_reason": stop}}
    if reply.usage is not None:
        delta["usage"] = {"output_tokens": usage.output}
    yield False, _named("message_delta", delta)
    yield False, _named("message_stop", {})


def _block(index: int, opened: dict[str, object], deltas: list[dict[str, object]]) -> Iterator[tuple[bool, bytes]]:
    yield False, _named("content_block_start", {"index": index, "content_block": opened})
    for delta in deltas:
        yield "text" in delta, _named("content_block_delta", {"index": index, "delta": delta})
    yield False, _named("content_block_stop", {"index": index})
