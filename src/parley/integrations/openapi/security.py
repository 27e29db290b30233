"""How an API wants to be signed in to: from a document's security schemes to kinds of credentials."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urljoin, urlsplit

import msgspec

from parley.integrations.index import AuthSchema, CredentialField, OAuthConfig
from parley.integrations.openapi.model import Scheme, Way
from parley.integrations.openapi.schemas import Document
from parley.integrations.own import TooComplex, clean_text, is_clean, plain_name
from parley.turn.model import JsonObject, JsonValue

MOST_SCHEMES = 20
MOST_SCOPES = 50
NAME_CHARACTERS = 100
PREFIX_CHARACTERS = 30
TEXT_CHARACTERS = 300
TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# Headers that belong to the connection or the body: neither a parameter nor a key may be sent as one.
OWN_HEADERS = frozenset(
    {
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "cookie",
        "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
PLACES = ("header", "query", "cookie")
# The field of a kind's only secret, under the name that the credential routes know it by.
TYPES: Mapping[str, str] = {"api_key": "api_key", "bearer": "bearer_token", "code": "oauth2"}


class NotOffered(Exception):
    """A sign-in that Parley does not do; the message says which."""


def read_schemes(document: Document, base_url: str) -> tuple[dict[str, Scheme], dict[str, str]]:
    """The security schemes that can be used, and of the others why not."""
    components = document.resolved(document.root.get("components"))
    declared = components.get("securitySchemes")
    schemes: dict[str, Scheme] = {}
    refused: dict[str, str] = {}
    for name, value in list(declared.items())[:MOST_SCHEMES] if isinstance(declared, dict) else ():
        try:
            if not is_clean(name) or len(name) > NAME_CHARACTERS:
                raise NotOffered("The name of a sign-in is too long or holds characters that cannot be seen.")
            schemes[name] = _scheme(document.resolved(value), base_url)
        except (NotOffered, TooComplex) as reason:
            refused[name] = str(reason)
    return schemes, refused


def alternatives(security: JsonValue) -> tuple[tuple[str, ...], ...]:
    """The combinations of schemes that a ``security`` list allows; an empty one where none is needed."""
    if not isinstance(security, list) or not security:
        return ((),)
    return tuple(tuple(sorted(each)) for each in security if isinstance(each, dict))


def wanted_scopes(securities: Iterable[JsonValue]) -> Mapping[str, Sequence[str]]:
    """The scopes that operations name for each scheme: what a sign-in asks for, and no more."""
    found: dict[str, dict[str, None]] = {}
    for security in securities:
        for each in security if isinstance(security, list) else ():
            for name, scopes in each.items() if isinstance(each, dict) else ():
                for scope in scopes if isinstance(scopes, list) else ():
                    if isinstance(scope, str) and scope.isascii() and scope.isprintable() and len(scope) <= 200:
                        found.setdefault(name, {})[scope] = None
    return {name: list(scopes)[:MOST_SCOPES] for name, scopes in found.items()}


def read_ways(schemes: Mapping[str, Scheme], used: Counter[tuple[str, ...]]) -> tuple[tuple[Way, ...], list[str]]:
    """The kinds of credentials, the most used first, and notes of those that found no place.

    ``used`` counts the combinations that operations take, of schemes that can be used. There is one
    kind of each type, because a credential says only its type.
    """
    ways: dict[str, Way] = {}
    notes: list[str] = []
    for combination, _ in sorted(used.items(), key=lambda item: (-item[1], item[0])):
        if not combination:
            continue
        kinds = [schemes[name].kind for name in combination]
        if len(kinds) > 1 and "code" in kinds:
            notes.append(f"{_listed(combination)}: a sign-in together with another key is not offered.")
            continue
        auth_type = TYPES.get(kinds[0], "custom") if len(kinds) == 1 else "custom"
        if auth_type in ways:
            notes.append(f"{_listed(combination)}: another sign-in of the same kind is offered instead.")
            continue
        ways[auth_type] = _way(combination, schemes, auth_type)
    return tuple(ways.values()), notes


def _listed(combination: Sequence[str]) -> str:
    return clean_text(" + ".join(combination), 100)


# ── one scheme ──────────────────────────────────────────────────────────────────────────────────


def _scheme(declared: JsonObject, base_url: str) -> Scheme:
    kind = declared.get("type")
    if kind == "apiKey":
        return _api_key(declared)
    if kind == "http":
        spoken = str(declared.get("scheme", "")).lower()
        if spoken in ("basic", "bearer"):
            return Scheme("basic" if spoken == "basic" else "bearer")
        raise NotOffered(f"Parley does not sign in with HTTP {clean_text(spoken, 40) or 'of an unnamed kind'}.")
    if kind == "oauth2":
        return _oauth(declared.get("flows"), base_url)
    if kind == "openIdConnect":
        raise NotOffered("Parley does not sign in with OpenID Connect. Use another sign-in of this API.")
    raise NotOffered(f"Parley does not sign in with {clean_text(str(kind), 40)}.")


def _api_key(declared: JsonObject) -> Scheme:
    place, name = declared.get("in"), declared.get("name")
    if not isinstance(name, str) or not TOKEN.fullmatch(name):
        raise NotOffered("Its key has a name that no header, parameter or cookie can have.")
    for known in PLACES:
        if place == known and not (place == "header" and name.lower() in OWN_HEADERS):
            return Scheme("api_key", known, name)
    raise NotOffered("Its key is sent in a place where Parley sends none.")


def _oauth(flows: JsonValue, base_url: str) -> Scheme:
    offered = flows if isinstance(flows, dict) else {}
    for flow, kind in (("authorizationCode", "code"), ("clientCredentials", "client_credentials")):
        described = offered.get(flow)
        if not isinstance(described, dict):
            continue
        token_url = _address(described.get("tokenUrl"), base_url)
        if kind == "client_credentials":
            return Scheme("client_credentials", token_url=token_url)
        return Scheme("code", auth_url=_address(described.get("authorizationUrl"), base_url), token_url=token_url)
    raise NotOffered(
        "Parley signs in with OAuth's authorization code or client credentials, and this API names neither."
    )


def _address(value: JsonValue, base_url: str) -> str:
    """A sign-in address; a relative one starts at the API itself."""
    text = value if isinstance(value, str) else ""
    try:
        url = urljoin(f"{base_url}/", text) if text else ""
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and parts.hostname and parts.username is None and not parts.query
    except ValueError:
        url, plain = "", False
    if not plain or not url.isascii() or not url.isprintable() or not set(" #{}\\").isdisjoint(url):
        raise NotOffered("Its sign-in address is no plain web address.")
    return url


# ── credentials ─────────────────────────────────────────────────────────────────────────────────


def _way(combination: Sequence[str], schemes: Mapping[str, Scheme], auth_type: str) -> Way:
    fields: list[CredentialField] = []
    filled: dict[str, dict[str, str]] = {}
    for position, name in enumerate(combination):
        plain = plain_name(name, PREFIX_CHARACTERS) or "key"
        prefix = "" if len(combination) == 1 else f"{plain}_{position + 1}_"
        made, filled[name] = _fields(schemes[name], name, prefix)
        fields += made
    shown = _listed(combination)
    config = None
    if auth_type == "oauth2":
        scheme = schemes[combination[0]]
        config = OAuthConfig(scheme.auth_url, scheme.token_url, scheme.scopes)
    schema = AuthSchema(
        auth_type, shown, f"As the API describes it: {shown}.", fields=tuple(fields), oauth_config=config
    )
    return Way(filled, schema)


def _fields(scheme: Scheme, name: str, prefix: str) -> tuple[list[CredentialField], dict[str, str]]:
    """The fields of one scheme, and which of its parts each fills."""
    shown = clean_text(name, 60)
    where = f"Sent as the {scheme.place} {scheme.name}."
    match scheme.kind:
        case "api_key":
            return [_field(f"{prefix}api_key", shown, where)], {"value": f"{prefix}api_key"}
        case "bearer":
            return [_field(f"{prefix}token", shown, "A bearer token.")], {"value": f"{prefix}token"}
        case "basic":
            pair = {"username": f"{prefix}username", "password": f"{prefix}password"}
            # Many services take a key as the user name and no password, so either may be the secret.
            user = _field(
                pair["username"], "User name", "The user's name, or the key of a service that wants it there."
            )
            password = _field(pair["password"], "Password", "The user's password; empty where there is none.")
            return [user, msgspec.structs.replace(password, required=False)], pair
        case "client_credentials":
            pair = {"client_id": f"{prefix}client_id", "client_secret": f"{prefix}client_secret"}
            # Not named *CLIENT_ID: that would look for an app of the operator's.
            client = CredentialField(f"{prefix}app_id".upper(), pair["client_id"], "Client ID", "Of your OAuth client.")
            secret = CredentialField(
                f"{prefix}app_secret".upper(),
                pair["client_secret"],
                "Client secret",
                f"Sent to {scheme.token_url} only.",
                sensitive=True,
            )
            return [client, secret], pair
        case "code":
            return [], {"value": "access_token"}


def _field(key: str, display_name: str, description: str) -> CredentialField:
    return CredentialField(key.upper(), key, display_name, clean_text(description, TEXT_CHARACTERS), sensitive=True)
