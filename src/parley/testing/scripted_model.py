"""The scripted model provider as a process, and its handle for tests and benches.

    python -m parley.testing.scripted_model --port 0

prints the port it listens on. It ends when its standard input closes.
"""

import argparse
import asyncio
import io
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import uvloop

from parley.testing.scripted_server import Recorded, Script, serve
from parley.testing.scripted_wire import ScriptedCall, ScriptedReply, ScriptedUsage

__all__ = ["Recorded", "ScriptedCall", "ScriptedModel", "ScriptedReply", "ScriptedUsage", "scripted_model"]

START_SECONDS = 20.0
CONTROL_SECONDS = 15.0


class ScriptedModel:
    """A running scripted provider. ``openai_url`` and ``anthropic_url`` are base URLs for credentials."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.openai_url = f"{self.url}/v1"
        self.anthropic_url = self.url
        self._session = session

    async def script(self, key: str, *replies: ScriptedReply, by_step: bool = False) -> None:
        """What requests with this API key get, in order; ``by_step`` picks by the turn's tool results instead."""
        body = msgspec.json.encode(Script(key, list(replies), by_step))
        async with self._session.post(f"{self.url}/script", data=io.BytesIO(body)) as response:
            response.raise_for_status()

    async def release(self, barrier: str) -> None:
        """Let every reply go on that waits at this barrier, now or later."""
        async with self._session.post(f"{self.url}/release", params={"barrier": barrier}) as response:
            response.raise_for_status()

    async def requests(self, key: str) -> list[Recorded]:
        """The requests made with this key so far."""
        async with self._session.get(f"{self.url}/requests", params={"key": key}) as response:
            response.raise_for_status()
            return msgspec.json.decode(await response.read(), type=list[Recorded])

    async def dropped(self, key: str, count: int = 1) -> list[Recorded]:
        """Wait until so many requests of this key were dropped by the client, at most 10 s."""
        async with self._session.get(f"{self.url}/dropped", params={"key": key, "count": count}) as response:
            response.raise_for_status()
            return msgspec.json.decode(await response.read(), type=list[Recorded])


@asynccontextmanager
async def scripted_model(remembered: int | None = None) -> AsyncGenerator[ScriptedModel]:
    """A scripted provider in its own process, for the time of the block.

    It keeps the last ``remembered`` requests: hours of turns would fill the machine's memory otherwise. None is all.
    """
    bound = [] if remembered is None else ["--remembered", str(remembered)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, "--port", "0", *bound, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            port = int(await process.stdout.readline())
        timeout = aiohttp.ClientTimeout(total=CONTROL_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            yield ScriptedModel(port, session)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _run(port: int, remembered: int | None) -> None:
    server = await serve(port, remembered)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    server.close()


def main() -> None:
    """Serve until standard input closes."""
    arguments = argparse.ArgumentParser(description="A scripted model provider")
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--remembered", type=int, help="how many requests are kept; all when left out")
    chosen = arguments.parse_args()
    uvloop.run(_run(chosen.port, chosen.remembered))


if __name__ == "__main__":
    main()
