"""What the guard adds to httpx and requests beyond dialling: no credential across origins, bounded answers.

Each function replaces something of one module once it is loaded, as in ``clients``.
"""

import zlib
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import aclosing
from functools import cache, wraps
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from parley.egress.guard import DEFAULT_PORTS, Guard
from parley.egress.patches import Patches, root_of
from parley.egress.request import HARMLESS_HEADERS, MIB

MAX_ANSWER_BYTES = 25 * MIB
TOO_LARGE = "The answer is larger than 25 MiB."
ENCODINGS = ("gzip", "deflate")  # of these, BoundedZlib bounds every chunk
# Headers of the message itself, which a redirected request still needs.
MESSAGE_HEADERS = HARMLESS_HEADERS | {"connection", "content-length", "content-type", "host", "transfer-encoding"}


def guard_redirects(module: Any, _guard: Guard, patches: Patches) -> None:
    """``httpx._client``: no header that may be a credential follows a redirect to another origin."""

    def make(redirect_headers: Any) -> Any:
        @wraps(redirect_headers)
        def _redirect_headers(self: Any, request: Any, url: Any, method: str) -> Any:
            headers = redirect_headers(self, request, url, method)
            if _origin(str(request.url)) != _origin(str(url)):
                _drop_credentials(headers)
            return headers

        return _redirect_headers

    patches.replace(module.BaseClient, "_redirect_headers", make)


def guard_rebuild_auth(module: Any, _guard: Guard, patches: Patches) -> None:
    """``requests.sessions``: no header that may be a credential follows a redirect to another origin."""

    def make(rebuild_auth: Any) -> Any:
        @wraps(rebuild_auth)
        def guarded(self: Any, prepared_request: Any, response: Any) -> Any:
            if _origin(prepared_request.url) != _origin(response.request.url):
                _drop_credentials(prepared_request.headers)
            return rebuild_auth(self, prepared_request, response)

        return guarded

    patches.replace(module.SessionRedirectMixin, "rebuild_auth", make)


def guard_answers(module: Any, _guard: Guard, patches: Patches) -> None:
    """``httpx._models``: an answer, decompressed, ends with an error at 25 MiB."""

    def make(iter_bytes: Any) -> Any:
        @wraps(iter_bytes)
        def capped(self: Any, *args: Any, **options: Any) -> Iterator[bytes]:
            total = 0
            for part in iter_bytes(self, *args, **options):
                total += len(part)
                _check_size(module, total)
                yield part

        return capped

    def make_async(aiter_bytes: Any) -> Any:
        @wraps(aiter_bytes)
        async def capped(self: Any, *args: Any, **options: Any) -> AsyncIterator[bytes]:
            total = 0
            async with aclosing(aiter_bytes(self, *args, **options)) as parts:
                async for part in parts:
                    total += len(part)
                    _check_size(module, total)
                    yield part

        return capped

    patches.replace(module.Response, "iter_bytes", make)
    patches.replace(module.Response, "aiter_bytes", make_async)


def bound_zlib(module: Any, _guard: Guard, patches: Patches) -> None:
    """``httpx._decoders``: one small compressed chunk cannot fill the memory. httpx2 sees to that itself."""
    patches.replace(module, "zlib", lambda _zlib: BoundedZlib)


def bound_decoders(module: Any, _guard: Guard, patches: Patches) -> None:
    """``httpx._models``: only packings whose every chunk is bounded are unpacked."""
    patches.replace(
        module, "SUPPORTED_DECODERS", lambda known: {name: known[name] for name in ("identity", *ENCODINGS)}
    )


def offer_bounded(module: Any, _guard: Guard, patches: Patches) -> None:
    """``httpx._client``: only those are asked for."""
    patches.replace(module, "ACCEPT_ENCODING", lambda _offered: ", ".join(ENCODINGS))


def share_tls(module: Any, _guard: Guard, patches: Patches) -> None:
    """``httpx._transports.default``: one TLS context for all clients that want the usual one.

    Integrations make a client for every call, and a context takes about 50 ms of CPU.
    """

    def make(create: Any) -> Any:
        usual = cache(create)

        @wraps(create)
        def create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:  # noqa: FBT001, FBT002
            if verify is True and cert is None and trust_env:
                return usual()
            return create(verify, cert, trust_env)

        return create_ssl_context

    patches.replace(module, "create_ssl_context", make)


class BoundedZlib:
    """What ``httpx._decoders`` uses of zlib; no call returns more than an answer may have."""

    MAX_WBITS = zlib.MAX_WBITS
    error = zlib.error

    def __init__(self, window: int) -> None:
        self._inner = zlib.decompressobj(window)
        self.flush = self._inner.flush

    @classmethod
    def decompressobj(cls, window: int = zlib.MAX_WBITS) -> "BoundedZlib":
        return cls(window)

    def decompress(self, data: bytes) -> bytes:
        plain = self._inner.decompress(data, MAX_ANSWER_BYTES)
        if self._inner.unconsumed_tail:
            raise zlib.error(TOO_LARGE)
        return plain


def _check_size(module: ModuleType, total: int) -> None:
    if total > MAX_ANSWER_BYTES:
        raise root_of(module).ReadError(TOO_LARGE)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)


def _drop_credentials(headers: MutableMapping[str, str]) -> None:
    for name in list(headers):
        if name.lower() not in MESSAGE_HEADERS:
            del headers[name]


BOUNDS = {
    "httpx._client": (guard_redirects, offer_bounded),
    "httpx._decoders": (bound_zlib,),
    "httpx._models": (guard_answers, bound_decoders),
    "httpx._transports.default": (share_tls,),
    "httpx2._client": (guard_redirects,),
    "httpx2._models": (guard_answers,),
    "httpx2._transports.default": (share_tls,),
    "requests.sessions": (guard_rebuild_auth,),
}
