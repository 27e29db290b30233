"""One bounded exchange with a place that somebody else chose: credential tests, OAuth, documents by URL."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from parley.egress.guard import NotConnected, Refused, Unreachable

REDIRECTS = 3
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
CHUNK_BYTES = 65_536
MIB = 1_048_576
NOT_AN_ADDRESS = "This is not a web address. Write it as https://example.com/path."
# What may follow a redirect to another origin; everything else may be a credential.
HARMLESS_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "user-agent", "range"})


@dataclass(frozen=True, slots=True)
class Response:
    """What came back, read whole. Header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that is about to be sent."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    json: Any = None
    data: Any = None


def first_exchange(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None,
    params: Mapping[str, str] | None,
    json: Any,
    data: Any,
) -> Exchange:
    """The request as the caller asked for it. Raises Refused for a URL that is none, or holds user info."""
    try:
        target = _plain(URL(url).update_query(params or {}))
    except ValueError:
        raise Refused(NOT_AN_ADDRESS) from None
    return Exchange(method.upper(), target, CIMultiDict(headers or {}), json, data)


def _plain(url: URL) -> URL:
    if not url.absolute or url.scheme not in {"http", "https"}:
        raise Refused(NOT_AN_ADDRESS)
    if url.raw_user is not None or url.raw_password is not None:
        raise Refused("The address holds a user name or a password. Take it out and use the fields meant for it.")
    return url.with_fragment(None)


async def exchange(session: aiohttp.ClientSession, first: Exchange, *, seconds: float, max_bytes: int) -> Response:
    """Send, follow at most three redirects, read the answer; all of it within ``seconds``.

    Raises Refused when the guard refuses a hop, Unreachable when no whole answer came.
    """
    host = first.url.host
    try:
        async with asyncio.timeout(seconds):
            return await _follow(session, first, max_bytes)
    except TimeoutError:
        raise Unreachable(f"{host} did not answer within {seconds:g} seconds. Try again later.") from None
    except aiohttp.ClientSSLError as error:
        raise Unreachable(f"The certificate of {host} cannot be trusted. Check the address.") from error
    except aiohttp.ClientConnectorError as error:
        if isinstance(error.os_error, NotConnected):
            raise type(error.os_error)(str(error.os_error)) from None
        raise Unreachable(f"No connection to {host} could be made. Check the address, or try again later.") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise Unreachable(f"{host} broke off or sent what is not HTTP. Try again later.") from error


async def _follow(session: aiohttp.ClientSession, first: Exchange, max_bytes: int) -> Response:
    hop = first
    for _ in range(REDIRECTS + 1):
        async with session.request(
            hop.method, hop.url, headers=hop.headers, json=hop.json, data=hop.data, allow_redirects=False
        ) as response:
            location = response.headers.get("Location") if response.status in REDIRECT_STATUSES else None
            if location is None:
                return Response(response.status, response.headers, await _read(response, max_bytes))
            hop = _next(hop, response.status, location)
    raise Unreachable(f"{first.url.host} redirects more than {REDIRECTS} times. Use the final address.")


def _next(hop: Exchange, status: int, location: str) -> Exchange:
    """The request that follows a redirect: without credentials and body once the origin changes."""
    target = _plain(hop.url.join(URL(location)))
    headers, method, json, data = hop.headers, hop.method, hop.json, hop.data
    if (status == 303 and method != "HEAD") or (status in {301, 302} and method == "POST"):
        method, json, data = "GET", None, None
    if target.origin() != hop.url.origin():
        headers = CIMultiDict((name, value) for name, value in headers.items() if name.lower() in HARMLESS_HEADERS)
        if json is not None or data is not None:
            raise Refused(f"{hop.url.host} redirects this request to another site. Use the final address.")
    return Exchange(method, target, headers, json, data)


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        body += chunk
        if len(body) > max_bytes:
            raise Unreachable(f"The answer of {response.url.host} is larger than {max_bytes / MIB:g} MiB.")
    return bytes(body)
