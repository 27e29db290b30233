"""The catalog as data: what an integration is, what its actions accept, how its credential is made.

One gzipped JSON file, made by ``python -m parley.integrations.build`` and keyed by the version of
the package it describes. Reading it decodes a short summary of every integration; the rest stays
raw until somebody asks for one by name.
"""

import gzip
from pathlib import Path
from typing import Any

import msgspec

from parley.integrations.effects.table import Effect
from parley.turn.model import JsonObject

FORMAT = 1
SHIPPED = Path(__file__).parent / "data" / "catalog.json.gz"
KNOWLEDGE_PROVIDERS = SHIPPED.with_name("knowledge_providers.json")


class IndexBroken(Exception):
    """The file is no index of this format; the message says which file."""


class CredentialField(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing a person enters to connect an integration.

    ``name`` is the manifest's (``SHOPIFY_SHOP_ID``), ``key`` is what the integration reads
    (``shop_id``). ``only_for_custom`` fields belong to a person's own OAuth app.
    """

    name: str
    key: str
    display_name: str
    description: str
    required: bool = True
    sensitive: bool = False
    only_for_custom: bool = False
    inject_into_auth_data: bool = False
    sample_format: str | None = None
    about_url: str | None = None


class BasicAuth(msgspec.Struct, frozen=True, omit_defaults=True):
    """The two halves of a Basic header: names of credential fields, or literal text where none has that name."""

    username_placeholder: str
    password_placeholder: str


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request that tells whether a credential works; ``{placeholder}`` names a credential field."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    params: dict[str, str] = {}
    body: dict[str, Any] | None = None
    auth: BasicAuth | None = None
    status_codes: tuple[int, ...] = (200,)
    response_fields: tuple[str, ...] = ()
    cost_level: str = "free"
    description: str | None = None


class OAuthConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where and how an OAuth 2.0 code flow runs.

    ``discovered`` ones have no addresses of their own: the service named them when it was asked, and
    they are among the credential's values. ``resource`` is what a token is to be good for (RFC 8707).
    """

    auth_url: str
    token_url: str
    scopes: tuple[str, ...] = ()
    token_auth_method: str = "body"  # noqa: S105 - where the client secret travels, not a secret
    access_type: str | None = None
    prompt: str | None = None
    use_pkce: bool = True
    discovered: bool = False
    resource: str = ""


class AuthSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to connect an integration."""

    auth_type: str
    display_name: str
    description: str
    setup_instructions: tuple[str, ...] = ()
    fields: tuple[CredentialField, ...] = ()
    test_endpoint: Probe | None = None
    oauth_config: OAuthConfig | None = None


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One parameter an action accepts from the model.

    ``type`` is one of string, integer, number, boolean, array, object; ``schema`` is the JSON
    Schema it is checked against, without description and default.
    """

    name: str
    type: str
    required: bool = False
    description: str = ""
    enum: tuple[str, ...] | None = None
    default: Any = None
    schema: dict[str, Any] = {}


class Action(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing an integration does.

    ``bound`` are the arguments set from the credential and from nothing else; ``defaulted`` are
    parameters set from it where the model leaves them out; ``aliases`` maps names the manifest
    publishes to the names the function has. ``switched_off`` says why Parley does not run it. An
    ``open`` one is handed every argument that was sent: the other side checks them. ``effect`` is what
    a house integration's manifest declares; what the catalog's do is in the reviewed table.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...] = ()
    bound: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    aliases: dict[str, str] = {}
    switched_off: str = ""
    open: bool = False
    effect: Effect | None = None

    @property
    def argument_schema(self) -> JsonObject:
        """The JSON Schema of what the model may send: nothing else, and nothing that is filled at run time."""
        properties: JsonObject = {}
        for parameter in self.parameters:
            described: JsonObject = {**parameter.schema, "description": parameter.description}
            if parameter.default is not None:
                described["default"] = parameter.default
            properties[parameter.name] = described
        return {
            "type": "object",
            "properties": properties,
            "required": [parameter.name for parameter in self.parameters if parameter.required],
            "additionalProperties": False,
        }


class Integration(msgspec.Struct, frozen=True, omit_defaults=True):
    """One catalogued service.

    ``public`` ones need no credential. ``blocking`` ones would hold up the event loop, so they run
    in a thread; ``alone`` ones keep state in their driver, so one call runs at a time. ``replaced``
    maps a credential field's value to what is passed instead. ``notes`` say what Parley does
    differently, for people. ``house`` stands for the content of the operator's folder that it is in.
    """

    name: str
    display_name: str
    description: str
    version: str = "1.0.0"
    logo: str | None = None
    app_url: str | None = None
    categories: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()
    auth_schemas: tuple[AuthSchema, ...] = ()
    notes: tuple[str, ...] = ()
    replaced: dict[str, dict[str, str]] = {}
    public: bool = False
    blocking: bool = False
    alone: bool = False
    house: str = ""


class KnowledgeProvider(msgspec.Struct, frozen=True):
    """Where documents can be kept and searched.

    ``integration`` is the catalogued service whose credentials it uses, empty where it needs none.
    """

    name: str
    display_name: str
    description: str
    categories: tuple[str, ...]
    integration: str = ""
    app_url: str | None = None
    docs_url: str | None = None
    recommended: bool = False

    @property
    def text(self) -> str:
        """What a search looks in, lower case."""
        return _searched(self.name, self.display_name, self.description, *self.categories)


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What searching and listing need, and ``body``: the whole Integration, not yet decoded.

    ``needs`` are the top-level modules it cannot load without.
    """

    name: str
    display_name: str
    description: str
    categories: tuple[str, ...]
    actions: tuple[str, ...]
    auth_types: tuple[str, ...]
    needs: tuple[str, ...]
    body: msgspec.Raw

    @property
    def text(self) -> str:
        """What a search looks in, lower case; one line each for names, description, categories, actions."""
        return _searched(self.name, self.display_name, self.description, *self.categories, *self.actions)


class Index(msgspec.Struct, frozen=True):
    """The whole file. ``failures`` are the integrations that could not be read, with the reason."""

    format: int
    package_version: str
    failures: dict[str, str]
    integrations: tuple[Summary, ...]

    @property
    def names(self) -> frozenset[str]:
        """Every name that is the catalog's, also of what could not be read."""
        return frozenset(self.failures).union(summary.name for summary in self.integrations)


_decode_index = msgspec.json.Decoder(Index).decode
_decode_integration = msgspec.json.Decoder(Integration).decode


def _searched(*texts: str) -> str:
    return "\n".join(texts).lower()


def summarized(integration: Integration, needs: tuple[str, ...]) -> Summary:
    """The index entry of an integration."""
    return Summary(
        name=integration.name,
        display_name=integration.display_name,
        description=integration.description,
        categories=integration.categories,
        actions=tuple(action.name for action in integration.actions),
        auth_types=tuple(schema.auth_type for schema in integration.auth_schemas),
        needs=needs,
        body=msgspec.Raw(msgspec.json.encode(integration)),
    )


def whole(summary: Summary) -> Integration:
    """The integration behind an index entry."""
    return _decode_integration(summary.body)


def write_index(index: Index, path: Path) -> None:
    """Write the file; the same index gives the same bytes."""
    path.write_bytes(gzip.compress(msgspec.json.encode(index), 9, mtime=0))


def read_index(path: Path) -> Index:
    """Read the file. Raises FileNotFoundError, and IndexBroken for anything but an index of this format."""
    try:
        index = _decode_index(gzip.decompress(path.read_bytes()))
    except (gzip.BadGzipFile, EOFError, msgspec.DecodeError) as error:
        raise IndexBroken(f"{path} is not a catalog index: {error}") from error
    if index.format != FORMAT:
        raise IndexBroken(f"{path} has format {index.format}; this version reads {FORMAT}")
    return index
