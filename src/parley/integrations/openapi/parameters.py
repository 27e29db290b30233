"""An operation's parameters and body: what the model is told of them, and how each is sent."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from parley.integrations.openapi.model import OTHER_METHOD, Body, BodyKind, Part, Place, Placed
from parley.integrations.openapi.schemas import Document, is_binary
from parley.integrations.openapi.security import OWN_HEADERS, TOKEN
from parley.integrations.own import TooComplex, is_clean
from parley.turn.model import JsonObject, JsonValue

MOST_PARAMETERS = 60
NAME_CHARACTERS = 100
STYLES: Mapping[Place, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
# Headers that OpenAPI itself says are no parameters, those that carry who is asking, and those by which some
# servers let a request become another one.
NEVER_SENT = OWN_HEADERS | {
    "authorization", "forwarded", "x-forwarded-host", "x-forwarded-prefix", "x-http-method", "x-http-method-override",
    "x-method-override", "x-original-url", "x-rewrite-url",
}  # fmt: skip
IDEMPOTENCY = re.compile(r"(x-)?idempotency-?key", re.IGNORECASE)
ADDRESSES = frozenset({"uri", "url"})
FILE: JsonObject = {
    "type": "object",
    "description": "A file: its text, or its bytes in base64, and how it is called.",
    "properties": {"text": {"type": "string"}, "base64": {"type": "string"}, "filename": {"type": "string"}},
}
# The first that an operation takes is what is sent.
MEDIA_TYPES: Sequence[tuple[re.Pattern[str], BodyKind]] = (
    (re.compile(r"application/json"), "json"),
    (re.compile(r"application/[a-z0-9.+-]*\+json|text/json"), "json"),
    (re.compile(r"application/x-www-form-urlencoded"), "form"),
    (re.compile(r"multipart/form-data"), "multipart"),
    (re.compile(r"text/[a-z0-9.+-]+|application/([a-z0-9.-]+\+)?xml|application/x-ndjson"), "text"),
    (re.compile(r"[a-z]+/[a-z0-9.+-]+"), "bytes"),
)


@dataclass(slots=True)
class Inputs:
    """What one operation takes: parameters as they are sent, its body, and the schema of all arguments."""

    parameters: list[Placed] = field(default_factory=list[Placed])
    body: Body | None = None
    properties: JsonObject = field(default_factory=dict[str, JsonValue])
    required: list[JsonValue] = field(default_factory=list[JsonValue])
    idempotency_key: str | None = None
    urls: list[str] = field(default_factory=list[str])

    @property
    def schema(self) -> JsonObject:
        """The JSON Schema of the arguments."""
        return {"type": "object", "properties": self.properties, "required": self.required}

    def argument(self, wanted: str, place: str) -> str:
        """A name for an argument that no other has."""
        for name in (wanted, f"{place}_{wanted}"):
            if name not in self.properties:
                return name
        raise TooComplex("two of its parameters have the same name")


def read_inputs(
    document: Document, declared: Sequence[JsonObject], body: JsonObject, keys: Collection[tuple[str, str]]
) -> Inputs:
    """What an operation takes. Raises TooComplex.

    ``keys`` are places and lower-case names that belong to credentials: what goes there is never the model's.
    """
    inputs = Inputs()
    if len(declared) > MOST_PARAMETERS:
        raise TooComplex(f"it has more than {MOST_PARAMETERS} parameters")
    for each in declared:
        _parameter(document, each, keys, inputs)
    if body:
        _body(document, body, inputs)
    return inputs


def _parameter(document: Document, declared: JsonObject, keys: Collection[tuple[str, str]], inputs: Inputs) -> None:
    name, place = declared.get("name"), _place(declared.get("in"))
    if not isinstance(name, str) or not name or len(name) > NAME_CHARACTERS or not is_clean(name):
        raise TooComplex("the name of a parameter is too long or holds characters that cannot be seen")
    if (place, name.lower()) in keys or (place == "header" and name.lower() in NEVER_SENT) or name == OTHER_METHOD:
        return
    if place in ("header", "cookie") and not TOKEN.fullmatch(name):
        raise TooComplex("the name of a header or cookie is none")
    content = declared.get("content")
    media = next(iter(content.values()), None) if isinstance(content, dict) else None
    schema = document.schema(media.get("schema") if isinstance(media, dict) else declared.get("schema"))
    argument = inputs.argument(name, place)
    style = declared.get("style", STYLES[place][0])
    if style not in STYLES[place]:
        raise TooComplex("a parameter is to be sent in a way that Parley does not know")
    explode = declared.get("explode")
    required = place == "path" or declared.get("required") is True
    inputs.parameters.append(
        Placed(
            argument=argument,
            name=name,
            place=place,
            style=str(style),
            explode=explode if isinstance(explode, bool) else style in ("form", "deepObject"),
            json=media is not None,
            required=required,
        )
    )
    _describe(inputs, argument, schema, declared, required=required)
    if place == "header" and IDEMPOTENCY.fullmatch(name):
        inputs.idempotency_key = argument


def _describe(inputs: Inputs, argument: str, schema: JsonObject, declared: JsonObject, *, required: bool) -> None:
    said = declared.get("description")
    inputs.properties[argument] = {**schema, "description": said} if isinstance(said, str) and said else schema
    if schema.get("format") in ADDRESSES:
        inputs.urls.append(argument)
    # Where the service knows repeats by a key, Parley makes one up for a call that has none.
    if required and not IDEMPOTENCY.fullmatch(argument):
        inputs.required.append(argument)


def _place(value: JsonValue) -> Place:
    for place in get_args(Place.__value__):
        if value == place:
            return cast("Place", place)
    raise TooComplex("a parameter is to be sent in a place that Parley does not know")


# ── bodies ──────────────────────────────────────────────────────────────────────────────────────


def _body(document: Document, declared: JsonObject, inputs: Inputs) -> None:
    content = declared.get("content")
    offered = (
        {key.partition(";")[0].strip().lower(): value for key, value in content.items()}
        if isinstance(content, dict)
        else {}
    )
    chosen = _media_type(offered)
    if chosen is None:
        raise TooComplex("its body is of a kind that Parley cannot send")
    media_type, kind = chosen
    media = document.resolved(offered[media_type])
    schema = document.schema(media.get("schema"))
    parts = _parts(document, media, schema) if kind in ("form", "multipart") else {}
    if kind == "bytes":
        schema = FILE
    argument = inputs.argument("body", "request")
    required = declared.get("required") is True
    inputs.body = Body(argument, media_type, kind, required, parts)
    _describe(inputs, argument, schema, declared, required=required)


def _media_type(offered: Mapping[str, JsonValue]) -> tuple[str, BodyKind] | None:
    for pattern, kind in MEDIA_TYPES:
        for media_type in offered:
            if pattern.fullmatch(media_type) and len(media_type) <= NAME_CHARACTERS:
                return media_type, kind
    return None


def _parts(document: Document, media: JsonObject, schema: JsonObject) -> dict[str, Part]:
    """How properties of a form are sent where it is not the usual way; files are shown as such."""
    source = document.resolved(media.get("schema")).get("properties")
    declared = source if isinstance(source, dict) else {}
    shown = schema.get("properties")
    properties = shown if isinstance(shown, dict) else {}
    encodings = media.get("encoding")
    encoding = encodings if isinstance(encodings, dict) else {}
    parts: dict[str, Part] = {}
    for name in properties:
        described, said = document.resolved(declared.get(name)), document.resolved(encoding.get(name))
        style, explode = said.get("style", "form"), said.get("explode")
        media_type = said.get("contentType", "")
        part = Part(
            style=str(style) if style in STYLES["query"] else "form",
            explode=explode if isinstance(explode, bool) else style in ("form", "deepObject"),
            binary=is_binary(described),
            media_type=media_type if isinstance(media_type, str) and _is_media_type(media_type) else "",
        )
        if part.binary:
            properties[name] = FILE
        if part != Part():
            parts[name] = part
    return parts


def _is_media_type(text: str) -> bool:
    return len(text) <= NAME_CHARACTERS and re.fullmatch(r"[a-z]+/[a-z0-9.+-]+", text) is not None
