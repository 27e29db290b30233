"""The shipped catalog, and provider APIs that never leave the machine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.integrations import Catalog, Secret
from parley.integrations.index import SHIPPED, read_index
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import ProviderProxy
from tests.contract.conftest import github, proxied

__all__ = ["github"]


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return Catalog(read_index(SHIPPED))


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[ProviderProxy]:
    async with proxied(tmp_path) as running:
        yield running


@pytest.fixture
def token(github: FakeGitHub) -> Secret:
    return Secret("bearer_token", {"token": github.token})
