"""Running the model's calls: find the tool, check the arguments, never raise to the loop."""

import logging
from collections.abc import Sequence

import msgspec

from parley.tools.context import ToolContext
from parley.tools.spec import Step, Tool, failure
from parley.turn.model import Answer, Observed, OpenCall, Rescue, ToolCall, ToolResult, ToolSpec
from parley.turn.text import NOT_JSON

ARGUMENT_CHARACTERS = 1_000_000
# As deep as a request body may be (``http/limits.py``).
MOST_DEPTH = 64

log = logging.getLogger(__name__)


class Toolbox:
    """The tools of one run; fulfils ``turn.loop.Toolbox``."""

    def __init__(self, tools: Sequence[Tool], context: ToolContext) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        self._context = context
        self._specs = tuple(tool.spec for tool in tools)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told of the tools, in a stable order."""
        return self._specs

    async def run(self, call: ToolCall, step: int) -> ToolResult:
        """Run one call. Malformed arguments and unknown tools come back as values and run nothing."""
        checked = self._check(call)
        if isinstance(checked, Observed):
            return checked
        tool, arguments = checked
        return await tool.run(self._context, arguments, Step(step, call))

    async def reenter(self, pending: OpenCall) -> ToolResult:
        """Go on with a call that was paused, or that a dead process left open."""
        checked = self._check(pending.call)
        if isinstance(checked, Observed):
            return checked
        tool, arguments = checked
        step = Step(pending.step, pending.call)
        match pending.reentry:
            case Answer() as answer if tool.resume is not None:
                return await tool.resume(self._context, arguments, step, answer)
            case Rescue(receipt) if receipt is not None and tool.recover is not None:
                return await tool.recover(self._context, arguments, step, receipt)
            case _:
                return await tool.run(self._context, arguments, step)

    def _check(self, call: ToolCall) -> tuple[Tool, msgspec.Struct] | Observed:
        tool = self._tools.get(call.tool)
        if tool is None:
            return failure(
                "unknown_tool", message=f"There is no tool {call.tool!r}.", available_tools=list(self._tools)
            )
        if len(call.arguments) > ARGUMENT_CHARACTERS:
            return failure("invalid_arguments", message="The arguments are too large.")
        try:
            arguments = msgspec.json.decode(call.arguments.strip() or "{}", type=tool.arguments)
        except NOT_JSON as error:
            # Never run on guessed arguments: blank is not malformed (lessons A.10).
            return failure("invalid_arguments", message=str(error)[:500], schema=tool.spec.parameters)
        if _nested_beyond(msgspec.structs.asdict(arguments), MOST_DEPTH):
            return failure("invalid_arguments", message=f"The arguments are nested more than {MOST_DEPTH} levels deep.")
        return tool, arguments


def _nested_beyond(value: object, most: int) -> bool:
    level = [value]
    for _ in range(most):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [item for items in inner for item in items]
        if not level:
            return False
    return True
