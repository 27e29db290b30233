"""Readers that come, stall and go at any moment see every character once, whatever the writer goes through."""

import asyncio
import json
import random
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from parley.base.clock import Clock
from parley.base.ids import new_id
from parley.billing import load_plans
from parley.runs import chat_store, run_store
from parley.runs.chat_store import Chat
from parley.runs.hub import QUEUE_CHARACTERS, Hub, Piece
from parley.runs.journal import ROW_CHARACTERS, Flusher, RunJournal
from parley.runs.listen import PAGE, Tail, parse_cursor
from parley.runs.run_store import Lease
from parley.storage import Store, WriteTx
from parley.storage.tables.accounts import memberships, organizations, users
from parley.storage.tables.chats import run_events, runs
from parley.turn.events import Event, Guided, Metadata

STEPS = 60
READERS = 6


async def a_run(store_: Store) -> Lease:
    """A running run in a chat of its own."""
    organization, user, chat, run = new_id(), new_id(), new_id(), new_id()

    def work(tx: WriteTx) -> None:
        tx.execute(
            organizations.insert().values(
                id=organization, name="T", slug=organization, is_active=True, settings={}, created_at=0
            )
        )
        tx.execute(
            users.insert().values(id=user, email=user, username="u", platform_role="USER", is_active=True, created_at=0)
        )
        tx.execute(memberships.insert().values(organization_id=organization, user_id=user, role="owner", joined_at=0))
        chat_store.insert_chat(
            tx, Chat(chat, organization, user, "assistant", "t", run, tainted=False, created_at=0, updated_at=0)
        )
        chat_store.insert_run(
            tx,
            {
                "id": run,
                "organization_id": organization,
                "chat_id": chat,
                "user_id": user,
                "turn_id": run,
                "llm": {},
                "created_at": 0,
                "updated_at": 0,
            },
        )
        tx.execute(runs.update().where(runs.c.id == run).values(status="running", epoch=1))

    await store_.write(work)
    return Lease(run, chat, organization, user, run, 1, 1, {})


class Reader:
    """Follows with cuts; keeps the text as a watcher shows it."""

    def __init__(self, store_: Store, hub: Hub, run_id: str) -> None:
        self._where = (store_, hub, run_id)
        self.cursor: str | None = None
        self.settled = ""
        self.open = ""
        self.ended = False

    async def follow(self, dice: random.Random, frames: int) -> None:
        tail = Tail(*self._where, parse_cursor(self.cursor), 0.05)
        try:
            while frames > 0 and not tail.ended:
                await asyncio.sleep(dice.random() * 0.003)
                for frame in (await tail.next()).decode().split("\n\n"):
                    self._take(frame)
                frames -= 1
            self.ended = tail.ended
        finally:
            tail.close()

    def _take(self, frame: str) -> None:
        if not frame or "heartbeat" in frame:
            return
        head, data = frame.split("\n")
        self.cursor = head.removeprefix("id: ")
        event = json.loads(data.removeprefix("data: "))
        match event["type"]:
            case "response_chunk":
                self.open += event["data"]["chunk"]
            case "metadata":
                self.open = ""
            case "guidance":
                self.settled, self.open = self.settled + self.open + "|", ""
            case _:
                pass


async def play(store_: Store, seed: int) -> None:  # noqa: C901 - one story, told in one piece
    dice = random.Random(seed)
    clock, hub = Clock(), Hub()
    flusher = Flusher(store_, hub, clock, load_plans(""))
    lease = await a_run(store_)
    settled, unfinished = "", ""
    journal = RunJournal(store_, flusher, clock, lease, 0)
    hub.own(lease.run_id, lease.epoch)
    await journal.write(lambda _tx, _now: [Metadata(lease.run_id, lease.chat_id, "t")])
    readers = [Reader(store_, hub, lease.run_id) for _ in range(READERS)]
    writing = asyncio.Event()

    async def read(reader: Reader) -> None:
        while not reader.ended:
            await reader.follow(dice, 1_000 if writing.is_set() else dice.randint(1, 8))

    async def write() -> None:
        nonlocal settled, unfinished, journal, lease
        for _ in range(STEPS):
            await asyncio.sleep(dice.random() * 0.004)
            match dice.choices(["chunk", "fact", "flush", "takeover"], [10, 2, 3, 1])[0]:
                case "chunk":
                    piece = f"<{dice.randint(0, 9_999)}>"
                    unfinished += piece
                    journal.chunk(piece)
                case "fact":
                    await journal.write(lambda _tx, _now: [Guided("g")])
                    settled, unfinished = settled + unfinished + "|", ""
                case "flush":
                    await flusher.flush()
                case _:
                    unfinished = ""
                    journal, lease = await taken_over(store_, flusher, clock, lease)
        await journal.write(lambda _tx, _now: [Guided("g"), Done()])
        settled += unfinished + "|"
        writing.set()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(write())
        for reader in readers:
            group.create_task(read(reader))
    assert {reader.settled for reader in readers} == {settled}


