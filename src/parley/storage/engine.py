"""One way to read and write rows, on SQLite and on PostgreSQL.

A unit of work is a plain function of a connection. ``Store.write`` runs it in one transaction and
returns once that transaction is on disk; ``Store.read`` runs it without the right to write.
Neither is ever open across a model call, an action or a ``yield``.

On SQLite one thread writes, and commits up to 128 waiting units together (each in its own
savepoint), so that full durability is affordable and no writer ever starves (durability §1.3).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NewType, Protocol

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

ReadTx = NewType("ReadTx", Connection)
"""A connection that only reads."""
WriteTx = NewType("WriteTx", ReadTx)
"""A connection inside a transaction; it reads too."""

BATCH = 128
READERS = 4
# The last rows of some hundred runs; and how much is written before it is copied into the file itself, so that
# the pages that change with every turn are copied seldom.
CACHE_KILOBYTES, CHECKPOINT_PAGES = 8_000, 4_000
# More than the statements of every turn, so that SQLite parses none of them twice.
KEPT_STATEMENTS = 512
POSTGRES_POOL = 12
BUSY_MILLISECONDS, READERS_GET_MILLISECONDS = 5_000, 200


class StoreAway(ConnectionError):
    """The database did not answer, or answered that it cannot now; whether the work was committed is not known."""


class StoreBusy(StoreAway):
    """No connection to the database came free in time: this process asks more of it than they can carry."""


class Store(Protocol):
    """Where rows live. Fulfilled by ``SqliteStore`` and ``PostgresStore``."""

    dialect: str

    @property
    def across(self) -> Store:
        """The same rows for work that is no organization's own; without it a task has its organization's only."""
        ...

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        """Run the work in one transaction; its result once committed, its exception once rolled back.

        Where the database chooses it as the victim of a deadlock it is run anew, so it keeps nothing of a first try.
        Raises StoreAway where nobody knows which of the two it was.
        """
        ...

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        """Run the work on one snapshot, without the right to write."""
        ...

    async def close(self) -> None:
        """Finish what is queued, then let go of every connection."""
        ...


def open_store(url: str, *, connections: int = POSTGRES_POOL) -> Store:
    """The store behind a database URL: ``sqlite:///path`` or ``postgresql://…`` with that many connections.

    Raises ValueError for any other kind of URL.
    """
    parsed = make_url(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if not parsed.database:
            raise ValueError("A SQLite URL needs a file, such as sqlite:///var/parley.db")
        return SqliteStore(Path(parsed.database))
    if backend == "postgresql":
        # SQLAlchemy's asyncio side and the driver take a while to load: only where they serve.
        from parley.storage.postgres import open_postgres  # noqa: PLC0415

        driver_url = parsed.set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)
        return open_postgres(driver_url, connections)
    raise ValueError(f"Parley stores rows in SQLite or PostgreSQL, not in {backend}")


def sqlite_engine(path: Path, *, read_only: bool) -> Engine:
    """A SQLAlchemy engine on a SQLite file with Parley's pragmas; whoever uses it says BEGIN."""
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=NullPool,
        hide_parameters=True,
        connect_args={"check_same_thread": False, "cached_statements": KEPT_STATEMENTS},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: DBAPIConnection, _record: object) -> None:  # pyright: ignore[reportUnusedFunction]
        setattr(connection, "isolation_level", None)  # noqa: B010 - sqlite3: we begin transactions ourselves
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            f"busy_timeout={BUSY_MILLISECONDS}",
            "foreign_keys=ON",
            # What is deleted is overwritten, in the file at once and in its log by ``leave_no_trace``.
            "secure_delete=ON",
            f"cache_size=-{CACHE_KILOBYTES}",
            f"wal_autocheckpoint={CHECKPOINT_PAGES}",
            f"query_only={'ON' if read_only else 'OFF'}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


_TRACES = "parley_traces"

log = logging.getLogger(__name__)


def leave_no_trace(tx: WriteTx) -> None:
    """What this transaction deletes must not stay behind in the store's own files either.

    On SQLite the write-ahead log is emptied before the unit is reported done, or with one of the next
    units where a reader still needs it. PostgreSQL's files are its operator's (docs/security.md).
    """
    if tx.dialect.name == "sqlite":
        tx.info[_TRACES] = True


def as_raised(error: sqlite3.Error, sql: str) -> DBAPIError:
    """SQLite's own error as SQLAlchemy would have raised it, which is what callers look for."""
    return DBAPIError.instance(sql, (), error, sqlite3.Error, hide_parameters=True)  # pyright: ignore[reportReturnType]


STORE_TROUBLE = (SQLAlchemyError, OSError, TimeoutError)
"""What a store that is away, slow or out of connections raises; a pool's timeout is no error of the driver."""


class _Unit[T]:
    """One queued unit of work and the future its caller waits on."""

    __slots__ = ("error", "future", "loop", "result", "work")

    def __init__(self, work: Callable[[WriteTx], T] | Callable[[ReadTx], T], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self, session: _Session) -> None:
        """Do the work between the driver's own words: SQLAlchemy's savepoint costs more than most units do."""
        session.say("SAVEPOINT unit")
        try:
            self.result = self.work(session.tx)
        except BaseException as error:  # the caller's exception travels to the caller
            session.say("ROLLBACK TO unit")
            self.error = error
        session.say("RELEASE unit")

    def look(self, session: _Session) -> None:
        """Do the work on one snapshot."""
        try:
            session.say("BEGIN")
            try:
                self.result = self.work(session.tx)
            finally:
                session.undo()
        except BaseException as error:  # as above
            self.error = error

    def resolve(self) -> None:
        """Tell the caller; runs on the caller's loop."""
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # pyright: ignore[reportArgumentType]


