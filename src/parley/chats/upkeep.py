"""What runs beside the turns: news from other processes, expiry, compaction, retention."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from sqlalchemy import delete, select, update

from parley.base.clock import DAY
from parley.chats.context import Chats
from parley.chats.expire import expire_due
from parley.chats.keeping import erase_outdated
from parley.runs import run_store
from parley.runs.hub import Row
from parley.storage import EVENTS, STORE_TROUBLE, WriteTx
from parley.storage.once import forget_old_keys
from parley.storage.tables.chats import run_events, runs

POLL_SECONDS = 1.0
SWEEP_SECONDS = 30.0
COMPACT_BATCH = 50
# Of JSON text: what is joined is read as one event, and none is larger than 256 KB (contract §4.1).
JOINED_CHARACTERS = 65_536
ENDED = ("completed", "failed", "cancelled")

log = logging.getLogger(__name__)


def hear(chats: Chats, channel: str, words: list[str]) -> None:
    """News from another process (``storage.listen_for_notices`` calls this)."""
    if channel == EVENTS:
        chats.hub.poke(words)
    else:
        chats.heard(words)


async def poll_watched(chats: Chats) -> None:
    """Look once a second for events of runs that other processes execute: a lost notice costs a second."""
    seen: dict[str, int] = {}
    while True:
        await asyncio.sleep(POLL_SECONDS)
        watched = chats.hub.watched_elsewhere()
        if not watched:
            seen.clear()
            continue
        try:
            newest = await chats.store.across.read(lambda tx, ids=watched: run_store.newest_events(tx, ids))
        except STORE_TROUBLE as error:
            log.warning("could not look for events (%s)", type(error).__name__)
            continue
        chats.hub.poke([run_id for run_id, seq in newest.items() if seq != seen.get(run_id)])
        seen = newest


async def sweep_forever(chats: Chats, others: tuple[Callable[[], Awaitable[object]], ...] = ()) -> None:
    """Every half minute: end turns nobody answered, shorten finished histories, drop old ones."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            await sweep(chats)
            for other in others:
                await other()
        except STORE_TROUBLE:
            log.exception("the half-minute sweep failed; it runs again")


async def sweep(chats: Chats) -> None:
    """One round of upkeep."""
    await expire_due(chats)
    while await chats.store.across.write(lambda tx: compact(tx, chats.clock.now())):
        pass
    keep = chats.clock.now() - chats.settings.event_retention_days * DAY
    await chats.store.across.write(lambda tx: forget_events(tx, keep))
    await chats.store.across.write(lambda tx: forget_old_keys(tx, chats.clock.now()))
    await erase_outdated(chats)


def compact(tx: WriteTx, now: int) -> int:
    """Join the text rows of some finished runs, cursors still exact; how many runs were shortened."""
    ids = list(
        tx.execute(
            select(run_events.c.run_id)
            .join(runs, runs.c.id == run_events.c.run_id)
            .where(
                runs.c.status.in_(ENDED),
                runs.c.ended_at < now - 60_000_000,
                run_events.c.type == "response_chunk",
                run_events.c.parts.is_(None),
            )
            .distinct()
            .limit(COMPACT_BATCH)
        ).scalars()
    )
    for run_id in ids:
        _compact_run(tx, run_id)
    return len(ids)


def _compact_run(tx: WriteTx, run_id: str) -> None:
    rows = run_store.events_after(tx, run_id, 0, 1_000_000)
    group: list[Row] = []
    for row in [*rows, None]:
        if row is not None and row.type == "response_chunk" and row.parts is None:
            joins = not group or (
                group[-1].last_seq + 1 == row.seq
                and group[-1].epoch == row.epoch
                and sum(len(each.body) for each in group) + len(row.body) <= JOINED_CHARACTERS
            )
            if joins:
                group.append(row)
                continue
        if group:
            _join(tx, run_id, group)
        group = [row] if row is not None and row.type == "response_chunk" and row.parts is None else []


def _join(tx: WriteTx, run_id: str, group: list[Row]) -> None:
    """Make one row of several: its ``parts`` keep every old cursor exact."""
    texts = [msgspec.json.decode(row.body)["chunk"] for row in group]
    first, last = group[0], group[-1]
    tx.execute(
        delete(run_events).where(
            run_events.c.run_id == run_id, run_events.c.seq > first.seq, run_events.c.seq <= last.seq
        )
    )
    tx.execute(
        update(run_events)
        .where(run_events.c.run_id == run_id, run_events.c.seq == first.seq)
        .values(
            last_seq=last.last_seq,
            body=msgspec.json.encode({"chunk": "".join(texts)}).decode(),
            parts=[len(text) for text in texts],
        )
    )


def forget_events(tx: WriteTx, before: int) -> None:
    """Drop the histories of runs that ended before a moment; chats and messages stay."""
    old = select(runs.c.id).where(runs.c.status.in_((*ENDED, "resumed")), runs.c.updated_at < before)
    tx.execute(delete(run_events).where(run_events.c.run_id.in_(old)))
