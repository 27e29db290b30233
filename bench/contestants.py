"""Who is measured: Parley and the floor, each a process on the measured core. For the others see ``bench.peers``."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import msgspec

from bench.child import ORDER_SECONDS, Child, Order, child, module
from bench.machine import on_core
from bench.scenario import MESSAGE, Shape
from parley.base.settings import Role
from parley.testing.scripted_model import ScriptedModel
from parley.testing.server import server_process

ORGANIZATION = "11111111-1111-4111-8111-111111111111"
LLM = {"integration_name": "openai", "provider_id": "openai", "model_id": "gpt-4o"}
ROOM = "5000"
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Contestant:
    """A process that is measured, whom to ask for turns of it, and how. ``store`` is the URL of its PostgreSQL."""

    name: str
    pid: int
    asks: Child
    order: Order
    store: str = ""

    async def turns(self, shape: Shape) -> Order:
        """Have these turns; what was heard of them."""
        order = {**self.order, "turns": shape.turns, "at_once": shape.at_once, "spread": shape.spread}
        return await self.asks.ask({**order, "patience": shape.patience}, ORDER_SECONDS + shape.patience)


@dataclass(frozen=True, slots=True)
class House:
    """A Parley server and the key of its first owner. ``output`` is what it has said by now, line by line."""

    pid: int
    base_url: str
    headers: dict[str, str]
    output: Sequence[str] = ()

    @property
    def place(self) -> Order:
        """Where it is, as orders say it."""
        parts = urlsplit(self.base_url)
        return {"host": parts.hostname, "port": parts.port, "headers": self.headers}

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request of the owner; its JSON."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.base_url + path, json=body, headers=self.headers) as response,
        ):
            text = await response.text()
            if response.status >= 300:
                raise RuntimeError(f"{method} {path}: {response.status} {text[:300]}")
            return json.loads(text)

    async def connect_model(self, model: ScriptedModel, key: str) -> None:
        """Make the scripted model this organization's OpenAI."""
        await self.call(
            "POST",
            "/credentials",
            {
                "integration_name": "openai",
                "auth_data": {"api_key": key, "base_url": model.openai_url},
                "display_name": "Scripted",
            },
        )


def parley_environment(folder: Path, owner_key: str, database_url: str = "") -> dict[str, str]:
    """The settings of a measured server: its defaults, with room for every turn of the bench."""
    return {
        "PARLEY_DATA_DIR": str(folder),
        "PARLEY_DATABASE_URL": database_url,
        "PARLEY_BOOTSTRAP_API_KEY": owner_key,
        "PARLEY_BOOTSTRAP_ORGANIZATION_ID": ORGANIZATION,
        "PARLEY_ALLOW_PRIVATE_HOSTS": "127.0.0.1",
        "PARLEY_TURNS_PER_ORGANIZATION": ROOM,
        "PARLEY_TURNS_PER_PROCESS": ROOM,
        "PARLEY_STREAMS_PER_KEY": ROOM,
        "PARLEY_STREAMS_PER_ORGANIZATION": ROOM,
        "OLLAMA_HOST": "http://127.0.0.1:9",
    }


@asynccontextmanager
async def parley_house(
    folder: Path,
    core: int | None,
    *,
    database_url: str = "",
    owner_key: str = "",
    role: Role = "all",
    variables: Mapping[str, str] = NO_VARIABLES,
) -> AsyncGenerator[House]:
    """A Parley server on that core. Several on one database share their owner's key.

    ``variables`` are further ones of its environment.
    """
    key = owner_key or new_owner_key()
    async with AsyncExitStack() as stack:
        with on_core(core):
            serving = server_process({**parley_environment(folder, key, database_url), **variables}, role)
            server = await stack.enter_async_context(serving)
        yield House(
            server.process.pid,
            server.base_url,
            {"Authorization": f"Bearer {key}", "X-Organization-ID": ORGANIZATION, "Content-Type": "application/json"},
            server.output,
        )


def new_owner_key() -> str:
    """A key for the first owner of a server."""
    return f"mx_live_{uuid4().hex}"


def parley(house: House, listeners: Child, store: str = "") -> Contestant:
    """Parley as a contestant; ``store`` is the URL of its PostgreSQL."""
    order = {"kind": "parley", **house.place, "body": {"message": MESSAGE, "llm": LLM}}
    return Contestant("Parley", house.pid, listeners, order, store)


@asynccontextmanager
async def floor(model: ScriptedModel, key: str, core: int | None) -> AsyncGenerator[Contestant]:
    """The floor; sends the very requests that the last Parley turn sent."""
    bodies = [msgspec.json.encode(request.body).decode() for request in (await model.requests(key))[-2:]]
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Accept-Encoding": "identity"}
    order = {"url": f"{model.openai_url}/chat/completions", "headers": headers, "bodies": bodies}
    async with AsyncExitStack() as stack:
        with on_core(core):
            process = await stack.enter_async_context(child(module("bench.floor")))
        yield Contestant("floor", process.pid, process, order)
