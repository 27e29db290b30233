"""From what a client sends to what is sealed: which type of credential, which fields, which shapes.

A value that chooses a host is held to the shape of one. A subdomain such as ``evil.example/`` would
break out of ``https://{subdomain}.example.com``; a base URL with user info or a fragment reads as one
host to us and as another to the client that dials it (trust §2.4). Whether a well-formed host may be
reached is the egress guard's decision.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec

from parley.base.errors import BadRequest
from parley.credentials.model import MANAGED, OAUTH, Secrets
from parley.egress import connection_problem
from parley.integrations import AuthSchema, CredentialField
from parley.turn.model import JsonValue

MOST_FIELDS = 64
MOST_VALUE_CHARACTERS = 32_768
MOST_NAME_CHARACTERS = 100

# The words under which the one secret of a schema goes, whatever its manifest calls it.
SECRET_WORDS: Mapping[str, tuple[str, ...]] = {
    "api_key": ("api_key",),
    "bearer_token": ("token", "bearer_token", "access_token"),
}

LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
HOST = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*\.?")
ADDRESS_6 = re.compile(r"[0-9A-Fa-f:.]{2,45}")
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

# Fields that become one label of a host name, such as freshdesk's {domain}.freshdesk.com.
LABELS = frozenset(
    {
        "account_name",
        "application_id",
        "datacenter",
        "instance_name",
        "pod",
        "shop_id",
        "storage_account_name",
        "subdomain",
    }
)
# Fields that are a host name, or a label where the service says so; a host holds a label too.
HOSTS = frozenset({"account", "domain", "host", "data_center"})
# Fields that become a segment of a path.
WORDS = frozenset({"account_sid", "app_id", "environment", "location_id", "project_id", "realm_id", "region"})
# URLs by name; some services name the bare host instead.
URLS = frozenset(
    {
        "api_base_url",
        "api_domain",
        "api_url",
        "base_url",
        "ingest_url",
        "instance_url",
        "server_url",
        "store_url",
        "webhook_url",
    }
)
CONNECTION_SCHEMES = frozenset({"mongodb", "mongodb+srv"})


class WrongCredential(BadRequest):
    """The credential does not fit the integration."""


class UnsafeValue(BadRequest):
    """A field of the credential is not a plain host or URL."""


def choose_schema(
    name: str, schemas: Sequence[AuthSchema], auth_type: str | None, given: Mapping[str, JsonValue], *, oauth: bool
) -> AuthSchema:
    """The schema a new credential follows: the named type, else inferred (contract §7).

    ``oauth`` says that an ``oauth_config`` came along. Where the inferred type is not offered, the
    only schema that takes typed-in values is meant. Raises WrongCredential.
    """
    offered = {schema.auth_type: schema for schema in schemas}
    if auth_type is not None:
        if auth_type in offered:
            return offered[auth_type]
        raise WrongCredential(f"{name} has no credentials of type '{auth_type}'. It takes: {_listed(offered)}.")
    inferred = _inferred(given, oauth=oauth)
    if inferred in offered:
        return offered[inferred]
    typed_in = [schema for schema in schemas if schema.auth_type not in {OAUTH, MANAGED}]
    if len(typed_in) == 1 and given:
        return typed_in[0]
    raise WrongCredential(f"Say which auth_type this credential of {name} has. It takes: {_listed(offered)}.")


def named_values(schema: AuthSchema, given: Mapping[str, JsonValue]) -> Secrets:
    """The given values under the names the integration reads, trimmed; unknown names are kept.

    Raises WrongCredential for too many, too long or unprintable values.
    """
    if len(given) > MOST_FIELDS:
        raise WrongCredential(f"A credential has at most {MOST_FIELDS} fields.")
    keys = {alias.lower(): field.key for field in schema.fields for alias in _aliases(schema, field)}
    values: dict[str, JsonValue] = {}
    for name, value in given.items():
        plain = _plain(name, value)
        if plain is not None and plain != "":
            values[keys.get(name.lower(), name)] = plain
    return Secrets(values)


def check_values(name: str, schema: AuthSchema, values: Secrets, *, asked: Iterable[CredentialField]) -> None:
    """Refuse values with required ones of ``asked`` missing, or with a field that chooses a host and is not one.

    Raises WrongCredential, naming what is missing, and UnsafeValue.
    """
    missing = [field for field in asked if field.required and not values.text(field.key)]
    if missing:
        wanted = ", ".join(f"{field.display_name} ('{field.key}')" for field in missing)
        raise WrongCredential(f"{name} also needs: {wanted}.")
    templates = _templates(schema)
    for key in values:
        labels = {f"{{{alias}}}." for field in schema.fields if field.key == key for alias in (field.name, key)}
        check_host_fields(key, values.text(key), label_only=any(label in templates for label in labels))


def typed_in(schema: AuthSchema) -> Sequence[CredentialField]:
    """The fields a person enters for a credential, less those that belong to an OAuth app."""
    return [field for field in schema.fields if not belongs_to_app(schema, field)]


def belongs_to_app(schema: AuthSchema, field: CredentialField) -> bool:
    """Whether a field describes an OAuth app and not an account; two manifests forget to say so."""
    return field.only_for_custom or (schema.auth_type == OAUTH and field.name.endswith(("CLIENT_ID", "CLIENT_SECRET")))


def spread(schema: AuthSchema, values: Secrets) -> Secrets:
    """Every value also under each other name that an action or a test request may use."""
    spread_out = dict(values)
    for field in schema.fields:
        if field.key in values:
            for alias in _aliases(schema, field):
                spread_out.setdefault(alias, values[field.key])
    return Secrets(spread_out)


def main_secret(schema: AuthSchema, values: Secrets) -> str:
    """The value a hint is made of: the schema's one secret, else its first."""
    field = _main_field(schema) or next((field for field in schema.fields if field.sensitive), None)
    return values.text(field.key) if field is not None else values.text("access_token")


