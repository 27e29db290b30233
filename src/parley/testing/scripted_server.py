"""A model provider that says what it was told to, in both wire formats, with every fault on demand.

The API key of a request selects the script, so tests run side by side. Control is by HTTP:
``POST /script``, ``POST /release``, ``GET /requests``, ``GET /dropped``.
"""

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import msgspec

from parley.testing.scripted_wire import ScriptedReply, endless_event, render

CUT_PAUSE_SECONDS = 0.004
WAIT_SECONDS = 10.0
REQUEST_BYTES = 64 << 20


class Script(msgspec.Struct, omit_defaults=True):
    """What a key gets: the replies in order, or by how many tool results the present turn has."""

    key: str
    replies: list[ScriptedReply]
    by_step: bool = False


class Recorded(msgspec.Struct, omit_defaults=True):
    """A request as it came, on which of the connections.

    ``dropped`` tells that the client left before the reply was finished.
    """

    path: str
    key: str
    headers: dict[str, str]
    body: dict[str, object]
    at: float
    connection: int = 0
    finished: bool = False
    dropped: bool = False


@dataclass(slots=True)
class Request:
    """One parsed HTTP request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """The API key, wherever the wire format puts it."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return bearer or self.headers.get("x-api-key", "") or self.headers.get("api-key", "")


@dataclass(slots=True)
class State:
    """Scripts, what was asked, and who waits for what."""

    scripts: dict[str, Script] = field(default_factory=dict[str, Script])
    used: dict[str, int] = field(default_factory=dict[str, int])
    requests: deque[Recorded] = field(default_factory=deque[Recorded])
    released: set[str] = field(default_factory=set[str])
    connections: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def tell(self) -> None:
        """Wake everyone who waits for a change."""
        async with self.changed:
            self.changed.notify_all()

    def next_reply(self, key: str, body: dict[str, object]) -> ScriptedReply | None:
        """The scripted reply for this request; None past the script's end."""
        script = self.scripts.get(key)
        if script is None:
            return None
        if script.by_step:
            position = _tool_results(body)
        else:
            position = self.used.get(key, 0)
            self.used[key] = position + 1
        return script.replies[position] if position < len(script.replies) else None


class Connection(asyncio.StreamReaderProtocol):
    """A connection that knows at once when its client has left."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.gone = asyncio.Event()
        state.connections += 1
        self.number = state.connections
        reader = asyncio.StreamReader(limit=REQUEST_BYTES)
        super().__init__(reader, self._serve)

    def eof_received(self) -> bool:
        """The client will send no more: for HTTP clients that is leaving."""
        self.gone.set()
        super().eof_received()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is down."""
        self.gone.set()
        super().connection_lost(exc)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader)) is not None:
                if not await Exchange(self, request, writer).answer():
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left; its request says so in ``dropped``
        finally:
            writer.close()


