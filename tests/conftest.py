"""What every test may ask for: both stores, migrated and empty."""

import asyncio
import os
import socket
import tomllib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy import make_url

from parley.storage import Store, open_store
from parley.storage.postgres import connect  # the driver's own: tests run beside servers that guard the public name
from parley.storage.schema import migrate

STORES = ("sqlite", "postgresql")
ROOT = Path(__file__).parent.parent
# Which tests show which row of docs/security.md; `pytest -m T7` runs those of one.
THREATS: dict[str, list[str]] = tomllib.loads((ROOT / "tests" / "threats.toml").read_text())


def pytest_configure(config: pytest.Config) -> None:
    for row in THREATS:
        config.addinivalue_line("markers", f"{row}: shows row {row} of docs/security.md")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(ROOT).as_posix()
        own = {place, f"{place}::{getattr(item, 'originalname', item.name)}"}
        for row, tests in THREATS.items():
            if not own.isdisjoint(tests):
                item.add_marker(getattr(pytest.mark, row))


def postgres_server() -> str | None:
    """The URL of a PostgreSQL to make test databases on, without a database name; None where there is none."""
    chosen = os.environ.get("PARLEY_TEST_POSTGRES_URL", "")
    if chosen:
        return chosen.rstrip("/")
    try:
        with socket.create_connection(("127.0.0.1", 5432), timeout=0.5):
            return "postgresql://postgres@127.0.0.1:5432"
    except OSError:
        return None


POSTGRES = postgres_server()
# Who serves owns the tables and is no superuser, as in production: policies on rows hold for nobody else.
ROLE = "parley_tests"


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that serves in production."""
    return "asyncio", {"use_uvloop": True}


def pytest_report_header() -> str:
    if POSTGRES is None:
        return "stores: SQLite only; set PARLEY_TEST_POSTGRES_URL to run the PostgreSQL half too"
    return "stores: SQLite and PostgreSQL"


async def _admin(statement: str) -> None:
    assert POSTGRES is not None
    connection = await connect(f"{POSTGRES}/postgres", timeout=10, command_timeout=30)
    try:
        await connection.execute(statement)
    finally:
        await connection.close(timeout=5)


async def _make_role() -> None:
    with suppress(asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
        await _admin(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{ROLE}'")


def _served(name: str) -> str:
    """A test database's URL, as the role that serves."""
    return make_url(f"{POSTGRES}/{name}").set(username=ROLE, password=ROLE).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def postgres_template() -> Iterator[str | None]:
    """A migrated empty database that each test's own is copied from."""
    if POSTGRES is None:
        yield None
        return
    name = f"parley_template_{uuid4().hex[:12]}"

    async def make() -> None:
        await _make_role()
        await _admin(f"CREATE DATABASE {name} OWNER {ROLE}")
        store = open_store(_served(name))
        await migrate(store)
        await store.close()

    _apart(make())
    yield name
    _apart(_admin(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


def _apart(work: Coroutine[object, object, None]) -> None:
    """Run it on a loop of its own in a thread of its own: the tests' loop may already be running in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


@asynccontextmanager
async def fresh_database(kind: str, folder: Path, template: str | None) -> AsyncGenerator[str]:
    """The URL of an empty store, dropped afterwards; skips the test where there is no PostgreSQL."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'parley.db'}"
        return
    if template is None:
        pytest.skip("no PostgreSQL answers")
    name = f"parley_test_{uuid4().hex[:12]}"
    await _admin(f"CREATE DATABASE {name} OWNER {ROLE} TEMPLATE {template}")
    try:
        yield _served(name)
    finally:
        await _admin(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(params=STORES)
async def store_url(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_template: str | None
) -> AsyncIterator[str]:
    """The URL of an empty store of each kind; PostgreSQL only where one answers."""
    async with fresh_database(str(request.param), tmp_path, postgres_template) as url:
        yield url


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An open, migrated, empty store of each kind."""
    opened = open_store(store_url)
    await migrate(opened)
    yield opened.across
    await opened.close()
