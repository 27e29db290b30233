"""Weaviate: a class's objects by vector and by words.

Newer servers (1.40 and on) have the REST Search API, older ones GraphQL, which Weaviate Cloud switches
off in 2027. The first is asked first; where a server does not have it, the second.
"""

import json
import re
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from parley.credentials import Usable
from parley.egress import Egress, Response
from parley.knowledge.external.exchange import Account
from parley.knowledge.external.passages import (
    External,
    Filters,
    Passage,
    Payload,
    Plain,
    Shape,
    StoreUnavailable,
    closeness,
)
from parley.knowledge.model import BadConfig
from parley.turn.model import JsonObject, JsonValue

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What a server without the Search API answers for its paths: unknown, or known and switched off.
NO_SEARCH_API = frozenset({404, 405, 422})
MOST_FIELDS = 50
PLAIN_TYPES = frozenset({"text", "string", "int", "number", "boolean", "date", "uuid"})


class _Property(msgspec.Struct, rename="camel"):
    name: str
    data_type: list[str] = []


class _Index(msgspec.Struct):
    distance: str = "cosine"


class _Vector(msgspec.Struct, rename="camel"):
    vector_index_config: _Index = msgspec.field(default_factory=_Index)


class _Class(msgspec.Struct, rename="camel"):
    properties: list[_Property] | None = None
    vector_index_config: _Index | None = None
    vector_config: dict[str, _Vector] | None = None


class _Metadata(msgspec.Struct):
    distance: float | None = None
    score: float | str | None = None


class _Result(msgspec.Struct):
    id: str
    properties: Payload | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Found(msgspec.Struct):
    results: list[_Result]


class _Answered(msgspec.Struct):
    data: dict[str, dict[str, list[Payload] | None]] | None = None
    errors: list[Payload] | None = None


