"""Following a run as values instead of frames, until it ends or asks."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import msgspec

from parley.chats.context import Chats
from parley.runs.listen import Cursor, Tail
from parley.turn.events import CLOSING
from parley.turn.model import JsonObject

DATA = b"data: "


@dataclass(frozen=True, slots=True)
class Happened:
    """One event of a run (contract §4); ``heartbeat`` after a silence."""

    kind: str
    data: JsonObject


async def follow(chats: Chats, run_id: str) -> AsyncGenerator[Happened]:
    """Every event of a run from its first to its last, a question counting as the last.

    It also ends, without a closing event, when this server stops.
    """
    tail = Tail(chats.store, chats.hub, run_id, Cursor(), chats.settings.stream_heartbeat_seconds)
    try:
        while not tail.ended:
            for line in (await tail.next()).split(b"\n"):
                if not line.startswith(DATA):
                    continue
                event = msgspec.json.decode(line.removeprefix(DATA))
                yield Happened(event["type"], event.get("data") or {})
                if event["type"] in CLOSING or event["type"] == "user_input_request":
                    return
    finally:
        tail.close()
