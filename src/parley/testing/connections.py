"""TCP servers of a test's own: whoever is connected when the test ends is sent away."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

CLOSE_SECONDS = 5.0

type Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connections_served(serve: Serve) -> AsyncGenerator[int]:
    """Serve each connection to a free port of this machine until the block ends; the port."""
    open_now: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            # A client may hang up at any moment; a server that hangs is cancelled at the end.
            with suppress(OSError, EOFError, asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            open_now.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(open_now):
            task.cancel()
        async with asyncio.timeout(CLOSE_SECONDS):
            await server.wait_closed()
