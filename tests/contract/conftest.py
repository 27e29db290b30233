"""A running Parley on each store, with a scripted model behind an OpenAI credential and a GitHub behind TLS.

One server a store serves all tests of a module; each test acts in an organization of its own.
A test module that needs other settings says so in ``settings_extra`` and gets its own server.
"""

import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest
from modulex import Modulex

from parley.base.clock import Clock
from parley.base.settings import read_settings
from parley.storage import open_store
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import ProviderProxy, provider_proxy
from parley.testing.scripted_model import ScriptedModel
from parley.testing.server import served
from parley.wiring import OpenStore, Parley
from tests.billing.office import PLAN_FILE
from tests.conftest import STORES, fresh_database
from tests.stage import Client, Stage, caller, faults, new_model_key

ORGANIZATION = "11111111-1111-4111-8111-111111111111"


@dataclass(frozen=True, slots=True)
class House:
    """A running server and its first owner."""

    parley: Parley
    clock: Clock
    base_url: str
    key: str


@pytest.fixture(scope="session")
def model_port() -> Iterator[int]:
    """The port of one scripted model provider, a process of its own, for all tests."""
    command = [sys.executable, "-m", "parley.testing.scripted_model", "--port", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline().split()[-1])
        process.kill()


@pytest.fixture(scope="session")
async def model(model_port: int) -> AsyncIterator[ScriptedModel]:
    async with aiohttp.ClientSession() as session:
        yield ScriptedModel(model_port, session)


@asynccontextmanager
async def proxied(folder: Path) -> AsyncGenerator[ProviderProxy]:
    """A proxy at which whatever leaves this process arrives."""
    with pytest.MonkeyPatch.context() as patch:
        async with provider_proxy(folder) as running:
            for name, value in running.environment.items():
                patch.setenv(name, value)
            yield running


@pytest.fixture(scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProviderProxy]:
    async with proxied(tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.fixture
def github(proxy: ProviderProxy) -> FakeGitHub:
    """GitHub with one account; its token is ``github.token``."""
    fake = FakeGitHub(f"ghp_{uuid4().hex}")
    proxy.answer("api.github.com", fake)
    return fake


@pytest.fixture(scope="module", params=STORES)
async def house(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres_template: str | None,
    proxy: ProviderProxy,
    settings_extra: dict[str, str],
) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("house")
    async with fresh_database(str(request.param), folder, postgres_template) as url, AsyncExitStack() as stack:
        yield await open_house(stack, url, folder, proxy, settings_extra)


@pytest.fixture(scope="module")
def settings_extra() -> dict[str, str]:
    """Settings beside the usual ones; a module that needs some has a fixture of this name."""
    return {}


def billed(folder: Path, model: ScriptedModel, pooled_key: str) -> dict[str, str]:
    """Settings of a server with small plans and a pooled key for the managed provider, where a token costs a credit."""
    plans = folder / "plans.toml"
    plans.write_text(PLAN_FILE, encoding="utf-8")
    return {"PARLEY_PLANS_FILE": str(plans), "OPENAI_API_KEY": pooled_key, "OPENAI_BASE_URL": model.openai_url}


async def open_house(
    stack: AsyncExitStack,
    url: str,
    folder: Path,
    proxy: ProviderProxy,
    extra: dict[str, str],
    store_at: OpenStore = open_store,
) -> House:
    """Serve until the stack unwinds."""
    key = f"mx_live_{uuid4().hex}"
    settings = read_settings(
        {
            "PARLEY_PORT": "0",
            "PARLEY_DATA_DIR": str(folder / "data"),
            "PARLEY_DATABASE_URL": url,
            "PARLEY_BOOTSTRAP_API_KEY": key,
            "PARLEY_BOOTSTRAP_ORGANIZATION_ID": ORGANIZATION,
            "PARLEY_ALLOW_PRIVATE_HOSTS": "127.0.0.1",
            "OLLAMA_HOST": "http://127.0.0.1:9",
            **proxy.environment,
            **extra,
        }
    )
    clock = Clock()
    parley, base_url = await stack.enter_async_context(served(settings, clock=clock, store_at=store_at))
    return House(parley, clock, base_url, key)


@pytest.fixture
async def stage(house: House, model: ScriptedModel) -> AsyncIterator[Stage]:
    """A fresh organization on the shared server of each store."""
    async with team(house, model, f"Team {uuid4().hex[:8]}") as ready:
        yield ready
        assert await faults(house.parley) == []


@asynccontextmanager
async def team(house: House, model: ScriptedModel, name: str) -> AsyncGenerator[Stage]:
    """A fresh organization of the first owner's, with the scripted model as its OpenAI."""
    async with caller(house.base_url, house.key, ORGANIZATION) as client:
        made = await client.post("/organizations", {"name": name})
        assert made.status in (200, 201), made.body
        client.organization_id = made.body["organization"]["id"]
        yield await furnish(house, client, model)


@asynccontextmanager
async def decided_team(house: House, model: ScriptedModel) -> AsyncGenerator[Stage]:
    """A team as people find it who chose no model: theirs is the default."""
    async with team(house, model, "Acme Works") as ready:
        chosen = await ready.client.call("PUT", "/organizations/settings/composer-llm", ready.llm)
        assert chosen.status == 200, chosen.body
        yield ready


@pytest.fixture
async def sdk(stage: Stage) -> AsyncIterator[Modulex]:
    """The published client, as it is installed."""
    client = stage.client
    async with Modulex(
        api_key=client.key, organization_id=client.organization_id, base_url=client.base_url, max_retries=0
    ) as published:
        yield published


async def furnish(house: House, client: Client, model: ScriptedModel) -> Stage:
    """Give the caller's organization the scripted model as its OpenAI."""
    model_key = new_model_key()
    body = {
        "integration_name": "openai",
        "auth_data": {"api_key": model_key, "base_url": model.openai_url},
        "display_name": "Scripted",
    }
    made = await client.post("/credentials", body)
    assert made.status == 201, made.body
    llm = {"integration_name": "openai", "provider_id": "openai", "model_id": "gpt-4o"}
    return Stage(house.parley, house.clock, client, model, model_key, llm)