class _Session:
    """One thread's connection. SQLAlchemy takes it for one long transaction: the real ones are the driver's."""

    __slots__ = ("_connection", "_driver", "tx")

    def __init__(self, engine: Engine) -> None:
        self._connection = engine.connect()
        self._connection.begin()
        driver = self._connection.connection.driver_connection
        if not isinstance(driver, sqlite3.Connection):
            raise TypeError("this store is not opened on SQLite")
        self._driver = driver
        self.tx = WriteTx(ReadTx(self._connection))

    def say(self, word: str) -> None:
        """Begin or end something. Raises as SQLAlchemy does."""
        try:
            self._driver.execute(word)
        except sqlite3.Error as error:
            raise as_raised(error, word) from error

    def undo(self) -> None:
        """Roll back what is open, if SQLite has not done so itself."""
        if self._driver.in_transaction:
            self.say("ROLLBACK")

    def empty_log(self) -> None:
        """Where something must leave no trace, write the log's pages back and cut it to nothing.

        A reader that still needs them is not waited for long: the next unit tries again.
        """
        if _TRACES not in self.tx.info:
            return
        try:
            self._driver.execute(f"PRAGMA busy_timeout={READERS_GET_MILLISECONDS}")
            try:
                (busy, _, _) = self._driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._driver.execute(f"PRAGMA busy_timeout={BUSY_MILLISECONDS}")
        except sqlite3.Error as error:
            # What was asked for is committed: it must not be told as failed.
            log.warning("the store's log could not be emptied (%s)", error)
            return
        if not busy:
            del self.tx.info[_TRACES]

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


class StoreClosed(RuntimeError):
    """A unit of work came after the store was closed: nothing would ever run it."""


class SqliteStore:
    """SQLite in one process: one writer thread with group commit, a few reader threads."""

    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives the files beside it the same mode.
        path.touch(mode=0o600)
        self.path = path
        self._queue: queue.SimpleQueue[_Unit[object] | None] = queue.SimpleQueue()
        self._write_engine = sqlite_engine(path, read_only=False)
        self._read_engine = sqlite_engine(path, read_only=True)
        self._closed = False
        self._looks: queue.SimpleQueue[_Unit[object] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._write_forever, name="parley-write", daemon=True),
            *(
                threading.Thread(target=self._read_forever, name=f"parley-read-{number}", daemon=True)
                for number in range(READERS)
            ),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def across(self) -> Store:
        return self

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        return await self._put(self._queue, work)

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        return await self._put(self._looks, work)

    async def _put[T](
        self, line: queue.SimpleQueue[_Unit[object] | None], work: Callable[[WriteTx], T] | Callable[[ReadTx], T]
    ) -> T:
        if self._closed:
            raise StoreClosed
        unit = _Unit(work, asyncio.get_running_loop())
        line.put(unit)  # pyright: ignore[reportArgumentType]
        return await unit.future

    async def close(self) -> None:
        self._closed = True
        self._queue.put(None)
        for _ in range(READERS):
            self._looks.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _read_forever(self) -> None:
        session: _Session | None = None
        while (unit := self._looks.get()) is not None:
            if unit.future.cancelled():
                continue
            try:
                session = session or _Session(self._read_engine)
            except BaseException as error:  # a file that cannot be opened now: the next unit tries again
                unit.error = error
            else:
                unit.look(session)
            _tell(unit.loop, [unit])
            del unit  # or what it read would stay here until the next one comes
        if session is not None:
            session.close()

    def _write_forever(self) -> None:
        session: _Session | None = None
        while True:
            batch, closing = self._next_batch()
            if batch:
                session = self._commit(session, batch)
            if closing:
                if session is not None:
                    session.close()
                return

    def _next_batch(self) -> tuple[list[_Unit[object]], bool]:
        """Wait for one unit, then take what else is queued; ``True`` once the store is closing."""
        first = self._queue.get()
        if first is None:
            return [], True
        batch = [first]
        while len(batch) < BATCH:
            try:
                unit = self._queue.get_nowait()
            except queue.Empty:
                break
            if unit is None:
                return batch, True
            batch.append(unit)
        return batch, False

    def _commit(self, session: _Session | None, batch: list[_Unit[object]]) -> _Session | None:
        """Commit a batch; the session for the next one, None where the file cannot be opened yet."""
        try:
            session = session or _Session(self._write_engine)
            session.say("BEGIN IMMEDIATE")
            try:
                for unit in batch:
                    unit.run(session)
                session.say("COMMIT")
            except BaseException:
                session.undo()
                raise
            session.empty_log()
        except BaseException as error:  # the whole batch is rolled back: every caller must know
            for unit in batch:
                unit.error = error
        # One wake-up a loop, not one a unit.
        for loop in {unit.loop for unit in batch}:
            _tell(loop, [unit for unit in batch if unit.loop is loop])
        return session


def _tell(loop: asyncio.AbstractEventLoop, units: list[_Unit[object]]) -> None:
    """Let the callers on a loop know, from another thread."""
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_resolve_all, units)


def _resolve_all(units: list[_Unit[object]]) -> None:
    for unit in units:
        unit.resolve()
