"""A running Parley for tests: in this loop on an ephemeral port, or as a process of its own."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import uvicorn

from parley.base.clock import Clock
from parley.base.settings import Role, Settings
from parley.http.connection import connections
from parley.storage import open_store
from parley.wiring import OpenStore, Parley, open_parley

START_SECONDS = 120.0
STOP_SECONDS = 20.0


@asynccontextmanager
async def served(
    settings: Settings, role: Role = "all", clock: Clock | None = None, store_at: OpenStore = open_store
) -> AsyncGenerator[tuple[Parley, str]]:
    """Parley in this event loop, and its base URL; ``settings.port`` 0 takes a free port."""
    async with open_parley(settings, role, clock, store_at) as parley:
        config = uvicorn.Config(
            parley.app,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            host=settings.host,
            port=settings.port,
            http=connections(settings.stalled_reader_seconds),
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=2,
        )
        server = _Embedded(config)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve())
            async with asyncio.timeout(START_SECONDS):
                await server.listening.wait()
            host, port = server.servers[0].sockets[0].getsockname()[:2]
            try:
                yield parley, f"http://{host}:{port}"
            finally:
                await parley.drain()
                server.should_exit = True
                await serving


class _Embedded(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[object] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        await super().startup(sockets)  # pyright: ignore[reportArgumentType]
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals of the host process alone."""
        yield


@dataclass(slots=True)
class ServerProcess:
    """``parley serve`` as a process. ``base_url`` is empty for a worker."""

    process: Process
    base_url: str
    output: list[str] = field(default_factory=list[str])

    def kill(self) -> None:
        """SIGKILL: nothing gets to run any more."""
        self.process.send_signal(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: it stands still, its sockets open."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM: an orderly end."""
        self.process.send_signal(signal.SIGTERM)

    async def wait(self) -> int:
        """The exit code; bounded."""
        async with asyncio.timeout(STOP_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def server_process(environment: Mapping[str, str], role: Role = "all") -> AsyncGenerator[ServerProcess]:
    """``parley serve --role …`` with these variables, once it answers; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "parley",
        "serve",
        "--role",
        role,
        env={**os.environ, "PARLEY_PORT": "0", "PYTHONUNBUFFERED": "1", **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    server = ServerProcess(process, "")
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_read_output(server))
        try:
            async with asyncio.timeout(START_SECONDS):
                while not _is_ready(server, role):
                    if process.returncode is not None:
                        raise RuntimeError("the server ended at start:\n" + "".join(server.output))
                    await asyncio.sleep(0.02)
            yield server
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                await process.wait()
            await reading


READY = {"all": "Parley answers on ", "api": "Parley answers on ", "worker": "Parley works"}


def _is_ready(server: ServerProcess, role: Role) -> bool:
    for line in server.output:
        if line.startswith(READY[role]):
            server.base_url = line.removeprefix(READY[role]).strip() if role != "worker" else ""
            return True
    return False


async def _read_output(server: ServerProcess) -> None:
    if server.process.stdout is None:
        raise AssertionError("started with a pipe")
    async for line in server.process.stdout:
        server.output.append(line.decode(errors="replace"))
