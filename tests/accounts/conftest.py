"""A server of accounts over each kind of store."""

from collections.abc import AsyncIterator

import pytest

from parley.storage import Store, open_store
from parley.storage.schema import migrate
from tests.accounts.desk import Desk, open_desk


@pytest.fixture
async def desk(store: Store) -> AsyncIterator[Desk]:
    """A running server, its owner, and a client."""
    async with open_desk(store) as opened:
        yield opened


@pytest.fixture(scope="session")
async def still(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """One server for all tests that write no row and read none but the owner's."""
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('still') / 'parley.db'}")
    await migrate(store)
    async with open_desk(store) as opened:
        yield opened
    await store.close()
