"""What the loop needs from outside: tools to run and a journal to write."""

from typing import Protocol

from parley.turn.model import Observed, OpenCall, Reply, ToolCall, ToolResult, ToolSpec
from parley.turn.pace import Guidance, Turn


class Toolbox(Protocol):
    """The tools of one run."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told of them, in a stable order."""
        ...

    async def run(self, call: ToolCall, step: int) -> ToolResult:
        """Run one call. Every failure is a value."""
        ...

    async def reenter(self, pending: OpenCall) -> ToolResult:
        """Go on with a call that was paused, or whose process died."""
        ...


class Journal(Protocol):
    """Where the facts of one run go. Every method but ``chunk`` returns once the fact is durable."""

    def chunk(self, text: str) -> None:
        """A piece of the answer, shown at once and stored soon after."""
        ...

    async def acting(self, turn: Turn, reply: Reply, call: ToolCall) -> None:
        """The model's reply, and the one call of it that is about to run."""
        ...

    async def observed(self, turn: Turn, call: ToolCall, result: Observed) -> None:
        """What came back from the call."""
        ...

    async def guided(self, turn: Turn, guidance: Guidance) -> None:
        """A nudge to the model and to the people watching."""
        ...

    async def compacted(self, turn: Turn) -> None:
        """The conversation is sent shorter from now on."""
        ...
