"""One scripted provider for all adapter tests."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from parley.testing.scripted_model import ScriptedModel, scripted_model
from tests.llm.wired import WIRES, MakeWired, Wired


@pytest.fixture(scope="session")
async def provider() -> AsyncIterator[ScriptedModel]:
    async with scripted_model() as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture(params=WIRES)
def wired(request: pytest.FixtureRequest, provider: ScriptedModel, session: aiohttp.ClientSession) -> Wired:
    return Wired(request.param, provider, session)


@pytest.fixture
def wired_as(provider: ScriptedModel, session: aiohttp.ClientSession) -> MakeWired:
    return lambda wire: Wired(wire, provider, session)
