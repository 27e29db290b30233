"""The loop's vocabulary: what a model says, what a tool returns, how a run ends.

Everything here is a plain immutable value. ``arguments`` and ``output`` are JSON text and JSON
values; nothing knows a vendor's wire format.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

type JsonValue = str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None
type JsonObject = dict[str, JsonValue]


# ── what the model is sent ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's wish to use a tool. ``arguments`` is the raw JSON text, as it came."""

    id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class UserEntry:
    """A person's message."""

    text: str


@dataclass(frozen=True, slots=True)
class AssistantEntry:
    """What the model replied in one step, at most one call of which was run.

    ``provider_state`` is opaque to everyone but the adapter that wrote it (thinking blocks,
    thought signatures) and is only ever given back to the same provider.
    """

    text: str
    calls: Sequence[ToolCall] = ()
    thinking: str | None = None
    provider: str = ""
    provider_state: JsonValue = None


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """What came back from one call, as JSON text."""

    call_id: str
    tool: str
    output: str


@dataclass(frozen=True, slots=True)
class NoteEntry:
    """A system note to the model in mid-conversation, such as guidance or a summary."""

    text: str


type Entry = UserEntry | AssistantEntry | ToolEntry | NoteEntry


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it; ``parameters`` is a JSON Schema object."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class Prompt:
    """One model request: the frozen head, the conversation, the tools in a stable order."""

    system: str
    entries: Sequence[Entry]
    tools: Sequence[ToolSpec]


# ── what the model says ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer; pieces concatenate."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's reasoning, where the provider shows it."""

    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more model calls. ``input`` includes ``cached``.

    ``exact`` is False when the stream ended before the provider said its figures and the numbers
    were estimated from the text.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole of one model reply; always the last item of a stream."""

    text: str
    calls: Sequence[ToolCall] = ()
    thinking: str | None = None
    usage: Usage = field(default_factory=Usage)
    provider: str = ""
    provider_state: JsonValue = None


type ReplyPart = TextDelta | ThinkingDelta | Reply

type ModelErrorKind = Literal["auth", "rate", "context", "down", "request", "garbled", "credit"]


class ModelError(Exception):
    """A model call failed for good.

    ``kind`` is the class of failure; ``public`` is a sentence without secrets or provider text that
    says what to do; ``usage`` is what was used up to then; ``text`` what had been streamed.
    """

    def __init__(self, kind: ModelErrorKind, public: str, *, usage: Usage | None = None, text: str = "") -> None:
        self.kind: ModelErrorKind = kind
        self.public = public
        self.usage = usage or Usage()
        self.text = text
        super().__init__(f"{kind}: {public}")


class Model(Protocol):
    """A language model, bound to its provider, credential and model id."""

    def reply(self, prompt: Prompt) -> AsyncGenerator[ReplyPart]:
        """Stream one reply: deltas, then exactly one ``Reply``.

        Raises ModelError. Closing the iterator stops the request at once; what had been used by then
        is in ``partial_usage``.
        """
        ...

    def partial_usage(self) -> Usage:
        """Tokens of the call that was stopped before its ``Reply``; estimated where the provider says nothing."""
        ...


# ── what a tool returns ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Receipt:
    """Which action a call came down to: what is recorded before a side effect and after any action.

    ``effect`` is the reviewed kind (read, write, destructive, …); ``arguments_digest`` is the SHA-256
    of the canonical arguments with the account they run under.
    """

    integration_name: str
    action_name: str
    effect: str
    credential_id: str | None = None
    managed: bool = False
    arguments_digest: str = ""
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Whole:
    """A result that was too large for the conversation, kept for people under its id."""

    id: str
    value: JsonValue


@dataclass(frozen=True, slots=True)
class Observed:
    """The tool ran, or refused as a value. ``output`` is what the model and the stream see.

    ``failed`` marks the outputs that count towards guidance (contract §8); ``tainted`` those whose
    text somebody outside the organization may have written.
    """

    output: JsonValue
    failed: bool = False
    receipt: Receipt | None = None
    tainted: bool = False
    unknown: bool = False
    whole: Whole | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked. ``payload`` is the wire's UserInputRequest (contract §5.2).

    ``binding`` is what the answer will be held against; the model never sees it.
    """

    request_id: str
    kind: str
    payload: JsonObject
    binding: JsonObject = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class Asked:
    """The tool cannot go on without a person."""

    question: Question


@dataclass(frozen=True, slots=True)
class Declined:
    """A person would rather end the turn than let the call run.

    ``output`` is the call's result for the model of a later turn; ``text`` the turn's last word to the person.
    """

    output: JsonValue
    text: str


type ToolResult = Observed | Asked | Declined


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to the question that paused a call (contract §5.3)."""

    response: JsonObject
    binding: JsonObject


@dataclass(frozen=True, slots=True)
class Rescue:
    """The process that ran the call died. ``receipt`` is its intent: None when nothing had left yet."""

    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call the model made that has no result yet, and why it is taken up again."""

    call: ToolCall
    step: int
    reentry: Answer | Rescue


# ── how a run ends ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Answered:
    """The model finished without a further tool call."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Paused:
    """A question is open; nothing is held in memory."""

    call: ToolCall
    question: Question


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person ended the turn at a call that did not run: a good ending, with words of ours."""

    call: ToolCall
    declined: Declined


@dataclass(frozen=True, slots=True)
class Failed:
    """The run stopped with an error. ``public`` is what people see, ``reason`` a stable word."""

    public: str
    reason: str


type Outcome = Answered | Paused | Stopped | Failed