class Weaviate:
    """A Weaviate server."""

    def __init__(self, egress: Egress, usable: Usable) -> None:
        key = usable.auth_data.text("api_key")
        self._account = Account(egress, usable, "Weaviate", {"Authorization": f"Bearer {key}"} if key else {})
        self._address = usable.auth_data.text("base_url").rstrip("/")

    async def describe(self, external: External) -> Shape:
        """The class with its metric and the properties that are worth showing."""
        _identifiers(external)
        url = f"{self._address}/v1/schema/{quote(external.collection, safe='')}"
        found = await self._account.ask("GET", url, _Class, missing=_missing(external))
        vectors = found.vector_config or {}
        if len(vectors) > 1 and external.vector_field is None:
            names = ", ".join(vectors)
            raise BadConfig(
                f"The class {external.collection!r} has several vectors: name one in vector_field ({names})."
            )
        if external.vector_field is not None and external.vector_field not in vectors:
            raise BadConfig(f"The class {external.collection!r} has no vector {external.vector_field!r}.")
        named = vectors.get(external.vector_field or next(iter(vectors), ""))
        index = named.vector_index_config if named else found.vector_index_config or _Index()
        plain = [each.name for each in found.properties or () if PLAIN_TYPES.intersection(each.data_type)]
        fields = tuple(name for name in plain if IDENTIFIER.fullmatch(name))[:MOST_FIELDS]
        if external.text_field not in fields:
            raise BadConfig(
                f"The class {external.collection!r} has no text in {external.text_field!r}: set text_field."
            )
        return Shape(None, index.distance, fields=fields)

    async def nearest(
        self, external: External, vector: Sequence[float], count: int, filters: Filters
    ) -> Sequence[Passage]:
        """Objects, nearest first."""
        body: JsonObject = {"vector": list(vector), "limit": count, "returnMetadata": ["distance"]}
        near: JsonObject = {"vector": list(vector)}
        if external.vector_field:
            body["targetVector"] = external.vector_field
            near["targetVectors"] = [external.vector_field]
        found = await self._search(external, "near-vector", body, {"nearVector": near}, filters)
        return [
            Passage(each.id, _likeness(external.metric, each.metadata.distance), each.properties or {})
            for each in found
        ]

    async def with_words(self, external: External, text: str, count: int, filters: Filters) -> Sequence[Passage]:
        """Objects by BM25, best first."""
        body: JsonObject = {"query": text, "limit": count, "returnMetadata": ["score"]}
        found = await self._search(external, "bm25", body, {"bm25": {"query": text}}, filters)
        return [Passage(each.id, _number(each.metadata.score), each.properties or {}) for each in found]

    async def _search(
        self, external: External, way: str, body: JsonObject, operator: JsonObject, filters: Filters
    ) -> Sequence[_Result]:
        where = _where(filters)
        fields: list[JsonValue] = list(external.fields)
        asked: JsonObject = {**body, "returnProperties": fields, **({"where": where} if where else {})}
        if external.namespace:
            asked["tenant"] = external.namespace
        url = f"{self._address}/v1/search/{quote(external.collection, safe='')}/{way}"
        response = await self._account.send("POST", url, asked)
        if response.status not in NO_SEARCH_API:
            self._account.refuse(response, _missing(external))
            return self._account.read(response, _Found).results
        return await self._graphql(external, {**operator, "limit": body["limit"]}, where)

    async def _graphql(self, external: External, operator: JsonObject, where: JsonObject | None) -> Sequence[_Result]:
        arguments: JsonObject = {**operator, **({"where": where} if where else {})}
        if external.namespace:
            arguments["tenant"] = external.namespace
        given = ", ".join(f"{name}: {_literal(value)}" for name, value in arguments.items())
        shown = f"{' '.join(external.fields)} _additional {{ id distance score }}"
        query = f"{{ Get {{ {external.collection}({given}) {{ {shown} }} }} }}"
        response = await self._account.send("POST", f"{self._address}/v1/graphql", {"query": query})
        self._account.refuse(response, _missing(external))
        return self._got(response, external)

    def _got(self, response: Response, external: External) -> Sequence[_Result]:
        answer = self._account.read(response, _Answered)
        if answer.errors or answer.data is None:
            raise BadConfig(
                "Weaviate cannot make this search. Check the class, text_field, filters and embedding model."
            )
        objects = answer.data.get("Get", {}).get(external.collection) or []
        found: list[_Result] = []
        for each in objects:
            try:
                additional = msgspec.convert(each.pop("_additional", None), _Additional)
            except msgspec.ValidationError:
                raise StoreUnavailable("Weaviate gave an answer that cannot be read.") from None
            properties = {name: value for name, value in each.items() if value is not None}
            found.append(_Result(additional.id, properties, _Metadata(additional.distance, additional.score)))
        return found


class _Additional(msgspec.Struct):
    id: str
    distance: float | None = None
    score: float | str | None = None


def _missing(external: External) -> str:
    return f"Weaviate has no class {external.collection!r}."


def _identifiers(external: External) -> None:
    for name in (external.collection, external.text_field, external.source_field or "_"):
        if not IDENTIFIER.fullmatch(name):
            raise BadConfig(f"{name!r} is no name of a Weaviate class or property.")


def _likeness(metric: str | None, distance: float | None) -> float:
    far = distance or 0.0
    if metric == "cosine":
        return 1 - far
    return -far if metric == "dot" else closeness(far)


def _number(score: float | str | None) -> float:
    try:
        return float(score or 0.0)
    except ValueError:
        return 0.0


def _where(filters: Filters) -> JsonObject | None:
    """Weaviate's own filter: each field one of its values."""
    operands: list[JsonValue] = []
    for name, values in filters.items():
        if not IDENTIFIER.fullmatch(name):
            raise BadConfig(f"{name!r} is no name of a Weaviate property.")
        either: list[JsonValue] = [
            {"path": [name], "operator": "Equal", _value_field(value): value} for value in values
        ]
        operands.append(either[0] if len(either) == 1 else {"operator": "Or", "operands": either})
    return {"operator": "And", "operands": operands} if operands else None


def _value_field(value: Plain) -> str:
    match value:
        case bool():
            return "valueBoolean"
        case int():
            return "valueInt"
        case float():
            return "valueNumber"
        case str():
            return "valueText"


def _literal(value: JsonValue, name: str = "") -> str:
    """A value as GraphQL spells it: names without quotes; ``operator`` is one of a fixed set of words."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {_literal(each, key)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(_literal(each) for each in value) + "]"
        case str() if name == "operator":
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)
