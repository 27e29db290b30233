"""What Parley changes in the clients that integrations are written with. All of it is here.

In httpx, which nearly all of them use:

- A client made without settings shares one TLS context: making one costs about 55 ms of CPU on
  the event loop, and integrations make a client for each call.
- During an action, what is read is counted, after decompression, and stops at the action's limit;
  and the last status is remembered, because integrations hide a 401 in their own error texts.
- During an action, a request that does not fit the action's pin is not sent (``pins``).
- A blocking client that an action made in a thread is closed after it (``closing_clients``): a vendor's SDK
  keeps one and has no way to close it, so its connections would stay open until they are collected.

No client logs its requests: some providers want the key in the URL, and drivers log whole headers.

Outside an action httpx behaves as ever. HubSpot's client learns to follow the proxy and CA variables,
as every other client does by itself. Where a client may connect, and that it checks certificates, is
egress's part.
"""

import logging
import os
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from ssl import SSLContext
from typing import Any
from urllib.request import getproxies, proxy_bypass

from parley.integrations.pins import Pin

# Tells our functions from httpx's own; functools.wraps carries it to whoever wraps ours.
MARK = "_parley_watches"
HUBSPOT = "api.hubapi.com"
# Below warnings these log URLs, headers, statements or keys.
TALKATIVE = (
    "aiohttp", "aiomysql", "asyncpg", "boto3", "botocore", "elevenlabs", "hubspot", "httpcore", "httpx", "langchain",
    "langchain_core", "langchain_tavily", "nasdaqdatalink", "pymongo", "requests", "s3transfer", "snowflake", "urllib3",
)  # fmt: skip


class TooLarge(Exception):
    """The provider's answers to one action are larger than its limit."""


class Strayed(Exception):
    """The action would send a request that it was never seen to make; it stays here."""


@dataclass(slots=True)
class Watch:
    """What one action has sent and read. ``status`` is that of the last answer, 0 before the first.

    ``strayed`` is the request that was held back, as method and place, empty where none was.
    """

    max_bytes: int
    pin: Pin | None = None
    sent: int = 0
    read: int = 0
    status: int = 0
    overflowed: bool = False
    strayed: str = ""

    def admit(self, method: str, host: str, path: str) -> None:
        """Note a request that is about to leave. Raises Strayed where the action's pin does not allow it."""
        if self.pin is not None and not self.pin.allows(method, host, path):
            self.strayed = f"{method} {host}"
            raise Strayed(f"{method} {host} is not what this action does")
        self.sent += 1

    def count(self, size: int) -> None:
        """Note bytes that were read. Raises TooLarge beyond the limit."""
        self.read += size
        if self.read > self.max_bytes:
            self.overflowed = True
            raise TooLarge(f"The answer is larger than {self.max_bytes} bytes")


log = logging.getLogger(__name__)

_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)
_made: ContextVar[list[Any] | None] = ContextVar("made", default=None)
_lock = threading.Lock()
_contexts: dict[tuple[bool, str, str], SSLContext] = {}


@contextmanager
def watching(max_bytes: int, pin: Pin | None = None) -> Generator[Watch]:
    """Within it, what this task sends through httpx is held to ``pin``, and what it reads to ``max_bytes``."""
    watch = Watch(max_bytes, pin)
    token = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(token)


@contextmanager
def closing_clients() -> Generator[None]:
    """Every ``httpx.Client`` made within it, by this task or thread, is closed at its end; closed ones may be.

    What was done within it stands, whatever closing says.
    """
    made: list[Any] = []
    token = _made.set(made)
    try:
        yield
    finally:
        _made.reset(token)
        for client in made:
            try:
                client.close()
            except Exception:  # whatever a vendor's own transport raises
                log.warning("a client that an action made could not be closed", exc_info=True)


