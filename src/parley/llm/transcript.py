"""A conversation in a form that every provider accepts, whatever happened in it (lessons A).

Calls without a result get one, ids are unique and well formed, arguments are JSON objects, empty
texts are gone, users and assistants alternate, and a person or a tool has the last word.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from parley.turn.model import AssistantEntry, Entry, NoteEntry, ToolCall, ToolEntry, UserEntry
from parley.turn.text import NOT_JSON

INTERRUPTED = '{"status":"error","error":"The call was interrupted. Whether it took effect is unknown."}'
MALFORMED_KEPT = 2_000

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(slots=True)
class SentCall:
    """One call as it is sent; ``arguments`` is the text of a JSON object."""

    original_id: str
    id: str
    tool: str
    arguments: str
    output: str | None = None


@dataclass(slots=True)
class UserTurn:
    """What was said to the model since its last reply, each text not blank."""

    texts: list[str]


@dataclass(slots=True)
class AssistantTurn:
    """One reply of the model with its calls, each of which has an output. Its text may be empty if it has calls."""

    entry: AssistantEntry
    text: str
    calls: list[SentCall] = field(default_factory=list[SentCall])


type Turn = UserTurn | AssistantTurn


def sendable(entries: Sequence[Entry], legal_id: re.Pattern[str], make_id: Callable[[str], str]) -> list[Turn]:
    """The turns to send. ``legal_id`` is what ids must match; ``make_id`` makes one from 64 hex digits."""
    builder = _Builder(legal_id, make_id)
    for entry in entries:
        builder.add(entry)
    return builder.finish()


def without_calls(turns: Sequence[Turn]) -> list[Turn]:
    """The same conversation told without tool calls, for a request that offers no tools."""
    told: list[Turn] = []
    for turn in turns:
        if isinstance(turn, UserTurn):
            _say(told, turn.texts)
            continue
        lines = [turn.text] if turn.text else []
        lines += [f"[called {call.tool} with {call.arguments}]" for call in turn.calls]
        told.append(AssistantTurn(turn.entry, "\n".join(lines)))
        if turn.calls:
            _say(told, [f"[{call.tool} returned] {call.output}" for call in turn.calls])
    return told


def legal_arguments(text: str) -> str:
    """The arguments if they are a JSON object, else an object that quotes them: they were never run."""
    if not text.strip():
        return "{}"
    try:
        if isinstance(msgspec.json.decode(text), dict):
            return text
    except NOT_JSON:
        pass
    return msgspec.json.encode({"malformed_arguments": text[:MALFORMED_KEPT]}).decode()


class _Builder:
    def __init__(self, legal_id: re.Pattern[str], make_id: Callable[[str], str]) -> None:
        self._legal_id = legal_id
        self._make_id = make_id
        self._turns: list[Turn] = []
        self._open: dict[str, SentCall] = {}
        self._used: set[str] = set()

    def add(self, entry: Entry) -> None:
        match entry:
            case UserEntry(text):
                _say(self._turns, [text])
            case NoteEntry(text):
                _say(self._turns, [f"[Note from Parley, not from the user]\n{text}"] if text.strip() else [])
            case AssistantEntry():
                self._reply(entry)
            case ToolEntry(call_id, _, output):
                call = self._open.pop(call_id, None)
                if call is not None:
                    call.output = output

    def finish(self) -> list[Turn]:
        for call in self._calls():
            if not (call.output or "").strip():
                call.output = INTERRUPTED
        if not self._turns or isinstance(self._turns[0], AssistantTurn):
            self._turns.insert(0, UserTurn(["(The beginning of the conversation is not shown.)"]))
        last = self._turns[-1]
        if isinstance(last, AssistantTurn) and not last.calls:
            self._turns.append(UserTurn(["(Go on.)"]))
        return self._turns

    def _calls(self) -> Iterator[SentCall]:
        for turn in self._turns:
            if isinstance(turn, AssistantTurn):
                yield from turn.calls

    def _reply(self, entry: AssistantEntry) -> None:
        text = entry.text if entry.text.strip() else ""
        if not text and not entry.calls:
            return
        previous = self._turns[-1] if self._turns else None
        if isinstance(previous, AssistantTurn) and not previous.calls:
            self._turns.append(UserTurn(["(Go on.)"]))
        calls = [self._call(call) for call in entry.calls]
        self._turns.append(AssistantTurn(entry, text, calls))

    def _call(self, call: ToolCall) -> SentCall:
        sent_id = call.id if self._legal_id.fullmatch(call.id) else ""
        repeat = 0
        while not sent_id or sent_id in self._used:
            sent_id = self._make_id(hashlib.sha256(f"{call.id}#{repeat}".encode()).hexdigest())
            repeat += 1
        self._used.add(sent_id)
        tool = call.tool if _TOOL_NAME.fullmatch(call.tool) else "unknown_tool"
        sent = SentCall(call.id, sent_id, tool, legal_arguments(call.arguments))
        self._open[call.id] = sent
        return sent


def _say(turns: list[Turn], texts: Sequence[str]) -> None:
    kept = [text for text in texts if text.strip()]
    if not kept:
        return
    if turns and isinstance(turns[-1], UserTurn):
        turns[-1].texts.extend(kept)
    else:
        turns.append(UserTurn(kept))
