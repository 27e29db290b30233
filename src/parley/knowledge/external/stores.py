"""The external stores of organizations: binding a base to one, and searching it (decision 0037)."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import msgspec

from parley.credentials import Credentials, Usable
from parley.egress import Egress
from parley.integrations import Scrubber
from parley.knowledge.embedding.embedder import Embedder
from parley.knowledge.external.exchange import AccessDenied
from parley.knowledge.external.mongodb import MongoAtlas
from parley.knowledge.external.passages import (
    External,
    ExternalStore,
    Filters,
    Passage,
    Shape,
    checked_names,
    document_of,
    facts_of,
    plain_filters,
    text_of,
)
from parley.knowledge.external.pinecone import Pinecone
from parley.knowledge.external.qdrant import Qdrant
from parley.knowledge.external.weaviate import Weaviate
from parley.knowledge.model import BadConfig, Base, Embedding, Match
from parley.turn.model import JsonObject

NAMES = {"qdrant": "Qdrant", "pinecone": "Pinecone", "weaviate": "Weaviate", "mongodb_atlas": "MongoDB Atlas"}
PROBE = "How long is a vector?"
CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Halves:
    """What a store found by meaning and by words, each best first."""

    semantic: Sequence[Match]
    keyword: Sequence[Match]


class ExternalStores:
    """Every organization's accounts at external stores, opened with its credentials for one search each."""

    def __init__(self, credentials: Credentials, egress: Egress, embedder: Embedder) -> None:
        self._credentials = credentials
        self._egress = egress
        self._embedder = embedder

    async def bind(
        self, organization_id: str, provider: str, credential_id: str | None, config: JsonObject, model: Embedding
    ) -> tuple[str | None, External]:
        """Whether a base can be searched there; the credential chosen and what the store says of itself.

        Raises BadConfig with what to change, or StoreUnavailable.
        """
        try:
            given = msgspec.convert(config, External)
        except msgspec.ValidationError as error:
            raise BadConfig(f"external_config cannot be used: {error}") from None
        external = msgspec.structs.replace(given, metric=None, host=None, fields=())
        checked_names(external)
        usable = await self._usable(organization_id, provider, credential_id)
        shape = await self._heard(usable, self._store(provider, usable).describe(external))
        await self._fits(organization_id, model, shape)
        bound = msgspec.structs.replace(external, metric=shape.metric, host=shape.host, fields=shape.fields)
        return usable.credential_id, bound

    async def search(
        self, base: Base, text: str, vector: Sequence[float], count: int, filters: JsonObject | None, *, words: bool
    ) -> Halves:
        """The passages of a base in an external store; by words too where ``words`` and the store can.

        Raises BadConfig or StoreUnavailable, within ``exchange.SECONDS`` a question.
        """
        external, wanted = external_of(base), plain_filters(filters)
        usable = await self._usable(base.organization_id, base.provider, base.credential_id)
        store = self._store(base.provider, usable)
        near, worded = await self._heard(usable, _both(store, external, text, vector, count, wanted, words=words))
        scrubber = Scrubber(_secrets(usable))
        return Halves(_matches(base, external, near, scrubber), _matches(base, external, worded, scrubber))

    async def _usable(self, organization_id: str, provider: str, credential_id: str | None) -> Usable:
        usable = await self._credentials.resolve(organization_id, provider, credential_id)
        if usable is None or usable.managed:
            raise BadConfig(f"There is no {NAMES[provider]} credential for this base. Add one under Integrations.")
        return usable

    def _store(self, provider: str, usable: Usable) -> ExternalStore:
        match provider:
            case "qdrant":
                return Qdrant(self._egress, usable)
            case "pinecone":
                return Pinecone(self._egress, usable)
            case "weaviate":
                return Weaviate(self._egress, usable)
            case _:
                return MongoAtlas(usable)

    async def _heard[T](self, usable: Usable, asked: Awaitable[T]) -> T:
        """The answer; what it says about the credential is noted, as after an action."""
        try:
            answer = await asked
        except AccessDenied as denied:
            await self._credentials.mark_invalid(usable, denied.detail)
            raise
        await self._credentials.mark_valid(usable)
        return answer

    async def _fits(self, organization_id: str, model: Embedding, shape: Shape) -> None:
        (vector,) = await self._embedder.embed(organization_id, model, [PROBE])
        if shape.dimension is not None and shape.dimension != len(vector):
            raise BadConfig(
                f"The vectors there have {shape.dimension:,} numbers and those of the base's embedding model "
                f"{len(vector):,}. Choose in embedding_config the model that made them."
            )


def external_of(base: Base) -> External:
    """Where the base is. It was checked when it was bound."""
    return msgspec.convert(base.external_config, External)


async def _both(
    store: ExternalStore,
    external: External,
    text: str,
    vector: Sequence[float],
    count: int,
    filters: Filters,
    *,
    words: bool,
) -> tuple[Sequence[Passage], Sequence[Passage]]:
    if not words:
        return await store.nearest(external, vector, count, filters), ()
    try:
        async with asyncio.TaskGroup() as group:
            near = group.create_task(store.nearest(external, vector, count, filters))
            worded = group.create_task(store.with_words(external, text, count, filters))
    except ExceptionGroup as several:
        # Both halves ask the same store: what one of them was told says enough.
        raise several.exceptions[0] from None
    return near.result(), worded.result()


def _matches(base: Base, external: External, passages: Sequence[Passage], scrubber: Scrubber) -> list[Match]:
    clean = [(each, scrubber.value(each.payload)) for each in passages]
    shown = [Passage(each.id, each.score, payload) for each, payload in clean if isinstance(payload, dict)]
    return [_match(base, external, each) for each in shown]


def _match(base: Base, external: External, passage: Passage) -> Match:
    content = text_of(passage, external)
    return Match(
        knowledge_base_id=base.id,
        chunk_id=passage.id,
        document_id=passage.id,
        filename=document_of(passage, external),
        chunk_index=0,
        content=content,
        token_count=len(content) // CHARACTERS_A_TOKEN,
        metadata=facts_of(passage, external),
        score=passage.score,
    )


def _secrets(usable: Usable) -> frozenset[str]:
    """What a store could echo and nobody may see: the key, the connection string, the password in it."""
    key, connection = usable.auth_data.text("api_key"), usable.auth_data.text("connection_string")
    password = urlsplit(connection).password or ""
    return frozenset(filter(None, (key, connection, password, unquote(password))))
