"""Processes of the bench that take orders: one JSON line in, one JSON line out."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvloop

type Order = dict[str, Any]
START_SECONDS = 120.0
ORDER_SECONDS = 300.0
LINE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Child:
    """A process that waits for orders."""

    process: Process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ask(self, order: Order, seconds: float = ORDER_SECONDS) -> Order:
        """Have one order carried out, which takes at most so many seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        return await self.said(seconds)

    async def said(self, seconds: float) -> Order:
        """The next line of its output."""
        assert self.process.stdout is not None
        async with asyncio.timeout(seconds):
            line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the bench ended: {await self.process.wait()}")
        return json.loads(line)


@asynccontextmanager
async def child(command: Sequence[str], environment: Mapping[str, str] | None = None) -> AsyncGenerator[Child]:
    """A process that says a JSON line once it is ready; killed at the end."""
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment, limit=LINE_BYTES)
    try:
        made = Child(process)
        await made.said(START_SECONDS)
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def module(name: str) -> list[str]:
    """The command that runs a module of the bench with this Python."""
    return [sys.executable, "-m", name]


def take_orders(carry_out: Callable[[Order], Awaitable[Order]]) -> None:
    """Carry out the orders on standard input until it closes."""

    async def run() -> None:
        reader = asyncio.StreamReader(limit=LINE_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        _say({"ready": True})
        while line := await reader.readline():
            _say(await carry_out(json.loads(line)))

    uvloop.run(run())


def _say(order: Order) -> None:
    sys.stdout.write(json.dumps(order) + "\n")
    sys.stdout.flush()
