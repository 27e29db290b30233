"""Ports of this machine for servers that are told theirs, and waiting until such a server listens."""

import asyncio
import socket

# A server may be a process of its own on a machine that does much else.
START_SECONDS = 60.0


def free_port() -> int:
    """A port that nobody listens on now; somebody else may take it before it is used."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


async def listens(port: int) -> None:
    """Wait until somebody listens on the port. Raises TimeoutError after a minute."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
