"""The loud one: so many requests a second over a few connections, whatever becomes of them. A module that takes orders.

It sends and reads bytes without a client library, because it shares a core with those who measure.
"""

import asyncio
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import cast

from bench.child import Order, take_orders

CONNECTIONS = 8
STATUS = slice(9, 12)
ANSWER = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}"


class Line(asyncio.Protocol):
    """One connection; counts the answers by their status."""

    def __init__(self, statuses: Counter[str]) -> None:
        self._statuses = statuses
        self._transport: asyncio.WriteTransport | None = None
        self._waiting = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while self._waiting:
            if self._left:
                read = min(self._left, len(self._waiting))
                self._waiting, self._left = self._waiting[read:], self._left - read
                continue
            head, end, rest = self._waiting.partition(b"\r\n\r\n")
            if not end:
                return
            self._statuses[head[STATUS].decode()] += 1
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            self._waiting, self._left = rest, int(length.partition(b":")[2])

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


class Sink(asyncio.Protocol):
    """Answers each request with a refusal of a few bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER * data.count(b"\r\n\r\n"))


@dataclass(slots=True)
class Flood:
    """A flood under way."""

    lines: deque[Line]
    statuses: Counter[str]
    sink: asyncio.Server | None
    request: bytes
    per_second: float
    begun: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)
    sent: int = 0
    timer: asyncio.TimerHandle | None = None

    def shout(self) -> None:
        """Send what is due now, and again when more is."""
        due = int((time.perf_counter() - self.begun) * self.per_second) - self.sent
        for _ in range(due):
            self.lines[0].send(self.request)
            self.lines.rotate()
        self.sent += due
        self.timer = asyncio.get_running_loop().call_later(1 / self.per_second, self.shout)

    def end(self) -> Order:
        """Stop; what became of it."""
        if self.timer is not None:
            self.timer.cancel()
        for line in self.lines:
            line.close()
        if self.sink is not None:
            self.sink.close()
        return {
            "statuses": dict(self.statuses),
            "cpu": time.process_time() - self.cpu,
            "seconds": time.perf_counter() - self.begun,
        }


class Shouter:
    """Carries out orders: one with a place begins a flood, an empty one ends it. Port 0: a sink of its own."""

    def __init__(self) -> None:
        self._flood: Flood | None = None

    async def carry_out(self, order: Order) -> Order:
        if self._flood is not None:
            flood, self._flood = self._flood, None
            return flood.end()
        loop, statuses = asyncio.get_running_loop(), Counter[str]()
        sink = None if order["port"] else await loop.create_server(Sink, "127.0.0.1", 0)
        port = order["port"] or (sink.sockets[0].getsockname()[1] if sink else 0)
        lines = [await loop.create_connection(lambda: Line(statuses), order["host"], port) for _ in range(CONNECTIONS)]
        headers = "".join(f"{name}: {value}\r\n" for name, value in order["headers"].items())
        request = f"GET {order['path']} HTTP/1.1\r\nHost: {order['host']}\r\n{headers}\r\n".encode()
        self._flood = Flood(deque(line for _, line in lines), statuses, sink, request, order["per_second"])
        self._flood.shout()
        return {}


if __name__ == "__main__":
    take_orders(Shouter().carry_out)
