"""A TCP proxy that misbehaves on command (frozen, reset, slow, stranded), between a process and its database."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Literal

type Mode = Literal["pass", "freeze", "refuse", "slow"]
SLOW_SECONDS = 0.05
CHUNK = 65_536


class FaultProxy:
    """Passes bytes on to ``(host, port)`` as its ``mode`` says; ``reset`` drops every open connection."""

    def __init__(self, host: str, port: int) -> None:
        self.mode: Mode = "pass"
        self.port = 0
        self._target = (host, port)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._stranded: set[asyncio.StreamWriter] = set()

    def freeze(self) -> None:
        """Nothing passes any more and nobody is told, as in a network partition."""
        self.mode = "freeze"
        self._flowing.clear()

    def heal(self) -> None:
        """Everything passes again."""
        self.mode = "pass"
        self._flowing.set()

    def slow(self) -> None:
        """Everything passes late."""
        self.mode = "slow"

    def refuse(self) -> None:
        """Drop every connection and refuse new ones, as when the database restarts."""
        self.mode = "refuse"
        self.reset()

    def strand(self) -> None:
        """The connections open now pass nothing any more, new ones do: as when a router forgets them."""
        self._stranded |= self._writers

    def reset(self) -> None:
        """Drop every open connection without a farewell."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client connection."""
        if self.mode == "refuse":
            writer.transport.abort()
            return
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            self._writers |= {writer, there_writer}
            try:
                with suppress(ExceptionGroup):
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._pump(reader, there_writer))
                        group.create_task(self._pump(there_reader, writer))
            finally:
                self._writers -= {writer, there_writer}
                self._stranded -= {writer, there_writer}
                writer.close()
                there_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._flowing.wait()
            if writer in self._stranded:
                continue
            if self.mode == "slow":
                await asyncio.sleep(SLOW_SECONDS)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


@asynccontextmanager
async def fault_proxy(host: str, port: int) -> AsyncGenerator[FaultProxy]:
    """A running proxy in front of ``(host, port)``."""
    proxy = FaultProxy(host, port)
    server = await asyncio.start_server(proxy.connected, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.heal()
        proxy.refuse()
        server.close()
