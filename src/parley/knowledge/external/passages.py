"""What the adapters of external stores share: where to look, what was found, and the ways it fails."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from parley.base.errors import Unavailable
from parley.knowledge.model import BadConfig
from parley.turn.model import JsonObject, JsonValue

type Payload = dict[str, Any]
"""What a store keeps with a passage, whatever that is; a type that refers to itself cannot be decoded."""
type Plain = str | int | float | bool
type Filters = Mapping[str, Sequence[Plain]]
"""Fields of the store and the values one of which each must have."""

NAME: Final = re.compile(r"[^\W.][\w .:-]{0,254}")
MOST_CHARACTERS: Final = 6_000
MOST_FACT_CHARACTERS: Final = 300
MOST_FACTS_CHARACTERS: Final = 1_500


class StoreUnavailable(Unavailable):
    """The external store does not answer. Try again in a moment."""


class External(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where the passages of a base are in an external store, and under which names.

    ``collection`` is Qdrant's collection, Pinecone's index, Weaviate's class or MongoDB's collection.
    ``metric``, ``host`` and ``fields`` are what the store itself said when the base was bound.
    """

    collection: str
    database: str | None = None
    index: str | None = None
    text_index: str | None = None
    namespace: str | None = None
    vector_field: str | None = None
    text_field: str = "text"
    source_field: str | None = None
    metric: str | None = None
    host: str | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """One thing that a store found. ``score`` is 0 to 1 for meaning, of any size for words."""

    id: str
    score: float
    payload: Payload


@dataclass(frozen=True, slots=True)
class Shape:
    """What a store says of the collection: ``dimension`` of its vectors, None where it does not tell."""

    dimension: int | None
    metric: str
    host: str | None = None
    fields: tuple[str, ...] = ()


class ExternalStore(Protocol):
    """One account at an external store.

    Each call raises BadConfig for what its owner must change, StoreUnavailable for what may pass.
    """

    async def describe(self, external: External) -> Shape:
        """The collection as the store knows it."""
        ...

    async def nearest(
        self, external: External, vector: Sequence[float], count: int, filters: Filters
    ) -> Sequence[Passage]:
        """The passages most like the vector, best first."""
        ...

    async def with_words(self, external: External, text: str, count: int, filters: Filters) -> Sequence[Passage]:
        """The passages that hold the words, best first; nothing where the store cannot rank by words."""
        ...


def checked_names(external: External) -> None:
    """Raises BadConfig for a name that no store has: it becomes part of a path or a query."""
    names = {
        "collection": external.collection,
        "database": external.database,
        "index": external.index,
        "text_index": external.text_index,
        "namespace": external.namespace,
        "vector_field": external.vector_field,
        "text_field": external.text_field,
        "source_field": external.source_field,
    }
    for field, name in names.items():
        if name is not None and not NAME.fullmatch(name):
            raise BadConfig(f"external_config.{field} is not a name: letters, digits, '_', '-', ':' and '.' are.")


def plain_filters(filters: Mapping[str, JsonValue] | None) -> Filters:
    """Filters as every store can take them. Raises BadConfig for anything but texts, numbers, booleans and lists."""
    found: dict[str, Sequence[Plain]] = {}
    for name, wanted in (filters or {}).items():
        given = wanted if isinstance(wanted, list) else [wanted]
        values = [value for value in given if isinstance(value, str | int | float)]
        if not NAME.fullmatch(name) or not values or len(values) != len(given):
            raise BadConfig(
                "filters of an external store are names with a text, a number, a boolean or a list of them."
            )
        found[name] = values
    return found


def in_each(filters: Filters) -> JsonObject:
    """The filters as MongoDB and Pinecone write them: each name has one of its values."""
    return {name: {"$in": list(each)} for name, each in filters.items()}


def closeness(distance: float) -> float:
    """A distance that begins at 0, as a score from 1 down."""
    return 1 / (1 + max(0.0, distance))


def text_of(passage: Passage, external: External) -> str:
    """The passage's own words, cut where they are too long for one passage."""
    value = passage.payload.get(external.text_field)
    return value[:MOST_CHARACTERS] if isinstance(value, str) else ""


def facts_of(passage: Passage, external: External) -> JsonObject:
    """What else the store keeps with it, as far as it is short: vectors and whole files are left out."""
    facts: JsonObject = {}
    left = MOST_FACTS_CHARACTERS
    for name, value in passage.payload.items():
        size = len(name) + len(msgspec.json.encode(value))
        if name != external.text_field and size <= min(left, MOST_FACT_CHARACTERS):
            facts[name] = value
            left -= size
    text = passage.payload.get(external.text_field)
    if isinstance(text, str) and len(text) > MOST_CHARACTERS:
        facts["truncated"] = True
    return facts


def document_of(passage: Passage, external: External) -> str:
    """The document it is from, as the store names it; the collection where it does not."""
    value = passage.payload.get(external.source_field) if external.source_field else None
    return str(value)[:255] if isinstance(value, str | int) and str(value) else external.collection
