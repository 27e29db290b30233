"""Real Chromium against a real Parley with a scripted model."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright, expect

from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from tests.contract.conftest import (
    House,
    decided_team,
    github,
    model,
    model_port,
    open_house,
    proxy,
)
from parley.testing.ports import free_port
from tests.stage import Stage
from tests.web.visitor import AXE, Visitor, visiting

# The stage of the contract's tests serves here too.
__all__ = ["github", "model", "model_port", "proxy"]

FOLDER = Path(__file__).parent
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Long enough for a machine that does much else: a wait that is met early costs nothing.
PATIENCE_MS = 30_000
STORY_SECONDS = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A story may take longer than a test: a browser waits for a server that waits for a model."""
    for item in items:
        if item.path.parent == FOLDER and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(STORY_SECONDS))


def chromium_path() -> str | None:
    """A Chromium on this machine: ``PARLEY_TEST_CHROMIUM``, else the first on PATH."""
    chosen = os.environ.get("PARLEY_TEST_CHROMIUM")
    return chosen or next((found for name in NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium on this machine: install it, or name one in PARLEY_TEST_CHROMIUM")
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        await running.close()


@pytest.fixture
def axe() -> None:
    """Skips where the accessibility checker is not installed."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: run `npm ci` in web/")


@pytest.fixture(scope="module")
async def house(
    tmp_path_factory: pytest.TempPathFactory,
    proxy: ProviderProxy,
) -> AsyncIterator[House]:
    """One server for all of them; what the pages do does not depend on the store."""
    folder = tmp_path_factory.mktemp("web")
    async with AsyncExitStack() as stack:
        yield await open_web_house(stack, folder, proxy, {})


async def open_web_house(stack: AsyncExitStack, folder: Path, proxy: ProviderProxy, extra: dict[str, str]) -> House:
    """Serve the app over SQLite until the stack unwinds."""
    # A provider sends the browser back to the configured address, so the port is known beforehand.
    port = {"PARLEY_PORT": str(free_port())}
    return await open_house(stack, f"sqlite:///{folder / 'parley.db'}", folder, proxy, {**port, **extra})


@pytest.fixture
async def stage(house: House, model: ScriptedModel) -> AsyncIterator[Stage]:
    """A fresh organization whose default model is the scripted one."""
    async with decided_team(house, model) as ready:
        yield ready


@pytest.fixture
async def visitor(browser: Browser, stage: Stage) -> AsyncIterator[Visitor]:
    """A person at a desk, in light colours; the story fails if their page did what it may not."""
    async with visiting(browser, stage) as person:
        yield person
        assert person.foreign == []
        assert person.complaints == []
