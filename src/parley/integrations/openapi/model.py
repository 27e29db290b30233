"""What is kept of an imported API: how each action is requested, and how its credentials are sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from parley.integrations.effects import Effect, EffectKind
from parley.integrations.index import AuthSchema, Integration
from parley.integrations.own import FoundAction, OwnAction, OwnIntegration
from parley.turn.model import JsonObject

OPENAPI = "openapi"

type Place = Literal["path", "query", "header", "cookie"]
type SchemeKind = Literal["api_key", "basic", "bearer", "client_credentials", "code"]
type BodyKind = Literal["json", "form", "multipart", "text", "bytes"]

# What a verb promises by HTTP itself; any other is taken for the worst until somebody says otherwise.
BY_VERB: Mapping[str, EffectKind] = {
    "get": "read", "head": "read", "post": "write", "put": "write", "patch": "write", "delete": "destructive",
}  # fmt: skip
# A name in a query or a form by which some servers take one verb for another.
OTHER_METHOD = "_method"
IDEMPOTENT = frozenset({"get", "head", "put", "delete"})


class Placed(msgspec.Struct, frozen=True, omit_defaults=True):
    """One parameter: what the model calls it, and how it is sent. ``json`` ones are sent as JSON text."""

    argument: str
    name: str
    place: Place
    style: str
    explode: bool
    json: bool = False
    required: bool = False


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one property of a form is sent, where it is not sent the usual way."""

    style: str = "form"
    explode: bool = True
    binary: bool = False
    media_type: str = ""


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request's body, made of one argument."""

    argument: str
    media_type: str
    kind: BodyKind
    required: bool = False
    parts: dict[str, Part] = {}


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an action is requested.

    ``security`` are the combinations of schemes that it takes, an empty one where it takes none;
    ``idempotency_key`` is the argument by which the service knows a repeat; ``urls`` are arguments
    that are web addresses.
    """

    method: str
    path: str
    parameters: tuple[Placed, ...] = ()
    body: Body | None = None
    security: tuple[tuple[str, ...], ...] = ((),)
    idempotency_key: str | None = None
    urls: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether it may be asked for without a credential."""
        return () in self.security

    @property
    def arguments(self) -> Sequence[str]:
        """The arguments that become a segment of the path."""
        return [each.argument for each in self.parameters if each.place == "path"]


class Scheme(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to authenticate: where its secret is put, or where a token is fetched."""

    kind: SchemeKind
    place: Literal["header", "query", "cookie"] = "header"
    name: str = "Authorization"
    auth_url: str = ""
    token_url: str = ""
    scopes: tuple[str, ...] = ()


class Way(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kind of credential: the schemes it fulfils, and of each the fields it is filled from."""

    schemes: dict[str, dict[str, str]]
    schema: AuthSchema


class Reached(msgspec.Struct, frozen=True, omit_defaults=True):
    """An own integration's ``source``: where the API is and how its credentials are sent. Without any secret.

    ``document_url`` is where it came from, empty where it was sent or its address may hold a key;
    ``left_out`` are actions that the reviewer did not want.
    """

    base_url: str
    version: str = ""
    document_url: str = ""
    schemes: dict[str, Scheme] = {}
    ways: tuple[Way, ...] = ()
    left_out: tuple[str, ...] = ()
    public: bool = False

    def way(self, auth_type: str) -> Way | None:
        """How a credential of this type is sent."""
        return next((way for way in self.ways if way.schema.auth_type == auth_type), None)


@dataclass(frozen=True, slots=True)
class Description:
    """What a document says, cleaned: the API, and its actions with what their verbs promise.

    ``rejected`` says of operations and sign-ins that are not offered why; ``notes`` what to know of the others.
    """

    title: str
    text: str
    reached: Reached
    servers: Sequence[str]
    actions: Sequence[FoundAction]
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: Sequence[str] = ()


def reached_of(own: OwnIntegration) -> Reached:
    """How an imported API is reached."""
    return msgspec.convert(own.source, Reached)


def request_of(action: FoundAction) -> Request:
    """How an action of an imported API is requested."""
    return msgspec.convert(action.body["request"], Request)


def integration_of(own: OwnIntegration) -> Integration:
    """The same as an integration of the catalog, with the ways to connect it and without actions."""
    reached = reached_of(own)
    return Integration(
        name=own.name,
        display_name=own.display_name,
        description=own.description,
        auth_schemas=tuple(way.schema for way in reached.ways),
        public=reached.public,
    )


def proposed_effect(request: Request) -> EffectKind:
    """What an action's verb promises."""
    return BY_VERB.get(request.method, "destructive")


def effect_of_own(action: OwnAction) -> Effect:
    """What an action does as far as people have said so, and the rules its arguments are held to in any case.

    A repeat is safe where HTTP says so of the verb, or where the service itself knows repeats by a key.
    """
    request, effect = request_of(action.found), action.reviewed_effect
    return msgspec.structs.replace(
        effect,
        paths=tuple(request.arguments),
        urls=request.urls,
        overwrites=effect.known and request.method == "put",
        idempotent=effect.known and (request.method in IDEMPOTENT or request.idempotency_key is not None),
        idempotency_key=request.idempotency_key,
    )


def kept_body(request: Request, input_schema: JsonObject) -> JsonObject:
    """What is stored of an action beside its name and description."""
    return {
        "input_schema": input_schema,
        "request": msgspec.to_builtins(request),
        "proposed_effect": proposed_effect(request),
        "closed": True,
    }
