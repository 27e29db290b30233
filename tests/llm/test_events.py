"""Server-sent events come out the same however their bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.llm.events import EventSplitter, LineTooLong

LIMIT = 10_000
payloads = st.lists(st.binary(min_size=1, max_size=40).filter(lambda b: not set(b) & set(b"\r\n")), max_size=8)
noise = st.sampled_from([b"", b": comment", b"event: message", b"id: 7", b"retry: 10", b"nonsense"])


def cut(whole: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(whole) + 1) for place in places}), len(whole)]
    return [whole[start:stop] for start, stop in pairwise(edges)]


def fed(pieces: list[bytes]) -> list[bytes]:
    splitter = EventSplitter(LIMIT)
    return [event for piece in pieces for event in splitter.feed(piece)] + splitter.end()


@given(payloads, st.sampled_from([b"\n", b"\r\n"]), noise, st.booleans(), st.lists(st.integers(0, 10_000), max_size=20))
def test_any_cut_gives_the_same_events(
    data: list[bytes], ending: bytes, extra: bytes, last_blank: bool, places: list[int]
) -> None:
    whole = b"".join(extra + ending + b"data: " + payload + ending + ending for payload in data)
    if data and not last_blank:
        whole = whole[: -len(ending)]
    assert fed(cut(whole, places)) == data


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=30))
def test_even_garbage_is_read_alike_however_it_is_cut(garbage: bytes, places: list[int]) -> None:
    assert fed(cut(garbage, places)) == fed([garbage])


def test_one_byte_at_a_time_is_the_same() -> None:
    whole = 'data: {"a":"ü🎉"}\r\n\r\n:x\n\ndata:[DONE]\n\n'.encode()
    assert fed([whole[i : i + 1] for i in range(len(whole))]) == ['{"a":"ü🎉"}'.encode(), b"[DONE]"]


def test_data_lines_of_one_event_are_joined() -> None:
    assert fed([b"data: one\ndata: two\n\n"]) == [b"one\ntwo"]


def test_a_byte_order_mark_is_skipped() -> None:
    assert fed([b"\xef\xbb\xbfdata: x\n\n"]) == [b"x"]


@pytest.mark.parametrize(
    "pieces",
    [[b"x" * 600] * 20, [b"data: " + b"x" * 11_000 + b"\n"], [b"data: " + b"x" * 900 + b"\n"] * 20],
    ids=["no line end", "one line", "one event of many lines"],
)
def test_an_oversized_event_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(LineTooLong):
        fed(pieces)


def test_many_small_events_are_not_one_large_one() -> None:
    splitter = EventSplitter(LIMIT)
    assert sum(len(splitter.feed(b"data: " + b"x" * 900 + b"\n\n")) for _ in range(50)) == 50
