"""Reading survives the death of its reader at every write, and a reader that is late can add nothing."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from bench.knowledge.library import ORGANIZATION, parley_on
from parley.knowledge.bases import NewBase
from parley.knowledge.chunk_store import Reading, ReadingLost, claim, drop_chunks, insert_chunks
from parley.knowledge.documents import Upload
from parley.knowledge.model import Document, Piece
from parley.knowledge.reader import AT_ONCE, Reader
from parley.knowledge.search import Found, Query, Weights
from parley.storage import ReadTx, Store, WriteTx
from parley.storage.tables.billing import ledger
from parley.storage.tables.knowledge import chunk_vectors, chunks
from parley.wiring import Parley

LEASE_SECONDS = 0.6
# A reading writes five times: claim, charge, passages, progress, end.
DEATHS = ((1, "after"), (2, "before"), (2, "after"), (3, "after"), (4, "after"), (5, "before"), (5, "after"))
TEXT = "".join(f"## Rule {number}\n\nRule {number} says that door {number} stays shut.\n\n" for number in range(60))


class Killed(Exception):
    """The process is gone."""


class Mortal:
    """A store that one process uses until its ``fatal`` write; nothing it does after that arrives."""

    def __init__(self, store: Store, fatal: int, moment: str) -> None:
        self.dialect = store.dialect
        self.writes = 0
        self._store = store
        self._fatal = fatal
        self._moment = moment

    @property
    def across(self) -> Store:
        return self

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        self.writes += 1
        if self.writes > self._fatal or (self.writes == self._fatal and self._moment == "before"):
            raise Killed
        done = await self._store.write(work)
        if self.writes == self._fatal:
            raise Killed
        return done

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        if self.writes >= self._fatal:
            raise Killed
        return await self._store.read(work)

    async def close(self) -> None:
        """The real one is closed by its owner."""


@asynccontextmanager
async def quiet_parley(url: str, folder: Path) -> AsyncGenerator[Parley]:
    """A Parley whose own reader is busy elsewhere: tests bring theirs."""
    async with parley_on(
        url, folder, PARLEY_LEASE_SECONDS=str(LEASE_SECONDS), PARLEY_HEARTBEAT_SECONDS="0.1"
    ) as parley:
        assert parley.knowledge.reader is not None
        await parley.knowledge.reader.drain()
        yield parley


async def waiting_document(parley: Parley, folder: Path, number: int = 0) -> Document:
    """A document that is stored and not read yet, as if uploaded through another process."""
    base = await parley.knowledge.bases.create(ORGANIZATION, ORGANIZATION, NewBase("Rules"))
    path = folder / "rules.md"
    path.write_text(f"Version {number}\n\n{TEXT}")
    with path.open("rb") as file:
        return await parley.knowledge.documents.upload(
            ORGANIZATION, ORGANIZATION, base.id, Upload("rules.md", file, {})
        )


def reader_on(parley: Parley, store: Store) -> Reader:
    embedder = parley.knowledge.search.embedder
    return Reader(store, store, parley.clock, parley.settings, parley.plans, embedder)


async def until_read(parley: Parley, document: Document) -> Document:
    async with asyncio.timeout(30):
        while True:
            now = await parley.knowledge.documents.get(ORGANIZATION, document.knowledge_base_id, document.id)
            if now.status in {"completed", "failed"}:
                return now
            await asyncio.sleep(0.05)


async def counted(parley: Parley, document: Document) -> tuple[int, int, int]:
    """Passages, their vectors, and how often reading was charged."""

    of_document = chunk_vectors.c.document_id == document.id

    def work(tx: ReadTx) -> tuple[int, int, int]:
        passages = tx.execute(select(func.count(chunks.c.id)).where(chunks.c.document_id == document.id)).scalar_one()
        embedded = tx.execute(select(func.coalesce(func.sum(chunk_vectors.c.count), 0)).where(of_document)).scalar_one()
        charged = tx.execute(
            select(func.count(ledger.c.charge_key)).where(ledger.c.charge_key.like(f"ingest:{document.id}:%"))
        ).scalar_one()
        return passages, int(embedded), charged

    return await parley.store.read(work)


async def test_a_document_whose_reader_dies_at_any_write_is_read_and_charged_once(
    store_url: str, tmp_path: Path
) -> None:
    async with quiet_parley(store_url, tmp_path) as parley:
        for number, (fatal, moment) in enumerate(DEATHS):
            document = await waiting_document(parley, tmp_path, number)
            with pytest.raises(ExceptionGroup) as dead:
                async with asyncio.timeout(20):
                    await reader_on(parley, Mortal(parley.store, fatal, moment)).run()
            assert dead.value.split(Killed)[1] is None
            async with asyncio.TaskGroup() as group:
                heir = group.create_task(reader_on(parley, parley.store).run())
                read = await until_read(parley, document)
                heir.cancel()
            assert (read.status, read.error) == ("completed", None), (fatal, moment)
            assert await counted(parley, document) == (read.chunk_count, read.chunk_count, 1), (fatal, moment)
            bases = await parley.knowledge.search.bases(ORGANIZATION, [document.knowledge_base_id])
            found = await parley.knowledge.search.by_both(bases, Query("Which door does rule 17 keep shut?"), Weights())
            assert "Rule 17 says" in found.matches[0].content


async def test_a_reader_that_lost_its_lease_can_add_nothing(store_url: str, tmp_path: Path) -> None:
    async with quiet_parley(store_url, tmp_path) as parley:
        document = await waiting_document(parley, tmp_path)
        now = parley.clock.now()
        (late,) = await parley.store.write(lambda tx: claim(tx, "late", room=1, lease_seconds=0, stamp=now))
        (heir,) = await parley.store.write(lambda tx: claim(tx, "heir", room=1, lease_seconds=60, stamp=now))
        assert (late.epoch, heir.epoch, heir.document.id) == (1, 2, document.id)
        reader = reader_on(parley, parley.store)
        with pytest.raises(ReadingLost):
            await parley.store.write(lambda tx: _late_write(reader, tx, late))
        assert await counted(parley, document) == (0, 0, 0)


async def test_a_reading_that_is_cancelled_before_its_first_step_leaves_its_place_free(
    store_url: str, tmp_path: Path
) -> None:
    async with quiet_parley(store_url, tmp_path) as parley:
        documents = [await waiting_document(parley, tmp_path, number) for number in range(AT_ONCE)]
        unborn = iter(range(AT_ONCE))

        def make(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any) -> asyncio.Task[Any]:
            task = asyncio.Task(work, loop=loop, **more)
            if work.__qualname__ == "Reader._read" and next(unborn, None) is not None:
                task.cancel()
            return task

        asyncio.get_running_loop().set_task_factory(make)
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(reader_on(parley, parley.store).run())
                statuses = [(await until_read(parley, document)).status for document in documents]
                reading.cancel()
        finally:
            asyncio.get_running_loop().set_task_factory(None)
        assert statuses == ["completed"] * AT_ONCE
        assert next(unborn, None) is None


async def test_half_of_a_document_is_never_found(store_url: str, tmp_path: Path) -> None:
    async with quiet_parley(store_url, tmp_path) as parley:
        document = await waiting_document(parley, tmp_path)
        now = parley.clock.now()
        (reading,) = await parley.store.write(lambda tx: claim(tx, "first", room=1, lease_seconds=60, stamp=now))
        piece = Piece("Door seventeen stays shut.", 0, 26, 6)
        await parley.store.write(lambda tx: insert_chunks(tx, document, 0, [piece], b"\x00" * 512, now))
        assert reading.document.id == document.id
        bases = await parley.knowledge.search.bases(ORGANIZATION, None)
        assert await parley.knowledge.search.by_both(bases, Query("door seventeen"), Weights()) == Found([], [])
        await parley.store.write(lambda tx: drop_chunks(tx, document.id))


def _late_write(reader: Reader, tx: WriteTx, late: Reading) -> None:
    reader.put(tx, late, 0, [Piece("Too late.", 0, 9, 3)], b"\x00" * 512)
