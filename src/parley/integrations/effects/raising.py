"""Arguments that make an effect graver: a deletion hidden in an update, a read that is told to write."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Literal, cast

import msgspec

from parley.turn.model import JsonValue
from parley.turn.text import NOT_JSON

type EffectKind = Literal["read", "write", "egress", "infra", "identity", "exec", "money", "destructive"]
type Scalar = str | int | float | bool

# From the mildest to the gravest: a raise never makes an effect milder.
GRAVITY: tuple[EffectKind, ...] = ("read", "write", "egress", "infra", "identity", "exec", "money", "destructive")


class Raise(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A graver effect for certain arguments.

    ``parameter`` is a name, or a dotted path into one (``items.*.operation``; ``*`` is every member).
    It applies when the value is among ``among``; when it is given and not among ``unless``; when it
    is missing or empty (``empty``); with none of the three, when it is given at all. Texts are
    compared without case. ``because`` ends the card's sentence "It would …".
    """

    parameter: str
    to: EffectKind
    because: str
    among: tuple[Scalar, ...] = ()
    unless: tuple[Scalar, ...] = ()
    empty: bool = False

    def applies(self, arguments: Mapping[str, JsonValue]) -> bool:
        """Whether these arguments make the effect graver."""
        found = list(_at(cast("JsonValue", arguments), self.parameter.split(".")))
        if self.empty:
            return any(_is_empty(value) for value in found)
        given = [_said(value) for value in found if not _is_empty(value)]
        if self.among:
            return not _forms(self.among).isdisjoint(given)
        return not _forms(self.unless).issuperset(given)


def _at(value: JsonValue, path: list[str]) -> Iterator[JsonValue]:
    """The values a path leads to; a missing one is None, and ``*`` of what has no members is nothing.

    JSON inside a text is looked into.
    """
    if not path:
        yield value
        return
    if isinstance(value, str):
        value = _decoded(value)
    step, rest = path[0], path[1:]
    if step == "*":
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from _at(inner, rest)
    else:
        yield from _at(value.get(step) if isinstance(value, dict) else None, rest)


def _decoded(text: str) -> JsonValue:
    try:
        return cast("JsonValue", json.loads(text))
    except NOT_JSON:
        return None


def _is_empty(value: JsonValue) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _said(value: JsonValue) -> str:
    """How a value compares: booleans and numbers as an action's own checking would read them."""
    text = json.dumps(value) if isinstance(value, bool | int | float | list | dict) else str(value)
    text = text.strip().casefold()
    return {"1": "true", "1.0": "true", "t": "true", "y": "true", "yes": "true", "on": "true"}.get(
        text, {"0": "false", "0.0": "false", "f": "false", "n": "false", "no": "false", "off": "false"}.get(text, text)
    )


def _forms(values: Collection[Scalar]) -> frozenset[str]:
    return frozenset(_said(value) for value in values)
