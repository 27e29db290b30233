"""The shared aiohttp sessions: guarded, behind the operator's proxy, trusting the operator's CAs."""

import ssl
from collections.abc import Mapping
from functools import partial
from socket import AF_INET, AF_INET6, AddressFamily

import aiohttp
import certifi
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from parley.base.settings import SettingsError
from parley.egress.guard import Guard, Refused

CONNECTIONS = 4_096
DNS_SECONDS = 30
CONNECT_SECONDS = 15.0
SILENCE_SECONDS = 300.0


def tls_context(environment: Mapping[str, str]) -> ssl.SSLContext:
    """Certificates are checked against ``SSL_CERT_FILE`` or ``SSL_CERT_DIR``, else the system's and certifi's.

    Raises SettingsError when the variables name what cannot be read.
    """
    chosen = environment.get("SSL_CERT_FILE") or None
    folder = environment.get("SSL_CERT_DIR") or None
    if not chosen and not folder:
        context = ssl.create_default_context()
        context.load_verify_locations(certifi.where())
        return context
    try:
        return ssl.create_default_context(cafile=chosen, capath=folder)
    except OSError:
        raise SettingsError(f"SSL_CERT_FILE or SSL_CERT_DIR names {chosen or folder}, which cannot be read") from None


def open_session(guard: Guard, tls: ssl.SSLContext) -> aiohttp.ClientSession:
    """A session for the running loop, shared by everyone: it keeps no cookies and reads no netrc.

    Its default time limits are 15 s to connect and 300 s without a byte; there is no total limit,
    since answers stream. A refusal surfaces as ``aiohttp.ClientConnectorError`` whose ``os_error``
    is a Refused.
    """
    return aiohttp.ClientSession(
        connector=GuardedConnector(guard, tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS),
    )


class GuardedResolver(AbstractResolver):
    """Resolves to vetted addresses only."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: AddressFamily = AddressFamily.AF_INET,  # noqa: ARG002 - aiohttp filters by family itself
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=AF_INET6 if ":" in address else AF_INET,
                proto=0,
                flags=0,
            )
            for address in await self._guard.vet_web(host, port)
        ]

    async def close(self) -> None:
        """The guard owns what there is to close."""


class CalmHandler(ResponseHandler):
    """aiohttp's side of a connection, without the work it does for each chunk that is read.

    aiohttp resumes reading after every chunk, paused or not, and goes through its parser for it: a third of
    what a streamed token costs.
    """

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        """Resume what aiohttp has paused, and nothing else."""
        if self._reading_paused:
            super().resume_reading(resume_parser)


class GuardedConnector(aiohttp.TCPConnector):
    """Checks every request, also on a kept connection and on each hop of a redirect; vets when it dials."""

    def __init__(self, guard: Guard, tls: ssl.SSLContext) -> None:
        super().__init__(
            resolver=GuardedResolver(guard),
            ttl_dns_cache=DNS_SECONDS,
            ssl=tls,
            limit=CONNECTIONS,
            limit_per_host=0,
        )
        self._guard = guard
        self._factory = partial(CalmHandler, loop=self._loop)

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's signature
    ) -> Connection:
        admit(self._guard, req)
        return await super().connect(req, traces, timeout)


def admit(guard: Guard, request: ClientRequest) -> None:
    """Check a request that is about to get its connection, and choose the proxy for it.

    Raises ClientConnectorError, as aiohttp reports a connection that failed.
    """
    url, tls = request.url, request.ssl
    verified = tls is True or (isinstance(tls, ssl.SSLContext) and tls.verify_mode != ssl.CERT_NONE)
    try:
        guard.check_url(url.scheme, url.raw_host or "", url.port, verified=verified)
    except Refused as refused:
        raise aiohttp.ClientConnectorError(request.connection_key, refused) from refused
    if request.proxy is None:
        request.update_proxy(guard.proxies.for_target(url.scheme, url.raw_host or "", url.port), None, None)
