"""The wheel that is built has everything, and serves from an empty folder with nothing of the sources in reach."""

import asyncio
import os
import subprocess
import sys
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from parley.storage.schema import head_revision
from tests.conftest import ROOT

UV = Path(sys.executable).with_name("uv")
SECONDS = 50.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, ROOT]
    subprocess.run([str(part) for part in command], check=True, capture_output=True, timeout=SECONDS)
    (built,) = folder.glob("parley-*.whl")
    return built


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("parley/")}
    tracked = subprocess.run(["git", "ls-files", "src/parley"], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {name.removeprefix("src/") for name in tracked.stdout.split()}
    assert expected
    assert expected <= packed
    kinds = {Path(name).suffix for name in packed}
    assert {".py", ".gz", ".toml", ".json", ".html", ".js", ".css", ".br"} <= kinds
    assert not [name for name in packed if "tests" in name.split("/")]


@dataclass(frozen=True, slots=True)
class Served:
    """A server of the wheel: where it answers, and what it had printed by then."""

    url: str
    said: str


@asynccontextmanager
async def serving(wheel: Path, folder: Path) -> AsyncGenerator[Served]:
    """Install the wheel into the folder and serve from an empty one beside it, with defaults but for the port."""
    installed, empty = folder / "installed", folder / "empty"
    empty.mkdir()
    command = [UV, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable, "--target", installed, wheel]
    subprocess.run([str(part) for part in command], check=True, capture_output=True, timeout=SECONDS)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(installed),
        "PYTHONUNBUFFERED": "1",
        "PARLEY_PORT": "0",
        "OLLAMA_HOST": "http://127.0.0.1:9",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley", "serve"),
        cwd=empty,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        said = ""
        async with asyncio.timeout(SECONDS):
            async for line in process.stdout:
                if line.startswith(b"Parley answers on "):
                    break
                said += line.decode()
            else:
                raise AssertionError("it ended before it answered")
        yield Served(line.decode().removeprefix("Parley answers on ").strip(), said)
    finally:
        process.kill()
        await process.wait()


async def test_the_wheel_serves_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    async with serving(wheel, tmp_path) as served, aiohttp.ClientSession() as session:
        async with session.get(f"{served.url}/system/health") as health:
            assert (health.status, (await health.json())["status"]) == (200, "healthy")
        async with session.get(f"{served.url}/app/") as page:
            assert "<div id=" in await page.text()
    # It made its store where it stood, with the newest schema: the migrations came along.
    assert (tmp_path / "empty" / "var" / "parley.db").exists()
    migrations = tmp_path / "installed" / "parley" / "storage" / "migrations" / "versions"
    assert any(path.name.startswith(head_revision()) for path in migrations.glob("*.py"))
