"""Provider APIs on this machine: a proxy that answers for their hosts, with certificates of its own.

Integrations run unchanged: they ask ``https://api.github.com`` through ``HTTPS_PROXY``, trust the
proxy's CA through ``SSL_CERT_FILE``, and get what the test registered for that host. A host without
a registered answer is refused with 502 and written down, so nothing ever leaves the machine.

    async with provider_proxy(tmp_path) as proxy:
        proxy.answer("api.github.com", FakeGitHub(token))
        environment = {**os.environ, **proxy.environment}
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec

from parley.testing.connections import connections_served
from parley.turn.model import JsonValue


class TrustmeMissing(Exception):
    """The proxy makes its certificates with trustme, a development dependency: run `make .venv/.dev`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that reached the proxy."""

    method: str
    host: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> JsonValue:
        """The body as JSON; null when it is empty."""
        return msgspec.json.decode(self.body) if self.body else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a provider says. A ``body`` that is an iterator is sent in chunks as it comes."""

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def json_answer(value: JsonValue, status: int = 200) -> Answer:
    """An answer in JSON."""
    return Answer(status, msgspec.json.encode(value), {"Content-Type": "application/json"})


type Provider = Callable[[Asked], Awaitable[Answer]]


class ProviderProxy:
    """Answers for hosts; ``asked`` is everything it was asked, ``refused`` the hosts nobody answers for."""

    def __init__(self, authority: "Authority") -> None:
        self.asked: list[Asked] = []
        self.refused: list[str] = []
        self.port = 0
        self._authority = authority
        self._providers: dict[str, Provider] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead a process here; its own address and this machine are left out."""
        address, ca = f"http://127.0.0.1:{self.port}", str(self._authority.ca_file)
        proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), address)
        trust = dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"), ca)
        local = "127.0.0.1,localhost"
        return {**proxies, **trust, "NO_PROXY": local, "no_proxy": local}

    def answer(self, host: str, provider: Provider) -> None:
        """Let the provider answer for a host from now on; ``*`` stands for every host without its own."""
        self._providers[host] = provider

    def _provider(self, host: str) -> Provider | None:
        return self._providers.get(host) or self._providers.get("*")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client connection: a tunnel to a host, or plain requests with whole URLs."""
        head = await _read_head(reader)
        if head is None:
            return
        method, target, headers = head
        if method != "CONNECT":
            await self._plain(reader, writer, (method, target, headers))
            return
        host = target.rpartition(":")[0]
        if self._provider(host) is None:
            self.refused.append(host)
            writer.write(b"HTTP/1.1 502 Nobody answers for this host\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await writer.drain()
        await writer.start_tls(self._authority.context(host))
        while (head := await _read_head(reader)) is not None:
            await self._exchange(reader, writer, host, head)

    async def _plain(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: "Head") -> None:
        head: Head | None = first
        while head is not None:
            method, target, headers = head
            url = urlsplit(target)
            path = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
            await self._exchange(reader, writer, url.hostname or "", (method, path, headers))
            head = await _read_head(reader)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, head: "Head"
    ) -> None:
        method, target, headers = head
        url = urlsplit(target)
        asked = Asked(method, host, url.path, dict(parse_qsl(url.query)), headers, await _read_body(reader, headers))
        self.asked.append(asked)
        provider = self._provider(host)
        if provider is None:
            self.refused.append(host)
            await _write(writer, method, Answer(502))
        else:
            await _write(writer, method, await provider(asked))


@asynccontextmanager
async def provider_proxy(folder: Path) -> AsyncGenerator[ProviderProxy]:
    """A running proxy; its CA file is written into ``folder``.

    Raises TrustmeMissing without the development dependencies.
    """
    proxy = ProviderProxy(Authority(folder))
    async with connections_served(proxy.serve) as proxy.port:
        yield proxy


class Authority:
    """A certificate authority of one test run, with a certificate for each host that is asked for."""

    def __init__(self, folder: Path) -> None:
        try:
            import trustme  # noqa: PLC0415 - a development dependency in a shipped module
        except ImportError as error:
            raise TrustmeMissing(str(TrustmeMissing.__doc__)) from error
        self._authority = trustme.CA()
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.ca_file = folder / "provider-ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca_file))

    def context(self, host: str) -> ssl.SSLContext:
        """The server's side of TLS for a host."""
        if host not in self._contexts:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._authority.issue_cert(host).configure_cert(context)
            self._contexts[host] = context
        return self._contexts[host]


# ── HTTP/1.1, as much of it as clients use ──────────────────────────────────────────────────────

type Head = tuple[str, str, dict[str, str]]


async def _read_head(reader: asyncio.StreamReader) -> Head | None:
    """Method, target and lower-case headers of the next request; None once the client is done."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _version = first.split(" ", 2)
    return (
        method,
        target,
        {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)},
    )


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return bytes(body)


async def _write(writer: asyncio.StreamWriter, method: str, answer: Answer) -> None:
    try:
        reason = HTTPStatus(answer.status).phrase
    except ValueError:
        reason = "Unknown"
    body = answer.body
    framing = f"Content-Length: {len(body)}" if isinstance(body, bytes) else "Transfer-Encoding: chunked"
    lines = [
        f"HTTP/1.1 {answer.status} {reason}",
        framing,
        *(f"{name}: {value}" for name, value in answer.headers.items()),
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    if isinstance(body, bytes):
        writer.write(body if method != "HEAD" else b"")
    else:
        async for chunk in body:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    await writer.drain()
