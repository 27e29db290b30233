"""Streams that were right until something on the way spoiled them, in both wire formats.

Random bytes stop at the first brace; a real stream that was changed a little gets much further. However
it was changed: it ends as a reply that every store can hold, or as a ModelError, and never otherwise;
and how its bytes were cut makes no difference. ``PARLEY_FUZZ_EXAMPLES`` sets how many there are.
"""

import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.llm.events import EventSplitter, LineTooLong
from parley.testing.scripted_wire import render
from parley.turn.model import ModelError, TextDelta, ThinkingDelta
from tests.llm.test_decoders import REPLY, decoder
from tests.llm.test_events import cut
from tests.llm.wired import WIRES

EXAMPLES = int(os.environ.get("PARLEY_FUZZ_EXAMPLES", "150"))
LIMIT = 1 << 20
STREAMS = {wire: [event for _, event in render(REPLY, wire, "model-1")] for wire in WIRES}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["\0", "\u2028", "", "tool_use", "text", "thinking", "stop", [], {}, [[]], {"text": "x"}]),
)

type Spoiled = Callable[[list[bytes], st.DataObject], list[bytes]]


def dropped(events: list[bytes], data: st.DataObject) -> list[bytes]:
    at = data.draw(st.integers(0, len(events) - 1), "dropped")
    return events[:at] + events[at + 1 :]


def doubled(events: list[bytes], data: st.DataObject) -> list[bytes]:
    at = data.draw(st.integers(0, len(events) - 1), "doubled")
    return events[: at + 1] + events[at:]


def swapped(events: list[bytes], data: st.DataObject) -> list[bytes]:
    return data.draw(st.permutations(events), "order")


def flipped(events: list[bytes], data: st.DataObject) -> list[bytes]:
    at = data.draw(st.integers(0, len(events) - 1), "flipped")
    place = data.draw(st.integers(0, len(events[at]) - 1), "byte")
    new = data.draw(st.binary(min_size=0, max_size=3), "into")
    return [*events[:at], events[at][:place] + new + events[at][place + 1 :], *events[at + 1 :]]


def changed(events: list[bytes], data: st.DataObject) -> list[bytes]:
    """One value somewhere inside one event's JSON becomes another."""
    at = data.draw(st.integers(0, len(events) - 1), "changed")
    head, mark, body = events[at].partition(b"data: ")
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return events
    places = list(paths(value))
    if not places:
        return events
    path = data.draw(st.sampled_from(places), "place")
    put(value, path, data.draw(ODD, "value"))
    return [*events[:at], head + mark + msgspec.json.encode(value) + b"\n\n", *events[at + 1 :]]


def paths(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place within a JSON value."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: list[tuple[Any, ...]] = [above] if above else []
    for step, inner in steps:
        found += paths(inner, (*above, step))
    return found


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new


WAYS: list[Spoiled] = [dropped, doubled, swapped, flipped, changed]


def read(wire: str, pieces: list[bytes]) -> tuple[Any, ...]:
    """What comes of a stream: the reply and what was shown of it, or that it is an error."""
    reading, splitter = decoder(wire), EventSplitter(LIMIT)
    shown = ""
    try:
        for piece in pieces:
            if reading.finished:
                break
            reading.take(splitter.feed(piece))
            shown += "".join(p.text for p in reading.fresh() if isinstance(p, TextDelta | ThinkingDelta))
        if not reading.finished:
            reading.take(splitter.end())
            reading.end()
        reply = reading.reply()
    except (ModelError, LineTooLong) as error:
        usage = reading.usage()
        assert usage.input >= 0 and usage.output >= 0
        return (type(error),)
    assert reading.finished
    holdable(shown)
    holdable(reply.text)
    for call in reply.calls:
        holdable(call.id + call.tool)
        call.arguments.encode()
    assert min(reply.usage.input, reply.usage.output, reply.usage.cached) >= 0
    # A call without an id of its own is given one that is new each time.
    return (shown, reply.text, reply.thinking, [(call.tool, call.arguments) for call in reply.calls], reply.usage)


def holdable(text: str) -> None:
    """A text that SQLite, PostgreSQL and a stream can carry."""
    assert isinstance(text, str)
    assert "\0" not in text
    text.encode()


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    data=st.data(),
    ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=3),
    places=st.lists(st.integers(0, 6_000), max_size=12),
)
def test_a_spoiled_stream_is_a_reply_or_a_model_error_however_it_is_cut(
    wire: str, data: st.DataObject, ways: list[Spoiled], places: list[int]
) -> None:
    events = STREAMS[wire]
    for way in ways:
        events = way(events, data) or events
    whole = b"".join(events)
    assert read(wire, cut(whole, places)) == read(wire, [whole])
