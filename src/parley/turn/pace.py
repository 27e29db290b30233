"""How far a turn has come: its conversation, its steps, its tokens, and when it needs a nudge (contract §8)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from parley.turn.compaction import Compaction, view
from parley.turn.model import (
    AssistantEntry,
    Entry,
    NoteEntry,
    Observed,
    OpenCall,
    Prompt,
    Reply,
    ToolCall,
    ToolEntry,
    ToolSpec,
    Usage,
)
from parley.turn.text import as_text

MAX_STEPS = 100
FAILURES_FOR_GUIDANCE = 3
CALLS_FOR_GUIDANCE = 20
NOT_RUN = (
    '{"status":"not_run","error":"Only one tool runs in each step. This call was not run; ask for it again if needed."}'
)


@dataclass(frozen=True, slots=True)
class Guidance:
    """A nudge to the model and to the stream; one of the counts says why (contract §4.2)."""

    text: str
    consecutive_failures: int | None = None
    total_model_calls: int | None = None


@dataclass(slots=True)
class Turn:
    """The state of one run of a turn; rebuilt from rows, never stored as an object.

    ``entries`` are the chat's from number ``from_seq`` on; a summary stands for those before it.
    ``context_tokens`` is the provider's figure for the newest request and its reply, ``window_tokens``
    what the model can take at most.
    """

    system: str
    entries: list[Entry]
    open_call: OpenCall | None = None
    step: int = 0
    model_calls: int = 0
    failures_in_row: int = 0
    usage: Usage = field(default_factory=Usage)
    thinking: list[str] = field(default_factory=list[str])
    compaction: Compaction = field(default_factory=Compaction)
    from_seq: int = 0
    context_tokens: int = 0
    window_tokens: int = 0

    def prompt(self, tools: Sequence[ToolSpec]) -> Prompt:
        """The next model request."""
        return Prompt(self.system, tuple(view(self.entries, self.compaction)), tools)

    def begin_step(self) -> None:
        """Count a step and its model call."""
        self.step += 1
        self.model_calls += 1

    def reply(self, reply: Reply) -> None:
        """Take the model's reply into the conversation; calls beyond the first get a result at once."""
        self.spend(reply.usage)
        self.context_tokens = reply.usage.input + reply.usage.output
        if reply.thinking:
            self.thinking.append(reply.thinking)
        self.entries.append(assistant_entry(reply))
        self.entries.extend(ToolEntry(call.id, call.tool, NOT_RUN) for call in reply.calls[1:])

    def observe(self, call: ToolCall, result: Observed) -> None:
        """Take a tool's result into the conversation."""
        self.entries.append(ToolEntry(call.id, call.tool, as_text(result.output)))
        if result.failed:
            self.failures_in_row += 1
        elif _succeeded(result):
            self.failures_in_row = 0

    def note(self, guidance: Guidance) -> None:
        """Let the model see a nudge."""
        self.entries.append(NoteEntry(guidance.text))

    def spend(self, usage: Usage) -> None:
        """Add the tokens of one model call."""
        self.usage = Usage(
            self.usage.input + usage.input,
            self.usage.output + usage.output,
            self.usage.cached + usage.cached,
            self.usage.exact and usage.exact,
        )

    def before_model(self) -> Guidance | None:
        """A wind-down nudge at every twentieth model call of the run."""
        calls = self.model_calls + 1
        if calls % CALLS_FOR_GUIDANCE:
            return None
        message = f"This is model call {calls} of this run. Wrap up: answer with what you have, or ask the user."
        return Guidance(message, total_model_calls=calls)

    def after_tool(self, result: Observed) -> Guidance | None:
        """A nudge after every third failure in a row."""
        failures = self.failures_in_row
        if not result.failed or failures % FAILURES_FOR_GUIDANCE:
            return None
        message = (
            f"{failures} tool calls in a row have failed. Do not repeat the same call: "
            "read the errors, try another way, or tell the user what is in the way."
        )
        return Guidance(message, consecutive_failures=failures)


def assistant_entry(reply: Reply) -> AssistantEntry:
    """The reply as the conversation keeps it."""
    return AssistantEntry(reply.text, tuple(reply.calls), reply.thinking, reply.provider, reply.provider_state)


def _succeeded(result: Observed) -> bool:
    """Whether the output ends a row of failures: refusals by people, plans or missing keys do not."""
    output = result.output
    return not (isinstance(output, dict) and output.get("status") in ("cancelled", "needs_credential", "credit_limit"))
