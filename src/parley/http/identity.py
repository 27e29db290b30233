"""Who is asking, and for which organization: the doors of every route (contract §0.1, §1).

An API key comes as ``Authorization: Bearer mx_live_…`` or ``X-API-KEY``; a browser brings the session
cookie, which counts only when neither of those was sent. The organization is in ``X-Organization-ID``
and nowhere else.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from fastapi import Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.types import Scope

from parley.accounts import Accounts, Caller, Pass, RateReached, User, caller_in, owner_in
from parley.base.errors import Unauthorized
from parley.billing import ApiRateDenied
from parley.http.browser import Browser, Headers
from parley.storage.acting import act_for

VISIT = "parley.visit"
ORGANIZATION = b"x-organization-id"
SIGNED_IN = "API key"
IN_ORGANIZATION = "API key in an organization"


class NotSignedIn(Unauthorized):
    """Sign in, or send an API key in the header Authorization: Bearer mx_live_…"""


type Door = Literal["user", "admin", "owner"]
EVERY_DOOR: frozenset[Door] = frozenset({"user", "admin", "owner"})


@dataclass(frozen=True, slots=True)
class Over:
    """A rate that is used up, and the doors at which the same key, in the same organization, hears the same of it."""

    refusal: RateReached | ApiRateDenied
    doors: frozenset[Door]
    in_organization: bool


@dataclass(slots=True)
class Visit:
    """What the doors learned of one request, under ``VISIT`` in its scope, for whoever stands in front of them."""

    recognized: bool = False
    over: Over | None = None


type Count = Callable[[str, str], Awaitable[None]]
"""Counts one request of an organization, by a user, by their ids. Raises a 429 past the plan's rate."""


class Identity:
    """Turns requests into people. ``user``, ``admin`` and ``owner`` are for ``Depends``."""

    def __init__(self, accounts: Accounts, browser: Browser, count: Count | None = None) -> None:
        self._callers = accounts.callers
        self._browser = browser
        self._count = count
        self.user = UserDoor(self)
        self.admin = AdminDoor(self)
        self.owner = OwnerDoor(self)

    async def authenticate(self, scope: Scope) -> Caller:
        """The owner or admin behind an HTTP request's ASGI scope, counted against the rates of key and plan.

        Raises Refusals: 401 for no valid key or session; 403 for an inactive user, a foreign page, a key
        locked elsewhere or an organization the user is not in; 400 without an organization; 429.
        """
        return await self._within_plan(scope, caller_in(await self._counted(scope), _organization(scope)))

    async def authenticate_owner(self, scope: Scope) -> Caller:
        """``authenticate``, and 403 for whoever is not the owner."""
        return await self._within_plan(scope, owner_in(await self._counted(scope), _organization(scope)))

    async def recheck(self, scope: Scope) -> Caller:
        """``authenticate`` once more for a stream that is still open; not counted against the rate."""
        return caller_in(await self._recognize(scope), _organization(scope))

    def when_doubted(self, watcher: Callable[[str], None]) -> None:
        """Tell the watcher, by id, each key and person whose rights this process has just changed."""
        self._callers.when_doubted(watcher)

    async def sign_in(self, scope: Scope) -> User:
        """The user behind a request, whatever organization it names. Raises as ``authenticate``."""
        return (await self._counted(scope)).user

    async def _counted(self, scope: Scope) -> Pass:
        recognized = await self._recognize(scope)
        visit = _visit(scope)
        visit.recognized = True
        try:
            await self._callers.count(recognized)
        except RateReached as refusal:
            visit.over = Over(refusal, EVERY_DOOR, in_organization=False)
            raise
        return recognized

    async def _within_plan(self, scope: Scope, caller: Caller) -> Caller:
        act_for(caller.organization_id)
        if self._count is not None:
            try:
                await self._count(caller.organization_id, caller.user_id)
            except ApiRateDenied as denial:
                doors: frozenset[Door] = frozenset({"admin", "owner"} if caller.role == "owner" else {"admin"})
                _visit(scope).over = Over(denial, doors, in_organization=True)
                raise
        return caller

    async def _recognize(self, scope: Scope) -> Pass:
        headers: Headers = dict(scope["headers"])
        key = presented_key(headers)
        if key is not None:
            return await self._callers.by_key(key, address=address_of(scope))
        token = self._browser.session_token(scope, headers)
        if token is None:
            raise NotSignedIn
        self._browser.need_own_page(scope, headers)
        return await self._callers.by_session(token, address=address_of(scope))


class _Door(SecurityBase):
    """A dependency that also tells OpenAPI how to sign in."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self.model = HTTPBearer(description="An API key, or the session cookie in its place", bearerFormat="mx_live_…")
        self.scheme_name = SIGNED_IN


class _OrganizationDoor(_Door):
    def __init__(self, identity: Identity) -> None:
        super().__init__(identity)
        self.scheme_name = IN_ORGANIZATION


class UserDoor(_Door):
    """Lets in whoever has a valid key or session."""

    async def __call__(self, request: Request) -> User:
        return await self._identity.sign_in(request.scope)


class AdminDoor(_OrganizationDoor):
    """Lets in owners and admins of the organization named in the header."""

    async def __call__(self, request: Request) -> Caller:
        return await self._identity.authenticate(request.scope)


class OwnerDoor(_OrganizationDoor):
    """Lets in the owner of the organization named in the header."""

    async def __call__(self, request: Request) -> Caller:
        return await self._identity.authenticate_owner(request.scope)


def own_organization(scope: Scope, user: User) -> str | None:
    """The organization that a request names, if its user may act there: for routes that need none."""
    named = (_organization(scope) or "").lower()
    return named if named in user.roles else None


def address_of(scope: Scope) -> str:
    """The address a request came from; empty when the server does not know it."""
    client = scope.get("client")
    return client[0] if client else ""


def presented_key(headers: Headers) -> str | None:
    """The API key in a request's headers; None without one."""
    kind, _, value = headers.get(b"authorization", b"").partition(b" ")
    if kind.lower() == b"bearer":
        return value.strip().decode("latin-1")
    header = headers.get(b"x-api-key")
    return None if header is None else header.strip().decode("latin-1")


def _visit(scope: Scope) -> Visit:
    return scope.setdefault(VISIT, Visit())


def _organization(scope: Scope) -> str | None:
    headers: Headers = dict(scope["headers"])
    named = headers.get(ORGANIZATION)
    return None if named is None else named.decode("latin-1").strip()
