"""Hostile destinations, a local name table, and what this process dialled."""

import asyncio
import ssl
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import trustme
from aiohttp import web

from parley.egress import Egress

HOSTILE = (
    # spellings of 127.0.0.1
    "127.0.0.1",
    "127.0.0.1.",
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "127.1",
    "127.0.1",
    "１２７.0.0.1",
    "127。0。0。1",
    # IPv4
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.8.8.8",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.7",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    # IPv6
    "[::]",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]",
    "[100::1]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    "[2001:db8::1]",
    "[2002:7f00:1::]",
    "[2600::5efe:7f00:1]",
    "[2600::200:5efe:7f00:1]",
    "[3fff::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fec0::1]",
    "[ff02::1]",
    # names
    "localhost",
    "localhost.",
    "app.localhost",
    "printer.local",
    "metadata.google.internal",
    "vault.corp",
    "nas.lan",
    "router.home.arpa",
    "postgres",
    # user info
    "user@127.0.0.1",
    "api.example.com@127.0.0.1",
)


@dataclass
class Names:
    """A name table. Each look-up takes the next answer of a name, and its last one stays."""

    answers: dict[str, list[Sequence[str]]] = field(default_factory=dict[str, list[Sequence[str]]])
    asked: list[str] = field(default_factory=list[str])

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self.answers.get(host)
        if not answers:
            raise OSError(f"no such name for port {port}")
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Dials:
    """What the interpreter's own audit saw: an oracle that knows nothing of the guard."""

    def __init__(self) -> None:
        self._seen: list[Any] | None = None
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect" and self._seen is not None:
            self._seen.append(arguments[1])

    @contextmanager
    def recorded(self) -> Generator[list[Any]]:
        """The addresses that were dialled inside the block."""
        self._seen = seen = []
        try:
            yield seen
        finally:
            self._seen = None


@dataclass(frozen=True)
class Authority:
    ca: trustme.CA
    file: str

    def server_tls(self, *hosts: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*hosts).configure_cert(context)
        return context


type Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Site:
    port: int
    requests: list[web.Request] = field(default_factory=list[web.Request])


type OpenSite = Callable[..., Awaitable[Site]]
type MakeEgress = Callable[..., Egress]


async def close_server(server: asyncio.Server) -> None:
    """Close a server and see every connection of it closed."""
    for _ in range(5):  # an accept that is under way becomes a connection
        await asyncio.sleep(0)
    server.close()
    async with asyncio.timeout(20):
        await server.wait_closed()
