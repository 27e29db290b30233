"""Small plans, an organization to bill, and a stand-in for Stripe."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from parley.billing import Plans, load_plans
from parley.storage import Store
from tests.billing.office import PLAN_FILE, add_organization
from tests.billing.stripe_world import StripeWorld, stand_in_process


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    """Plans small enough to use up; a token of any model costs one credit in and two out."""
    path = tmp_path / "plans.toml"
    path.write_text(PLAN_FILE, encoding="utf-8")
    return load_plans(str(path))


@pytest.fixture
async def organization(store: Store) -> str:
    """An organization on the default plan, made on 31 January 2026."""
    return await store.write(lambda tx: add_organization(tx, "acme"))


@pytest.fixture(scope="module")
def stand_in() -> Iterator[str]:
    """Where the stand-in for Stripe answers."""
    with stand_in_process() as base_url:
        yield base_url


@pytest.fixture
async def stripe(stand_in: str) -> AsyncIterator[StripeWorld]:
    """The stand-in as a test sees it."""
    async with aiohttp.ClientSession() as session:
        yield StripeWorld(stand_in, session)
