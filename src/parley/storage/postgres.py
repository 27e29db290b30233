"""PostgreSQL through asyncpg. Loaded only where a store is opened on it."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
from asyncpg import InterfaceError, PostgresError, connect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from parley.storage.engine import ReadTx, Store, StoreAway, StoreBusy, WriteTx
from parley.storage.tenancy import SETTING, every_organization, own_organization

COMMAND_TIMEOUT_SECONDS = 10.0
CLOSE_SECONDS = 5.0
DEADLOCK = "40P01"
DEADLOCKS_MENDED = 3
# Classes of SQLSTATE that say nothing against the statement: the connection broke, the transaction was
# rolled back for another one's sake, the server is full, it is being stopped or started.
AWAY = ("08", "40", "53", "57")
_REACH = re.compile(r"\*|[0-9A-Za-z-]{0,36}")

log = logging.getLogger(__name__)


class Link(asyncpg.Connection):
    """A connection that tells PostgreSQL whose rows it is for, in the round trip of ``BEGIN``."""

    reach: str | None = None
    """What the next transaction is for; None when it is not known."""

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:  # noqa: ASYNC109 - the driver's
        if query.startswith("BEGIN") and self.reach is not None:
            query = f"{query.rstrip(';')}; SELECT set_config('{SETTING}', '{self.reach}', true);"
        return await super().execute(query, *args, timeout=timeout)


class PostgresStore:
    """The same units of work as on SQLite, run on the driver's greenlet bridge. Fulfils ``engine.Store``."""

    dialect = "postgresql"

    def __init__(self, writers: AsyncEngine, readers: AsyncEngine, reach: Callable[[], str]) -> None:
        self._writers = writers
        self._readers = readers
        self._reach = reach

    @property
    def across(self) -> Store:
        return PostgresStore(self._writers, self._readers, every_organization)

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        with _telling_when_away():
            for _ in range(DEADLOCKS_MENDED):
                try:
                    return await self._write_once(work)
                except DBAPIError as error:
                    # The server undid one of two that waited for each other: nothing of it is left.
                    if getattr(error.orig, "sqlstate", None) != DEADLOCK:
                        raise
            return await self._write_once(work)

    async def _write_once[T](self, work: Callable[[WriteTx], T]) -> T:
        async with self._writers.connect() as connection, _given_up(connection), connection.begin():
            # The transaction begins on the server with the first statement.
            (await _link(connection)).reach = _checked(self._reach())
            async with _given_up(connection):
                return await connection.run_sync(lambda sync: work(WriteTx(ReadTx(sync))))

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        with _telling_when_away():
            async with self._readers.connect() as connection, _given_up(connection):
                (await _link(connection)).reach = _checked(self._reach())
                return await connection.run_sync(lambda sync: work(ReadTx(sync)))

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._writers.dispose()
                await self._readers.dispose()
        except TimeoutError:
            log.warning("PostgreSQL kept connections open for %g s; they end with the process", CLOSE_SECONDS)


def open_postgres(url: str, connections: int) -> PostgresStore:
    """The store at a ``postgresql+asyncpg`` URL, with that many connections."""
    readers = max(1, connections // 3)
    return PostgresStore(
        _engine(url, max(1, connections - readers), "READ COMMITTED", {}),
        # Begin and end are two round trips a read, about 0.2 ms. Without them a read of several statements
        # mixes moments: a run that is over beside a question that is still open.
        _engine(url, readers, "REPEATABLE READ", {"default_transaction_read_only": "on"}),
        own_organization,
    )


async def _link(connection: AsyncConnection) -> Link:
    link = (await connection.get_raw_connection()).driver_connection
    if not isinstance(link, Link):
        raise TypeError("this connection was not made by the store")
    return link


@asynccontextmanager
async def _given_up(connection: AsyncConnection) -> AsyncGenerator[None]:
    """Drop the connection where it was silent for too long: to undo or to end on it would take as long again."""
    try:
        yield
    except TimeoutError:
        await connection.invalidate()
        raise


def _checked(reach: str) -> str:
    if _REACH.fullmatch(reach) is None:
        raise ValueError("an organization's id is letters, digits and dashes")
    return reach


@contextmanager
def _telling_when_away() -> Generator[None]:
    """Raise StoreAway in place of the many errors by which the driver says that the database is not there."""
    try:
        yield
    except NoConnectionFree as error:
        raise StoreBusy(str(error)) from error
    except (OSError, TimeoutError) as error:
        raise StoreAway(str(error) or type(error).__name__) from error
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None) or ""
        if error.connection_invalidated or state.startswith(AWAY):
            raise StoreAway(str(error.orig) or state) from error
        raise


async def _connect(*arguments: Any, **options: Any) -> Any:
    """A connection of the driver. Raises StoreAway, also for a server that is starting or stopping."""
    # The driver's own ``connect``, held from before the egress guard replaces ``asyncpg.connect``:
    # the operator chose this server, which is usually a private one.
    try:
        return await connect(*arguments, **options)
    except (PostgresError, InterfaceError) as error:
        state = getattr(error, "sqlstate", None) or ""
        if isinstance(error, InterfaceError) or state.startswith(AWAY):
            raise StoreAway(str(error) or state) from error
        raise


def _engine(url: str, connections: int, isolation: str, server_settings: Mapping[str, str]) -> AsyncEngine:
    return create_async_engine(
        url,
        isolation_level=isolation,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=COMMAND_TIMEOUT_SECONDS,
        pool_pre_ping=False,
        hide_parameters=True,
        connect_args={
            "async_creator_fn": _connect,
            "connection_class": Link,
            "timeout": COMMAND_TIMEOUT_SECONDS,
            "command_timeout": COMMAND_TIMEOUT_SECONDS,
            "server_settings": {
                "timezone": "UTC",
                "idle_in_transaction_session_timeout": "10000",
                **server_settings,
            },
        },
    )
