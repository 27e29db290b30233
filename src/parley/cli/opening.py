"""The store for an operator's command: as it is, beside servers that may be running; never made, never migrated."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from parley.base.settings import Settings, SettingsError
from parley.keyring import Keyring, KeyringError, has_keys, load_keyring
from parley.storage import ReadTx, Store, open_store
from parley.storage.engine import sqlite_engine
from parley.storage.schema import head_revision, revision
from parley.storage.tenancy import EVERY, SETTING

CONNECT_SECONDS = 10.0
# One look at everything may take long on a large store.
LONGEST_QUERY_SECONDS = 3_600.0


class StoreTrouble(SettingsError):
    """The store cannot be used by this command; the message says why and what to do."""


@asynccontextmanager
async def open_rows(settings: Settings) -> AsyncGenerator[Store]:
    """The store, for reading and writing beside a running server. Raises StoreTrouble."""
    with in_plain_words(settings):
        _check_file(settings)
        store = open_store(settings.store_url, connections=2)
        try:
            await store.read(_check_revision)
            yield store.across
        finally:
            await store.close()


async def read_rows[T](settings: Settings, work: Callable[[ReadTx], T]) -> T:
    """Run the work over one moment of the store, on a connection that cannot write. Raises StoreTrouble."""

    def checked(tx: ReadTx) -> T:
        _check_revision(tx)
        return work(tx)

    with in_plain_words(settings):
        return await read_any_rows(settings, checked)


async def read_any_rows[T](settings: Settings, work: Callable[[ReadTx], T]) -> T:
    """As ``read_rows``, of whatever schema; errors are the driver's own."""
    _check_file(settings)
    path = sqlite_path(settings)
    if path is not None:
        return await asyncio.to_thread(_read_file, path, work)
    url = make_url(settings.store_url).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(
        url,
        poolclass=NullPool,
        isolation_level="REPEATABLE READ",
        connect_args={
            "timeout": CONNECT_SECONDS,
            "command_timeout": LONGEST_QUERY_SECONDS,
            "server_settings": {"default_transaction_read_only": "on", "timezone": "UTC", SETTING: EVERY},
        },
    )
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(lambda sync: work(ReadTx(sync)))
    finally:
        await engine.dispose()


def sqlite_path(settings: Settings) -> Path | None:
    """The file of a SQLite store, None for PostgreSQL. Raises StoreTrouble for any other URL."""
    try:
        url = make_url(settings.store_url)
    except ArgumentError:
        raise StoreTrouble("PARLEY_DATABASE_URL is no URL. Write it like postgresql://user@host/name") from None
    match url.get_backend_name():
        case "postgresql":
            return None
        case "sqlite" if url.database:
            return Path(url.database)
        case other:
            raise StoreTrouble(
                f"Parley stores rows in SQLite or PostgreSQL, not in {other}. Check PARLEY_DATABASE_URL."
            )


def shown_url(settings: Settings) -> str:
    """Where the store is, without a password."""
    return make_url(settings.store_url).render_as_string(hide_password=True)


def existing_keyring(settings: Settings) -> Keyring:
    """The master keys there are; none is made. Raises KeyringError."""
    if not has_keys(settings.master_keys, settings.data_dir):
        raise KeyringError(
            f"There is no master key in {settings.data_dir}. Run this with the PARLEY_DATA_DIR or PARLEY_MASTER_KEYS "
            "of the server."
        )
    return load_keyring(settings.master_keys, settings.data_dir)


@contextmanager
def in_plain_words(settings: Settings) -> Generator[None]:
    """Say of a store that does not answer which one it is and why."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        raise _trouble(settings, str(error.orig or error)) from None
    except (asyncpg.PostgresError, OSError, TimeoutError) as error:
        raise _trouble(settings, str(error) or type(error).__name__) from None


def _trouble(settings: Settings, reason: str) -> StoreTrouble:
    return StoreTrouble(f"The store {shown_url(settings)} does not answer: {reason.strip().splitlines()[0]}")


def _check_file(settings: Settings) -> None:
    path = sqlite_path(settings)
    if path is not None and not path.exists():
        raise StoreTrouble(
            f"There is no store at {path}. Run this with the PARLEY_DATA_DIR or PARLEY_DATABASE_URL of the server, or "
            "make one with: parley serve"
        )


def _read_file[T](path: Path, work: Callable[[ReadTx], T]) -> T:
    engine = sqlite_engine(path, read_only=True)
    try:
        with engine.connect() as connection, connection.begin():
            connection.exec_driver_sql("BEGIN")
            return work(ReadTx(connection))
    finally:
        engine.dispose()


def _check_revision(tx: ReadTx) -> None:
    found, known = revision(tx), head_revision()
    if found != known:
        raise StoreTrouble(
            f"The store has schema {found or 'none'}, and this Parley needs {known}. A server brings an older one up "
            "to date when it starts: parley serve. If a newer Parley made it, use that one."
        )
