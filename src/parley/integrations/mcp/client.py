"""One conversation with an MCP server: connect, ask, close; bounded in time and size.

Nothing is kept open between two calls: any process can make the next one, and a server that died,
lies or never ends costs its one caller one deadline. The SDK takes a second to import, so it is
loaded by the first conversation, in a thread.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from parley.integrations.mcp.places import Place
from parley.integrations.mcp.values import tool_value
from parley.integrations.own import FoundAction, TooComplex, clean_text, is_clean
from parley.integrations.own.schemas import plain_schema
from parley.integrations.results import ActionFailed, Invoked, Scrubber, plain
from parley.turn.model import JsonObject, JsonValue

MIB = 1_048_576
DISCOVERY_BYTES = 8 * MIB
MOST_TOOLS = 500
MOST_REJECTED = 50
NAME_CHARACTERS = 128
DESCRIPTION_CHARACTERS = 2_000
INSTRUCTION_CHARACTERS = 1_000
SAID_CHARACTERS = 300
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
WIRE = "parley.integrations.mcp.wire"


class McpFailed(Exception):
    """The conversation did not come about, or broke off.

    ``public`` is a sentence without secrets; ``attempted`` is False where no call can have arrived.
    ``challenge`` is the server's WWW-Authenticate header where it answered 401.
    """

    def __init__(
        self, public: str, *, attempted: bool = False, unauthorized: bool = False, challenge: str = ""
    ) -> None:
        self.public = public
        self.attempted = attempted
        self.unauthorized = unauthorized
        self.challenge = challenge
        super().__init__(public)


@dataclass(frozen=True, slots=True)
class Heard:
    """What a server said of itself and of its tools, as plain JSON."""

    transport: str
    protocol: str
    name: str
    version: str
    instructions: str
    tools: Sequence[JsonObject]


@dataclass(frozen=True, slots=True)
class Discovery:
    """A server's tools that can be offered, and of the others why not. All texts are cleaned."""

    transport: str
    protocol: str
    name: str
    version: str
    instructions: str
    tools: Sequence[FoundAction]
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])


async def discover(place: Place, secrets: Sequence[str], *, seconds: float) -> Discovery:
    """Ask a server what it offers. Raises McpFailed."""
    wire = await _wire()
    scrubber = Scrubber(secrets)
    try:
        heard: Heard = await wire.hear(place, seconds=seconds, max_bytes=DISCOVERY_BYTES)
    except McpFailed as failed:
        raise _scrubbed(failed, scrubber) from None
    tools, rejected = await asyncio.to_thread(_offered, heard.tools, scrubber)
    return Discovery(
        transport=heard.transport,
        protocol=clean_text(heard.protocol, 20),
        name=clean_text(scrubber.text(heard.name), 100),
        version=clean_text(scrubber.text(heard.version), 40),
        instructions=clean_text(scrubber.text(heard.instructions), INSTRUCTION_CHARACTERS),
        tools=tools,
        rejected=rejected,
    )


async def call_tool(
    place: Place,
    name: str,
    arguments: JsonObject,
    secrets: Sequence[str],
    *,
    seconds: float,
    max_bytes: int,
) -> Invoked:
    """Call one tool once. What the tool itself reports as failed is a value. Raises ActionFailed."""
    wire = await _wire()
    scrubber = Scrubber(secrets)
    try:
        result: JsonObject = await wire.call(place, name, arguments, seconds=seconds, max_bytes=max_bytes)
    except McpFailed as failed:
        said = _scrubbed(failed, scrubber)
        raise ActionFailed(said.public, attempted=said.attempted, unauthorized=said.unauthorized) from None
    value, succeeded = await asyncio.to_thread(_result, result, scrubber)
    return Invoked(value, succeeded=succeeded)


def _result(result: JsonObject, scrubber: Scrubber) -> tuple[JsonValue, bool]:
    value = tool_value(result)
    return plain(value, scrubber), not result.get("isError")


async def _wire() -> Any:
    return await asyncio.to_thread(import_module, WIRE)


def _scrubbed(failed: McpFailed, scrubber: Scrubber) -> McpFailed:
    public = clean_text(scrubber.text(failed.public), SAID_CHARACTERS)
    return McpFailed(public, attempted=failed.attempted, unauthorized=failed.unauthorized, challenge=failed.challenge)


# ── what is offered ─────────────────────────────────────────────────────────────────────────────


def _offered(tools: Sequence[JsonObject], scrubber: Scrubber) -> tuple[list[FoundAction], dict[str, str]]:
    offered: dict[str, FoundAction] = {}
    rejected: dict[str, str] = {}
    for tool in tools:
        name = str(tool.get("name", ""))
        try:
            _check_name(name, offered)
            offered[name] = _found(name, tool, scrubber)
        except TooComplex as reason:
            if len(rejected) < MOST_REJECTED:
                rejected[clean_text(name, NAME_CHARACTERS) or "(no name)"] = str(reason)
    return list(offered.values()), rejected


def _check_name(name: str, offered: Mapping[str, FoundAction]) -> None:
    if not name or len(name) > NAME_CHARACTERS or not name.isascii() or not is_clean(name) or " " in name:
        raise TooComplex("its name is too long or holds characters that no name has")
    if name in offered:
        raise TooComplex("the server has another tool of this name")
    if len(offered) >= MOST_TOOLS:
        raise TooComplex(f"the server has more than {MOST_TOOLS} tools")


def _found(name: str, tool: JsonObject, scrubber: Scrubber) -> FoundAction:
    schema, annotations = tool.get("inputSchema"), tool.get("annotations")
    plain_hints = annotations if isinstance(annotations, dict) else {}
    hints: JsonObject = {hint: plain_hints[hint] for hint in HINTS if isinstance(plain_hints.get(hint), bool)}
    title = tool.get("title") or plain_hints.get("title") or ""
    body: JsonObject = {
        "input_schema": plain_schema(schema if isinstance(schema, dict) else {}),
        "hints": hints,
        "title": clean_text(scrubber.text(str(title)), 100),
    }
    description = clean_text(scrubber.text(str(tool.get("description") or title)), DESCRIPTION_CHARACTERS)
    return FoundAction(name, description, body)
