"""The provider's two endpoints: where people sign in, and where a code or refresh token becomes a grant.

Calls are bounded in time and size and go through the egress guard. What the provider says in
words never leaves this module: its answers may repeat what we sent.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from parley.credentials.fields import UnsafeValue, check_host_fields, is_base_url
from parley.credentials.model import App, Secrets
from parley.egress import Egress, Refused, Response, Unreachable
from parley.integrations import OAuthConfig
from parley.turn.model import JsonValue
from parley.turn.text import NOT_JSON

SECONDS = 15.0
MOST_BYTES = 262_144
MOST_EXTRAS = 20
MOST_EXTRA_CHARACTERS = 2_048
LONGEST_LIFE_SECONDS = 10 * 366 * 86_400

# How providers say that a refresh token is used up or revoked; the first is the standard's word.
DEAD = frozenset({"invalid_grant", "bad_refresh_token", "invalid_refresh_token", "token_revoked"})
# Parts of the answer that no integration reads.
UNREAD = frozenset({"access_token", "refresh_token", "id_token", "expires_in", "error", "ok"})

# Where a credential keeps what a service named when it was asked how to sign in.
AUTHORIZATION_ENDPOINT, TOKEN_ENDPOINT = "authorization_endpoint", "token_endpoint"
TOKEN_AUTH_METHOD, RESOURCE = "token_auth_method", "resource"

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

type GrantProblem = Literal["dead", "refused", "unreachable", "garbled"]


class GrantError(Exception):
    """No grant came. ``problem`` is ``dead`` when the code or refresh token itself was refused."""

    def __init__(self, problem: GrantProblem, public: str) -> None:
        self.problem: GrantProblem = problem
        self.public = public
        super().__init__(f"{problem}: {public}")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a provider granted. ``seconds`` is how long the access token lives, None when unsaid.

    ``extras`` are the answer's other plain values, such as Salesforce's ``instance_url``.
    """

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    seconds: int | None
    scope: str | None
    extras: Mapping[str, JsonValue] = field(repr=False)


class TokenEndpoint:
    """Exchanges codes and refresh tokens with providers."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def exchange(
        self, config: OAuthConfig, app: App, *, code: str, redirect_uri: str, verifier: str | None
    ) -> Grant:
        """The grant behind an authorization code. ``verifier`` is PKCE's, None where it is off. Raises GrantError."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        if verifier is not None:
            form["code_verifier"] = verifier
        return await self._ask(config, app, form)

    async def refresh(self, config: OAuthConfig, app: App, refresh_token: str) -> Grant:
        """The successor of a grant; its ``refresh_token`` is None where the old one stays. Raises GrantError."""
        return await self._ask(config, app, {"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def client_grant(self, config: OAuthConfig, app: App) -> Grant:
        """A token for the client itself, without any person (RFC 6749 §4.4). Raises GrantError."""
        scope = {"scope": " ".join(config.scopes)} if config.scopes else {}
        return await self._ask(config, app, {"grant_type": "client_credentials", **scope})

    async def _ask(self, config: OAuthConfig, app: App, form: dict[str, str]) -> Grant:
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        if config.token_auth_method == "basic":  # noqa: S105 - where the secret travels, not a secret
            headers["Authorization"] = _basic(app)
        else:
            form = {**form, "client_id": app.client_id}
            if app.client_secret or not config.discovered:
                form["client_secret"] = app.client_secret
        if config.resource:
            form["resource"] = config.resource
        try:
            response = await self._egress.request(
                "POST",
                config.token_url,
                headers=headers,
                data=urlencode(form).encode(),
                seconds=SECONDS,
                max_bytes=MOST_BYTES,
            )
        except (Refused, Unreachable) as error:
            raise GrantError("unreachable", f"The sign-in server could not be asked. {error}") from None
        return _grant(response)


def filled_in(config: OAuthConfig, values: Secrets) -> OAuthConfig:
    """The config with each ``{placeholder}`` of its URLs replaced, such as ServiceNow's instance.

    The client secret goes to the host that results, so only a plain label may stand there. A
    discovered config is made of what the service named when it was asked. Raises UnsafeValue.
    """
    if config.discovered:
        return _as_discovered(config, values)

    def value(match: re.Match[str]) -> str:
        text = values.text(match[1])
        check_host_fields(match[1], text or " ", label_only=True)
        return quote(text, safe="")

    auth_url, token_url = (PLACEHOLDER.sub(value, url) for url in (config.auth_url, config.token_url))
    return msgspec.structs.replace(config, auth_url=auth_url, token_url=token_url)


def _as_discovered(config: OAuthConfig, values: Secrets) -> OAuthConfig:
    auth_url, token_url = values.text(AUTHORIZATION_ENDPOINT), values.text(TOKEN_ENDPOINT)
    if not is_base_url(auth_url) or not is_base_url(token_url):
        raise UnsafeValue("The sign-in addresses of this server are no plain web addresses.")
    return msgspec.structs.replace(
        config,
        auth_url=auth_url,
        token_url=token_url,
        token_auth_method=values.text(TOKEN_AUTH_METHOD) or config.token_auth_method,
        resource=values.text(RESOURCE),
    )


def authorization_url(
    config: OAuthConfig, *, client_id: str, redirect_uri: str, scope: str, state: str, verifier: str | None
) -> str:
    """Where the browser goes to sign in. ``verifier`` is PKCE's, None where it is off."""
    asked = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "scope": scope,
        "state": state,
        "access_type": config.access_type or "",
        "prompt": config.prompt or "",
        "resource": config.resource,
    }
    if verifier is not None:
        asked |= {"code_challenge": challenge(verifier), "code_challenge_method": "S256"}
    parts = urlsplit(config.auth_url)
    query = [*parse_qsl(parts.query), *((name, value) for name, value in asked.items() if value)]
    return urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))


