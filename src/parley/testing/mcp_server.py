"""An MCP server that says exactly what a test wants, the truth or not: streamable HTTP and the older SSE.

``fault`` makes it misbehave the way servers do. ``tools`` may be changed at any time; ``answer``
makes the results of calls. What it received is in ``calls`` and ``headers``.
"""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import uuid4

from aiohttp import web

type Json = dict[str, Any]
type Fault = Literal["endless", "huge", "packed", "html", "drops", "garbage", "errors", "hangs_in_call"]

CHUNK = b"x" * 65_536
PROTOCOL = "2025-06-18"


def text_result(text: str) -> Json:
    """A tool's result of one text."""
    return {"content": [{"type": "text", "text": text}]}


def tool(name: str, description: str = "", **properties: Json) -> Json:
    """A tool whose parameters are all optional."""
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema}


def _echo(name: str, arguments: Json) -> Json:
    return text_result(f"{name} {json.dumps(arguments, sort_keys=True)}")


def _huge() -> web.Response:
    body = b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 9_000_000
    return web.Response(body=body, content_type="application/json")


def _packed() -> web.Response:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    return web.Response(body=gzip.compress(b" " * 50_000_000), headers=headers)


def _garbage() -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": "other", "result": {"surprise": True}})


WRONG_ANSWERS: Mapping[str, Callable[[], web.Response]] = {
    "huge": _huge,
    "packed": _packed,
    "garbage": _garbage,
    "html": lambda: web.Response(text="<h1>Hello</h1>", content_type="text/html"),
    "errors": lambda: web.Response(status=500, text="oh no"),
}


@dataclass(slots=True)
class ScriptedMcpServer:
    """The server's address and manners."""

    origin: str = ""
    tools: list[Json] = field(default_factory=lambda: [tool("look", "Looks."), tool("wipe_all", "Wipes.")])
    answer: Callable[[str, Json], Json] = _echo
    transport: Literal["streamable", "sse"] = "streamable"
    fault: Fault | None = None
    page_size: int = 0
    accepts: Callable[[str], bool] | None = None
    challenge: str = "Bearer"
    instructions: str = ""
    calls: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    documents: dict[str, Json] = field(default_factory=dict[str, Json])
    registered: list[Json] = field(default_factory=list[Json])
    client: Json = field(default_factory=dict[str, Any])
    gate: asyncio.Event | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    ended: int = 0
    _streams: dict[str, asyncio.Queue[Json]] = field(default_factory=dict[str, asyncio.Queue[Json]])

    @property
    def url(self) -> str:
        return f"{self.origin}/{'mcp' if self.transport == 'streamable' else 'sse'}"

    @property
    def place(self) -> str:
        """``host:port``."""
        return urlsplit(self.origin).netloc

    def _refused(self, request: web.Request) -> web.Response | None:
        self.headers.append(dict(request.headers))
        if self.accepts is None or self.accepts(request.headers.get("Authorization", "")):
            return None
        return web.json_response({"error": "who are you?"}, status=401, headers={"WWW-Authenticate": self.challenge})

    async def _post(self, request: web.Request) -> web.StreamResponse:
        if self.transport == "sse":
            return web.Response(status=405)
        refused = self._refused(request)
        if refused is not None:
            return refused
        misbehaved = await self._misbehave(request)
        if misbehaved is not None:
            return misbehaved
        message: Json = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        return web.json_response(await self._reply(message))

    async def _misbehave(self, request: web.Request) -> web.StreamResponse | None:
        if self.fault == "endless":
            return await self._endless(request)
        if self.fault == "drops" and request.transport is not None:
            request.transport.close()
        make = WRONG_ANSWERS.get(self.fault or "")
        return None if make is None else make()

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.arrived.set()
        try:
            while True:
                await response.write(b"data: " + CHUNK + b"\n")
        except (ConnectionError, asyncio.CancelledError):
            self.ended += 1
            raise

    async def _reply(self, message: Json) -> Json:
        return {"jsonrpc": "2.0", "id": message["id"], **await self._result(message)}

    async def _result(self, message: Json) -> Json:
        params: Json = message.get("params") or {}
        match message["method"]:
            case "initialize":
                return {
                    "result": {
                        "protocolVersion": PROTOCOL,
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "scripted", "version": "1"},
                        "instructions": self.instructions,
                    }
                }
            case "tools/list":
                return {"result": self._page(params.get("cursor"))}
            case "tools/call":
                return await self._called(params)
            case _:
                return {"error": {"code": -32601, "message": "no such method"}}

    def _page(self, cursor: str | None) -> Json:
        if not self.page_size:
            return {"tools": self.tools}
        start = int(cursor or 0)
        page: Json = {"tools": self.tools[start : start + self.page_size]}
        if start + self.page_size < len(self.tools):
            page["nextCursor"] = str(start + self.page_size)
        return page

    async def _called(self, params: Json) -> Json:
        name, arguments = str(params["name"]), params.get("arguments") or {}
        self.calls.append((name, arguments))
        self.arrived.set()
        if self.fault == "hangs_in_call":
            await asyncio.Event().wait()
        if self.gate is not None:
            await self.gate.wait()
        if name not in {each.get("name") for each in self.tools}:
            return {"error": {"code": -32602, "message": f"Unknown tool {name}"}}
        return {"result": self.answer(name, arguments)}

    # ── the older transport ─────────────────────────────────────────────────────────────────────

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self.transport != "sse":
            return web.Response(status=405)
        refused = self._refused(request)
        if refused is not None:
            return refused
        session = uuid4().hex
        queue = self._streams[session] = asyncio.Queue()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"event: endpoint\ndata: /messages?session_id={session}\n\n".encode())
        while True:
            message = await queue.get()
            await response.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())

    async def _message(self, request: web.Request) -> web.Response:
        message: Json = await request.json()
        queue = self._streams[request.query["session_id"]]
        if "id" in message:
            await queue.put(await self._reply(message))
        return web.Response(status=202)

    # ── signing in ──────────────────────────────────────────────────────────────────────────────

    async def _document(self, request: web.Request) -> web.Response:
        found = self.documents.get(request.path)
        return web.Response(status=404) if found is None else web.json_response(found)

    async def _register(self, request: web.Request) -> web.Response:
        self.registered.append(await request.json())
        return web.json_response(self.client, status=201)

    def routes(self) -> list[web.RouteDef]:
        """What the server answers."""
        return [
            web.post("/mcp", self._post),
            web.post("/sse", self._post),
            web.get("/mcp", self._stream),
            web.get("/sse", self._stream),
            web.post("/messages", self._message),
            web.post("/register", self._register),
            web.get("/.well-known/{path:.*}", self._document),
        ]


@asynccontextmanager
async def mcp_server() -> AsyncGenerator[ScriptedMcpServer]:
    """A server on a free port of this machine, for the time of the block."""
    server = ScriptedMcpServer()
    app = web.Application(client_max_size=16 << 20)
    app.add_routes(server.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
