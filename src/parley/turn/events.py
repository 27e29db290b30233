"""What subscribers see: one class for each wire ``type`` (contract §4.2).

An event's fields are its ``data`` object on the wire.
"""

from typing import ClassVar

import msgspec

from parley.turn.model import JsonObject, JsonValue

type Reference = str | msgspec.UnsetType
"""Where an event is cut because it is too large: under which id the whole is kept. Absent from all others."""


class Event(msgspec.Struct, frozen=True, omit_defaults=False):
    """A fact of a run. ``type`` names it on the wire."""

    type: ClassVar[str]

    def body(self) -> str:
        """The JSON text of ``data``."""
        return msgspec.json.encode(self).decode()


class Metadata(Event, frozen=True):
    """The first event of a run, and of each attempt at it.

    ``workflow_type`` is ``composer`` for Assistant runs as well (seed, Warning); ``surface`` tells them apart.
    """

    type = "metadata"
    run_id: str
    thread_id: str
    timestamp: str
    workflow_id: None = None
    workflow_type: str = "composer"
    surface: str = "assistant"


class ResponseChunk(Event, frozen=True):
    """A piece of the answer."""

    type = "response_chunk"
    chunk: str


class ToolCalled(Event, frozen=True):
    """A tool was invoked."""

    type = "tool_call"
    tool: str
    input: JsonValue
    tool_call_id: str
    timestamp: str
    whole_id: Reference = msgspec.UNSET


class ToolReturned(Event, frozen=True):
    """A tool returned."""

    type = "tool_result"
    tool: str
    tool_call_id: str
    output: JsonValue
    timestamp: str
    duration_ms: int = 0
    tainted: bool = False
    whole_id: Reference = msgspec.UNSET


class Guided(Event, frozen=True, omit_defaults=True):
    """A nudge to the model, told to the people too; one of the two counts is there."""

    type = "guidance"
    message: str
    consecutive_failures: int | None = None
    total_llm_calls: int | None = None


class UserInputRequested(Event, frozen=True):
    """A person is asked; the whole request is the data (contract §5.2)."""

    type = "user_input_request"
    request: JsonObject

    def body(self) -> str:
        return msgspec.json.encode(self.request).decode()


class Interrupted(Event, frozen=True):
    """History-only marker: the run is paused."""

    type = "interrupted"
    request_id: str
    kind: str


class RunResumed(Event, frozen=True):
    """The paused run goes on as another."""

    type = "run_resumed"
    new_run_id: str


class ToolSummary(msgspec.Struct, frozen=True):
    """One entry of ``done.tool_calls``."""

    tool: str
    input: JsonValue
    output: JsonValue


class Tokens(msgspec.Struct, frozen=True):
    """``done.usage``; ``cached_tokens`` is part of ``input_tokens``."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    llm_calls: int
    cached_tokens: int = 0


class Done(Event, frozen=True):
    """The end of a run: of a good one, or after ``error`` with ``error: true``."""

    type = "done"
    response: str
    usage: Tokens
    tool_calls: tuple[ToolSummary, ...] = ()
    has_workflow_changes: bool = False
    workflow_tool: None = None
    whole_id: Reference = msgspec.UNSET


class DoneWithError(Done, frozen=True):
    """``done`` after a failure."""

    error: bool = True


class Error(Event, frozen=True):
    """The run failed; the sentence is safe to show."""

    type = "error"
    message: str


class Cancelled(Event, frozen=True):
    """The run was stopped: ``user_cancelled``, ``expired`` or ``chat_deleted``."""

    type = "cancelled"
    reason: str


TERMINAL = frozenset({"done", "cancelled"})
# After these a stream closes; `interrupted` only where it is replayed (contract §4.4).
CLOSING = frozenset({"done", "cancelled", "run_resumed", "interrupted"})
