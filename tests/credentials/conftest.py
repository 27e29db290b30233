"""A world of credentials over each kind of store."""

from collections.abc import AsyncIterator

import pytest

from parley.base.clock import Clock
from parley.storage import Store
from parley.testing.oauth_server import oauth_server
from tests.credentials.world import World, add_person, new_keyring, open_world


@pytest.fixture
async def world(store: Store) -> AsyncIterator[World]:
    """Two organizations and a local authorization server."""
    people = await add_person(store, "mine"), await add_person(store, "theirs")
    async with (
        oauth_server() as server,
        open_world(store, server, people=people, keyring=new_keyring(), clock=Clock()) as opened,
    ):
        yield opened
