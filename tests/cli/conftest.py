"""The commands as processes: one running server with a scripted model, and a terminal to sit at."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

import pytest

from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from tests.cli.terminal import PATIENCE_SECONDS, Terminal, in_terminal
from tests.contract.conftest import (
    House,
    decided_team,
    github,
    model,
    model_port,
    open_house,
    proxy,
)
from tests.stage import Stage

__all__ = ["github", "model", "model_port", "proxy"]


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str


async def command(*arguments: str, environment: Mapping[str, str], given: str = "") -> Finished:
    """Run ``parley …`` to its end, without a terminal."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley", *arguments),
        env={**os.environ, **environment},
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, err = await process.communicate(given.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Finished(process.returncode or 0, out.decode(), err.decode())


class Sit(Protocol):
    """``parley chat …`` in a terminal, with the stage's key and organization."""

    def __call__(self, *arguments: str, url: str = "") -> AbstractAsyncContextManager[Terminal]: ...


@pytest.fixture(scope="module")
async def house(
    tmp_path_factory: pytest.TempPathFactory,
    proxy: ProviderProxy,
) -> AsyncIterator[House]:
    """One server for every chat: what the terminal shows does not depend on the store."""
    folder = tmp_path_factory.mktemp("cli")
    async with AsyncExitStack() as stack:
        yield await open_house(stack, f"sqlite:///{folder / 'parley.db'}", folder, proxy, {})


@pytest.fixture
async def stage(house: House, model: ScriptedModel) -> AsyncIterator[Stage]:
    """A fresh organization whose default model is the scripted one."""
    async with decided_team(house, model) as ready:
        yield ready


def access(stage: Stage) -> dict[str, str]:
    """What a person who uses the stage's server keeps in their environment."""
    return {
        "PARLEY_URL": stage.client.base_url,
        "PARLEY_API_KEY": stage.client.key,
        "PARLEY_ORGANIZATION_ID": stage.client.organization_id,
    }


@pytest.fixture
def sit(stage: Stage) -> Sit:
    def at_terminal(*arguments: str, url: str = "") -> AbstractAsyncContextManager[Terminal]:
        environment = access(stage) | ({"PARLEY_URL": url} if url else {})
        return in_terminal("chat", *arguments, environment=environment)

    return at_terminal