def install() -> None:
    """Change httpx where it is not changed yet; cheap to call again, as the egress guard changes it too.

    Imports httpx, so only call this when an integration is used.
    """
    import httpx  # noqa: PLC0415 - start-up does not need it
    from httpx._transports import default  # noqa: PLC0415

    transports: Any = default
    with _lock:
        if not hasattr(httpx.Response.aiter_bytes, MARK):
            _count_reads(httpx.Response)
        if not hasattr(httpx.AsyncClient.send, MARK):
            _hold_requests(httpx.AsyncClient, httpx.Client)
        if not hasattr(httpx.Client.__init__, MARK):
            _note_clients(httpx.Client)
        if not hasattr(transports.create_ssl_context, MARK):
            transports.create_ssl_context = _sharing(transports.create_ssl_context)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)


def adapt(integration: str) -> None:
    """What the driver of one integration needs on top, when the integration is loaded."""
    if integration == "hubspot":
        _lead_hubspot()


def _lead_hubspot() -> None:
    from hubspot.discovery.discovery_base import DiscoveryBase  # noqa: PLC0415 - a vendor of one integration

    base: Any = DiscoveryBase
    make = base._default_api_factory  # noqa: SLF001 - it has no other seam
    if hasattr(make, MARK):
        return

    def led(package: Any, api_name: str, config: dict[str, Any]) -> Any:
        proxy = None if proxy_bypass(HUBSPOT) else getproxies().get("https")
        found = {"proxy": proxy, "ssl_ca_cert": os.environ.get("SSL_CERT_FILE")}
        return make(package, api_name, {**{name: value for name, value in found.items() if value}, **config})

    setattr(led, MARK, True)
    base._default_api_factory = staticmethod(led)  # noqa: SLF001


def _sharing(create: Any) -> Any:
    def create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> SSLContext:  # noqa: FBT001, FBT002 - httpx's signature
        if verify is not True or cert is not None:
            return create(verify=verify, cert=cert, trust_env=trust_env)
        key = (trust_env, os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", ""))
        with _lock:
            if key not in _contexts:
                _contexts[key] = create(verify=True, cert=None, trust_env=trust_env)
            return _contexts[key]

    setattr(create_ssl_context, MARK, True)
    return create_ssl_context


def _hold_requests(client: Any, blocking_client: Any) -> None:
    send_async, send = client.send, blocking_client.send

    @wraps(send_async)
    async def hold_async(self: Any, request: Any, **options: Any) -> Any:
        _admit(request)
        return await send_async(self, request, **options)

    @wraps(send)
    def hold(self: Any, request: Any, **options: Any) -> Any:
        _admit(request)
        return send(self, request, **options)

    setattr(hold_async, MARK, True)
    client.send, blocking_client.send = hold_async, hold


def _note_clients(client: Any) -> None:
    make = client.__init__

    @wraps(make)
    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        make(self, *args, **options)
        made = _made.get()
        if made is not None:
            made.append(self)

    setattr(__init__, MARK, True)
    client.__init__ = __init__


def _admit(request: Any) -> None:
    watch = _watch.get()
    if watch is not None:
        path: str = request.url.raw_path.decode("ascii", "replace").partition("?")[0]
        watch.admit(request.method, request.url.host, path)


def _count_reads(response: Any) -> None:
    read_async, read = response.aiter_bytes, response.iter_bytes

    async def aiter_bytes(self: Any, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        watch = _watched(self)
        async with aclosing(read_async(self, chunk_size)) as parts:
            async for part in parts:
                if watch is not None:
                    watch.count(len(part))
                yield part

    def iter_bytes(self: Any, chunk_size: int | None = None) -> Iterator[bytes]:
        watch = _watched(self)
        for part in read(self, chunk_size):
            if watch is not None:
                watch.count(len(part))
            yield part

    setattr(aiter_bytes, MARK, True)
    response.aiter_bytes, response.iter_bytes = aiter_bytes, iter_bytes


def _watched(response: Any) -> Watch | None:
    """The running action's watch, told of this answer; None outside one, and for what was read before."""
    watch = _watch.get()
    if watch is None or response.is_stream_consumed:
        return None
    watch.status = response.status_code
    return watch
