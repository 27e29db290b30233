"""In front of the framework: who is over a rate for the rest of its window is refused here, at little cost.

Routing a request and recognizing its caller cost several times what a refusal needs. So a refusal that a
door gave is given again, without the door, to whoever presents the same key on a route behind a door that
would say the same. Once a second one request of each key goes the whole way, so that a revoked key,
another plan and a window begun anew are noticed.

Requests that nobody is recognized for are counted by address: those without a key or a session, those
with one that does not count, and all of public routes.
"""

import asyncio
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.accounts import RateReached, refuse_over
from parley.base.clock import Clock
from parley.http.browser import Headers
from parley.http.errors import refusal_response
from parley.http.identity import (
    ORGANIZATION,
    VISIT,
    AdminDoor,
    Door,
    Over,
    OwnerDoor,
    UserDoor,
    Visit,
    address_of,
    presented_key,
)
from parley.http.stream import listen_path
from parley.storage import STORE_TROUBLE
from parley.storage.windows import Windows, seconds_left

KEEP_SECONDS = 1.0
MOST_KEPT = 20_000
SECRET_BYTES = 32
ADDRESS_SECONDS = 60
# So long a count may take, and so long nothing is counted after one that took longer.
COUNT_SECONDS = 5.0
REST_SECONDS = 5.0
# Whoever asks how the server is must hear it while the store is away, so this is counted once it is answered.
HEALTH = "/system/health"
IPV6_NETWORK = 64
CREDENTIALS = (b"authorization", b"x-api-key", b"cookie")
RETRY_AFTER = b"retry-after"
TOO_MANY = "Too many requests from your address. Sign in or send an API key, or try again in a minute."

log = logging.getLogger(__name__)


class Doors:
    """Which door stands before which route; none before public routes and before what does not exist."""

    def __init__(self, app: FastAPI) -> None:
        self._routes: list[tuple[set[str], re.Pattern[str], Door | None]] = [
            (context.methods or set[str](), context.path_regex, _door(context.dependant))
            for context in iter_route_contexts(app.routes)
            if hasattr(context, "dependant")
        ]

    def before(self, scope: Scope) -> Door | None:
        """The door before the route that would take the request."""
        if listen_path(scope) is not None:
            return "admin"
        path, method = scope["path"], scope["method"]
        return next((door for methods, form, door in self._routes if method in methods and form.match(path)), None)


@dataclass(frozen=True, slots=True)
class _Known:
    """A refusal as it goes out at ``doors``, until ``resets_at`` by the clock, ``good_until`` by the machine's own."""

    doors: frozenset[Door]
    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    resets_at: int
    good_until: float

    async def give(self, send: Send, now: int) -> None:
        """Answer with it, and with the seconds that are left now."""
        wait = str(seconds_left(self.resets_at, now)).encode()
        headers = [(name, wait if name == RETRY_AFTER else value) for name, value in self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class Refused:
    """The refusals of the last second, under a keyed hash of the key each was given to; at most ``most``."""

    def __init__(self, clock: Clock, most: int = MOST_KEPT) -> None:
        self._clock = clock
        self._most = most
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._kept: dict[bytes, _Known] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, headers: Headers, over: Over) -> None:
        """Remember what a door said to the key in these headers; nothing where there is none."""
        key = presented_key(headers)
        if key is None:
            return
        if len(self._kept) >= self._most:
            del self._kept[next(iter(self._kept))]
        response = refusal_response(over.refusal)
        self._kept[self._name(key, headers.get(ORGANIZATION) if over.in_organization else None)] = _Known(
            over.doors,
            response.status_code,
            response.raw_headers,
            bytes(response.body),
            over.refusal.resets_at,
            time.monotonic() + KEEP_SECONDS,
        )

    def find(self, headers: Headers) -> Sequence[_Known]:
        """What is known of the key in these headers, by itself and in the organization it names."""
        key = presented_key(headers) if self._kept else None
        if key is None:
            return ()
        names = (self._name(key, None), self._name(key, headers.get(ORGANIZATION)))
        return [known for name in names if (known := self._good(name)) is not None]

    def _good(self, name: bytes) -> _Known | None:
        known = self._kept.get(name)
        if known is not None and (known.good_until <= time.monotonic() or known.resets_at <= self._clock.now()):
            del self._kept[name]
            return None
        return known

    def _name(self, key: str, organization: bytes | None) -> bytes:
        said = key.encode("latin-1")
        text = said if organization is None else b"%d:%b%b" % (len(said), said, organization)
        return hashlib.blake2b(text, digest_size=16, key=self._secret).digest()


