"""The reviewed table: what every action of every integration does to the world.

Data, not code: ``data/effects/table.json``, one line an action, made by ``python -m
parley.integrations.effects.review`` from what people decided in ``data/effects/reviewed.toml``.
What the table does not know, or knows in another shape, counts as destructive (trust §2.1).
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec

from parley.integrations.effects.raising import EffectKind, Raise, Scalar
from parley.turn.model import JsonObject

DATA = Path(__file__).parent.parent / "data" / "effects"
TABLE = DATA / "table.json"


class Effect(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one action does.

    ``reversible``: it can be taken back with nothing lost. ``idempotent``: a rescue may repeat the
    same call unasked; with an ``idempotency_key``, a parameter the provider de-duplicates on, only
    when that is given. ``overwrites``: what was there before is gone. ``settled_by``: the read of the
    same integration that shows whether it happened. ``inverse``: the action that takes it back.

    Parameters, by use: ``paths`` are one segment of a URL, ``slashed_paths`` may have several,
    ``escaped_paths`` are encoded by the action itself; ``hosts`` are a part of a host name; ``urls``
    are URLs, ``fetched`` those that this server requests itself; ``identifiers`` are put into SQL
    as names; ``bound`` come from the credential. ``schema`` is the ``schema_hash`` that was reviewed.
    ``because`` is set where certain arguments made it graver, and says how.
    """

    effect: EffectKind
    reversible: bool = False
    idempotent: bool = False
    idempotency_key: str | None = None
    overwrites: bool = False
    raises: tuple[Raise, ...] = ()
    inverse: str | None = None
    inverse_arguments: dict[str, Scalar] = {}
    settled_by: str | None = None
    paths: tuple[str, ...] = ()
    slashed_paths: tuple[str, ...] = ()
    escaped_paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    fetched: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()
    schema: str = ""
    because: str = ""

    @property
    def known(self) -> bool:
        """Whether the action was reviewed as it is."""
        return bool(self.schema)


UNKNOWN = Effect("destructive")


_decode_rows = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_effect = msgspec.json.Decoder(Effect).decode


@cache
def _rows() -> Mapping[str, msgspec.Raw]:
    """The lines of the file; the first call reads it, in a few milliseconds."""
    return _decode_rows(TABLE.read_bytes())


def all_effects() -> Mapping[str, Effect]:
    """Every reviewed action, as ``integration.action``."""
    return {name: _decode_effect(row) for name, row in _rows().items()}


def effect_of(integration: str, action: str, argument_schema: JsonObject | None = None) -> Effect:
    """What an action does by its name alone.

    An action that is not in the table counts as destructive, neither reversible nor idempotent. So
    does one whose ``argument_schema``, where it is given, is not the one that was reviewed.
    """
    row = _rows().get(f"{integration}.{action}")
    effect = UNKNOWN if row is None else _decode_effect(row)
    if argument_schema is not None and effect.schema != schema_hash(argument_schema):
        return UNKNOWN
    return effect


def schema_hash(argument_schema: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits for what a schema accepts; texts for people do not count."""
    plain = msgspec.json.encode(_structure(argument_schema), order="deterministic")
    return hashlib.sha256(plain).hexdigest()[:12]


def _structure(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_structure(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    described = cast("dict[str, Any]", schema)
    return {
        key: {name: _structure(inner) for name, inner in value.items()}
        if key in ("properties", "$defs")
        else _structure(value)
        for key, value in described.items()
        if key not in ("title", "description", "examples")
    }