class Exchange:
    """One request on one connection."""

    def __init__(self, connection: Connection, request: Request, writer: asyncio.StreamWriter) -> None:
        self._gone = connection.gone
        self._number = connection.number
        self._state = connection.state
        self._request = request
        self._writer = writer

    async def answer(self) -> bool:
        """Answer it; whether the connection may be used again."""
        request = self._request
        if request.path.endswith(("/chat/completions", "/messages")):
            return await self._converse()
        if request.path.endswith("/models"):
            return await self._json(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        match request.method, request.path:
            case "POST", "/script":
                script = msgspec.json.decode(request.body, type=Script)
                self._state.scripts[script.key] = script
                self._state.used.pop(script.key, None)
                return await self._json(200, {"ok": True})
            case "POST", "/release":
                self._state.released.add(request.query.get("barrier", ""))
                await self._state.tell()
                return await self._json(200, {"ok": True})
            case "GET", "/requests":
                return await self._json(200, self._recorded())
            case "GET", "/dropped":
                return await self._dropped()
            case _:
                return await self._json(404, {"error": {"message": "not here", "type": "not_found_error"}})

    def _recorded(self) -> list[Recorded]:
        key = self._request.query.get("key")
        return [entry for entry in self._state.requests if key is None or entry.key == key]

    async def _dropped(self) -> bool:
        count = int(self._request.query.get("count", "1"))

        def enough() -> bool:
            return sum(entry.dropped for entry in self._recorded()) >= count

        found = await self._until(enough)
        return await self._json(200 if found else 408, self._recorded())

    async def _until(self, condition: Callable[[], bool]) -> bool:
        async with self._state.changed:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._state.changed.wait_for(condition)
            except TimeoutError:
                return False
        return True

    async def _converse(self) -> bool:
        request = self._request
        body = msgspec.json.decode(request.body, type=dict[str, object])
        recorded = Recorded(request.path, request.key, request.headers, body, time.time(), self._number)
        self._state.requests.append(recorded)
        reply = self._state.next_reply(request.key, body)
        if reply is None:
            return await self._json(500, {"error": {"message": "past the script", "type": "script_exhausted"}})
        try:
            keep = await self._play(
                reply, "openai" if request.path.endswith("/chat/completions") else "anthropic", body
            )
        except ConnectionError:
            keep = False
        recorded.dropped = self._gone.is_set()
        recorded.finished = keep
        await self._state.tell()
        return keep

    async def _play(self, reply: ScriptedReply, wire: str, body: dict[str, object]) -> bool:
        if reply.hang_at == -1:
            await self._gone.wait()
            return False
        if reply.status != 200:
            return await self._whole(reply.status, reply.headers, reply.raw or b"")
        self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **reply.headers})
        if reply.endless:
            return await self._endless(endless_event(reply.endless, wire), render(reply, wire, "scripted"))
        events = render(reply, wire, str(body.get("model")))
        stops = [at for at in (reply.cut_at, reply.reset_at, reply.hang_at) if at is not None]
        if stops:
            return await self._broken(reply, b"".join(event for _, event in events), stops[0])
        if reply.paced:
            await self._paced([event for _, event in events], reply.paced)
        else:
            await self._spoken(events, reply)
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        return not self._gone.is_set()

    async def _spoken(self, events: list[tuple[float, bytes]], reply: ScriptedReply) -> None:
        for position, (delay, event) in enumerate(events):
            if reply.barrier and position == reply.barrier_after:
                await self._barrier(reply.barrier)
            if delay:
                await self._leave_within(delay)
            if self._gone.is_set():
                return
            self._chunk(event)
            await self._writer.drain()

    async def _barrier(self, name: str) -> None:
        while name not in self._state.released and not self._gone.is_set():
            await self._leave_within(0.01)

    async def _leave_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        except TimeoutError:
            return

    async def _broken(self, reply: ScriptedReply, whole: bytes, at: int) -> bool:
        if at:
            self._chunk(whole[:at])
        await self._writer.drain()
        if reply.reset_at is not None:
            await self._leave_within(CUT_PAUSE_SECONDS)
            self._reset()
            return False
        if reply.hang_at is not None:
            await self._gone.wait()
            return False
        await self._leave_within(CUT_PAUSE_SECONDS)
        self._chunk(whole[at:])
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        return not self._gone.is_set()

    async def _endless(self, event: bytes, beginning: list[tuple[float, bytes]]) -> bool:
        for _, first in beginning:
            self._chunk(first)
        while not self._gone.is_set():
            self._chunk(event)
            await self._writer.drain()
            await self._leave_within(0.001)
        return False

    async def _paced(self, events: list[bytes], seconds: float) -> None:
        """One event a beat, by timers alone: hundreds of such streams must be cheap."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        start, left = loop.time(), iter(enumerate(events, 1))

        def beat() -> None:
            position, event = next(left, (0, b""))
            if not position or self._gone.is_set() or self._writer.transport.is_closing():
                if not done.done():
                    done.set_result(None)
                return
            self._chunk(event)
            loop.call_at(start + position * seconds, beat)

        beat()
        await done

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase if status in _KNOWN else 'Scripted'}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    def _chunk(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def _json(self, status: int, value: object) -> bool:
        return await self._whole(status, {"content-type": "application/json"}, msgspec.json.encode(value))

    async def _whole(self, status: int, headers: dict[str, str], body: bytes) -> bool:
        self._head(status, {"content-type": "application/json", **headers, "content-length": str(len(body))})
        self._writer.write(body)
        await self._writer.drain()
        return True

    def _reset(self) -> None:
        """Close with RST, as a crashed server or a middlebox does."""
        connected = self._writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


_KNOWN = frozenset(status.value for status in HTTPStatus)


async def serve(port: int, remembered: int | None = None) -> asyncio.Server:
    """Listen on the loopback; port 0 picks a free one. Only the last ``remembered`` requests are kept; None is all."""
    state = State(requests=deque(maxlen=remembered))
    return await asyncio.get_running_loop().create_server(lambda: Connection(state), "127.0.0.1", port)


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    length = int(headers.get("content-length", "0"))
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return Request(method, parts.path, query, headers, await reader.readexactly(length))


def _tool_results(body: dict[str, object]) -> int:
    """How many calls the present turn has behind it, in either wire format."""
    count = 0
    messages = body.get("messages")
    assert isinstance(messages, list)
    for message in reversed(messages):
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        results = sum(1 for block in blocks if block.get("type") == "tool_result")
        if message.get("role") == "user" and not results:
            break
        count += results or message.get("role") == "tool"
    return count
