"""Qdrant: a collection's points by vector (``POST /collections/{name}/points/query``)."""

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from parley.credentials import Usable
from parley.egress import Egress
from parley.knowledge.external.exchange import Account
from parley.knowledge.external.passages import External, Filters, Passage, Payload, Shape, closeness
from parley.knowledge.model import BadConfig
from parley.turn.model import JsonObject

ALIKE = frozenset({"Cosine", "Dot"})
"""Metrics whose score is the likeness itself; the others give a distance."""


class _Vector(msgspec.Struct):
    size: int
    distance: str


class _Parameters(msgspec.Struct):
    vectors: msgspec.Raw = msgspec.Raw(b"{}")


class _Config(msgspec.Struct):
    params: _Parameters


class _Collection(msgspec.Struct):
    config: _Config


class _Described(msgspec.Struct):
    result: _Collection


class _Point(msgspec.Struct):
    id: str | int
    score: float
    payload: Payload | None = None


class _Points(msgspec.Struct):
    points: list[_Point]


class _Found(msgspec.Struct):
    result: _Points


class Qdrant:
    """A Qdrant server."""

    def __init__(self, egress: Egress, usable: Usable) -> None:
        key = usable.auth_data.text("api_key")
        self._account = Account(egress, usable, "Qdrant", {"api-key": key} if key else {})
        self._address = usable.auth_data.text("base_url").rstrip("/")

    async def describe(self, external: External) -> Shape:
        """One of the collection's vectors: the named one, or the only one."""
        missing = f"Qdrant has no collection {external.collection!r}."
        found = await self._account.ask("GET", self._url(external), _Described, missing=missing)
        vectors = msgspec.json.decode(found.result.config.params.vectors, type=Payload)
        named = {"": vectors} if "size" in vectors else vectors
        wanted = external.vector_field or ("" if "" in named else next(iter(named), ""))
        try:
            vector = msgspec.convert(named.get(wanted), _Vector)
        except msgspec.ValidationError:
            names = ", ".join(named) or "none at all"
            raise BadConfig(f"The collection {external.collection!r} has no such vector; it has {names}.") from None
        return Shape(vector.size, vector.distance)

    async def nearest(
        self, external: External, vector: Sequence[float], count: int, filters: Filters
    ) -> Sequence[Passage]:
        """Points, best first."""
        body: JsonObject = {"query": list(vector), "limit": count, "with_payload": True}
        if external.vector_field:
            body["using"] = external.vector_field
        if filters:
            body["filter"] = {"must": [{"key": name, "match": {"any": list(each)}} for name, each in filters.items()]}
        missing = f"Qdrant has no collection {external.collection!r} any more."
        found = await self._account.ask("POST", f"{self._url(external)}/points/query", _Found, body, missing=missing)
        alike = external.metric in ALIKE
        return [
            Passage(str(point.id), point.score if alike else closeness(point.score), point.payload or {})
            for point in found.result.points
        ]

    async def with_words(self, external: External, text: str, count: int, filters: Filters) -> Sequence[Passage]:  # noqa: ARG002
        """Nothing: Qdrant finds words only as a filter, without a rank."""
        return ()

    def _url(self, external: External) -> str:
        return f"{self._address}/collections/{quote(external.collection, safe='')}"