def _inferred(given: Mapping[str, JsonValue], *, oauth: bool) -> str | None:
    if given.get("api_key"):
        return "api_key"
    if given.get("token") or given.get("bearer_token"):
        return "bearer_token"
    return OAUTH if given.get("access_token") and oauth else None


def _aliases(schema: AuthSchema, field: CredentialField) -> tuple[str, ...]:
    words = SECRET_WORDS.get(schema.auth_type, ()) if field is _main_field(schema) else ()
    return (field.name, field.key, *words)


def _main_field(schema: AuthSchema) -> CredentialField | None:
    """The field that is the key or token itself."""
    words = SECRET_WORDS.get(schema.auth_type, ())
    sensitive = [field for field in schema.fields if field.sensitive]
    named = [field for field in sensitive if field.key in words]
    return next(iter(named or sensitive), None) if words else None


def _plain(name: str, value: JsonValue) -> JsonValue:
    if len(name) > MOST_NAME_CHARACTERS:
        raise WrongCredential("A field's name is too long.")
    if isinstance(value, dict | list):
        value = msgspec.json.encode(value).decode()
    if not isinstance(value, str):
        return value
    text = value.strip()
    if len(text) > MOST_VALUE_CHARACTERS:
        raise WrongCredential(f"The field '{name}' is longer than {MOST_VALUE_CHARACTERS} characters.")
    # A private key or a JSON document has lines; a key with a line break was copied wrongly.
    in_lines = text.startswith(("-----BEGIN", "{", "["))
    if not in_lines and not text.isprintable():
        raise WrongCredential(f"The field '{name}' holds a line break or another control character. Copy it again.")
    return text


def _templates(schema: AuthSchema) -> str:
    urls = [schema.test_endpoint.url] if schema.test_endpoint else []
    if schema.oauth_config:
        urls += [schema.oauth_config.auth_url, schema.oauth_config.token_url]
    return " ".join(urls)


def _listed(offered: Iterable[str]) -> str:
    return ", ".join(offered) or "none"


# ── hosts ───────────────────────────────────────────────────────────────────────────────────────


def check_host_fields(name: str, value: str, *, label_only: bool = False) -> None:
    """Refuse a value that chooses a host and is not of a host's shape; other fields pass.

    ``name`` is the field's short name; ``label_only`` says that the service puts the value in front
    of a fixed suffix. Raises UnsafeValue.
    """
    if not value:
        return
    if name in LABELS or (label_only and name in HOSTS):
        _must(LABEL.fullmatch(value), name, "one part of a host name, such as 'mycompany'")
    elif name in HOSTS:
        _must(HOST.fullmatch(value) or ADDRESS_6.fullmatch(value), name, "a host name, such as 'db.example.com'")
    elif name in WORDS:
        _must(WORD.fullmatch(value), name, "letters, digits, '-', '_' and '.' only")
    elif name in URLS:
        _must(is_base_url(value) or HOST.fullmatch(value), name, "a URL such as 'https://service.example.com'")
    elif name == "connection_string":
        _must(_connection(value), name, "a connection string such as 'mongodb+srv://user:password@cluster.example.com'")
        problem = connection_problem(value)
        if problem is not None:
            raise UnsafeValue(f"The field '{name}' must {problem}.")


def is_base_url(text: str) -> bool:
    """Whether the text is an http(s) URL that reads the same to every parser.

    No user info, query, fragment, blanks, backslashes or dot segments.
    """
    parts = _parts(text)
    return (
        parts is not None
        and parts.scheme in {"http", "https"}
        and parts.username is None
        and not parts.query
        and not parts.fragment
        and ".." not in parts.path
        and "%" not in parts.netloc
        and urlunsplit(parts) == text
        and _host_is_plain(parts)
    )


def _connection(text: str) -> bool:
    parts = _parts(text, ports=False)
    if parts is None or parts.scheme not in CONNECTION_SCHEMES:
        return False
    hosts = parts.netloc.rpartition("@")[2].split(",")
    return all(HOST.fullmatch(host.rpartition(":")[0] or host) for host in hosts)


def _parts(text: str, *, ports: bool = True) -> SplitResult | None:
    if any(character <= " " or character in "\\\x7f" for character in text):
        return None
    try:
        parts = urlsplit(text)
        if ports and parts.port == 0:
            return None
    except ValueError:
        return None
    return parts


def _host_is_plain(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    if parts.netloc.startswith("["):
        return ADDRESS_6.fullmatch(host) is not None
    return HOST.fullmatch(host) is not None


def _must(fits: object, name: str, wanted: str) -> None:
    if not fits:
        raise UnsafeValue(f"The field '{name}' must be {wanted}.")