def challenge(verifier: str) -> str:
    """PKCE's S256 of a code verifier (RFC 7636 §4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def is_from(config: OAuthConfig, issuer: str, *, templated: bool) -> bool:
    """Whether an ``iss`` names the server that was asked (RFC 9207), as against one that poses as it.

    Manifests give no issuer, so its host must be that of a known endpoint. Some services sign in on
    a customer's subdomain, so a sibling under the same two labels passes; not where the host itself
    came from a customer's field.
    """
    try:
        host = urlsplit(issuer).hostname or ""
    except ValueError:
        return False
    known = {urlsplit(url).hostname or "" for url in (config.auth_url, config.token_url)}
    if host in known:
        return True
    site = host.split(".")[-2:]
    return not templated and len(site) == 2 and any(name.split(".")[-2:] == site for name in known)


def _grant(response: Response) -> Grant:
    answer = _answer(response)
    token = answer.get("access_token") or _nested_token(answer)
    if response.status >= 400 or not isinstance(token, str) or not token:
        raise _problem(response.status, answer)
    refresh_token = answer.get("refresh_token")
    scope = answer.get("scope")
    return Grant(
        access_token=token,
        refresh_token=refresh_token if isinstance(refresh_token, str) and refresh_token else None,
        seconds=_seconds(answer.get("expires_in")),
        scope=scope if isinstance(scope, str) else None,
        extras=_extras(answer),
    )


def _answer(response: Response) -> Mapping[str, JsonValue]:
    """The answer's top-level values; some providers answer in form encoding whatever they are asked for."""
    try:
        parsed = msgspec.json.decode(response.body)
    except NOT_JSON:
        return dict(parse_qsl(response.body.decode("utf-8", "replace")))
    return parsed if isinstance(parsed, dict) else {}


def _nested_token(answer: Mapping[str, JsonValue]) -> JsonValue:
    """Slack puts the token of a person, as against a bot's, one level down."""
    person = answer.get("authed_user")
    return person.get("access_token") if isinstance(person, dict) else None


def _problem(status: int, answer: Mapping[str, JsonValue]) -> GrantError:
    error = answer.get("error")
    if isinstance(error, str) and error in DEAD:
        return GrantError("dead", "The sign-in is no longer accepted. Connect the account again.")
    if status >= 500 or status == 429:
        return GrantError("unreachable", f"The sign-in server answered {status}. Try again in a minute.")
    if status >= 400 or error is not None:
        word = error if isinstance(error, str) and re.fullmatch(r"[a-z_]{1,40}", error) else str(status)
        return GrantError("refused", f"The sign-in server said '{word}'. Check the OAuth app's id, secret and scopes.")
    return GrantError("garbled", "The sign-in server's answer held no access token.")


def _seconds(value: JsonValue) -> int | None:
    try:
        seconds = int(float(str(value)))
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds <= LONGEST_LIFE_SECONDS else None


def _extras(answer: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    extras: dict[str, JsonValue] = {}
    for name, value in answer.items():
        key = snake_case(name)
        if key in UNREAD or not isinstance(value, str | int) or len(str(value)) > MOST_EXTRA_CHARACTERS:
            continue
        try:
            check_host_fields(key, str(value))
        except UnsafeValue:
            raise GrantError("garbled", f"The sign-in server's answer names a host that is none: '{key}'.") from None
        extras[key] = value
        if len(extras) == MOST_EXTRAS:
            break
    return extras


def snake_case(name: str) -> str:
    """``realmId`` as ``realm_id``, the way integrations read it."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()[:100]


def _basic(app: App) -> str:
    pair = f"{quote(app.client_id, safe='')}:{quote(app.client_secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
