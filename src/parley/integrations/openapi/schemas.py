"""The schemas of an OpenAPI document, with local references put in place and cut where they have no end.

What comes out is a plain JSON Schema for ``own.schemas`` to clean: OpenAPI 3.0's own words are
translated, what only a response has is left out, and a schema that contains itself is shown once.
"""

from collections.abc import Mapping
from urllib.parse import unquote

from parley.integrations.own.schemas import KEPT, LISTS, NAMED, SINGLE, TooComplex
from parley.turn.model import JsonObject, JsonValue

MOST_DEPTH = 10
# Of one operation, and of all of them: past it a schema is shown by its type only.
MOST_PARTS = 400
MOST_PARTS_IN_ALL = 40_000
TEXT_CHARACTERS = 500
MOST_ENUM = 100
MOST_HOPS = 20
AGAIN = "The same as what it is a part of."
CUT = "Larger than what is shown here."
BINARY = frozenset({"binary", "byte"})


class Document:
    """A whole document, to look references up in."""

    def __init__(self, root: JsonObject) -> None:
        self.root = root
        self._left = MOST_PARTS
        self._left_in_all = MOST_PARTS_IN_ALL

    def begin_operation(self) -> None:
        """The schemas from here on are another operation's."""
        self._left = MOST_PARTS

    def spend(self) -> bool:
        """Count one part of a schema; whether there is room for it."""
        self._left -= 1
        self._left_in_all -= 1
        return self.has_room

    @property
    def has_room(self) -> bool:
        """Whether more of a schema can be shown."""
        return self._left > 0 and self._left_in_all > 0

    def resolved(self, value: JsonValue) -> JsonObject:
        """The object itself, or what its reference leads to; empty for what is no object. Raises TooComplex."""
        for _ in range(MOST_HOPS):
            if not isinstance(value, dict):
                return {}
            reference = value.get("$ref")
            if not isinstance(reference, str):
                return value
            value = self.target(reference)
        raise TooComplex("a reference in it leads to itself")

    def target(self, reference: str) -> JsonValue:
        """What a local reference names; others are never fetched. Raises TooComplex."""
        if not reference.startswith("#/"):
            raise TooComplex("it refers to another document, which Parley does not fetch. Bundle them into one")
        found: JsonValue = self.root
        for step in reference.removeprefix("#/").split("/"):
            found = _step(found, _unescaped(step))
        if found is None:
            raise TooComplex("it refers to something that is not in the document")
        return found

    def schema(self, schema: JsonValue) -> JsonObject:
        """One schema on its own. Raises TooComplex for a reference that leads nowhere."""
        return self._inlined(schema, 0, ())

    def _inlined(self, schema: JsonValue, depth: int, within: tuple[str, ...]) -> JsonObject:
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in within:
                return {"type": "object", "description": AGAIN}
            rest: JsonObject = {key: value for key, value in schema.items() if key != "$ref"}
            target = self.target(reference)
            merged: JsonObject = {**(target if isinstance(target, dict) else {}), **rest}
            return self._inlined(merged, depth, (*within, reference))
        if not self.spend() or depth > MOST_DEPTH:
            kind = schema.get("type")
            return {"description": CUT, **({"type": kind} if isinstance(kind, str) else {})}
        made: JsonObject = {}
        for key, value in translated(schema).items():
            if key in KEPT:
                made[key] = self._member(key, value, depth, within)
        return made

    def _member(self, key: str, value: JsonValue, depth: int, within: tuple[str, ...]) -> JsonValue:
        if key in NAMED and isinstance(value, dict):
            return {name: self._inlined(each, depth + 1, within) for name, each in value.items() if self.has_room}
        if key in LISTS and isinstance(value, list):
            return [self._inlined(each, depth + 1, within) for each in value if self.has_room]
        if key in SINGLE and isinstance(value, dict):
            return self._inlined(value, depth + 1, within)
        return value[:TEXT_CHARACTERS] if key == "description" and isinstance(value, str) else value


def translated(schema: JsonObject) -> JsonObject:
    """The schema in the words of JSON Schema, without what a request cannot have."""
    made = dict(schema)
    properties = made.get("properties")
    if isinstance(properties, dict):
        sent = {name: each for name, each in properties.items() if not _is_read_only(each)}
        made["properties"] = sent
        required = made.get("required")
        made["required"] = [name for name in required if name in sent] if isinstance(required, list) else []
    if made.get("nullable") is True and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(made.get(exclusive), bool):
            is_exclusive = made.pop(exclusive)
            if is_exclusive and bound in made:
                made[exclusive] = made.pop(bound)
    values = made.get("enum")
    if isinstance(values, list) and len(values) > MOST_ENUM:
        del made["enum"]
        made["description"] = f"{made.get('description', '')} (one of {len(values)} values)".strip()
    return made


def is_binary(schema: Mapping[str, JsonValue]) -> bool:
    """Whether a schema stands for bytes, in the words of 3.0 or 3.1."""
    return schema.get("format") in BINARY or "contentMediaType" in schema or "contentEncoding" in schema


def _is_read_only(schema: JsonValue) -> bool:
    return isinstance(schema, dict) and schema.get("readOnly") is True


def _step(value: JsonValue, name: str) -> JsonValue:
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, list) and name.isdigit() and len(name) < 6 and int(name) < len(value):
        return value[int(name)]
    return None


def _unescaped(step: str) -> str:
    return unquote(step).replace("~1", "/").replace("~0", "~")
