"""The loop over a bundle: a real model decides anew, and the recorded answers are all that comes back."""

from collections import defaultdict, deque

import msgspec

from parley.cli.replay.bundle import Bundle, Decision
from parley.turn.loop import run_turn
from parley.turn.model import (
    Answered,
    Failed,
    JsonObject,
    JsonValue,
    Model,
    Observed,
    OpenCall,
    Reply,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from parley.turn.pace import Guidance, Turn
from parley.turn.text import as_text

NOT_RECORDED: JsonObject = {
    "status": "error",
    "error": "not_recorded",
    "message": "This is a replay: only calls of the recorded turn have answers, and this is none of them.",
}


class Rerun(msgspec.Struct, frozen=True):
    """What another model did with the same turn. ``ended`` is its answer's end, or why it failed."""

    decisions: list[Decision]
    answer: str
    ended: str


class RecordedTools:
    """Fulfils ``turn.loop.Toolbox``. Nothing runs: an answer belongs to a tool and its arguments, in their order."""

    def __init__(self, bundle: Bundle) -> None:
        self._specs = bundle.specs()
        self._outputs: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
        self.decisions: list[Decision] = []
        for decision in bundle.decisions:
            self._outputs[decision.tool, plain_arguments(decision.arguments)].append(decision.output)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the recorded model was told."""
        return self._specs

    async def run(self, call: ToolCall, step: int) -> ToolResult:  # noqa: ARG002 - the protocol's
        """The recorded answer; the last one again where the call was made more often than it was."""
        known = self._outputs.get((call.tool, plain_arguments(call.arguments)))
        if not known:
            self.decisions.append(Decision(call.tool, call.arguments, as_text(NOT_RECORDED)))
            return Observed(NOT_RECORDED, failed=True)
        output = known.popleft() if len(known) > 1 else known[0]
        self.decisions.append(Decision(call.tool, call.arguments, output))
        return Observed(_value(output))

    async def reenter(self, pending: OpenCall) -> ToolResult:
        """A replay begins at the beginning, so no call is open."""
        raise AssertionError(f"a replayed turn has no open call, such as {pending.call.tool}")


class NoJournal:
    """Fulfils ``turn.loop.Journal`` where nothing is kept."""

    def chunk(self, text: str) -> None: ...

    async def acting(self, turn: Turn, reply: Reply, call: ToolCall) -> None: ...

    async def observed(self, turn: Turn, call: ToolCall, result: Observed) -> None: ...

    async def guided(self, turn: Turn, guidance: Guidance) -> None: ...

    async def compacted(self, turn: Turn) -> None: ...


async def rerun(bundle: Bundle, model: Model, window_tokens: int) -> Rerun:
    """Run the turn of the bundle on a model."""
    tools = RecordedTools(bundle)
    turn = Turn(bundle.system, bundle.entries(), window_tokens=window_tokens)
    outcome = await run_turn(turn, model, tools, NoJournal())
    match outcome:
        case Answered(reply):
            return Rerun(tools.decisions, reply.text, "completed")
        case Failed(public, reason):
            return Rerun(tools.decisions, "", f"failed, {reason}: {public}")
        case _:
            raise AssertionError("recorded tools ask nobody")


def plain_arguments(text: str) -> str:
    """Arguments in one spelling; what is no JSON stays as it is."""
    try:
        return msgspec.json.encode(msgspec.json.decode(text or "{}"), order="deterministic").decode()
    except msgspec.DecodeError:
        return text


def _value(text: str) -> JsonValue:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
