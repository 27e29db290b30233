"""The event stream as the bytes it is, read by a strict reader of contract §4.1."""

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from tests.stage import STREAM_SECONDS, Client, Json

HEARTBEAT = b'data: {"type":"heartbeat"}'


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: its ``id:`` line, if it has one, and its event."""

    id: str | None
    event: Json


@asynccontextmanager
async def listening(
    client: Client, started: Json, after: str | None = None, **headers: str
) -> AsyncGenerator[aiohttp.ClientResponse]:
    """An open stream of a run; ``headers`` are more headers, with ``_`` for ``-``."""
    url = f"{client.base_url}/assistant/chat/{started['chat_id']}/listen/{started['run_id']}"
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.session.get(
        url,
        params={"after": after} if after is not None else None,
        headers={**client.headers, **more},
        timeout=aiohttp.ClientTimeout(total=STREAM_SECONDS),
    ) as response:
        yield response


async def frames_until_closed(client: Client, started: Json, after: str | None = None, **headers: str) -> list[Frame]:
    """Every frame but heartbeats, until the server closes."""
    async with listening(client, started, after, **headers) as response:
        assert response.status == 200, await response.text()
        return [frame for frame in frames(await response.read()) if frame.event["type"] != "heartbeat"]


def frames(raw: bytes) -> list[Frame]:
    """The frames of a stream; fails on whatever contract §4.1 does not allow."""
    assert b"\r" not in raw
    *blocks, rest = raw.split(b"\n\n")
    assert rest == b"", "the stream ended in mid-frame"
    return [_frame(block) for block in blocks]


def _frame(block: bytes) -> Frame:
    if block == HEARTBEAT:
        return Frame(None, {"type": "heartbeat"})
    name, data = block.split(b"\n")
    assert name.startswith(b"id: ")
    assert data.startswith(b"data: ")
    event = json.loads(data.removeprefix(b"data: "))
    assert set(event) == {"type", "data"}
    return Frame(name.removeprefix(b"id: ").decode(), event)


def text_of(found: Iterable[Frame]) -> str:
    """The text of the chunks among the frames."""
    return "".join(frame.event["data"]["chunk"] for frame in found if frame.event["type"] == "response_chunk")


def facts_of(found: Iterable[Frame]) -> list[Json]:
    """Every event that is not text."""
    return [frame.event for frame in found if frame.event["type"] != "response_chunk"]
