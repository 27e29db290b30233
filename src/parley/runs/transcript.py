"""The conversation as rows: what the model is sent, entry by entry."""

from typing import Any, assert_never

from parley.turn.model import (
    AssistantEntry,
    Entry,
    NoteEntry,
    ToolCall,
    ToolEntry,
    UserEntry,
)

CLOSED_BY_STOP = (
    '{"status":"error","error":"The turn was stopped before this call returned. '
    'Whether it had an effect is not known: check before repeating it."}'
)
CLOSED_BEFORE_EFFECT = '{"status":"cancelled","reason":"The turn was stopped. This call had no effect."}'
CLOSED_UNANSWERED = '{"status":"cancelled","reason":"The question was not answered. Nothing was done."}'


def to_row(entry: Entry) -> tuple[str, dict[str, Any]]:
    """An entry as ``(role, body)`` of the ``transcript`` table."""
    match entry:
        case UserEntry(text):
            return "user", {"text": text}
        case AssistantEntry():
            return "assistant", {
                "text": entry.text,
                "calls": [{"id": call.id, "tool": call.tool, "arguments": call.arguments} for call in entry.calls],
                "thinking": entry.thinking,
                "provider": entry.provider,
                "state": entry.provider_state,
            }
        case ToolEntry(call_id, tool, output):
            return "tool", {"call_id": call_id, "tool": tool, "output": output}
        case NoteEntry(text):
            return "note", {"text": text}
        case _:
            assert_never(entry)


def from_row(role: str, body: dict[str, Any]) -> Entry:
    """An entry from a row of the ``transcript`` table."""
    match role:
        case "user":
            return UserEntry(body["text"])
        case "assistant":
            calls = tuple(ToolCall(call["id"], call["tool"], call["arguments"]) for call in body["calls"])
            return AssistantEntry(body["text"], calls, body["thinking"], body["provider"], body["state"])
        case "tool":
            return ToolEntry(body["call_id"], body["tool"], body["output"])
        case "note":
            return NoteEntry(body["text"])
        case _:
            raise ValueError(f"unknown transcript role {role!r}")


def open_calls(entries: list[Entry]) -> list[ToolCall]:
    """Calls of the last reply that have no result after it."""
    for position in range(len(entries) - 1, -1, -1):
        entry = entries[position]
        if isinstance(entry, AssistantEntry):
            closed = {later.call_id for later in entries[position + 1 :] if isinstance(later, ToolEntry)}
            return [call for call in entry.calls if call.id not in closed]
        if isinstance(entry, UserEntry):
            return []
    return []
