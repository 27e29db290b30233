"""Storing streamed text: a run that cannot be stored stops nobody, and nothing is stored twice."""

from collections.abc import Callable

import pytest

from parley.base.clock import Clock
from parley.billing import load_plans
from parley.runs import run_store
from parley.runs.hub import Hub
from parley.runs.journal import Flusher, RunJournal
from parley.runs.run_store import Lease
from parley.storage import ReadTx, Store, StoreAway, WriteTx
from parley.turn.events import Event, Guided
from tests.chats.test_tail import a_run

NO_BYTES = "\ud800"


class UnheardStore:
    """A store whose commits happen and are not heard of, as often as ``unheard`` says."""

    def __init__(self, store: Store, unheard: int) -> None:
        self.dialect = store.dialect
        self.unheard = unheard
        self._store = store

    @property
    def across(self) -> Store:
        return self

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        result = await self._store.write(work)
        if self.unheard:
            self.unheard -= 1
            raise StoreAway("the link broke")
        return result

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None:
        await self._store.close()


def open_journal(store: Store, flusher: Flusher, lease: Lease) -> RunJournal:
    flusher.hub.own(lease.run_id, lease.epoch)
    return RunJournal(store, flusher, Clock(), lease, 0, patience_seconds=5.0)


def a_flusher(store: Store) -> Flusher:
    return Flusher(store, Hub(), Clock(), load_plans(""))


async def events(store: Store, lease: Lease) -> list[tuple[int, str, str]]:
    found = await store.read(lambda tx: run_store.events_after(tx, lease.run_id, 0, 100))
    return [(row.seq, row.type, row.body) for row in found]


@pytest.mark.parametrize("poisoned", [0, 1])
async def test_text_that_cannot_be_stored_stops_no_other_run_and_leaves_no_gap(store: Store, poisoned: int) -> None:
    flusher = a_flusher(store)
    leases = [await a_run(store), await a_run(store)]
    journals = [open_journal(store, flusher, lease) for lease in leases]
    for number, journal in enumerate(journals):
        journal.chunk(NO_BYTES if number == poisoned else "good")
    await flusher.flush()
    assert await events(store, leases[1 - poisoned]) == [(1, "response_chunk", '{"chunk":"good"}')]
    assert await events(store, leases[poisoned]) == [(1, "superseded", "{}")]
    for journal in journals:
        journal.chunk("more")
    await flusher.flush()
    for lease in leases:
        assert (await events(store, lease))[1:] == [(2, "response_chunk", '{"chunk":"more"}')]


async def test_text_whose_commit_was_not_heard_of_is_stored_once(store: Store) -> None:
    lease = await a_run(store)
    flusher = a_flusher(UnheardStore(store, unheard=1))
    journal = open_journal(store, flusher, lease)
    journal.chunk("one")
    await flusher.flush()
    journal.chunk("two")
    await flusher.flush()
    assert await events(store, lease) == [
        (1, "response_chunk", '{"chunk":"one"}'),
        (2, "response_chunk", '{"chunk":"two"}'),
    ]


async def test_a_fact_whose_commit_was_not_heard_of_is_written_once_and_shown_once(store: Store) -> None:
    lease = await a_run(store)
    flusher = a_flusher(store)
    journal = open_journal(UnheardStore(store, unheard=2), flusher, lease)
    watcher = flusher.hub.subscribe(lease.run_id)
    journal.chunk("text")
    written: list[int] = []

    def work(_tx: WriteTx, now: int) -> list[Event]:
        written.append(now)
        return [Guided("Try it another way.", 3)]

    await journal.write(work)
    await journal.write(lambda _tx, _now: [Guided("Go on.", 4)])
    assert len(written) == 1
    assert [(seq, kind) for seq, kind, _ in await events(store, lease)] == [
        (1, "response_chunk"),
        (2, "guidance"),
        (3, "guidance"),
    ]
    assert [item.seq for item in watcher.take()] == [1, 2, 3]


async def test_a_fact_gives_up_on_a_store_that_stays_away(store: Store) -> None:
    lease = await a_run(store)
    flusher = a_flusher(store)
    journal = RunJournal(UnheardStore(store, unheard=1_000), flusher, Clock(), lease, 0, patience_seconds=0.2)
    with pytest.raises(StoreAway):
        await journal.write(lambda _tx, _now: [])