class Done(Event, frozen=True):
    """The end, for readers."""

    type = "done"


async def taken_over(store_: Store, flusher: Flusher, clock: Clock, lease: Lease) -> tuple[RunJournal, Lease]:
    """Another owner goes on; what was not stored is lost."""
    hub = flusher.hub
    hub.disown(lease.run_id, lease.epoch)
    following = replace(lease, epoch=lease.epoch + 1)

    def claim(tx: WriteTx) -> int:
        tx.execute(runs.update().where(runs.c.id == lease.run_id).values(epoch=following.epoch))
        facts = select(func.max(run_events.c.seq)).where(
            run_events.c.run_id == lease.run_id, run_events.c.type == "guidance"
        )
        settled = tx.execute(facts).scalar() or 0
        run_store.supersede_chunks(tx, lease.run_id, settled)
        return run_store.last_seq(tx, lease.run_id)

    seq = await store_.write(claim)
    journal = RunJournal(store_, flusher, clock, following, seq)
    hub.own(lease.run_id, following.epoch)
    await journal.write(lambda _tx, _now: [Metadata(lease.run_id, lease.chat_id, "t")])
    return journal, following


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_happens_every_reader_shows_the_same_text(store: Store, seed: int) -> None:
    await play(store, seed)


async def test_what_waits_for_a_reader_that_stopped_is_bounded_and_nothing_is_missing_afterwards(store: Store) -> None:
    clock, hub = Clock(), Hub()
    flusher = Flusher(store, hub, clock, load_plans(""))
    lease = await a_run(store)
    hub.own(lease.run_id, lease.epoch)
    journal = RunJournal(store, flusher, clock, lease, 0)
    await journal.write(lambda _tx, _now: [Metadata(lease.run_id, lease.chat_id, "t")])
    tail = Tail(store, hub, lease.run_id, parse_cursor(None), 0.05)
    assert b"metadata" in await tail.next()
    pieces = [f"{number:08}" * (ROW_CHARACTERS // 8) for number in range(200)]
    for piece in pieces:
        journal.chunk(piece)
        assert sum(len(item.text) for item in tail.subscriber.items if isinstance(item, Piece)) <= QUEUE_CHARACTERS
    await journal.write(lambda _tx, _now: [Done()])
    shown = ""
    while not tail.ended:
        frames = await tail.next()
        assert len(frames) <= PAGE * (ROW_CHARACTERS + 1_000)
        lines = [line.removeprefix("data: ") for line in frames.decode().split("\n") if line.startswith("data: ")]
        shown += "".join(event["data"].get("chunk", "") for event in map(json.loads, lines) if "data" in event)
    tail.close()
    assert shown == "".join(pieces)


async def test_a_row_that_is_missing_in_the_store_keeps_nobody_from_the_end(store: Store) -> None:
    clock, hub = Clock(), Hub()
    lease = await a_run(store)
    journal = RunJournal(store, Flusher(store, hub, clock, load_plans("")), clock, lease, 0)
    await journal.write(lambda _tx, _now: [Metadata(lease.run_id, lease.chat_id, "t"), Guided("g"), Done()])
    missing = run_events.delete().where(run_events.c.run_id == lease.run_id, run_events.c.seq == 2)
    await store.write(lambda tx: tx.execute(missing))
    tail = Tail(store, hub, lease.run_id, parse_cursor(None), 0.05)
    frames = await tail.next()
    tail.close()
    assert tail.ended
    assert frames.count(b"\n\n") == 2
