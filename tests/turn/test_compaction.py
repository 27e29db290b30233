"""Compaction and cutting as properties: whatever the conversation, nothing loses its partner."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from parley.turn.compaction import Compaction, cut_before, trimmable, view
from parley.turn.model import AssistantEntry, Entry, JsonValue, NoteEntry, ToolCall, ToolEntry, UserEntry
from parley.turn.text import as_text, shortened

texts = st.text(max_size=40)


@st.composite
def conversations(draw: st.DrawFn) -> list[Entry]:
    """Turns of any length, with calls whose ids may repeat over the chat."""
    entries: list[Entry] = []
    for _ in range(draw(st.integers(0, 12))):
        entries.append(UserEntry(draw(texts)))
        for _ in range(draw(st.integers(0, 4))):
            ids = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True))
            entries.append(AssistantEntry(draw(texts), tuple(ToolCall(each, "tool", "{}") for each in ids)))
            entries.extend(ToolEntry(each, "tool", draw(st.text(max_size=3_000))) for each in ids)
            if draw(st.booleans()):
                entries.append(NoteEntry(draw(texts)))
        entries.append(AssistantEntry(draw(texts)))
    return entries


def calls_match_results(entries: list[Entry]) -> bool:
    """Every call has its result, in order, before the model or a person speaks again."""
    waiting: list[str] = []
    for entry in entries:
        if isinstance(entry, ToolEntry):
            if entry.call_id not in waiting:
                return False
            waiting.remove(entry.call_id)
        elif waiting and not isinstance(entry, NoteEntry):
            return False
        elif isinstance(entry, AssistantEntry):
            waiting = [call.id for call in entry.calls]
    return not waiting


@given(conversations(), st.integers(1, 25), st.integers(0, 30))
def test_a_cut_falls_before_a_person_and_keeps_calls_with_their_results(
    entries: list[Entry], keep: int, earlier: int
) -> None:
    borders = [number for number, entry in enumerate(entries) if isinstance(entry, UserEntry)]
    covered = max((border for border in borders if border <= earlier), default=0)
    before = Compaction(covered, 0, "S" if covered else "")
    cut = cut_before(entries, before, keep=keep)
    assert cut == 0 or (isinstance(entries[cut], UserEntry) and covered < cut <= len(entries) - keep)
    after = Compaction(cut or covered, trimmable(entries, before), "S")
    shown = view(entries, after)
    assert calls_match_results(shown)
    assert shown[-1:] == entries[-1:] or not entries or trimmable(entries, before) == len(entries)


values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=60) | st.dictionaries(st.text(max_size=10), inner, max_size=20),
    max_leaves=200,
)


@given(values, st.integers(100, 4_000))
def test_a_shortened_value_is_valid_json_within_its_limit(value: JsonValue, limit: int) -> None:
    short = shortened(value, limit)
    assert len(as_text(short)) <= 2 * limit if isinstance(short, str) else len(as_text(short)) <= limit
    assert msgspec.json.decode(as_text(short)) == short


def test_a_long_list_keeps_its_ends_and_counts_the_rest() -> None:
    short = shortened([{"n": number, "text": "x" * 50} for number in range(1_000)], 2_000)
    assert isinstance(short, list)
    assert short[0] == {"n": 0, "text": "x" * 50}
    assert short[-1] == {"n": 999, "text": "x" * 50}
    assert "left out" in str(short[-2])
