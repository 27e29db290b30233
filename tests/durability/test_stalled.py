"""Readers that stop reading hold up nobody and lose nothing when they come back (issue 3, sentence 5)."""

import asyncio
import json
import socket
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from parley.testing.scripted_wire import ScriptedReply
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import PATIENCE, Site, start
from tests.stage import Client, caller, shown_text

READERS = 5
# More than the sockets of the two ends hold.
PIECES = [f"{number:08} " * 910 for number in range(480)]
FEW_BYTES = 4_096
MOST_AT_ONCE = 1 << 16


class StalledReader:
    """A connection that asks for a stream and then reads nothing."""

    def __init__(self, client: Client, started: dict[str, Any]) -> None:
        place = urlsplit(client.base_url)
        self._socket = socket.socket()
        # Before it connects: later the window is given away already.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FEW_BYTES)
        self._socket.connect((place.hostname, place.port))
        lines = [f"GET /assistant/chat/{started['chat_id']}/listen/{started['run_id']} HTTP/1.1", "Host: parley"]
        lines += [f"{name}: {value}" for name, value in client.headers.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._socket.setblocking(False)

    async def rest(self) -> list[dict[str, Any]]:
        """The whole events that had been sent until the server hung up."""
        heard = bytearray()
        async with asyncio.timeout(PATIENCE):
            try:
                while data := await asyncio.get_running_loop().sock_recv(self._socket, MOST_AT_ONCE):
                    heard += data
            except ConnectionResetError:
                pass
        return events_in(unchunked(bytes(heard)))

    def close(self) -> None:
        self._socket.close()


def unchunked(response: bytes) -> bytes:
    """The body of a chunked response that was cut off anywhere."""
    _, _, chunks = response.partition(b"\r\n\r\n")
    body = bytearray()
    while b"\r\n" in chunks:
        size, _, rest = chunks.partition(b"\r\n")
        body += rest[: int(size, 16)]
        chunks = rest[int(size, 16) + 2 :]
    return bytes(body)


def events_in(body: bytes) -> list[dict[str, Any]]:
    """The whole events of a stream, heartbeats left out."""
    events: list[dict[str, Any]] = []
    for frame in body.decode(errors="ignore").split("\n\n")[:-1]:
        head, _, data = frame.rpartition("data: ")
        if head.startswith("id: "):
            events.append({**json.loads(data), "_id": head.removeprefix("id: ").strip()})
    return events


async def read_all(client: Client, started: dict[str, Any], after: str) -> list[dict[str, Any]]:
    """A stream to its end, whatever the length of its lines."""
    path = f"{client.base_url}/assistant/chat/{started['chat_id']}/listen/{started['run_id']}?after={after}"
    async with client.session.get(path, headers=client.headers) as response:
        return events_in(await response.read())


async def test_readers_that_never_read_are_dropped_and_come_back_with_their_cursors(site: Site) -> None:
    site.environment |= {
        "PARLEY_STALLED_READER_SECONDS": "0.5",
        "PARLEY_LEASE_SECONDS": "15",
    }
    server = await site.serve()
    await site.furnish(server)
    await site.model.script(site.model_key, ScriptedReply(text=PIECES))
    async with caller(server.base_url, site.key, ORGANIZATION) as client:
        started = await start(site, client)
        with ExitStack() as stack:
            stalled = [StalledReader(client, started) for _ in range(READERS)]
            for reader in stalled:
                stack.callback(reader.close)
            whole = await read_all(client, started, "")
            assert (whole[-1]["type"], shown_text(whole)) == ("done", "".join(PIECES))
            async with asyncio.timeout(PATIENCE):
                while server.log.read_text().count("its connection is dropped") < READERS:
                    await asyncio.sleep(0.05)
            first = await stalled[0].rest()
            for reader in stalled[1:]:
                assert (await reader.rest())[-1]["type"] != "done"
        rest = await read_all(client, started, first[-1]["_id"])
        assert shown_text([*first, *rest]) == "".join(PIECES)
    assert await site.faults() == []
