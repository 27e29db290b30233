"""Following one run's events, over as many connections as it takes (contract §4)."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

import aiohttp
import msgspec

from parley.cli.chat.client import Client
from parley.cli.chat.problems import Refused, Unreachable

# The server sends a heartbeat every 15 s; this long without a byte means the connection is dead.
SILENCE_SECONDS = 45.0
FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 5.0
GIVE_UP_SECONDS = 120.0
# After these the server closes the stream, and nothing more comes of the run.
ENDS = frozenset({"done", "cancelled", "run_resumed"})
# A server that answers so is one that comes back.
PASSING = frozenset({429, 500, 502, 503, 504})


class Event(msgspec.Struct, frozen=True):
    """One event of a run. ``data`` is its object on the wire; heartbeats have none."""

    type: str
    data: dict[str, Any] = {}

    def text(self, name: str) -> str:
        """A field that holds words; empty when it is missing."""
        value = self.data.get(name)
        return value if isinstance(value, str) else ""

    def object(self, name: str) -> dict[str, Any]:
        """A field that holds an object; empty when it is missing."""
        value = self.data.get(name)
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Lost(Unreachable):
    """The connection was lost for too long."""


class RunStream:
    """The events of one run. Goes on where it was after a cut, and after a pause."""

    def __init__(self, client: Client, chat_id: str, run_id: str, on_cut: Callable[[], None]) -> None:
        """``on_cut`` is called each time the connection is lost, before the next try."""
        self.run_id = run_id
        self._client = client
        self._chat_id = chat_id
        self._on_cut = on_cut
        self._cursor: str | None = None
        self._heard_at = 0.0
        self._wait = FIRST_WAIT_SECONDS

    async def events(self) -> AsyncGenerator[Event]:
        """Every further event up to the run's end, heartbeats left out.

        A question does not end it: what comes after is ``run_resumed``. Raises Refused where the run
        cannot be read, and Lost.
        """
        self._renew()
        while True:
            async with aclosing(self._heard()) as events:
                async for event in events:
                    if event.type != "heartbeat":
                        yield event
                    if event.type in ENDS:
                        return
            await self._pause()

    async def _heard(self) -> AsyncGenerator[Event]:
        """The events of one connection, whatever ends it."""
        try:
            async with aclosing(self._connection()) as events:
                async for event in events:
                    self._renew()
                    yield event
                    if event.type == "interrupted":
                        # A replay ends here; reading on from its cursor is live again.
                        return
        except Refused as refused:
            if refused.status not in PASSING:
                raise
            self._wait = max(self._wait, refused.retry_after or 0)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            pass  # the next connection goes on from the cursor
        self._on_cut()

    def _renew(self) -> None:
        """The server is there."""
        self._heard_at = asyncio.get_running_loop().time()
        self._wait = FIRST_WAIT_SECONDS

    async def _pause(self) -> None:
        """Wait before the next connection, longer each time. Raises Lost once that is hopeless."""
        if asyncio.get_running_loop().time() - self._heard_at > GIVE_UP_SECONDS:
            raise Lost(
                f"{self._client.url} does not answer any more. The turn goes on without you; come back to it with: "
                f"parley chat --chat {self._chat_id}"
            )
        await asyncio.sleep(self._wait)
        self._wait = min(2 * self._wait, LONGEST_WAIT_SECONDS)

    async def _connection(self) -> AsyncGenerator[Event]:
        client = self._client
        async with client.listening(self._chat_id, self.run_id, self._cursor, SILENCE_SECONDS) as lines:
            cursor = self._cursor
            async for line in lines:
                text = line.rstrip(b"\r\n")
                if text.startswith(b"id:"):
                    cursor = text.removeprefix(b"id:").strip().decode("ascii", "replace")
                elif text.startswith(b"data:"):
                    event = _event(text.removeprefix(b"data:"))
                    if event is not None:
                        self._cursor = cursor
                        yield event


def _event(text: bytes) -> Event | None:
    """The event in a frame; None for one of a later server that has another shape."""
    try:
        return msgspec.json.decode(text, type=Event)
    except msgspec.DecodeError:
        return None
