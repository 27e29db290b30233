"""An OpenAPI document as plain values: JSON or YAML, read within bounds.

YAML is built from its events, one after the other: nothing recurses, no tag is obeyed, an alias
counts as much as what it stands for, and a word such as ``no`` or ``on`` stays a word, as in JSON.
"""

import re
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from parley.turn.model import JsonObject, JsonValue
from parley.turn.text import NOT_JSON

MIB = 1_048_576
MOST_BYTES = 8 * MIB
MOST_YAML_BYTES = 3 * MIB
MOST_DEPTH = 100
# Keys, values, lists and objects. A part of JSON is read in a tenth of the time.
MOST_NODES, MOST_JSON_NODES = 200_000, 500_000
MOST_DIGITS = 18
NULLS = frozenset({"", "~", "null", "Null", "NULL"})
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INTEGER = re.compile(r"[-+]?[0-9]+")
# One that does not end goes on to the end of the text, so nothing is looked at twice.
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?")
TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
OTHER_TAGS = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
TAGGED = "The document holds a YAML tag. Take it out, or send the document as JSON."
TOO_MANY = "The document has more than {:,} parts{}. Import the part of it that you need."
MERGE = "<<"


class Unreadable(Exception):
    """The text is no document that can be imported; the message is a sentence for the user."""


def read_document(text: str) -> JsonObject:
    """The document's top-level object. Raises Unreadable; takes a second for the largest."""
    size = len(text.encode(errors="replace"))
    if size > MOST_BYTES:
        raise Unreadable(f"The document is larger than {MOST_BYTES // MIB} MiB. Import the part of it that you need.")
    found = _json(text) if text.lstrip("\ufeff \t\r\n").startswith("{") else _yaml(text, size)
    if not isinstance(found, dict):
        raise Unreadable("The document is no OpenAPI document: its top level is no object.")
    return found


def _json(text: str) -> JsonValue:
    # Counted by their marks before anything is made of them: parts take far more memory than their text.
    bare = STRING.sub("", text)
    if sum(map(bare.count, "{[:,")) > MOST_JSON_NODES:
        raise Unreadable(TOO_MANY.format(MOST_JSON_NODES, ""))
    try:
        return cast("JsonValue", msgspec.json.decode(text.lstrip("\ufeff")))
    except NOT_JSON as error:
        where = f" ({error})" if isinstance(error, msgspec.DecodeError) else ""
        raise Unreadable(f"The document is neither JSON nor YAML{where}.") from None


def _yaml(text: str, size: int) -> JsonValue:
    import yaml  # noqa: PLC0415 - start-up does not need it

    if size > MOST_YAML_BYTES:
        raise Unreadable(f"A document in YAML may have {MOST_YAML_BYTES // MIB} MiB. Send it as JSON.")
    builder = _Builder()
    # The C parser where the package was built with it; both give the same events.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(type(event).__name__, event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise Unreadable(f"The document is neither JSON nor YAML{where}.") from None
    return builder.root


@dataclass(slots=True)
class _Open:
    """A list or object that is being filled; ``size`` counts what is in it."""

    value: list[JsonValue] | dict[str, JsonValue]
    anchor: str | None
    size: int = 1
    key: str | None = None
    merged: list[JsonObject] = field(default_factory=list[JsonObject])


class _Builder:
    """Values out of YAML events."""

    def __init__(self) -> None:
        self.root: JsonValue = None
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[JsonValue, int]] = {}
        self._documents = 0

    def take(self, kind: str, event: Any) -> None:
        match kind:
            case "DocumentStartEvent":
                self._documents += 1
                if self._documents > 1:
                    raise Unreadable("The text holds more than one YAML document. Send one.")
            case "MappingStartEvent" | "SequenceStartEvent":
                self._begin({} if kind.startswith("M") else [], event)
            case "MappingEndEvent" | "SequenceEndEvent":
                self._end()
            case "ScalarEvent":
                self._add(_scalar(event), 1, event.anchor)
            case "AliasEvent":
                value, size = self._anchors.get(event.anchor, (None, 0))
                if not size:
                    raise Unreadable("An alias in the document refers to itself, or to nothing.")
                self._add(value, size, None)
            case _:
                pass

    def _begin(self, value: list[JsonValue] | dict[str, JsonValue], event: Any) -> None:
        if event.tag not in OTHER_TAGS:
            raise Unreadable(TAGGED)
        self._open.append(_Open(value, event.anchor))
        if len(self._open) > MOST_DEPTH:
            raise Unreadable(f"The document is nested more than {MOST_DEPTH} levels deep.")

    def _end(self) -> None:
        done = self._open.pop()
        if isinstance(done.value, dict):
            for other in done.merged:
                done.value.update({key: value for key, value in other.items() if key not in done.value})
        self._add(done.value, done.size, done.anchor)

    def _add(self, value: JsonValue, size: int, anchor: str | None) -> None:
        """Put a finished value where it belongs; an alias is counted as often as it is used."""
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if not self._open:
            self.root = value
            return
        within = self._open[-1]
        within.size += size
        if within.size > MOST_NODES:
            raise Unreadable(TOO_MANY.format(MOST_NODES, ", aliases counted"))
        if isinstance(within.value, list):
            within.value.append(value)
        elif within.key is None:
            within.key = _key(value)
        else:
            self._member(within, within.value, within.key, value)
            within.key = None

    def _member(self, within: _Open, members: dict[str, JsonValue], key: str, value: JsonValue) -> None:
        if key == MERGE and isinstance(value, dict | list):
            parts = value if isinstance(value, list) else [value]
            within.merged += [part for part in parts if isinstance(part, dict)]
        else:
            members[key] = value


def _key(value: JsonValue) -> str:
    if isinstance(value, list | dict):
        raise Unreadable("A key in the document is no text.")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _scalar(event: Any) -> JsonValue:
    text: str = event.value
    if event.tag not in TEXT_TAGS:
        raise Unreadable(TAGGED)
    if event.tag is not None or not event.implicit[0]:
        return text
    if text in NULLS:
        return None
    if text in BOOLEANS:
        return BOOLEANS[text]
    if INTEGER.fullmatch(text) and len(text) <= MOST_DIGITS:
        return int(text)
    if len(text) <= 4 * MOST_DIGITS and FLOAT.fullmatch(text) and not INTEGER.fullmatch(text):
        return float(text)
    return text
