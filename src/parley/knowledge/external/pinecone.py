"""Pinecone: an index's records by vector (``POST /query`` at the index's own host)."""

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from parley.credentials import Usable
from parley.egress import Egress
from parley.knowledge.external.exchange import Account
from parley.knowledge.external.passages import (
    External,
    Filters,
    Passage,
    Payload,
    Shape,
    StoreUnavailable,
    closeness,
    in_each,
)
from parley.knowledge.model import BadConfig
from parley.turn.model import JsonObject

INDEXES = "https://api.pinecone.io/indexes"
VERSION = "2026-04"
OWN_HOSTS = ".pinecone.io"
"""The key goes to hosts of Pinecone only, whatever an index says its host is."""


class _Index(msgspec.Struct):
    host: str
    metric: str = "cosine"
    dimension: int | None = None


class _Record(msgspec.Struct):
    id: str
    score: float = 0.0
    metadata: Payload | None = None


class _Found(msgspec.Struct):
    matches: list[_Record]


class Pinecone:
    """A Pinecone project."""

    def __init__(self, egress: Egress, usable: Usable) -> None:
        key = usable.auth_data.text("api_key")
        self._account = Account(egress, usable, "Pinecone", {"Api-Key": key, "X-Pinecone-Api-Version": VERSION})

    async def describe(self, external: External) -> Shape:
        """The index with its host."""
        missing = f"Pinecone has no index {external.collection!r}."
        url = f"{INDEXES}/{quote(external.collection, safe='')}"
        index = await self._account.ask("GET", url, _Index, missing=missing)
        if (
            not index.host.endswith(OWN_HOSTS)
            or not index.host.removesuffix(OWN_HOSTS).replace("-", "").replace(".", "").isalnum()
        ):
            raise StoreUnavailable("Pinecone has no host for the index yet. Try again in a minute.")
        if index.dimension is None:
            raise BadConfig("Only indexes of dense vectors can be searched, and this one has none.")
        return Shape(index.dimension, index.metric, index.host)

    async def nearest(
        self, external: External, vector: Sequence[float], count: int, filters: Filters
    ) -> Sequence[Passage]:
        """Records, best first."""
        body: JsonObject = {"vector": list(vector), "topK": count, "includeMetadata": True}
        if external.namespace:
            body["namespace"] = external.namespace
        if filters:
            body["filter"] = in_each(filters)
        missing = (
            f"Pinecone has no index {external.collection!r} at its host any more. Save the base's external_config."
        )
        found = await self._account.ask("POST", f"https://{external.host}/query", _Found, body, missing=missing)
        apart = external.metric == "euclidean"
        return [
            Passage(record.id, closeness(record.score) if apart else record.score, record.metadata or {})
            for record in found.matches
        ]

    async def with_words(self, external: External, text: str, count: int, filters: Filters) -> Sequence[Passage]:  # noqa: ARG002
        """Nothing: words are found only in indexes of sparse vectors, which need a model of their own."""
        return ()
