"""What only browsers send: the session cookie, and word of where a request comes from (trust T24)."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import Scope

from parley.base.errors import Forbidden

SECURE_COOKIE = "__Host-parley"
PLAIN_COOKIE = "parley-session"
COOKIE_SECONDS = 7 * 86_400
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

type Headers = Mapping[bytes, bytes]


class ForeignPage(Forbidden):
    """Another site sent this request. Use Parley from its own pages, or send an API key."""


class NotPrivate(Forbidden):
    """Over plain http a browser can sign in only on this machine. Use https and set PARLEY_PUBLIC_URL to it."""


class Browser:
    """The session cookie: ``__Host-`` over https; over http a plain one, on this machine only.

    ``public_url`` is the operator's word for where browsers reach Parley; empty when not said.
    """

    def __init__(self, public_url: str) -> None:
        parts = urlsplit(public_url)
        self._public_host = parts.netloc.lower()
        self._public_https = parts.scheme == "https"

    def session_token(self, scope: Scope, headers: Headers) -> str | None:
        """The token in the session cookie; None without one."""
        name = self._cookie(scope).encode()
        for part in headers.get(b"cookie", b"").split(b";"):
            key, _, value = part.strip().partition(b"=")
            if key == name and value:
                return value.decode("latin-1")
        return None

    def need_privacy(self, scope: Scope, headers: Headers) -> None:
        """Raises NotPrivate 403 where the network could read the cookie and the operator did not choose that."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._https(scope) and not _is_loopback(host) and host != self._public_host:
            raise NotPrivate

    def remember(self, scope: Scope, response: Response, token: str) -> None:
        """Put the session into the browser."""
        response.set_cookie(
            self._cookie(scope),
            token,
            max_age=COOKIE_SECONDS,
            path="/",
            secure=self._https(scope),
            httponly=True,
            samesite="lax",
        )

    def forget(self, scope: Scope, response: Response) -> None:
        """Take the session out of the browser."""
        response.delete_cookie(self._cookie(scope), path="/", secure=self._https(scope), httponly=True, samesite="lax")

    def need_own_page(self, scope: Scope, headers: Headers) -> None:
        """Let an unsafe request with a cookie through only from Parley's own pages. Raises ForeignPage 403."""
        if scope["method"] in SAFE_METHODS:
            return
        site = headers.get(b"sec-fetch-site")
        if site is not None:
            if site != b"same-origin":
                raise ForeignPage
        elif not self._is_own(scope, headers):
            raise ForeignPage

    def refuse_foreign_page(self, scope: Scope, headers: Headers) -> None:
        """Refuse another site's page, but not a program, which sends neither header. Raises ForeignPage 403."""
        if b"sec-fetch-site" in headers or b"origin" in headers:
            self.need_own_page(scope, headers)

    def _is_own(self, scope: Scope, headers: Headers) -> bool:
        try:
            origin = urlsplit(headers.get(b"origin", b"").decode("latin-1").lower())
        except ValueError:
            return False
        if not origin.netloc or origin.scheme not in ("http", "https"):
            return False
        if self._https(scope) and origin.scheme != "https":
            return False
        return origin.netloc in (headers.get(b"host", b"").decode("latin-1").lower(), self._public_host)

    def _https(self, scope: Scope) -> bool:
        return self._public_https or scope["scheme"] == "https"

    def _cookie(self, scope: Scope) -> str:
        return SECURE_COOKIE if self._https(scope) else PLAIN_COOKIE


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost" or name.endswith(".localhost"):
            return True
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