class Addresses:
    """Counts requests by the network they come from: an IPv4 address, or the 64 bits that an IPv6 caller is given.

    It fails open: when the store does not answer, the route itself will say so.
    """

    def __init__(self, windows: Windows, limit: int) -> None:
        self._windows = windows
        self._limit = limit
        self._rests_until = 0.0

    async def take(self, scope: Scope) -> None:
        """Count one request. Raises RateReached past the limit."""
        if time.monotonic() < self._rests_until:
            return
        try:
            async with asyncio.timeout(COUNT_SECONDS):
                taken = await self._windows.take(_network(scope), self._limit)
        except STORE_TROUBLE as error:
            self._rests_until = time.monotonic() + REST_SECONDS
            log.warning("requests of unknown callers are not counted now: %s", type(error).__name__)
            return
        refuse_over(taken, TOO_MANY)

    async def look(self, scope: Scope) -> None:
        """As ``take``, without counting, as far as this process knows."""
        refuse_over(await self._windows.look(_network(scope), self._limit), TOO_MANY)


class Doorstep:
    """The outermost layer: refuses at once whom a door would refuse for their rate, and addresses over theirs."""

    def __init__(self, app: ASGIApp, doors: Doors, refused: Refused, addresses: Addresses, clock: Clock) -> None:
        self._app = app
        self.doors = doors
        self._refused = refused
        self._addresses = addresses
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: Headers = dict(scope["headers"])
        known = self._known(scope, headers)
        if known is not None:
            await known.give(send, self._clock.now())
            return
        later = scope["path"] == HEALTH or any(name in headers for name in CREDENTIALS)
        try:
            await self._within_address(scope, later=later)
        except RateReached as refusal:
            await refusal_response(refusal)(scope, receive, send)
            return
        visit = scope[VISIT] = Visit()
        await self._app(scope, receive, send)
        if visit.over is not None:
            self._refused.keep(headers, visit.over)
        if later and not visit.recognized:
            await self._count_unknown(scope)

    def _known(self, scope: Scope, headers: Headers) -> _Known | None:
        found = self._refused.find(headers)
        if not found:
            return None
        door = self.doors.before(scope)
        return next((known for known in found if door in known.doors), None)

    async def _within_address(self, scope: Scope, *, later: bool) -> None:
        """Raises RateReached. Behind a door a key or a session may still count, however busy its address is."""
        if not later:
            await self._addresses.take(scope)
            return
        try:
            await self._addresses.look(scope)
        except RateReached:
            if self.doors.before(scope) is None:
                raise

    async def _count_unknown(self, scope: Scope) -> None:
        try:
            await self._addresses.take(scope)
        except RateReached:
            return


def _door(dependant: Dependant) -> Door | None:
    for call in _calls(dependant):
        match call:
            case OwnerDoor():
                return "owner"
            case AdminDoor():
                return "admin"
            case UserDoor():
                return "user"
            case _:
                continue
    return None


def _calls(dependant: Dependant) -> Iterator[object]:
    for each in dependant.dependencies:
        yield each.call
        yield from _calls(each)


def _network(scope: Scope) -> str:
    address = address_of(scope)
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or ip_network((found, IPV6_NETWORK), strict=False))
