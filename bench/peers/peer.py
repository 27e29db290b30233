"""Somebody else's agent behind FastAPI, as a process: its environment, its server, its turns."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.child import Child
from bench.contestants import Contestant
from bench.machine import on_core
from bench.scenario import MESSAGE
from parley.testing.ports import free_port
from parley.testing.scripted_model import ScriptedModel

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".peers"
STAMP = "made-of.txt"
START_SECONDS = 120.0
CREDENTIALS = (
    '[{"credential_id":"00000000-0000-4000-8000-000000000000","integration_name":"openai",'
    '"display_name":"Scripted","auth_type":"api_key","is_default":true,"is_valid":true}]'
)
"""What Parley's tool answers here; theirs answer the same."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What it is called, and the name that its server, its lock and its environment share."""

    title: str
    name: str
    packages: tuple[str, ...]

    @property
    def lock(self) -> Path:
        return ROOT / "requirements" / f"peers-{self.name}.lock"

    @property
    def server(self) -> str:
        """The module of its server."""
        return f"bench.peers.{self.name.replace('-', '_')}_server"

    @property
    def folder(self) -> Path:
        """Its own environment, never the product's."""
        return ENVIRONMENTS / self.name

    @property
    def is_installed(self) -> bool:
        """Whether its environment is there, made of the lock as it is now."""
        stamp = self.folder / STAMP
        return stamp.exists() and stamp.read_text() == self.lock.read_text()

    def python(self) -> Path:
        """The Python of its environment, made anew where the lock has changed."""
        folder, python = self.folder, self.folder / "bin/python"
        if self.is_installed:
            return python
        print(f"Installing {self.title} into .peers/{self.name} (once)", file=sys.stderr)
        beside = Path(sys.executable).parent / "uv"
        uv = str(beside) if beside.exists() else shutil.which("uv")
        if uv is None:
            raise RuntimeError("The bench needs uv to install what it measures: run `make bench`.")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
        into = ["-q", "--compile-bytecode", "--python", str(python)]
        subprocess.run([uv, "pip", "sync", *into, str(self.lock)], check=True)
        (folder / STAMP).write_text(self.lock.read_text())
        return python

    def versions(self) -> Mapping[str, str]:
        """The versions of what its environment holds."""
        script = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
        command = [str(self.python()), "-c", script, *self.packages]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


LANGCHAIN = Peer(
    "LangChain",
    "langchain",
    (
        "langchain",
        "langchain-openai",
        "langgraph",
        "langgraph-checkpoint-postgres",
        "langgraph-checkpoint-sqlite",
        "openai",
        "fastapi",
        "uvicorn",
    ),
)
PYDANTIC_AI = Peer("pydantic-ai", "pydantic-ai", ("pydantic-ai-slim", "openai", "asyncpg", "fastapi", "uvicorn"))


@dataclass(frozen=True, slots=True)
class Served:
    """A server of a peer that answers."""

    process: Process
    port: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def served(
    peer: Peer, store: str, model: ScriptedModel, key: str, core: int | None, variables: Mapping[str, str]
) -> AsyncGenerator[Served]:
    """The peer's server on that core, once it answers; killed at the end.

    ``store`` is a PostgreSQL URL or, for LangChain, an SQLite path; ``variables`` are further ones of its environment.
    """
    port = free_port()
    environment = {
        **os.environ,
        "BENCH_STORE": store,
        "BENCH_MODEL_URL": model.openai_url,
        "BENCH_MODEL_KEY": key,
        "BENCH_CREDENTIALS": CREDENTIALS,
        "BENCH_PORT": str(port),
        "LANGSMITH_TRACING": "false",
        **variables,
    }
    with on_core(core):
        command = (str(peer.python()), "-m", peer.server)
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment)
    try:
        await _answers(port, process)
        yield Served(process, port)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def contestant(
    peer: Peer, store: str, model: ScriptedModel, key: str, listeners: Child, core: int | None
) -> AsyncGenerator[Contestant]:
    """A peer's server as a contestant."""
    async with served(peer, store, model, key, core, {}) as server:
        order = {
            "kind": "peer",
            "host": "127.0.0.1",
            "port": server.port,
            "headers": {"Content-Type": "application/json"},
            "body": {"message": MESSAGE},
        }
        database = store if store.startswith("postgresql://") else ""
        yield Contestant(peer.title, server.process.pid, listeners, order, database)


async def _answers(port: int, process: Process) -> None:
    async with asyncio.timeout(START_SECONDS):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
    raise RuntimeError(f"a peer's server ended at start: {process.returncode}")
