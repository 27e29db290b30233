"""Server processes that can be killed, on both stores, with an outside witness of every effect."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from parley.base.settings import read_settings
from parley.billing import load_plans
from parley.billing.verify import billing_faults
from parley.chats.verify import chat_faults
from parley.storage import open_store
from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from tests.contract.conftest import ORGANIZATION, github, model, model_port, proxy
from tests.stage import Client, caller, new_model_key

__all__ = ["github", "model", "model_port", "proxy"]

START_SECONDS = 60.0
# For what happens at once on an idle machine: nobody knows how busy this one is.
PATIENCE = 60.0
# Of a whole test: the default would end some of these on a busy machine, and a test that hangs ends all the same.
TEST_SECONDS = 300
HERE = Path(__file__).parent
LEASE = {"PARLEY_LEASE_SECONDS": "1.5", "PARLEY_HEARTBEAT_SECONDS": "0.3"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@dataclass(slots=True)
class Nursery:
    """Forks servers."""

    process: subprocess.Popen[str]

    def fork(self, order: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-m", "parley.testing.nursery"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        process.kill()


@dataclass(slots=True)
class Server:
    """One server process."""

    pid: int
    log: Path
    base_url: str = ""

    @property
    def alive(self) -> bool:
        # Until the last thread is gone the process still holds its files and their locks.
        return (Path("/proc") / str(self.pid)).exists()

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    async def gone(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            while self.alive:
                await asyncio.sleep(0.01)


@dataclass(slots=True)
class Site:
    """A store, its servers, and what its callers need."""

    nursery: Nursery
    environment: dict[str, str]
    folder: Path
    key: str
    model: ScriptedModel
    model_key: str = field(default_factory=new_model_key)
    servers: list[Server] = field(default_factory=list[Server])

    @property
    def llm(self) -> dict[str, str]:
        return {"integration_name": "openai", "provider_id": "openai", "model_id": "gpt-4o"}

    async def serve(self, role: str = "all", crash: str | None = None, **extra: str) -> Server:
        """A new server process; returns once it answers, or, for a worker, works."""
        log = self.folder / f"server-{len(self.servers)}.log"
        order = {"environment": {**self.environment, **extra}, "role": role, "log": str(log), "crash": crash}
        server = Server(self.nursery.fork(order), log)
        self.servers.append(server)
        async with asyncio.timeout(START_SECONDS):
            while not self._is_ready(server):
                assert server.alive, log.read_text()
                await asyncio.sleep(0.01)
        return server

    def _is_ready(self, server: Server) -> bool:
        if not server.log.exists():
            return False
        for line in server.log.read_text().splitlines():
            if line.startswith("Parley answers on "):
                server.base_url = line.removeprefix("Parley answers on ")
                return True
            if line == "Parley works":
                return True
        return False

    async def connect(self, client: Client, integration: str, secret: str) -> None:
        """Give the organization a bearer credential."""
        body = {"integration_name": integration, "auth_type": "bearer_token", "auth_data": {"token": secret}}
        answer = await client.post("/credentials", body)
        assert answer.status == 201, answer.body

    async def furnish(self, server: Server) -> None:
        """Give the organization the scripted model."""
        async with caller(server.base_url, self.key, ORGANIZATION) as client:
            body = {
                "integration_name": "openai",
                "auth_data": {"api_key": self.model_key, "base_url": self.model.openai_url},
            }
            answer = await client.post("/credentials", body)
            assert answer.status == 201, answer.body

    async def faults(self) -> list[str]:
        """What ``parley verify`` says; the servers are stopped first."""
        for server in self.servers:
            server.signal(signal.SIGCONT)
            server.signal(signal.SIGKILL)
            await server.gone()
        settings = read_settings(self.environment)
        store = open_store(settings.store_url).across
        try:
            plans = load_plans(settings.plans_file)
            return [*await store.read(chat_faults), *await store.read(lambda tx: billing_faults(tx, plans))]
        finally:
            await store.close()


@asynccontextmanager
async def opened_site(
    url: str, folder: Path, nursery: Nursery, model: ScriptedModel, proxy: ProviderProxy
) -> AsyncGenerator[Site]:
    """A site on that store; its servers are killed at the end."""
    key = f"mx_live_{uuid4().hex}"
    environment = {
        "PARLEY_PORT": "0",
        "PARLEY_DATA_DIR": str(folder / "data"),
        "PARLEY_DATABASE_URL": url,
        "PARLEY_BOOTSTRAP_API_KEY": key,
        "PARLEY_BOOTSTRAP_ORGANIZATION_ID": ORGANIZATION,
        "PARLEY_ALLOW_PRIVATE_HOSTS": "127.0.0.1",
        "OLLAMA_HOST": "http://127.0.0.1:9",
        **LEASE,
        **proxy.environment,
    }
    made = Site(nursery, environment, folder, key, model)
    try:
        yield made
    finally:
        for server in made.servers:
            server.signal(signal.SIGCONT)
            server.signal(signal.SIGKILL)


@pytest.fixture
async def site(
    store_url: str, tmp_path: Path, nursery: Nursery, model: ScriptedModel, proxy: ProviderProxy
) -> AsyncIterator[Site]:
    async with opened_site(store_url, tmp_path, nursery, model, proxy) as made:
        yield made


def only_postgres(site: Site) -> None:
    """Skips the test on SQLite, which one process has to itself."""
    if site.environment["PARLEY_DATABASE_URL"].startswith("sqlite"):
        pytest.skip("several processes need PostgreSQL")


async def start(site: Site, client: Client, message: str = "Go", chat_id: str | None = None) -> dict[str, Any]:
    """Begin a turn; it must be accepted."""
    body = {"message": message, "llm": site.llm, **({"chat_id": chat_id} if chat_id else {})}
    answer = await client.post("/assistant/chat", body)
    assert answer.status == 200, answer.body
    return answer.body
