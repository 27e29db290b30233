"""Who is measured: Parley, the floor, and LangChain behind FastAPI, each a process on the measured core."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import msgspec

from bench.child import Child, Order, child, module
from bench.machine import on_core
from bench.scenario import MESSAGE, Shape
from parley.base.settings import Role
from parley.testing.scripted_model import ScriptedModel
from parley.testing.server import server_process

HERE = Path(__file__).parent
ORGANIZATION = "11111111-1111-4111-8111-111111111111"
LLM = {"integration_name": "openai", "provider_id": "openai", "model_id": "gpt-4o"}
ROOM = "5000"
LANGCHAIN_PACKAGES = (
    "langchain",
    "langchain-openai",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "openai",
    "fastapi",
    "uvicorn",
)
START_SECONDS = 60.0
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Contestant:
    """A process that is measured, whom to ask for turns of it, and how."""

    name: str
    pid: int
    asks: Child
    order: Order

    async def turns(self, shape: Shape) -> Order:
        """Have these turns; what was heard of them."""
        return await self.asks.ask(
            {**self.order, "turns": shape.turns, "at_once": shape.at_once, "spread": shape.spread}
        )


@dataclass(frozen=True, slots=True)
class House:
    """A Parley server and the key of its first owner."""

    pid: int
    base_url: str
    headers: dict[str, str]

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
        )


def new_owner_key() -> str:
    """A key for the first owner of a server."""
    return f"mx_live_{uuid4().hex}"


def parley(house: House, listeners: Child) -> Contestant:
    """Parley as a contestant."""
    order = {"kind": "parley", **house.place, "body": {"message": MESSAGE, "llm": LLM}}
    return Contestant("Parley", house.pid, listeners, order)


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


def langchain_python() -> Path:
    """The Python of LangChain's own environment, made when it is missing. Never the product's."""
    folder, wanted = HERE / ".venv", HERE / "requirements-langchain.txt"
    python, stamp = folder / "bin/python", folder / "made-of.txt"
    if stamp.exists() and stamp.read_text() == wanted.read_text():
        return python
    print("Installing LangChain into bench/.venv (once)", file=sys.stderr)
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise RuntimeError("The bench needs uv to install LangChain: run `make bench`.")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    subprocess.run(
        [uv, "pip", "install", "-q", "--compile-bytecode", "--python", str(python), "-r", str(wanted)], check=True
    )
    stamp.write_text(wanted.read_text())
    return python


@asynccontextmanager
async def langchain(
    folder: Path, model: ScriptedModel, key: str, credentials: str, listeners: Child, core: int | None
) -> AsyncGenerator[Contestant]:
    """LangChain's agent behind FastAPI."""
    port = _free_port()
    environment = {
        **os.environ,
        "BENCH_STORE": str(folder / "langchain.db"),
        "BENCH_MODEL_URL": model.openai_url,
        "BENCH_MODEL_KEY": key,
        "BENCH_CREDENTIALS": credentials,
        "BENCH_PORT": str(port),
        "LANGSMITH_TRACING": "false",
    }
    with on_core(core):
        process = await asyncio.create_subprocess_exec(
            str(langchain_python()), str(HERE / "langchain_server.py"), env=environment, stdout=PIPE
        )
    try:
        await _answers(port)
        order = {
            "kind": "langchain",
            "host": "127.0.0.1",
            "port": port,
            "headers": {"Content-Type": "application/json"},
            "body": {"message": MESSAGE},
        }
        yield Contestant("LangChain", process.pid, listeners, order)
    finally:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _answers(port: int) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def versions(python: Path) -> Mapping[str, str]:
    """The versions of what LangChain's environment holds."""
    script = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    command = [str(python), "-c", script, *LANGCHAIN_PACKAGES]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
