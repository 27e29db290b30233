"""A PostgreSQL of a test's own, which it may stop as it likes."""

import asyncio
import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from parley.testing.ports import free_port

COMMAND_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running server; ``url`` is its one database."""

    binaries: Path
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    async def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        await self.control("start", "-w", "-l", str(self.folder / "log"), "-o", options)

    async def restart(self, mode: str) -> None:
        """Stop it, ``fast`` (connections are dropped) or ``immediate`` (as in a crash), and start it again."""
        await self.control("stop", "-w", "-m", mode)
        await self.start()

    async def control(self, *arguments: str) -> None:
        await _run(str(self.binaries / "pg_ctl"), "-D", str(self.folder / "data"), *arguments)


@asynccontextmanager
async def cluster() -> AsyncGenerator[Cluster]:
    """A fresh cluster; skips the test where there is no server to run, or nobody to run it as."""
    binaries = _binaries()
    with tempfile.TemporaryDirectory(prefix="parley-pg-") as name:
        folder = Path(name)
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = str(folder / "data")
        await _run(str(binaries / "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        running = Cluster(binaries, folder, free_port())
        await running.start()
        try:
            yield running
        finally:
            await running.control("stop", "-w", "-m", "immediate")


def _binaries() -> Path:
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            break
    else:
        pytest.skip("no PostgreSQL server is installed here to restart")
    if os.getuid() == 0 and (shutil.which("runuser") is None or not _is_user("postgres")):
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    return folder


def _is_user(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())


async def _run(*command: str) -> None:
    line = ["runuser", "-u", "postgres", "--", *command] if os.getuid() == 0 else list(command)
    # Not through a pipe: the server keeps it open.
    process = await asyncio.create_subprocess_exec(
        *line, cwd="/", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(COMMAND_SECONDS):
        code = await process.wait()
    assert code == 0, f"{command[0]} ended with {code}"
