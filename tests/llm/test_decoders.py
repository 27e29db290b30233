"""The decoders alone: any split of a stream is the same reply, and the oddities of single providers."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.llm.anthropic_messages import MessagesDecoder
from parley.llm.events import EventSplitter
from parley.llm.exchange import Limits
from parley.llm.http_model import Decoder
from parley.llm.openai_chat import ChatDecoder
from parley.llm.providers import Endpoint, find_provider
from parley.testing.scripted_wire import ScriptedCall, ScriptedReply, ScriptedUsage, render
from parley.turn.model import (
    ModelError,
    Prompt,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    Usage,
    UserEntry,
)
from tests.llm.wired import WIRES

PROMPT = Prompt("", [UserEntry("Hi")], [])
REPLY = ScriptedReply(
    text=["Grüße ", 'a "quoted" \\ back\\slash\n', "🦊🎉", "\u2028 end"],
    thinking=["hm… ", "🤔"],
    calls=[
        ScriptedCall("lookup", '{"q": "\\ud83c\\udf89 caf\\u00e9 \\\\ \\" 🎉", "n": 1}', id="c1", pieces=9),
        ScriptedCall("other", "", id="c2"),
    ],
    usage=ScriptedUsage(40, 30, 20),
)


def decoder(wire: str, provider: str = "") -> Decoder:
    found = find_provider(provider or wire)
    assert found is not None
    endpoint = Endpoint(found, "http://127.0.0.1", "", "the key")
    made = ChatDecoder if found.wire == "openai" else MessagesDecoder
    return made(endpoint, "model-1", PROMPT, 100, Limits())


def decoded(wire: str, pieces: Sequence[bytes]) -> tuple[Reply, str, str]:
    reading, splitter = decoder(wire), EventSplitter(1 << 20)
    text = thinking = ""
    for piece in pieces:
        reading.take(splitter.feed(piece))
        for part in reading.fresh():
            text += part.text if isinstance(part, TextDelta) else ""
            thinking += part.text if isinstance(part, ThinkingDelta) else ""
    assert reading.finished
    return reading.reply(), text, thinking


@pytest.mark.parametrize("wire", WIRES)
def test_a_cut_after_every_single_byte_changes_nothing(wire: str) -> None:
    whole = b"".join(event for _, event in render(REPLY, wire, "model-1"))
    assert 1_500 < len(whole) < 6_000
    expected = decoded(wire, [whole])
    assert expected[0].text == expected[1] == "".join(REPLY.text)
    assert expected[0].thinking == expected[2] == "".join(REPLY.thinking)
    assert expected[0].calls == [ToolCall("c1", "lookup", REPLY.calls[0].arguments), ToolCall("c2", "other", "{}")]
    assert expected[0].usage == Usage(40, 30, 20)
    for at in range(1, len(whole)):
        assert decoded(wire, [whole[:at], whole[at:]]) == expected


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=60)
@given(places=st.lists(st.integers(1, 6_000), max_size=60))
def test_any_number_of_cuts_changes_nothing(wire: str, places: list[int]) -> None:
    whole = b"".join(event for _, event in render(REPLY, wire, "model-1"))
    edges = [0, *sorted({place for place in places if place < len(whole)}), len(whole)]
    pieces = [whole[start:stop] for start, stop in pairwise(edges)]
    assert decoded(wire, pieces) == decoded(wire, [whole])


@pytest.mark.parametrize("wire", WIRES)
@given(events=st.lists(st.binary(max_size=60), max_size=4))
def test_random_events_only_ever_raise_a_model_error(wire: str, events: list[bytes]) -> None:
    reading = decoder(wire)
    with suppress(ModelError):
        reading.take(events)
        reading.end()
        assert reading.finished


NAMES = [
    "choices",
    "delta",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "index",
    "id",
    "usage",
    "error",
    "type",
    "message",
    "content_block",
    "text",
    "thinking",
    "partial_json",
    "input",
    "input_tokens",
    "stop_reason",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("wire", WIRES)
@given(values=st.lists(json_values, max_size=4))
def test_random_json_only_ever_raises_a_model_error(wire: str, values: list[object]) -> None:
    reading = decoder(wire)
    with suppress(ModelError):
        reading.take([msgspec.json.encode(value) for value in values])
        reading.end()
        assert reading.reply().text == reading.text()
    assert reading.usage().output >= 0


# ── oddities of providers that speak the OpenAI format ──────────────────────────────────────────


def chat(*chunks: object, done: bool = True) -> tuple[Reply, str]:
    reading = decoder("openai")
    events = [msgspec.json.encode(chunk) for chunk in chunks] + ([b"[DONE]"] if done else [])
    reading.take(events)
    if not reading.finished:
        reading.end()
    return reading.reply(), "".join(part.text for part in reading.fresh() if isinstance(part, TextDelta))


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(name: str | None = None, arguments: object = "", **fields: object) -> dict[str, object]:
    function: dict[str, object] = {"arguments": arguments}
    if name is not None:
        function["name"] = name
    return delta(tool_calls=[{"function": function, **fields}])


STOP = delta("stop")


def test_events_that_come_together_are_one_delta() -> None:
    reading = decoder("openai")
    reading.take([msgspec.json.encode(delta(content=piece)) for piece in ("a", "b", "c")])
    assert reading.fresh() == [TextDelta("abc")]


def test_calls_that_all_say_index_zero_are_told_apart_by_id_and_name() -> None:
    reply, _ = chat(call("a", '{"x":1}', index=0, id="i1"), call("b", '{"y":2}', index=0, id="i2"), STOP)
    assert [(c.tool, c.arguments) for c in reply.calls] == [("a", '{"x":1}'), ("b", '{"y":2}')]


def test_calls_without_index_and_id_are_told_apart_by_name() -> None:
    reply, _ = chat(call("a", "{}"), call("b", "{}"), STOP)
    assert [c.tool for c in reply.calls] == ["a", "b"]
    assert len({c.id for c in reply.calls}) == 2


def test_id_and_name_repeated_in_every_delta_are_one_call() -> None:
    reply, _ = chat(call("a", '{"x"', index=0, id="i"), call("a", ":1}", index=0, id="i"), STOP)
    assert [(c.id, c.tool, c.arguments) for c in reply.calls] == [("i", "a", '{"x":1}')]


def test_a_new_id_in_every_delta_without_a_name_is_one_call() -> None:
    reply, _ = chat(call("a", '{"x"', index=0, id="i1"), call(None, ":1}", index=0, id="i2"), STOP)
    assert [(c.id, c.arguments) for c in reply.calls] == [("i1", '{"x":1}')]


def test_interleaved_calls_are_kept_apart_by_index() -> None:
    reply, _ = chat(
        call("a", '{"x"', index=0, id="i1"),
        call("b", '{"y"', index=1, id="i2"),
        call(None, ":1}", index=0),
        call(None, ":2}", index=1),
        STOP,
    )
    assert [c.arguments for c in reply.calls] == ['{"x":1}', '{"y":2}']


def test_arguments_sent_as_an_object_are_its_text() -> None:
    reply, _ = chat(call("a", {"x": 1}, index=0, id="i"), STOP)
    assert msgspec.json.decode(reply.calls[0].arguments) == {"x": 1}


def test_arguments_of_null_are_an_empty_object() -> None:
    assert chat(call("a", None, index=0, id="i"), STOP)[0].calls[0].arguments == "{}"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_thinking_under_either_name(name: str) -> None:
    assert chat(delta(**{name: "hm"}), delta(content="yes"), STOP)[0].thinking == "hm"


def test_content_lists_carry_text_and_thinking() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reply, text = chat(delta(content=[thought, {"type": "text", "text": "yes"}]), STOP)
    assert (reply.thinking, text) == ("hm", "yes")


def test_reasoning_left_out_of_the_completion_count_is_counted() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 45}
    assert chat(delta(content="x"), STOP, {"choices": [], "usage": usage})[0].usage == Usage(10, 35, 0)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}},
        {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4},
    ],
)
def test_cached_tokens_are_found_under_either_name(usage: dict[str, object]) -> None:
    assert chat(delta(content="x"), STOP, {"choices": [], "usage": usage})[0].usage == Usage(10, 5, 4)


def test_usage_in_a_vendor_field_counts() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    assert chat(delta(content="x"), {**STOP, "x_groq": {"usage": usage}})[0].usage == Usage(3, 2, 0)


def test_absurd_figures_are_clamped() -> None:
    usage = {"prompt_tokens": -3, "completion_tokens": -2, "prompt_tokens_details": {"cached_tokens": 99}}
    assert chat(delta(content="x"), STOP, {"choices": [], "usage": usage})[0].usage == Usage(0, 0, 0)


def test_running_figures_of_an_unfinished_stream_are_not_exact() -> None:
    reading = decoder("openai")
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    reading.take([msgspec.json.encode({**delta(content="x" * 40), "usage": usage})])
    assert reading.usage() == Usage(3, 10, 0, exact=False)


def test_no_finish_reason_before_done_is_a_whole_reply() -> None:
    assert chat(delta(content="x"))[0].text == "x"


def test_no_done_after_a_finish_reason_is_a_whole_reply() -> None:
    assert chat(delta(content="x"), STOP, done=False)[0].text == "x"


def test_nothing_but_done_is_garbled() -> None:
    with pytest.raises(ModelError) as raised:
        chat()
    assert raised.value.kind == "garbled"


def test_chunks_without_choices_are_skipped() -> None:
    assert chat({"choices": []}, {"choices": None, "prompt_filter_results": []}, delta(content="x"), STOP)[1] == "x"


# ── Anthropic's own ─────────────────────────────────────────────────────────────────────────────


def messages(*events: dict[str, object]) -> Decoder:
    reading = decoder("anthropic")
    reading.take([msgspec.json.encode(event) for event in events])
    return reading


def started(**usage: int) -> dict[str, object]:
    return {"type": "message_start", "message": {"usage": usage}}


def test_input_figures_sum_fresh_written_and_read_tokens() -> None:
    reading = messages(
        started(input_tokens=5, cache_creation_input_tokens=20, cache_read_input_tokens=100, output_tokens=1),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    assert reading.usage() == Usage(125, 9, 100)


def test_a_stopped_stream_keeps_the_exact_input_and_cache_figures() -> None:
    reading = messages(
        started(input_tokens=5, cache_read_input_tokens=100, output_tokens=1),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 41}},
    )
    assert reading.usage() == Usage(105, 11, 100, exact=False)


def test_unknown_events_and_blocks_are_skipped() -> None:
    reading = messages(
        started(input_tokens=1),
        {"type": "something_new"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "server_thing", "id": "s"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )
    assert reading.reply().calls == []


def test_an_input_given_whole_counts_as_arguments() -> None:
    block = {"type": "tool_use", "id": "t", "name": "lookup", "input": {"q": 1}}
    reading = messages(
        started(input_tokens=1),
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )
    assert reading.reply().calls == [ToolCall("t", "lookup", '{"q":1}')]
