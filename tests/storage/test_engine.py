"""Units of work: committed or rolled back whole, on both stores."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.exc import DBAPIError

from parley.storage import ReadTx, Store, WriteTx, open_store
from parley.storage.engine import READERS, StoreClosed
from parley.storage.schema import migrate
from parley.storage.tables.accounts import instance_secrets

WAIT_SECONDS = 60
FULL = 2  # of PRAGMA synchronous


def put(name: str) -> Callable[[WriteTx], str]:
    def work(tx: WriteTx) -> str:
        tx.execute(insert(instance_secrets).values(name=name, sealed=b"x", key_id="k1", created_at=0))
        return name

    return work


def names(tx: ReadTx) -> list[str]:
    return sorted(tx.execute(select(instance_secrets.c.name)).scalars())


async def test_a_written_row_is_read_back(store: Store) -> None:
    assert await store.write(put("one")) == "one"
    assert await store.read(names) == ["one"]


async def test_a_unit_that_raises_leaves_nothing_and_its_neighbours_stay(store: Store) -> None:
    def broken(tx: WriteTx) -> None:
        put("broken")(tx)
        raise LookupError("no")

    async def attempt() -> None:
        with pytest.raises(LookupError):
            await store.write(broken)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(store.write(put(f"n{number:02}")))
            group.create_task(attempt())
    assert await store.read(names) == [f"n{number:02}" for number in range(20)]


async def test_a_reader_cannot_write(store: Store) -> None:
    with pytest.raises(DBAPIError):
        await store.read(lambda tx: put("sneaky")(WriteTx(tx)))
    assert await store.read(names) == []


async def test_a_duplicate_key_is_refused_to_the_second_of_two_writers(store: Store) -> None:
    outcomes: list[str] = []

    async def attempt() -> None:
        try:
            await store.write(put("same"))
            outcomes.append("won")
        except DBAPIError:
            outcomes.append("lost")

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(attempt())
    assert sorted(outcomes) == ["lost"] * 9 + ["won"]


async def test_a_unit_of_work_after_the_close_is_refused_instead_of_waiting_for_ever(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'parley.db'}")
    await store.close()
    with pytest.raises(StoreClosed):
        async with asyncio.timeout(20):
            await store.write(lambda tx: None)


async def test_a_file_that_cannot_be_opened_is_told_and_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "parley.db"
    file.mkdir()
    store = open_store(f"sqlite:///{file}")
    async with asyncio.timeout(WAIT_SECONDS):
        for attempt in (store.read, store.write):
            with pytest.raises(DBAPIError):
                await attempt(lambda _tx: None)
        file.rmdir()
        await migrate(store)
        assert await store.write(put("one")) == "one"
        assert await store.read(names) == ["one"]
        await store.close()


async def test_a_read_that_nobody_waits_for_any_more_is_left_out(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'parley.db'}")
    await migrate(store)
    busy, go_on = threading.Barrier(READERS + 1, timeout=WAIT_SECONDS), threading.Event()
    made: list[str] = []

    def hold(_tx: ReadTx) -> None:
        busy.wait()
        go_on.wait(WAIT_SECONDS)

    async with asyncio.TaskGroup() as group:
        for _ in range(READERS):
            group.create_task(store.read(hold))
        await asyncio.to_thread(busy.wait)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await store.read(lambda _tx: made.append("left out"))
        go_on.set()
    await store.read(lambda _tx: made.append("wanted"))
    await store.close()
    assert made == ["wanted"]


async def test_a_read_of_several_statements_sees_one_moment(store: Store, store_url: str) -> None:
    await store.write(put("one"))
    looked, written = threading.Event(), threading.Event()

    async def write_two() -> None:
        other = open_store(store_url)
        await other.write(put("two"))
        await other.close()

    def write_between() -> None:
        assert looked.wait(WAIT_SECONDS)
        asyncio.run(write_two())
        written.set()

    def twice(tx: ReadTx) -> tuple[list[str], list[str]]:
        before = names(tx)
        looked.set()
        # On PostgreSQL this holds the event loop's thread, so the writer has its own.
        assert written.wait(WAIT_SECONDS)
        return before, names(tx)

    writer = threading.Thread(target=write_between)
    writer.start()
    assert await store.read(twice) == (["one"], ["one"])
    await asyncio.to_thread(writer.join)
    assert await store.read(names) == ["one", "two"]


async def test_units_that_lock_rows_in_opposite_orders_both_end(store: Store, store_url: str) -> None:
    for name in ("left", "right"):
        await store.write(put(name))
    met = threading.Barrier(2, timeout=WAIT_SECONDS)

    def cross(one: str, other: str) -> None:
        tries: list[str] = []

        def work(tx: WriteTx) -> None:
            tries.append(one)
            tx.execute(update(instance_secrets).where(instance_secrets.c.name == one).values(key_id=one))
            if store.dialect == "postgresql" and len(tries) == 1:
                met.wait()
            tx.execute(update(instance_secrets).where(instance_secrets.c.name == other).values(key_id=one))

        async def write() -> None:
            own = open_store(store_url)
            await own.write(work)
            await own.close()

        asyncio.run(write())

    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(cross, "left", "right"))
        group.create_task(asyncio.to_thread(cross, "right", "left"))
    kept = await store.read(lambda tx: set(tx.execute(select(instance_secrets.c.key_id)).scalars()))
    assert len(kept) == 1


async def test_what_sqlite_has_committed_is_on_disk_and_many_units_share_a_commit(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'parley.db'}")
    await migrate(store)
    said: list[str] = []

    def listen(tx: WriteTx) -> list[object]:
        driver = tx.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.set_trace_callback(said.append)
        return [tx.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("synchronous", "journal_mode")]

    try:
        assert await store.write(listen) == [FULL, "wal"]
        blocked, go_on = threading.Event(), threading.Event()

        def hold(tx: WriteTx) -> str:
            blocked.set()
            go_on.wait(WAIT_SECONDS)
            return put("held")(tx)

        async with asyncio.TaskGroup() as group:
            group.create_task(store.write(hold))
            await asyncio.to_thread(blocked.wait, WAIT_SECONDS)
            waiting = [group.create_task(store.write(put(f"n{number:02}"))) for number in range(60)]
            await asyncio.sleep(0)
            before = said.count("COMMIT")
            go_on.set()
        assert len(waiting) == 60
        assert said.count("COMMIT") - before == 2
    finally:
        await store.close()
