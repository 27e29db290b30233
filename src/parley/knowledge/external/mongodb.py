"""MongoDB Atlas: ``$vectorSearch`` and ``$search`` through the driver, which dials what the guard allows only.

Its HTTP API for data is gone since 2025, so the wire is MongoDB's own. The driver comes with the
integrations (an optional part) and is loaded by the first search that needs it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from parley.credentials import Usable
from parley.egress import Refused
from parley.knowledge.external.exchange import SECONDS, AccessDenied
from parley.knowledge.external.passages import External, Filters, Passage, Payload, Shape, StoreUnavailable, in_each
from parley.knowledge.model import BadConfig

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient

CANDIDATES_A_HIT = 20
MOST_CANDIDATES = 10_000
DENIED = frozenset({13, 18, 8000})
"""What a cluster says to a user it does not know, or who may not read."""
MILLISECONDS = int(SECONDS * 1_000)

type Stages = Sequence[Mapping[str, Any]]


class _Field(msgspec.Struct, rename="camel"):
    type: str
    path: str = ""
    num_dimensions: int = 0
    similarity: str = "cosine"


class _Definition(msgspec.Struct):
    fields: list[_Field] = []


class MongoAtlas:
    """A cluster at MongoDB Atlas."""

    def __init__(self, usable: Usable) -> None:
        self._usable = usable

    async def describe(self, external: External) -> Shape:
        """The vector index; its field must be the base's, and the text index must be there too."""
        if not external.database or not external.index or not external.vector_field:
            raise BadConfig("external_config of MongoDB Atlas needs database, collection, index and vector_field.")
        found = await self._aggregate(external, [{"$listSearchIndexes": {}}])
        indexes: dict[str, Payload] = {str(each.get("name")): each for each in found}
        if external.text_index is not None and external.text_index not in indexes:
            raise BadConfig(f"The collection {external.collection!r} has no search index {external.text_index!r}.")
        index = indexes.get(external.index)
        if index is None:
            raise BadConfig(f"The collection {external.collection!r} has no vector search index {external.index!r}.")
        try:
            definition = msgspec.convert(index.get("latestDefinition"), _Definition)
        except msgspec.ValidationError:
            raise StoreUnavailable("MongoDB Atlas described its index in an unknown way.") from None
        vectors = {each.path: each for each in definition.fields if each.type == "vector"}
        vector = vectors.get(external.vector_field)
        if vector is None:
            names = ", ".join(vectors) or "none"
            raise BadConfig(f"The index {external.index!r} has no vector {external.vector_field!r}; it has {names}.")
        return Shape(vector.num_dimensions, vector.similarity)

    async def nearest(
        self, external: External, vector: Sequence[float], count: int, filters: Filters
    ) -> Sequence[Passage]:
        """Documents, best first."""
        search: dict[str, Any] = {
            "index": external.index,
            "path": external.vector_field,
            "queryVector": list(vector),
            "numCandidates": min(CANDIDATES_A_HIT * count, MOST_CANDIDATES),
            "limit": count,
        }
        if filters:
            search["filter"] = in_each(filters)
        found = await self._aggregate(external, [{"$vectorSearch": search}, *_scored(external, "vectorSearchScore")])
        return [_passage(each, distance=external.metric == "euclidean") for each in found]

    async def with_words(self, external: External, text: str, count: int, filters: Filters) -> Sequence[Passage]:
        """Documents by Atlas Search, best first; nothing where the base names no text index."""
        if external.text_index is None:
            return ()
        search = {"index": external.text_index, "text": {"query": text, "path": external.text_field}}
        narrowed = [{"$match": in_each(filters)}] if filters else []
        stages = [{"$search": search}, *narrowed, {"$limit": count}, *_scored(external, "searchScore")]
        return [_passage(each, distance=True) for each in await self._aggregate(external, stages)]

    async def _aggregate(self, external: External, stages: Stages) -> list[Payload]:
        """Raises BadConfig, AccessDenied or StoreUnavailable."""
        try:
            from bson.json_util import RELAXED_JSON_OPTIONS, dumps  # noqa: PLC0415 - optional vendor
            from pymongo import AsyncMongoClient, errors  # noqa: PLC0415
        except ImportError:
            raise BadConfig("This server is installed without the driver of MongoDB Atlas.") from None
        try:
            async with (
                asyncio.timeout(SECONDS),
                AsyncMongoClient[dict[str, Any]](
                    self._usable.auth_data.text("connection_string"),
                    serverSelectionTimeoutMS=MILLISECONDS,
                    connectTimeoutMS=MILLISECONDS,
                    socketTimeoutMS=MILLISECONDS,
                ) as client,
            ):
                found = await _answers(client, external, stages)
                text = await asyncio.to_thread(dumps, found, json_options=RELAXED_JSON_OPTIONS)
                return msgspec.json.decode(text, type=list[Payload])
        except Refused as error:
            raise BadConfig(str(error)) from error
        except errors.OperationFailure as error:
            if error.code in DENIED:
                raise AccessDenied(
                    f"MongoDB Atlas does not accept the credential {self._usable.display_name!r}, or it may not read "
                    "there. Add a new one under Integrations and choose it for this base."
                ) from None
            raise BadConfig(
                f"MongoDB Atlas cannot make this search (error {error.code}). Check external_config; fields of filters "
                "must be in the index."
            ) from None
        except (errors.ConfigurationError, errors.InvalidURI):
            raise BadConfig("The connection string of the MongoDB Atlas credential cannot be used.") from None
        except (errors.PyMongoError, OSError, TimeoutError, msgspec.MsgspecError, ValueError):
            # What the driver says names hosts of the cluster, and is no help to whoever searches.
            raise StoreUnavailable(
                "MongoDB Atlas cannot be reached in time. Check that its access list lets this server in, or try again."
            ) from None


async def _answers(client: "AsyncMongoClient[dict[str, Any]]", external: External, stages: Stages) -> list[Any]:
    collection = client[external.database or ""][external.collection]
    cursor = await collection.aggregate(stages, maxTimeMS=MILLISECONDS)
    return await cursor.to_list(None)


def _scored(external: External, score: str) -> Stages:
    """The document without its vector, beside its score."""
    kept = {"$unset": [external.vector_field]}
    return [kept, {"$project": {"document": "$$ROOT", "score": {"$meta": score}}}]


def _passage(row: Payload, *, distance: bool) -> Passage:
    """``distance`` is False for the cosine as Atlas tells it: (1 + cosine) / 2."""
    document, score = row.get("document"), row.get("score")
    facts = document if isinstance(document, dict) else {}
    number = float(score) if isinstance(score, int | float) else 0.0
    identity = facts.pop("_id", "")
    name = identity.get("$oid", identity) if isinstance(identity, dict) else identity
    return Passage(str(name), number if distance else 2 * number - 1, facts)
