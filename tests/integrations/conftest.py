"""The shipped catalog, and provider APIs that never leave the machine."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.integrations import Catalog, Secret
from parley.integrations.index import SHIPPED, read_index
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import ProviderProxy, provider_proxy


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return Catalog(read_index(SHIPPED))


@pytest.fixture
async def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProviderProxy]:
    async with provider_proxy(tmp_path) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def github(proxy: ProviderProxy) -> FakeGitHub:
    fake = FakeGitHub(f"ghp_{secrets.token_hex(18)}")
    proxy.answer("api.github.com", fake)
    return fake


@pytest.fixture
def token(github: FakeGitHub) -> Secret:
    return Secret("bearer_token", {"token": github.token})
