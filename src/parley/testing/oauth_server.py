"""A local OAuth 2 authorization server that is as strict as the strictest providers.

Codes and refresh tokens are good once; a refresh token that comes back a second time revokes the
whole grant (RFC 9700 §4.14.2). PKCE is checked, the redirect must be the one of the sign-in, the
client must prove itself. ``fault`` makes it fail the way providers do, ``gate`` makes it wait.
"""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from aiohttp import web

type Fault = Literal["down", "garbage", "deep", "refuses", "forgets_refresh"]


@dataclass(slots=True)
class _Code:
    redirect_uri: str
    challenge: str | None


@dataclass(slots=True)
class OAuthServer:
    """The server's address, its one client, and what it has seen.

    ``authorization_url`` and ``token_url`` belong into an integration's ``oauth_config``; ``me_url``
    answers 200 to a live access token and 401 to any other.
    """

    origin: str = ""
    client_id: str = field(default_factory=lambda: f"client-{secrets.token_hex(4)}")
    client_secret: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    expires_in: int | None = 3600
    extras: dict[str, str] = field(default_factory=dict[str, str])
    fault: Fault | None = None
    gate: asyncio.Event | None = None
    exchanges: int = 0
    refreshes: int = 0
    replays: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    forms: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    _codes: dict[str, _Code] = field(default_factory=dict[str, _Code])
    _refresh_tokens: dict[str, str] = field(default_factory=dict[str, str])
    _used: set[str] = field(default_factory=set[str])
    _live: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def authorization_url(self) -> str:
        return f"{self.origin}/authorize"

    @property
    def token_url(self) -> str:
        return f"{self.origin}/token"

    @property
    def me_url(self) -> str:
        return f"{self.origin}/me"

    @property
    def place(self) -> str:
        """``host:port``, as PARLEY_ALLOW_PRIVATE_HOSTS takes it."""
        return urlsplit(self.origin).netloc

    def consent(self, authorization_url: str) -> str:
        """What the browser is sent back with when the person agrees: the callback URL with code and state."""
        asked = dict(parse_qsl(urlsplit(authorization_url).query))
        if asked.get("client_id") != self.client_id or asked.get("response_type") != "code":
            raise ValueError("the authorization request is not for this client")
        code = secrets.token_urlsafe(16)
        self._codes[code] = _Code(asked["redirect_uri"], asked.get("code_challenge"))
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def refuse(self, authorization_url: str, error: str = "access_denied") -> str:
        """What the browser is sent back with when the person declines."""
        asked = dict(parse_qsl(urlsplit(authorization_url).query))
        return f"{asked['redirect_uri']}?{urlencode({'error': error, 'state': asked['state']})}"

    def grant(self) -> tuple[str, str]:
        """An access token and a refresh token, as if somebody had signed in."""
        return self._issue(secrets.token_hex(8))

    def is_live(self, access_token: str) -> bool:
        """Whether an access token would be accepted."""
        return access_token in self._live

    def expire_tokens(self) -> None:
        """Take back every access token; the refresh tokens stay good."""
        self._live.clear()

    def revoke_all(self) -> None:
        """Take back every grant."""
        self._refresh_tokens.clear()
        self._live.clear()

    def _issue(self, family: str) -> tuple[str, str]:
        access, refresh = f"at-{secrets.token_urlsafe(16)}", f"rt-{secrets.token_urlsafe(16)}"
        for token in [token for token, owner in self._live.items() if owner == family]:
            del self._live[token]
        self._live[access] = family
        self._refresh_tokens[refresh] = family
        return access, refresh

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.fault == "down":
            return web.Response(status=503, text="try later")
        if self.fault == "garbage":
            return web.Response(text="<html>hello</html>", content_type="text/html")
        if self.fault == "deep":
            return web.Response(text='{"access_token":' * 5_000, content_type="application/json")
        if self.fault == "refuses" or not self._knows(request, form):
            return web.json_response({"error": "invalid_client"}, status=401)
        if form.get("grant_type") == "refresh_token":
            return self._refreshed(form)
        return self._exchanged(form)

    def _knows(self, request: web.Request, form: dict[str, str]) -> bool:
        header = request.headers.get("Authorization", "")
        if header.startswith("Basic "):
            pair = base64.b64decode(header.removeprefix("Basic ")).decode()
            return pair == f"{self.client_id}:{self.client_secret}" and "client_secret" not in form
        return (form.get("client_id"), form.get("client_secret")) == (self.client_id, self.client_secret)

    def _exchanged(self, form: dict[str, str]) -> web.Response:
        code = self._codes.pop(form.get("code", ""), None)
        if code is None or form.get("redirect_uri") != code.redirect_uri:
            return _invalid_grant()
        verifier = form.get("code_verifier")
        proof = None if verifier is None else _s256(verifier)
        if proof != code.challenge:
            return _invalid_grant()
        self.exchanges += 1
        return self._answer(*self._issue(secrets.token_hex(8)))

    def _refreshed(self, form: dict[str, str]) -> web.Response:
        token = form.get("refresh_token", "")
        family = self._refresh_tokens.pop(token, None)
        if family is None:
            if token in self._used:
                self.replays += 1
                self.revoke_all()
            return _invalid_grant()
        self._used.add(token)
        self.refreshes += 1
        return self._answer(*self._issue(family))

    def _answer(self, access_token: str, refresh_token: str) -> web.Response:
        answer: dict[str, str | int] = {"access_token": access_token, "token_type": "Bearer", **self.extras}
        if self.expires_in is not None:
            answer["expires_in"] = self.expires_in
        if self.fault != "forgets_refresh":
            answer["refresh_token"] = refresh_token
        return web.json_response(answer)

    async def _me(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self.is_live(token):
            return web.json_response({"message": "Bad credentials"}, status=401)
        return web.json_response({"login": "someone"})

    async def _authorize(self, request: web.Request) -> web.Response:
        """The page on which a person agrees or declines."""
        asked = str(request.url)
        links = {"allow": self.consent(asked), "deny": self.refuse(asked)}
        body = "".join(f'<a id="{name}" href="{escape(link)}">{name}</a> ' for name, link in links.items())
        return web.Response(text=f"<!doctype html><title>Sign in</title>{body}", content_type="text/html")

    def routes(self) -> list[web.RouteDef]:
        """What the server answers."""
        return [
            web.get("/authorize", self._authorize),
            web.post("/token", self._token),
            web.get("/me", self._me),
        ]


@asynccontextmanager
async def oauth_server() -> AsyncGenerator[OAuthServer]:
    """A server on a free port of this machine, for the time of the block."""
    server = OAuthServer()
    app = web.Application()
    app.add_routes(server.routes())
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


def _invalid_grant() -> web.Response:
    return web.json_response({"error": "invalid_grant"}, status=400)


def _s256(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
