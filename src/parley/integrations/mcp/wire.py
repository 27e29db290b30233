"""The official MCP SDK, and everything Parley wants different about it. Loaded by the first conversation only.

The SDK's HTTP client is httpx2, whose dial point, proxies, redirects and unpacking the egress guard
has already changed when this module is imported (``egress.install``). On top of that every
conversation counts what it reads, and asks for nothing compressed.
"""

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, TextIO

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from parley.integrations.mcp.client import MOST_TOOLS, Heard, McpFailed
from parley.integrations.mcp.places import Place, StdioPlace
from parley.turn.model import JsonObject

STREAMABLE, SSE, STDIO = "streamable_http", "sse", "stdio"
CONNECT_SECONDS = 10.0
GOODBYE_SECONDS = 2.0
MOST_PAGES = 50
# What a server that only knows the older transport answers to a POST.
NOT_STREAMABLE = frozenset({400, 404, 405, 406, 415, 501})
UNAUTHORIZED = 401
ME = types.Implementation(name="parley", title="Parley", version=version("parley"))
ANSWER: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)

# The SDK logs messages and addresses, both of which may hold secrets; what matters is raised as McpFailed.
for _name in ("mcp", "client"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)
for _name in ("httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class Traffic:
    """What one conversation has read, and how the server last answered."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.read = 0
        self.status = 0
        self.challenge = ""
        self.overflowed = False
        self.packed = False
        self.called = False

    def count(self, size: int) -> None:
        """Note bytes. Raises ReadError beyond the limit."""
        self.read += size
        if self.read > self.max_bytes:
            self.overflowed = True
            raise httpx2.ReadError("too large")


class CountedStream(httpx2.AsyncByteStream):
    """A response's bytes, counted."""

    def __init__(self, inner: Any, traffic: Traffic) -> None:
        self._inner = inner
        self._traffic = traffic

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            self._traffic.count(len(part))
            yield part

    async def aclose(self) -> None:
        """Close the connection's stream."""
        await self._inner.aclose()


class CountingClient(httpx2.AsyncClient):
    """An HTTP client whose answers count towards a conversation's limit, and that takes nothing packed."""

    def __init__(
        self,
        traffic: Traffic,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> None:
        super().__init__(headers=headers, timeout=timeout, auth=auth)
        self._traffic = traffic
        self.headers["Accept-Encoding"] = "identity"

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        if request.method == "DELETE":  # the goodbye: nobody waits long for a server to hear it
            request.extensions = {
                **request.extensions,
                "timeout": httpx2.Timeout(GOODBYE_SECONDS).as_dict(),
            }
        response = await super().send(request, stream=True, **options)
        self._note(response)
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            self._traffic.packed = True
            await response.aclose()
            raise httpx2.ReadError("packed")
        response.stream = CountedStream(response.stream, self._traffic)
        if not stream:
            await response.aread()
        return response

    def _note(self, response: httpx2.Response) -> None:
        if response.request.method == "DELETE":
            return
        self._traffic.status = response.status_code
        if response.status_code == UNAUTHORIZED:
            self._traffic.challenge = response.headers.get("www-authenticate", "")[:2_000]


async def hear(place: Place, *, seconds: float, max_bytes: int) -> Heard:
    """What a server says of itself and its tools. Raises McpFailed."""
    traffic = Traffic(max_bytes)
    transports = _transports(place)
    # Level-triggered: unlike a cancelled task, what runs while closing is stopped by it too.
    with anyio.move_on_after(seconds):
        for transport in transports:
            try:
                async with _conversation(place, transport, traffic, seconds) as client:
                    return await _heard(client, transport)
            except Exception as error:
                if transport is transports[-1] or traffic.status not in NOT_STREAMABLE:
                    raise _failed(place, traffic, error) from None
    raise _late(place, traffic, seconds)


async def call(place: Place, name: str, arguments: JsonObject, *, seconds: float, max_bytes: int) -> JsonObject:
    """One call's result as plain JSON. Raises McpFailed."""
    traffic = Traffic(max_bytes)
    with anyio.move_on_after(seconds):
        try:
            async with _conversation(place, _transports(place)[0], traffic, seconds) as client:
                traffic.called = True
                result = await _called(client, name, arguments)
                return result.model_dump(by_alias=True, mode="json", exclude_none=True)
        except Exception as error:
            raise _failed(place, traffic, error) from None
    raise _late(place, traffic, seconds)


async def _heard(client: Client, transport: str) -> Heard:
    tools: list[JsonObject] = []
    cursor: str | None = None
    if client.server_capabilities.tools is not None:
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor or len(tools) > MOST_TOOLS:
                break
    server = client.server_info
    return Heard(
        transport=transport,
        protocol=client.protocol_version,
        name=(server.title or server.name) if server else "",
        version=server.version if server else "",
        instructions=client.instructions or "",
        tools=tools,
    )


async def _called(client: Client, name: str, arguments: JsonObject) -> types.CallToolResult:
    """The call, without the SDK's own check of the result: it would run a stranger's schema on the event loop."""
    request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
    try:
        result = await client.session.send_request(request, ANSWER)
    except MCPError as error:
        if error.code != HEADER_MISMATCH:
            raise
        # The newest protocol repeats some arguments in headers, which the listing names.
        await client.list_tools(cache_mode="bypass")
        result = await client.session.send_request(request, ANSWER)
    if isinstance(result, types.CallToolResult):
        return result
    raise MCPError(0, "it asks for something that only a person in front of the client can give")


# ── connecting ──────────────────────────────────────────────────────────────────────────────────


def _transports(place: Place) -> tuple[str, ...]:
    if isinstance(place, StdioPlace):
        return (STDIO,)
    return (place.transport,) if place.transport else (STREAMABLE, SSE)


@asynccontextmanager
async def _conversation(place: Place, transport: str, traffic: Traffic, seconds: float) -> AsyncGenerator[Client]:
    async with AsyncExitStack() as stack:
        if isinstance(place, StdioPlace):
            streams: Any = stdio_client(_program(place), errlog=_nowhere(stack))
        elif transport == SSE:
            streams = sse_client(
                place.url,
                headers=dict(place.headers),
                timeout=CONNECT_SECONDS,
                sse_read_timeout=seconds,
                httpx_client_factory=partial(CountingClient, traffic),
            )
        else:
            http = await stack.enter_async_context(
                CountingClient(
                    traffic, headers=dict(place.headers), timeout=httpx2.Timeout(CONNECT_SECONDS, read=seconds)
                )
            )
            streams = streamable_http_client(place.url, http_client=http)
        client = Client(streams, mode=_mode(place), cache=None, client_info=ME)
        yield await stack.enter_async_context(client)


def _mode(place: Place) -> str:
    """The old handshake at once where the server is known to speak nothing newer: one round trip less."""
    return "legacy" if place.protocol in HANDSHAKE_PROTOCOL_VERSIONS else "auto"


def _program(place: StdioPlace) -> StdioServerParameters:
    return StdioServerParameters(command=place.command, args=list(place.args), env=dict(place.env), cwd=place.cwd)


def _nowhere(stack: AsyncExitStack) -> TextIO:
    """Where a program's error output goes: it may print secrets."""
    return stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123 - the null device


# ── failing ─────────────────────────────────────────────────────────────────────────────────────


def _late(place: Place, traffic: Traffic, seconds: float) -> McpFailed:
    more = " It may have happened all the same: look before trying again." if traffic.called else ""
    return McpFailed(f"{place.spoken} gave no answer within {seconds:g} s.{more}", attempted=traffic.called)


def _failed(place: Place, traffic: Traffic, error: Exception) -> McpFailed:
    """One sentence for whatever the SDK raised, out of groups or alone."""
    said = _sentence(place, traffic, error)
    return McpFailed(
        said,
        attempted=traffic.called,
        unauthorized=traffic.status == UNAUTHORIZED,
        challenge=traffic.challenge,
    )


def _sentence(place: Place, traffic: Traffic, error: Exception) -> str:
    if traffic.overflowed:
        return f"{place.spoken} answered with more than {traffic.max_bytes:,} bytes. Ask for less."
    if traffic.packed:
        return f"{place.spoken} sends packed answers, which Parley does not take from MCP servers."
    if traffic.status == UNAUTHORIZED:
        return f"{place.spoken} answered 401: it wants another key, or a sign-in."
    return _told(place, traffic, _leaf(error))


def _told(place: Place, traffic: Traffic, leaf: BaseException) -> str:
    if isinstance(leaf, MCPError):
        status = f" {traffic.status}" if traffic.status >= 400 else ""
        return f"{place.spoken} answered{status}: {leaf.message}"
    if isinstance(leaf, httpx2.HTTPStatusError):
        return f"{place.spoken} answered {leaf.response.status_code} instead of speaking MCP."
    if isinstance(leaf, ValidationError):
        return f"{place.spoken} answered with something that MCP does not have."
    if isinstance(leaf, httpx2.HTTPError):
        return f"{place.spoken} could not be reached: {leaf or type(leaf).__name__}"
    if isinstance(leaf, OSError) and isinstance(place, StdioPlace):
        return f"{place.spoken} could not be started. The operator of Parley can mend it."
    return f"{place.spoken} broke off the conversation ({type(leaf).__name__})."


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
