"""How to sign in to an MCP server: asking it, its authorization server, and for a client of our own.

The server names its authorization server (RFC 9728), that one names its endpoints (RFC 8414) and
takes new clients (RFC 7591). All of it is a stranger's word: every address goes through the egress
guard, the resource must be the server itself, and the issuer the one that was asked for.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

import msgspec

from parley.base.errors import BadRequest
from parley.credentials.fields import is_base_url
from parley.credentials.grants import AUTHORIZATION_ENDPOINT, RESOURCE, TOKEN_AUTH_METHOD, TOKEN_ENDPOINT
from parley.credentials.model import Secrets
from parley.credentials.oauth import NoApp, SignIn
from parley.egress import Egress, Refused, Response, Unreachable
from parley.integrations.mcp import UnfitPlace, check_url
from parley.turn.model import JsonObject, JsonValue

SECONDS = 10.0
MOST_BYTES = 262_144
MOST_SCOPES = 50
METADATA = re.compile(r'resource_metadata="([^"]{1,2000})"')
SCOPE = re.compile(r'scope="([^"]{1,1000})"')
PING: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class NoSignIn(BadRequest):
    """The MCP server does not say how to sign in to it."""


class ServerSignIn:
    """Fulfils ``oauth.AskService`` for MCP servers."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def __call__(self, asked: SignIn, callback_url: str) -> SignIn:
        """The sign-in with the server's endpoints, and a client of ours where none was brought along.

        Raises NoSignIn, and NoApp where the authorization server takes no new clients.
        """
        try:
            url = check_url(asked.values.text("server_url"))
        except UnfitPlace as unfit:
            raise NoSignIn(str(unfit)) from None
        challenge = await self._challenge(url)
        resource = await self._resource(url, challenge)
        server = await self._authorization_server(url, resource)
        values, method = _endpoints(url, server)
        app = asked.app
        if asked.pooled:
            app, method = await self._register(server, callback_url, method)
        said = SCOPE.search(challenge)
        scope = asked.scope if asked.scope is not None else said[1] if said else _scopes(resource)
        return replace(
            asked,
            pooled=False,
            app=app,
            scope=scope,
            display_name=asked.display_name or urlsplit(url).hostname,
            values=Secrets({**asked.values, **values, "server_url": url, TOKEN_AUTH_METHOD: method}),
        )

    async def _challenge(self, url: str) -> str:
        """The WWW-Authenticate header with which the server refuses an unknown caller; empty without one."""
        try:
            response = await self._egress.request(
                "POST", url, headers=ACCEPT, json=PING, seconds=SECONDS, max_bytes=MOST_BYTES
            )
        except (Refused, Unreachable) as error:
            raise NoSignIn(f"The MCP server could not be asked. {error}") from None
        return response.headers.get("WWW-Authenticate", "")[:4_000] if response.status == 401 else ""

    async def _resource(self, url: str, challenge: str) -> JsonObject:
        """The server's own description of how it is protected; empty for an older one that has none."""
        named = METADATA.search(challenge)
        parts = urlsplit(url)
        places = [named[1]] if named else []
        places += [
            _well_known(url, "oauth-protected-resource", parts.path),
            _well_known(url, "oauth-protected-resource"),
        ]
        for place in dict.fromkeys(places):
            found = await self._document(place)
            if found is None:
                continue
            if not _covers(str(found.get("resource", "")), url):
                raise NoSignIn("The MCP server's sign-in is for another server. Ask whoever runs it.")
            return found
        return {}

    async def _authorization_server(self, url: str, resource: JsonObject) -> JsonObject:
        named = resource.get("authorization_servers")
        issuer = str(named[0]) if isinstance(named, list) and named else _origin(url)
        if not is_base_url(issuer):
            raise NoSignIn("The MCP server names an authorization server that is no web address.")
        path = urlsplit(issuer).path.rstrip("/")
        places = [
            _well_known(issuer, "oauth-authorization-server", path),
            _well_known(issuer, "openid-configuration", path),
            f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        ]
        for place in dict.fromkeys(places):
            found = await self._document(place)
            if found is None:
                continue
            if str(found.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
                raise NoSignIn("The authorization server calls itself by another name than the MCP server does.")
            return found
        raise NoSignIn("The MCP server does not say how to sign in to it. Send the headers it wants instead.")

    async def _register(self, server: JsonObject, callback_url: str, method: str) -> tuple[Secrets, str]:
        """A client of our own, and how it proves itself."""
        place = server.get("registration_endpoint")
        if not isinstance(place, str) or not is_base_url(place):
            raise NoApp(
                "This MCP server takes no new clients by itself. Register Parley with whoever runs it, then sign in "
                f"with use_modulex_oauth=false and custom_oauth_config. The redirect address is {callback_url}"
            )
        wish: JsonObject = {
            "client_name": "Parley",
            "redirect_uris": [callback_url],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": _SPOKEN[method],
        }
        try:
            response = await self._egress.request("POST", place, json=wish, seconds=SECONDS, max_bytes=MOST_BYTES)
        except (Refused, Unreachable) as error:
            raise NoSignIn(f"The authorization server could not be asked for a client. {error}") from None
        made = _object(response) if response.status in (200, 201) else None
        client_id = made.get("client_id") if made else None
        if made is None or not isinstance(client_id, str) or not client_id:
            raise NoSignIn("The authorization server did not take Parley as a client. Bring a client of your own.")
        secret = made.get("client_secret")
        told = _METHODS.get(str(made.get("token_endpoint_auth_method", "")), method)
        app: dict[str, JsonValue] = {"client_id": client_id, "client_secret": secret if isinstance(secret, str) else ""}
        return Secrets(app), told if app["client_secret"] else "body"

    async def _document(self, url: str) -> JsonObject | None:
        """A JSON object from an address; None where there is none. A refused address is refused aloud."""
        try:
            response = await self._egress.request(
                "GET", url, headers={"Accept": "application/json"}, seconds=SECONDS, max_bytes=MOST_BYTES
            )
        except Refused as error:
            raise NoSignIn(f"The sign-in leads to a place that Parley does not go to. {error}") from None
        except Unreachable:
            return None
        return _object(response) if response.status == 200 else None


# How a client proves itself, in the standard's words and in ours.
_METHODS = {"client_secret_post": "body", "client_secret_basic": "basic", "none": "body"}
_SPOKEN = {"body": "client_secret_post", "basic": "client_secret_basic", "none": "none"}


def _endpoints(url: str, server: JsonObject) -> tuple[dict[str, JsonValue], str]:
    """What the credential keeps of an authorization server, and how a client proves itself to it."""
    methods = server.get("code_challenge_methods_supported")
    if not isinstance(methods, list) or "S256" not in methods:
        raise NoSignIn("The authorization server does not offer PKCE, without which Parley does not sign in.")
    endpoints: dict[str, JsonValue] = {RESOURCE: url}
    for name, key in ((AUTHORIZATION_ENDPOINT, "authorization_endpoint"), (TOKEN_ENDPOINT, "token_endpoint")):
        place = server.get(key)
        if not isinstance(place, str) or not is_base_url(place):
            raise NoSignIn(f"The authorization server's {key} is no plain web address.")
        endpoints[name] = place
    proofs = server.get("token_endpoint_auth_methods_supported")
    offered = [str(proof) for proof in proofs] if isinstance(proofs, list) else ["client_secret_basic"]
    if "none" in offered:
        return endpoints, "none"
    return endpoints, "body" if "client_secret_post" in offered else "basic"


def _scopes(resource: Mapping[str, JsonValue]) -> str:
    named = resource.get("scopes_supported")
    return " ".join(str(scope) for scope in named[:MOST_SCOPES]) if isinstance(named, list) else ""


def _covers(resource: str, url: str) -> bool:
    """Whether a protected resource is the server itself or what it is a part of."""
    path = urlsplit(resource).path.rstrip("/")
    return _origin(resource) == _origin(url) and f"{urlsplit(url).path.rstrip('/')}/".startswith(f"{path}/")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _well_known(url: str, name: str, path: str = "") -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/.well-known/{name}{path.rstrip('/')}", query="", fragment=""))


def _object(response: Response) -> JsonObject | None:
    try:
        found = msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None
