"""``/credentials/oauth2`` and the page on which a sign-in ends (contract §7.1, trust T12)."""

import secrets
from html import escape
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field, StringConstraints
from starlette.responses import HTMLResponse

from parley.accounts import Caller
from parley.credentials import Ended, OAuth, Refresher, Return, Secrets, SignIn
from parley.http.identity import Identity
from parley.http.routes.credentials import CredentialOut, IntegrationName, Name, credential_out, source_of
from parley.http.schemas import described

PREFIX = "/credentials/oauth2"
CALLBACK_PATH = f"{PREFIX}/callback"
COOKIE = "parley-oauth"
COOKIE_SECONDS = 600
# What the callback itself reads; everything else may be something the provider says about the account.
OURS = frozenset({"state", "code", "error", "error_description", "error_uri", "iss", "scope"})
MOST_EXTRAS = 20

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title} · Parley</title>
<link rel="stylesheet" href="{prefix}/page.css">
<script src="{prefix}/page.js" defer></script>
</head>
<body data-origin="{origin}" data-request-id="{request_id}" data-status="{status}" data-close="{close}">
<main><h1>{title}</h1><p>{message}</p><p>You can close this window.</p></main>
</body>
</html>
"""
# Tells the page that opened this window, and its siblings, which question ended how: nothing else.
SCRIPT = """"use strict";
const { origin, requestId, status, close } = document.body.dataset;
const message = { type: "parley:oauth", request_id: requestId || null, status };
if ("BroadcastChannel" in window && window.location.origin === origin) {
  const channel = new BroadcastChannel("parley:oauth");
  channel.postMessage(message);
  channel.close();
}
if (window.opener) {
  window.opener.postMessage(message, origin);
  if (close === "yes") window.close();
}
"""
STYLE = """:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { display: grid; min-height: 100vh; margin: 0; place-items: center; }
main { max-width: 32rem; padding: 2rem; text-align: center; }
h1 { font-size: 1.5rem; }
"""
STATIC_HEADERS = {"Cache-Control": "public, max-age=3600", "X-Content-Type-Options": "nosniff"}
PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

type Id = Annotated[str, StringConstraints(max_length=36)]


class SignInIn(BaseModel):
    """Where to sign in, and for which waiting chat; the ``composer_`` names carry Assistant chats too."""

    integration_name: IntegrationName
    redirect_uri: Annotated[str, StringConstraints(max_length=2_000)]
    use_modulex_oauth: bool = True
    custom_oauth_config: dict[str, Any] | None = Field(default=None, repr=False)
    scope: Annotated[str, StringConstraints(max_length=4_000)] | None = None
    display_name: Name | None = None
    make_default: bool = False
    env_var_values: dict[str, str] | None = Field(default=None, repr=False)
    composer_chat_id: Id | None = None
    composer_request_id: Id | None = None
    composer_llm_config: dict[str, Any] | None = None


class SignInOut(BaseModel):
    """Where to send the browser. ``redirect_uri`` is what the OAuth app must allow."""

    authorization_url: str
    state: str
    redirect_uri: str


def routes(identity: Identity, oauth: OAuth, refresher: Refresher, base_url: str) -> APIRouter:
    """Starting, ending and renewing sign-ins. ``base_url`` is how browsers reach this server."""
    router = APIRouter(prefix="/credentials", tags=["credentials"], responses=described())
    _sign_in_routes(router, Depends(identity.admin), oauth, refresher, urlsplit(base_url).netloc)
    _page_routes(router, oauth, base_url)
    return router


def _sign_in_routes(router: APIRouter, admin: Any, oauth: OAuth, refresher: Refresher, host: str) -> None:
    @router.post("/oauth2/initiate", responses=described(404))
    async def start(
        caller: Annotated[Caller, admin], request: Request, response: Response, wish: SignInIn
    ) -> SignInOut:
        browser = _browser(request, host)
        started = await oauth.start(
            caller,
            SignIn(
                integration_name=wish.integration_name,
                redirect_uri=wish.redirect_uri,
                pooled=wish.use_modulex_oauth,
                app=Secrets(wish.custom_oauth_config),
                scope=wish.scope,
                display_name=wish.display_name,
                make_default=wish.make_default,
                values=Secrets(dict(wish.env_var_values or {})),
                chat_id=wish.composer_chat_id,
                request_id=wish.composer_request_id,
                llm=wish.composer_llm_config,
                browser=browser,
            ),
        )
        if browser is not None:
            response.set_cookie(
                COOKIE,
                browser,
                max_age=COOKIE_SECONDS,
                path=urlsplit(started.redirect_uri).path.partition("/callback")[0],
                secure=urlsplit(started.redirect_uri).scheme == "https",
                httponly=True,
                samesite="lax",
            )
        return SignInOut(
            authorization_url=started.authorization_url, state=started.state, redirect_uri=started.redirect_uri
        )

    @router.post("/{credential_id}/oauth2/refresh", responses=described(404, 409))
    async def refresh(caller: Annotated[Caller, admin], request: Request, credential_id: str) -> CredentialOut:
        return credential_out(await refresher.refresh(caller, credential_id, source_of(request)))


def _page_routes(router: APIRouter, oauth: OAuth, base_url: str) -> None:
    async def end(request: Request, integration_name: str | None = None) -> Response:
        query = request.query_params
        back = Return(
            state=query.get("state", ""),
            code=query.get("code", ""),
            error=query.get("error", ""),
            issuer=query.get("iss", ""),
            integration_name=integration_name,
            browser=request.cookies.get(COOKIE),
            extras={name: value for name, value in [*query.items()][:MOST_EXTRAS] if name not in OURS},
        )
        return _page(await oauth.finish(back, source_of(request)), base_url)

    @router.get("/oauth2/callback", response_class=HTMLResponse, include_in_schema=False)
    async def callback(request: Request) -> Response:
        return await end(request)

    @router.get("/oauth2/callback/{integration_name}", response_class=HTMLResponse, include_in_schema=False)
    async def callback_of(request: Request, integration_name: str) -> Response:
        return await end(request, integration_name)

    @router.get("/oauth2/page.js", include_in_schema=False)
    async def script() -> Response:
        return Response(SCRIPT, media_type="text/javascript", headers=STATIC_HEADERS)

    @router.get("/oauth2/page.css", include_in_schema=False)
    async def style() -> Response:
        return Response(STYLE, media_type="text/css", headers=STATIC_HEADERS)


def _browser(request: Request, host: str) -> str | None:
    """The secret that binds a sign-in to this browser, its old one where it has one.

    None for a client that is no page of this server's, or that came by another host than the one
    the provider returns to: its cookie would not come back.
    """
    own_page = request.headers.get("sec-fetch-site") == "same-origin"
    if not own_page or request.headers.get("host", "") != host:
        return None
    return request.cookies.get(COOKIE) or secrets.token_urlsafe(32)


def _page(ended: Ended, base_url: str) -> Response:
    parts = urlsplit(base_url)
    page = PAGE.format(
        title="Connected" if ended.status == "connected" else "Not connected",
        prefix=f"{parts.path}{PREFIX}",
        origin=escape(f"{parts.scheme}://{parts.netloc}"),
        request_id=escape(ended.request_id or ""),
        status=ended.status,
        close="yes" if ended.trusted else "no",
        message=escape(ended.message),
    )
    return HTMLResponse(page, 200 if ended.trusted else 400, PAGE_HEADERS)
