"""JSON Schemas that a stranger wrote: made small, plain and free of references, or refused.

Nothing here runs a schema: patterns and references of a stranger are never evaluated.
"""

from collections.abc import Mapping
from typing import cast

from parley.integrations.index import Parameter
from parley.integrations.own.texts import clean_text, is_clean
from parley.turn.model import JsonObject, JsonValue

MOST_PARTS = 2_000
MOST_DEPTH = 16
MOST_PROPERTIES = 100
NAME_CHARACTERS = 128
DESCRIPTION_CHARACTERS = 1_000
TEXT_CHARACTERS = 2_000
TYPES = ("string", "integer", "number", "boolean", "array", "object")
# What a model or a person reads of a schema; everything else is the other side's business.
KEPT = frozenset(
    {
        "type", "enum", "const", "default", "format", "pattern", "properties", "required", "items", "prefixItems",
        "anyOf", "oneOf", "allOf", "additionalProperties", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems",
        "description",
    }
)  # fmt: skip
NAMED = frozenset({"properties"})
LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SINGLE = frozenset({"items", "additionalProperties"})


class TooComplex(Exception):
    """A schema that is not offered to a model; the message says why."""


def plain_schema(schema: Mapping[str, JsonValue]) -> JsonObject:
    """The schema of an object of arguments, with references resolved and unseen characters gone.

    Raises TooComplex for one that is too large, too deep, refers elsewhere or to itself, or hides
    characters in a name.
    """
    made = _Plainer(schema).schema(schema, 0)
    properties = made.get("properties", {})
    if made.get("type", "object") != "object" or not isinstance(properties, dict):
        raise TooComplex("its parameters are not an object")
    if len(properties) > MOST_PROPERTIES:
        raise TooComplex(f"it has more than {MOST_PROPERTIES} parameters")
    return {"type": "object", **made}


def parameters_of(schema: JsonObject) -> tuple[Parameter, ...]:
    """The parameters that a plain schema describes."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return ()
    needed = required if isinstance(required, list) else []
    return tuple(
        _parameter(name, described if isinstance(described, dict) else {}, required=name in needed)
        for name, described in properties.items()
    )


def _parameter(name: str, schema: JsonObject, *, required: bool) -> Parameter:
    description, values = schema.get("description"), schema.get("enum")
    plain = {key: value for key, value in schema.items() if key not in ("description", "default")}
    return Parameter(
        name=name,
        type=_type(schema),
        required=required,
        description=description if isinstance(description, str) else "",
        enum=tuple(map(str, values)) if isinstance(values, list) else None,
        default=schema.get("default"),
        schema=plain,
    )


def _type(schema: JsonObject) -> str:
    """The first type that is not null; a value of any type is shown as a string."""
    variants = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), [schema])
    for variant in cast("list[JsonValue]", variants):
        named = variant.get("type") if isinstance(variant, dict) else None
        for each in named if isinstance(named, list) else [named]:
            if each in TYPES:
                return str(each)
    return "string"


class _Plainer:
    """One pass over a schema, with the parts that are left."""

    def __init__(self, root: Mapping[str, JsonValue]) -> None:
        self._root = root
        self._left = MOST_PARTS

    def schema(self, schema: Mapping[str, JsonValue], depth: int, within: tuple[str, ...] = ()) -> JsonObject:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in within:
                raise TooComplex("its parameters refer to themselves")
            within = (*within, reference)
            schema = {**self._target(reference), **{key: value for key, value in schema.items() if key != "$ref"}}
            if "$ref" in schema:
                return self.schema(schema, depth + 1, within)
        self._spend(depth)
        return {key: self._member(key, value, depth, within) for key, value in schema.items() if key in KEPT}

    def _member(self, key: str, value: JsonValue, depth: int, within: tuple[str, ...]) -> JsonValue:
        if key in NAMED and isinstance(value, dict):
            return {self._name(name): self._inner(each, depth, within) for name, each in value.items()}
        if key in LISTS and isinstance(value, list):
            return [self._inner(each, depth, within) for each in value]
        if key in SINGLE and isinstance(value, dict):
            return self._inner(value, depth, within)
        if key == "description":
            return clean_text(str(value), DESCRIPTION_CHARACTERS)
        return self._data(value, depth + 1)

    def _inner(self, value: JsonValue, depth: int, within: tuple[str, ...]) -> JsonValue:
        return self.schema(value, depth + 1, within) if isinstance(value, dict) else self._data(value, depth + 1)

    def _data(self, value: JsonValue, depth: int) -> JsonValue:
        """A default, an enum, a bound: values that are sent back as they are, so nothing in them is changed."""
        self._spend(depth)
        if isinstance(value, str):
            if len(value) > TEXT_CHARACTERS or not is_clean(value.replace("\n", "").replace("\t", "")):
                raise TooComplex("a value in its parameters is too long or holds characters that cannot be seen")
            return value
        if isinstance(value, list):
            return [self._data(each, depth + 1) for each in value]
        if isinstance(value, dict):
            return {self._name(name): self._data(each, depth + 1) for name, each in value.items()}
        return value

    def _name(self, name: str) -> str:
        if not name or len(name) > NAME_CHARACTERS or not is_clean(name):
            raise TooComplex("the name of a parameter is too long or holds characters that cannot be seen")
        return name

    def _target(self, reference: str) -> Mapping[str, JsonValue]:
        """What a reference inside the same schema names; others are never fetched."""
        if not reference.startswith("#/"):
            raise TooComplex("its parameters refer to another document")
        found: JsonValue = cast("JsonValue", self._root)
        for step in reference.removeprefix("#/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise TooComplex("its parameters refer to something that is not there")
        return found

    def _spend(self, depth: int) -> None:
        self._left -= 1
        if depth > MOST_DEPTH:
            raise TooComplex(f"its parameters are nested more than {MOST_DEPTH} levels deep")
        if self._left < 0:
            raise TooComplex(f"its parameters have more than {MOST_PARTS} parts")
