"""A running Parley on each store, as for the contract's stories, and external stores beside it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from parley.testing.provider_proxy import ProviderProxy
from tests.contract.conftest import house, model, model_port, proxy, settings_extra, stage
from tests.knowledge.elsewhere import Elsewhere, Open, open_elsewhere

__all__ = ["house", "model", "model_port", "proxy", "settings_extra", "stage"]


@pytest.fixture
async def open_store(proxy: ProviderProxy) -> AsyncIterator[Open]:
    """Starts an external store of a kind."""
    async with AsyncExitStack() as stack:

        async def start(kind: str) -> Elsewhere:
            return await open_elsewhere(kind, proxy, stack)

        yield start
