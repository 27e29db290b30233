"""The guard inside the HTTP clients that integrations use.

Each function here replaces the dial point, or the entry point, of one module once it is loaded. What
the client raises for a refused place is its own error for a failed connection, with our sentence.
"""

import ssl
from functools import wraps
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from parley.egress.guard import Guard, NotConnected, Refused
from parley.egress.patches import Patches, first_that_answers, first_that_answers_now, root_of
from parley.egress.session import GuardedConnector, GuardedResolver, admit

# ── httpcore and httpcore2: what httpx dials with ───────────────────────────────────────────────


def guard_async_dial(module: Any, guard: Guard, patches: Patches) -> None:
    """``httpcore._backends.auto``: every TCP connection of the asynchronous side."""

    def make(connect: Any) -> Any:
        @wraps(connect)
        async def connect_tcp(self: Any, host: str, port: int, *args: Any, **options: Any) -> Any:
            core = root_of(module)
            try:
                addresses = await guard.vet_web(host, port)
            except NotConnected as error:
                raise core.ConnectError(str(error)) from error
            return await first_that_answers(
                addresses,
                lambda address: connect(self, address, port, *args, **options),
                (core.ConnectError, core.ConnectTimeout),
            )

        return connect_tcp

    patches.replace(module.AutoBackend, "connect_tcp", make)


def guard_async_pool(module: Any, guard: Guard, patches: Patches) -> None:
    """``httpcore._async.connection_pool``: every request, also one that goes through a proxy."""

    def make(handle: Any) -> Any:
        @wraps(handle)
        async def handle_async_request(self: Any, request: Any) -> Any:
            _check_httpcore(module, guard, self, request)
            return await handle(self, request)

        return handle_async_request

    patches.replace(module.AsyncConnectionPool, "handle_async_request", make)


def guard_pool(module: Any, guard: Guard, patches: Patches) -> None:
    """``httpcore._sync.connection_pool``: the same, blocking; it dials through ``socket``."""

    def make(handle: Any) -> Any:
        @wraps(handle)
        def handle_request(self: Any, request: Any) -> Any:
            _check_httpcore(module, guard, self, request)
            return handle(self, request)

        return handle_request

    patches.replace(module.ConnectionPool, "handle_request", make)


def _check_httpcore(module: ModuleType, guard: Guard, pool: Any, request: Any) -> None:
    url, tls = request.url, pool._ssl_context  # noqa: SLF001 - httpcore tells nobody else how it verifies
    verified = tls is None or tls.verify_mode != ssl.CERT_NONE
    try:
        guard.check_url(url.scheme.decode("ascii"), url.host.decode("ascii"), url.port, verified=verified)
    except Refused as refused:
        raise root_of(module).ConnectError(str(refused)) from refused


# ── urllib3, requests and what is built on them (botocore, hubspot, nasdaqdatalink) ─────────────


def guard_create_connection(module: Any, guard: Guard, patches: Patches) -> None:
    """``socket`` and ``urllib3.util.connection``: the blocking way to dial a name.

    Through ``socket`` also go http.client, urllib.request and the blocking side of httpcore.
    """

    def make(create: Any) -> Any:
        @wraps(create)
        def create_connection(address: tuple[str, int], *args: Any, **options: Any) -> Any:
            host, port = address[:2]
            return first_that_answers_now(
                guard.vet_web_now(host, port), lambda vetted: create((vetted, port), *args, **options)
            )

        return create_connection

    patches.replace(module, "create_connection", make)


def guard_urlopen(module: Any, guard: Guard, patches: Patches) -> None:
    """``urllib3.connectionpool``: every request, also one that goes through a proxy."""

    def make(urlopen: Any) -> Any:
        @wraps(urlopen)
        def guarded(self: Any, method: str, url: str, *args: Any, **options: Any) -> Any:
            target = urlsplit(url)
            if target.netloc and guard.proxies.includes(self.host, self.port):  # in the clear through the proxy
                guard.check_url(target.scheme, target.hostname or "", target.port)
            else:
                verified = getattr(self, "cert_reqs", None) not in {"CERT_NONE", ssl.CERT_NONE}
                guard.check_url(self.scheme, self.host, self.port, verified=verified)
            return urlopen(self, method, url, *args, **options)

        return guarded

    patches.replace(module.HTTPConnectionPool, "urlopen", make)


# ── aiohttp sessions that are not ours (langchain_tavily) ───────────────────────────────────────


def guard_connector(module: Any, guard: Guard, patches: Patches) -> None:
    """``aiohttp.connector``: somebody else's connector gets our resolver and checks every request."""

    def make_init(init: Any) -> Any:
        @wraps(init)
        def __init__(self: Any, **options: Any) -> None:  # noqa: N807
            if not isinstance(self, GuardedConnector):
                options["resolver"] = GuardedResolver(guard)
            init(self, **options)

        return __init__

    def make_connect(connect: Any) -> Any:
        @wraps(connect)
        async def guarded(self: Any, req: Any, *args: Any, **options: Any) -> Any:
            if not isinstance(self, GuardedConnector):
                admit(guard, req)
            return await connect(self, req, *args, **options)

        return guarded

    patches.replace(module.TCPConnector, "__init__", make_init)
    patches.replace(module.TCPConnector, "connect", make_connect)


HTTP_CLIENTS = {
    "aiohttp.connector": (guard_connector,),
    "httpcore._async.connection_pool": (guard_async_pool,),
    "httpcore._backends.auto": (guard_async_dial,),
    "httpcore._sync.connection_pool": (guard_pool,),
    "httpcore2._async.connection_pool": (guard_async_pool,),
    "httpcore2._backends.auto": (guard_async_dial,),
    "httpcore2._sync.connection_pool": (guard_pool,),
    "socket": (guard_create_connection,),
    "urllib3.connectionpool": (guard_urlopen,),
    "urllib3.util.connection": (guard_create_connection,),
}
