"""``/auth/session`` and ``/auth/password``: signing in from a browser. Ours, beside the contract."""

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field, SecretStr, StringConstraints, model_validator

from parley.accounts import Accounts, OpenSession, User
from parley.http.browser import Browser, Headers
from parley.http.identity import Identity, address_of
from parley.http.routes.auth import DoneOut, MembershipOut, Profile, memberships_out, profile
from parley.http.schemas import described

type Given = Annotated[SecretStr, Field(min_length=1, max_length=300)]
type NewPassword = Annotated[SecretStr, Field(min_length=10, max_length=300)]
type Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


class SignIn(BaseModel):
    """One way to sign in: an API key; e-mail and password; a sign-in link; an invitation's link.

    The last makes a new account, with ``username`` and, if wanted, ``password``.
    """

    api_key: Given | None = None
    email: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True, max_length=320)] | None = None
    password: Given | None = None
    sign_in_token: Given | None = None
    invitation_token: Given | None = None
    username: Name | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [self.api_key, self.email, self.sign_in_token, self.invitation_token]
        if sum(way is not None for way in ways) != 1:
            raise ValueError("give exactly one of api_key, email with password, sign_in_token, invitation_token")
        if self.email is not None and self.password is None:
            raise ValueError("give the password too")
        if self.invitation_token is not None:
            if self.username is None:
                raise ValueError("give a username for the new account")
            if self.password is not None and len(self.password) < 10:
                raise ValueError("choose a password of at least 10 characters")
        return self


class SessionOut(BaseModel):
    """Who is signed in, and where they may act."""

    success: Literal[True] = True
    user: Profile
    organizations: list[MembershipOut]


class PasswordChange(BaseModel):
    """A new password, and the present one where there is one."""

    current_password: Given | None = None
    new_password: NewPassword


def routes(identity: Identity, accounts: Accounts, browser: Browser) -> APIRouter:
    """The routes of the session cookie and of the password."""
    router = APIRouter(prefix="/auth", tags=["sessions"], responses=described())

    async def shown(user: User) -> SessionOut:
        found = await accounts.organizations.of(user)
        return SessionOut(user=profile(user), organizations=memberships_out(user, found))

    @router.post("/session", responses=described(404, 409, 410))
    async def sign_in(request: Request, response: Response, way: SignIn) -> SessionOut:
        headers: Headers = dict(request.scope["headers"])
        browser.refuse_foreign_page(request.scope, headers)
        browser.need_privacy(request.scope, headers)
        opened = await _open(accounts, way, address_of(request.scope))
        earlier = browser.session_token(request.scope, headers)
        if earlier is not None:
            await accounts.sessions.sign_out(earlier)
        browser.remember(request.scope, response, opened.token)
        return await shown(opened.user)

    @router.get("/session")
    async def session(user: Annotated[User, Depends(identity.user)]) -> SessionOut:
        return await shown(user)

    @router.delete("/session")
    async def sign_out(request: Request, response: Response) -> DoneOut:
        headers: Headers = dict(request.scope["headers"])
        token = browser.session_token(request.scope, headers)
        if token is not None:
            browser.need_own_page(request.scope, headers)
            await accounts.sessions.sign_out(token)
        browser.forget(request.scope, response)
        return DoneOut(message="You are signed out.")

    @router.put("/password", responses=described())
    async def set_password(
        request: Request, user: Annotated[User, Depends(identity.user)], change: PasswordChange
    ) -> DoneOut:
        current = change.current_password
        await accounts.sessions.set_password(
            user,
            current=None if current is None else current.get_secret_value(),
            new=change.new_password.get_secret_value(),
            session_token=browser.session_token(request.scope, dict(request.scope["headers"])) or "",
        )
        return DoneOut(message="The password is set. Your other sessions have ended.")

    return router


async def _open(accounts: Accounts, way: SignIn, address: str) -> OpenSession:
    sessions = accounts.sessions
    password = None if way.password is None else way.password.get_secret_value()
    if way.api_key is not None:
        return await sessions.sign_in_with_key(way.api_key.get_secret_value(), address=address)
    if way.sign_in_token is not None:
        return await sessions.sign_in_with_link(way.sign_in_token.get_secret_value(), address=address)
    if way.invitation_token is not None:
        token = way.invitation_token.get_secret_value()
        return await sessions.sign_in_with_invitation(token, way.username or "", password, address=address)
    return await sessions.sign_in_with_password(way.email or "", password or "", address=address)
