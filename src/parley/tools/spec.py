"""What a tool is: a name, a description, typed arguments, and the function behind it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from parley.tools.context import ToolContext
from parley.turn.model import Answer, JsonObject, JsonValue, Observed, Receipt, ToolCall, ToolResult, ToolSpec

# A JSON object in an arguments type: msgspec does not follow the recursive JsonObject.
AnyObject = dict[str, Any]

type Run = Callable[[ToolContext, Any, "Step"], Awaitable[ToolResult]]
type Resume = Callable[[ToolContext, Any, "Step", Answer], Awaitable[ToolResult]]
type Recover = Callable[[ToolContext, Any, "Step", Receipt], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class Step:
    """Where in its run a call stands."""

    number: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. ``resume`` takes a person's answer; ``recover`` decides after a crash in mid-effect."""

    spec: ToolSpec
    arguments: type[msgspec.Struct]
    run: Run
    resume: Resume | None = None
    recover: Recover | None = None


def tool(
    name: str,
    description: str,
    arguments: type[msgspec.Struct],
    run: Run,
    *,
    resume: Resume | None = None,
    recover: Recover | None = None,
) -> Tool:
    """A tool whose JSON Schema comes from its arguments' type."""
    return Tool(ToolSpec(name, description, argument_schema(arguments)), arguments, run, resume, recover)


def argument_schema(arguments: type[msgspec.Struct]) -> JsonObject:
    """The JSON Schema of an arguments type, without references."""
    (schema,), components = msgspec.json.schema_components([arguments], ref_template="{name}")
    resolved = _inline(cast(JsonValue, schema), cast(JsonObject, dict(components)))
    if not isinstance(resolved, dict):
        raise TypeError(f"{arguments.__name__} has no object schema")
    return resolved


def _inline(value: JsonValue, components: JsonObject) -> JsonValue:
    if isinstance(value, list):
        return [_inline(item, components) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inline(components[str(value["$ref"])], components)
    return {key: _inline(item, components) for key, item in value.items() if key != "title"}


def failure(error: str, **extra: JsonValue) -> Observed:
    """A tool result that says what went wrong (seed: on failure ``output`` is ``{error, success: false}``)."""
    return Observed({"error": error, "success": False, **extra}, failed=True)
