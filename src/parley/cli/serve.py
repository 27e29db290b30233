"""``parley serve``."""

import asyncio
import ctypes
import errno
import gc
import os
import resource
import signal
import socket
import sys
from dataclasses import replace

import uvicorn
import uvloop

from parley.base.settings import Role, Settings, SettingsError
from parley.cli.logs import write_logs
from parley.http.connection import connections
from parley.storage import open_store
from parley.wiring import OpenStore, Parley, open_parley

BACKLOG = 2_048
COLLECT_AFTER = (10_000, 20, 50)
PR_SET_DUMPABLE = 4  # linux/prctl.h


class NoPlaceToListen(SettingsError):
    """The address cannot be listened on; the message says why and what to choose instead."""


def serve(settings: Settings, role: Role, store_at: OpenStore = open_store) -> None:
    """Serve until SIGTERM or SIGINT, then hand every run over and stop."""
    keep_memory_private()
    write_logs(settings.log_format or ("text" if sys.stderr.isatty() else "json"))
    uvloop.run(_serve(settings, role, store_at))


def keep_memory_private() -> None:
    """Leave no copy of this process's memory, which holds master keys and secrets, on a disk when it dies.

    No core file, whoever asks for one; on Linux also no reading by another process of the same user.
    Programs that this one starts may be looked into again.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this process could not be made undumpable")


async def _serve(settings: Settings, role: Role, store_at: OpenStore) -> None:
    # Before anything is made: what a first start prints is for a server that then answers.
    sockets = [] if role == "worker" else bound(settings.host, settings.port)
    if sockets and settings.port == 0:
        # The system has chosen one; links that lead here name it.
        settings = replace(settings, port=sockets[0].getsockname()[1])
    async with open_parley(settings, role, store_at=store_at) as parley:
        _greet(parley)
        if role == "worker":
            print("Parley works", flush=True)
            _collect_seldom()
            await _wait_for_signal()
            return
        await _listen(parley, sockets)


def bound(host: str, port: int) -> list[socket.socket]:
    """A socket on every address of the host, none of them listening yet. Raises NoPlaceToListen."""
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            place = socket.socket(family, kind, protocol)
            sockets.append(place)
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                place.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            place.bind(address)
    except (OSError, OverflowError) as error:
        for place in sockets:
            place.close()
        raise NoPlaceToListen(_why_not(host, port, error)) from None
    return sockets


def _why_not(host: str, port: int, error: OSError | OverflowError) -> str:
    match error:
        case OSError(errno=errno.EADDRINUSE):
            return f"Port {port} on {host} is taken; choose another with PARLEY_PORT."
        case PermissionError():
            return f"This user may not listen on port {port}; choose one from 1024 on with PARLEY_PORT."
        case OSError():
            return f"Nothing can listen on {host}:{port}: {error.strerror}. Correct PARLEY_HOST."
        case OverflowError():
            return f"PARLEY_PORT must be at most 65535, not {port}."


def _collect_seldom() -> None:
    """Let Python's collector leave alone what the start made, and look at the rest less often.

    Almost everything a turn makes goes when its last name goes; walking the heap for the few rings cost a
    twelfth of a busy server's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    gc.enable()


async def _listen(parley: Parley, sockets: list[socket.socket]) -> None:
    config = uvicorn.Config(
        parley.app,
        proxy_headers=bool(parley.settings.trusted_proxies),
        forwarded_allow_ips=list(parley.settings.trusted_proxies),
        http=connections(parley.settings.stalled_reader_seconds),
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        backlog=BACKLOG,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    server = Server(config, parley)
    await server.serve(sockets)


class Server(uvicorn.Server):
    """A uvicorn server that drains Parley first: it waits for open responses, and streams never end alone."""

    def __init__(self, config: uvicorn.Config, parley: Parley) -> None:
        super().__init__(config)
        self._parley = parley

    async def startup(self, sockets: list[object] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to listen, and say where."""
        await super().startup(sockets)  # pyright: ignore[reportArgumentType]
        for listening in self.servers:
            for place in listening.sockets:
                host, port = place.getsockname()[:2]
                print(f"Parley answers on http://{host}:{port}", flush=True)
        _collect_seldom()

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Hand the runs over and end the streams, then close."""
        await self._parley.drain()
        await super().shutdown(sockets)  # pyright: ignore[reportArgumentType]


async def _wait_for_signal() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _greet(parley: Parley) -> None:
    """Print what was made at first start; it is never shown again."""
    if parley.watching is not None and parley.watching.scrape is not None:
        print(f"Metrics are on port {parley.watching.scrape.port}, path /metrics", flush=True)
    made = parley.first_start
    if made is None:
        return
    if made.warning:
        print(made.warning, file=sys.stderr)
    print("\nThis is a new Parley. Keep what follows: it is shown only once.")
    print(f"  Sign in      {made.sign_in_link}")
    if made.api_key is not None:
        print(f"  API key      {made.api_key}")
    print(f"  Organization {made.organization_id}")
    print(f"  Process      {os.getpid()}\n", flush=True)
