"""The people: a process that starts turns and listens to each over one connection of its own.

Bytes are only collected while a turn runs and are read afterwards, so that listening costs little and
the listeners do not become what is measured.
"""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

from bench.child import Order, take_orders

SAMPLE = "response_chunk"
PAUSE_LOOK_SECONDS = 0.02
BEYOND = 99_999


@dataclass(slots=True)
class Response:
    """One HTTP response, whole."""

    status: int
    body: bytes


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection with one request at a time."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._left = -1
        self._chunked = False
        self._done: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._mark = b""
        self.marked_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its base class

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes, mark: bytes) -> asyncio.Future[None]:
        """Send a request; ``marked_at`` becomes the time at which ``mark`` was first seen in the answer."""
        assert self._transport is not None
        lines = [f"{method} {path} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._pieces, self._left, self._chunked, self._mark, self.marked_at = [], -1, False, mark, 0.0
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        return self._done

    @property
    def accepted(self) -> bool:
        """Whether the server has said 200 by now."""
        return self._pieces[:1] != [] and self._pieces[0].startswith(b"HTTP/1.1 200 ")

    def response(self) -> Response:
        """What came, whole."""
        head, _, body = b"".join(self._pieces).partition(b"\r\n\r\n")
        return Response(int(head.split(b" ", 2)[1]), _unchunked(body) if self._chunked else body)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        if self._mark and not self.marked_at and self._mark in data:
            self.marked_at = time.perf_counter()
        if self._left < 0 and not self._chunked:
            self._begin()
        elif not self._chunked:
            self._left -= len(data)
        over = self._ends() if self._chunked else self._left == 0
        if over and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def _begin(self) -> None:
        head, found, body = b"".join(self._pieces).partition(b"\r\n\r\n")
        if not found:
            return
        lines = (line.partition(b":") for line in head.split(b"\r\n"))
        fields = {name.lower(): value.strip() for name, _, value in lines}
        self._chunked = fields.get(b"transfer-encoding") == b"chunked"
        self._left = int(fields.get(b"content-length", b"0")) - len(body)

    def _ends(self) -> bool:
        tail = self._pieces[-1]
        if len(tail) < 5:
            tail = b"".join(self._pieces[-5:])
        return tail.endswith(b"0\r\n\r\n")


def _unchunked(body: bytes) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while True:
        line_end = body.index(b"\r\n", at)
        size = int(body[at:line_end], 16)
        if not size:
            return b"".join(pieces)
        pieces.append(body[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2


@dataclass(slots=True)
class Heard:
    """One turn as its listener saw it, in seconds."""

    wall: float
    first_text: float
    streamed: bytes


@dataclass(slots=True)
class Visit:
    """Where the turns are asked for, by turns where there are several places, and what has been heard."""

    places: Iterator[tuple[str, int]]
    kind: str
    headers: dict[str, str]
    body: dict[str, Any]
    patience: float
    heard: list[Heard] = field(default_factory=list[Heard])
    errors: list[str] = field(default_factory=list[str])
    started: int = 0

    async def turns(self, count: int, at_once: int, spread: float) -> None:
        """Have ``count`` turns, so many at once, their first starts spread over some seconds."""
        left = iter(range(count))
        chance = random.Random(7)
        async with asyncio.TaskGroup() as group:
            for number in range(at_once):
                group.create_task(self._seat(left, spread * (number + chance.random()) / at_once))

    async def _seat(self, left: Iterator[int], wait: float) -> None:
        await asyncio.sleep(wait)
        for _ in left:
            try:
                async with asyncio.timeout(self.patience):
                    self.heard.append(await self._turn())
            except (OSError, TimeoutError, ValueError, KeyError) as error:
                self.errors.append(f"{type(error).__name__}: {error}"[:300])

    async def arrivals(self, count: int, per_second: float) -> Order:
        """Have ``count`` turns that begin at an even pace, whatever has become of those before them.

        What each streamed is read at its end and dropped, since there may be many thousands.
        """
        walls: list[float] = []
        first_texts: list[float] = []
        characters: list[int] = []
        late = 0.0

        async def arrive() -> None:
            try:
                async with asyncio.timeout(self.patience):
                    heard = await self._turn()
                characters.append(len(_text(heard.streamed)))
            except (OSError, TimeoutError, ValueError, KeyError) as error:
                self.errors.append(f"{type(error).__name__}: {error}"[:300])
            else:
                walls.append(heard.wall)
                first_texts.append(heard.first_text)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                due = began + number / per_second
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                late = max(late, time.perf_counter() - due)
                group.create_task(arrive())
            arrived = time.perf_counter() - began
        return {
            "seconds": arrived,
            "late": late,
            "started": self.started,
            "walls": walls,
            "first_texts": first_texts,
            "characters": characters,
            "errors": self.errors,
        }

    async def _turn(self) -> Heard:
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        _, connection = await loop.create_connection(Connection, *next(self.places))
        try:
            if self.kind == "parley":
                started = await self.json(connection, "POST", "/assistant/chat")
                self.started += 1
                path = f"/assistant/chat/{started['chat_id']}/listen/{started['run_id']}"
                await connection.send("GET", path, self.headers, b"", SAMPLE.encode())
            else:
                body = json.dumps({**self.body, "thread_id": str(uuid4())}).encode()
                await connection.send("POST", "/chat", self.headers, body, SAMPLE.encode())
            ended = time.perf_counter()
            response = connection.response()
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(f"{response.status}: {response.body[:200]!r}")
        return Heard(ended - began, connection.marked_at - began, response.body)

    async def json(self, connection: Connection, method: str, path: str) -> dict[str, Any]:
        """One request; its JSON. Raises ValueError for any status but 200."""
        body = json.dumps(self.body).encode() if method == "POST" else b""
        await connection.send(method, path, self.headers, body, b"")
        response = connection.response()
        if response.status != 200:
            raise ValueError(f"{response.status}: {response.body[:200]!r}")
        return json.loads(response.body)


def _places(order: Order) -> Iterator[tuple[str, int]]:
    places = order.get("places") or [(order["host"], order["port"])]
    return itertools.cycle((host, port) for host, port in places)


def _text(streamed: bytes) -> str:
    """The text of a stream that ended well. Raises ValueError for any other."""
    pieces: list[str] = []
    kinds: Counter[str] = Counter()
    last = ""
    for line in streamed.decode().split("\n"):
        if not line.startswith("data: "):
            continue
        event = json.loads(line.removeprefix("data: "))
        last = event["type"]
        kinds[last] += 1
        if last == SAMPLE:
            pieces.append(event["data"]["chunk"])
    if kinds["error"] or kinds["metadata"] > 1 or last != "done":
        raise ValueError(f"a turn did not go as it should: {dict(kinds)}, last {last}")
    return "".join(pieces)


async def _pause(order: Order) -> Order:
    """Begin turns that ask a question, and wait until each of them waits for its answer; their streams' paths."""
    visit = Visit(_places(order), "parley", order["headers"], order["body"], order["patience"])
    left = iter(range(order["turns"]))
    paths: list[str] = []
    async with asyncio.TaskGroup() as group:
        for _ in range(order["at_once"]):
            group.create_task(_pause_some(visit, left, paths))
    return {"paths": paths}


async def _pause_some(visit: Visit, left: Iterator[int], paths: list[str]) -> None:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, *next(visit.places))
    for _ in left:
        started = await visit.json(connection, "POST", "/assistant/chat")
        chat = f"/assistant/chat/{started['chat_id']}"
        while not (await visit.json(connection, "GET", f"{chat}/status"))["awaiting_input"]:
            await asyncio.sleep(PAUSE_LOOK_SECONDS)
        # Whoever has seen everything and comes back keeps the stream.
        paths.append(f"{chat}/listen/{started['run_id']}?after={BEYOND}")
    connection.close()


class Idle:
    """Open streams that say nothing."""

    def __init__(self) -> None:
        self._connections: list[Connection] = []
        self._waits: list[asyncio.Future[None]] = []

    async def open(self, order: Order) -> Order:
        """Open a stream for each path; how many are open now."""
        loop = asyncio.get_running_loop()
        for path in order["paths"]:
            _, connection = await loop.create_connection(Connection, order["host"], order["port"])
            self._waits.append(connection.send("GET", path, order["headers"], b"", b""))
            self._connections.append(connection)
        return self.count()

    def count(self) -> Order:
        """How many streams are open, and how many the server has accepted."""
        return {
            "open": sum(not wait.done() for wait in self._waits),
            "accepted": sum(connection.accepted for connection in self._connections),
        }

    async def close(self) -> Order:
        """Leave them all."""
        for connection in self._connections:
            connection.close()
        _, _ = await asyncio.wait(self._waits) if self._waits else (None, None)
        for wait in self._waits:
            wait.exception()
        self._connections, self._waits = [], []
        return {}


IDLE = Idle()


async def _carry_out(order: Order) -> Order:
    match order["kind"]:
        case "pause":
            return await _pause(order)
        case "idle":
            return await IDLE.open(order)
        case "idle-count":
            return IDLE.count()
        case "idle-end":
            return await IDLE.close()
        case "arrivals":
            visit = Visit(_places(order), "parley", order["headers"], order["body"], order["patience"])
            return await visit.arrivals(order["turns"], order["per_second"])
        case _:
            return await _listen(order)


async def _listen(order: Order) -> Order:
    visit = Visit(_places(order), order["kind"], order["headers"], order["body"], order["patience"])
    began = time.perf_counter()
    await visit.turns(order["turns"], order["at_once"], order["spread"])
    took = time.perf_counter() - began
    characters: list[int] = []
    for heard in visit.heard:
        try:
            characters.append(len(_text(heard.streamed)))
        except ValueError as error:
            visit.errors.append(str(error)[:300])
    return {
        "seconds": took,
        "walls": [heard.wall for heard in visit.heard],
        "first_texts": [heard.first_text for heard in visit.heard],
        "characters": characters,
        "errors": visit.errors,
    }


if __name__ == "__main__":
    take_orders(_carry_out)
