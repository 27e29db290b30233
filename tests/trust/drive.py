"""Driving any action of the catalog as the server does, with a credential whose every secret is a canary."""

import base64
import json
import logging
import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from parley.credentials import Secrets
from parley.credentials.fields import HOSTS, LABELS, URLS, WORDS, spread, typed_in
from parley.credentials.offers import Offer, checked
from parley.integrations import ActionFailed, AuthSchema, Catalog, CredentialField, Integration, Secret, invoke
from parley.integrations.effects import effect_of, raised_effect, refuse_dangerous
from parley.integrations.index import SHIPPED, Action, read_index
from parley.turn.model import JsonObject, JsonValue

MAX_BYTES = 4 * 1024 * 1024
SECONDS = 6.0
# What is no secret and must be of a certain make.
PLAIN: Mapping[str, str] = {
    "host": "127.0.0.1", "port": "9", "ssl_mode": "verify", "encrypt": "true", "trust_server_certificate": "false",
    "account": "acme-x1", "data_center": "us", "datacenter": "us1", "region": "us", "environment": "production",
    "user": "reader", "database": "things", "database_name": "things", "schema": "public",
    "instance_name": "dev1", "pod": "us1", "user_agent": "parley-test",
}  # fmt: skip
CATALOG = Catalog(read_index(SHIPPED))


@dataclass(slots=True)
class Canaries:
    """The telling parts of one credential's secrets; nothing but the provider may ever see them."""

    cores: list[str] = field(default_factory=list[str])

    def new(self) -> str:
        """A secret that every encoding changes, around a part that none but base64 does."""
        core = secrets.token_hex(12)
        self.cores.append(core)
        return f'c4n/+"&{core}'

    def found_in(self, text: str) -> list[str]:
        """The canaries in a text: raw, URL-encoded, JSON-escaped or base64 at any offset."""
        return [core for core in self.cores if any(form in text for form in forms(core))]


@cache
def forms(core: str) -> tuple[str, ...]:
    """The core itself, and what base64 shows of it wherever it begins."""
    shown = [core]
    for offset in range(3):
        padded = b"\0" * offset + core.encode()
        first, last = math.ceil(offset * 8 / 6), len(padded) * 8 // 6
        shown.append(base64.b64encode(padded).decode()[first:last])
    return tuple(shown)


def ways(integration: Integration) -> list[AuthSchema]:
    """Every way to connect the integration with values of one's own."""
    return [schema for schema in integration.auth_schemas if schema.auth_type != "modulex_key"]


def canary_credential(integration: Integration, schema: AuthSchema | None) -> tuple[Secret, Canaries]:
    """A credential as an action receives it, made by the server's own checks."""
    canaries = Canaries()
    if schema is None:  # a public service gets a key all the same
        return Secret("modulex_key", {"api_key": canaries.new()}), canaries
    values = canary_values(schema, canaries)
    config = Secrets({"client_id": "c", "client_secret": canaries.new()}) if schema.auth_type == "oauth2" else None
    offer = Offer(integration.name, integration.display_name, "tool", (schema,), public=integration.public)
    form = checked(offer, schema.auth_type, Secrets(values), config)
    return Secret(schema.auth_type, spread(schema, form.opened.auth_data)), canaries


def canary_values(schema: AuthSchema, canaries: Canaries) -> dict[str, JsonValue]:
    """What a person would type in, a canary for every secret."""
    values: dict[str, JsonValue] = {one.name: _value(one, canaries) for one in typed_in(schema)}
    if schema.auth_type == "oauth2":
        values |= {"access_token": canaries.new(), "refresh_token": canaries.new()}
    return values


def _value(one: CredentialField, canaries: Canaries) -> str:
    key = one.key
    if key in PLAIN:
        return PLAIN[key]
    if key == "connection_string":
        return f"mongodb://reader:{quote(canaries.new(), safe='')}@127.0.0.1:9/?serverSelectionTimeoutMS=300"
    if key in ("private_key", "key_json"):
        pem = _private_key()
        canaries.cores.append(pem.split("\n")[3])
        account = {
            "type": "service_account", "client_email": "r@x.iam.example", "private_key": pem,
            "token_uri": "https://oauth2.googleapis.com/token", "project_id": "p1", "private_key_id": "1",
        }  # fmt: skip
        return pem if key == "private_key" else json.dumps(account)
    if key in URLS or key.endswith("url"):
        return "https://site.tenant-place.com"
    if key in LABELS | HOSTS | WORDS:
        return "acme"
    return f"{canaries.new()}-us21" if one.sensitive else "plain1"


def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


# ── arguments ───────────────────────────────────────────────────────────────────────────────────


def sample_arguments(action: Action, text: str = "x1", *, whole: bool = True) -> JsonObject:
    """A value for every parameter, or for the required ones only."""
    return {
        parameter.name: sample(parameter.schema, text) for parameter in action.parameters if whole or parameter.required
    }


def sample(schema: Mapping[str, Any], text: str) -> JsonValue:
    """A value that the schema accepts, its texts being ``text``."""
    variants = [variant for variant in schema.get("anyOf", ()) if variant.get("type") != "null"]
    if variants:
        return sample(variants[0], text)
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case "array":
            return [sample(schema.get("items", {}), text)]
        case "object":
            inner: Mapping[str, Any] = schema.get("properties", {})
            return {name: sample(inner[name], text) for name in inner} or {"k": text}
        case _:
            return text


def refused(integration: Integration, action: Action, arguments: JsonObject) -> str | None:
    """Why the server would not even try this call; None where it would."""
    effect = raised_effect(effect_of(integration.name, action.name, action.argument_schema), arguments)
    return refuse_dangerous(arguments, effect)


async def outcome(
    integration: Integration, action: Action, arguments: JsonObject, secret: Secret, *, seconds: float = SECONDS
) -> str:
    """Everything that leaves ``invoke``, whichever way it ends."""
    try:
        done = await invoke(
            CATALOG, integration.name, action.name, arguments, secret, seconds=seconds, max_bytes=MAX_BYTES
        )
    except ActionFailed as failed:
        return f"{failed.public} {failed!r} {failed.__cause__!r}"
    return json.dumps(done.value, ensure_ascii=False)


class Heard(logging.Handler):
    """Every record of every logger, formatted with its traceback as an operator would read it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "asyncio":
            self.lines.append(self.format(record))


def spread_over(items: list[Any], count: int) -> Iterator[Any]:
    """So many of the items, evenly from first to last."""
    step = max(1, len(items) // count)
    yield from items[::step][:count]
