"""Knowledge bases: making, changing, archiving and erasing them (contract §12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from parley.base.clock import Clock
from parley.base.ids import is_id, new_id
from parley.billing import Plans, admit, closed_on_outage
from parley.knowledge import store as rows
from parley.knowledge.embedding.embedder import Embedder
from parley.knowledge.external.stores import ExternalStores
from parley.knowledge.model import (
    OURS,
    BadConfig,
    Base,
    BaseNotFound,
    Chunking,
    Embedding,
    EmbeddingFixed,
)
from parley.storage import Store, WriteTx
from parley.turn.model import JsonObject

SMALLEST_CHUNK, LARGEST_CHUNK = 32, 2_048
MOST_SEPARATORS = 20
DOCUMENTS_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class Totals:
    """What all bases of an organization hold together."""

    knowledge_base_count: int
    total_documents: int
    total_chunks: int
    total_tokens: int
    total_file_size_bytes: int


@dataclass(frozen=True, slots=True)
class NewBase:
    """What a base is to be. ``credential_id`` and ``external_config`` are for external stores (decision 0037)."""

    name: str
    description: str | None = None
    embedding_config: JsonObject | None = None
    chunking_config: JsonObject | None = None
    provider: str = OURS
    credential_id: str | None = None
    external_config: JsonObject | None = None


class Bases:
    """The knowledge bases of organizations."""

    def __init__(self, store: Store, clock: Clock, plans: Plans, embedder: Embedder, external: ExternalStores) -> None:
        self._store = store
        self._clock = clock
        self._plans = plans
        self._embedder = embedder
        self._external = external

    async def create(self, organization_id: str, user_id: str, wish: NewBase) -> Base:
        """A new base: an empty one, or one bound to an external store, which must answer.

        Raises BadConfig, StoreUnavailable, or QuotaDenied where the plan has no room.
        """
        model = embedding_of(wish.embedding_config or {})
        await self._embedder.check(organization_id, model)
        bound = await self._bound(organization_id, wish, model)
        base_id, now = new_id(), self._clock.now()
        values: dict[str, Any] = {
            "id": base_id,
            "organization_id": organization_id,
            "created_by": user_id,
            "credential_id": model.credential_id,
            "name": wish.name,
            "description": wish.description,
            "provider": wish.provider,
            "embedding_config": wish.embedding_config or {},
            "chunking_config": shown_chunking(chunking_of(wish.chunking_config or {})),
            **bound,
            "status": "active",
            "version": 0,
            "created_at": now,
            "updated_at": now,
        }

        def work(tx: WriteTx) -> Base:
            if wish.provider == OURS and not model.own:
                admit(tx, self._plans, organization_id, "knowledge_bases", rows.count_bases, now)
            rows.insert_base(tx, values)
            return rows.find_base(tx, organization_id, base_id)

        with closed_on_outage():
            return await self._store.write(work)

    async def list(self, organization_id: str, *, status: str | None, limit: int, offset: int) -> list[Base]:
        """The organization's bases, newest first."""
        return await self._store.read(
            lambda tx: rows.list_bases(tx, organization_id, status=status, limit=limit, offset=offset)
        )

    async def get(self, organization_id: str, base_id: str) -> Base:
        """One base. Raises BaseNotFound."""
        known(base_id)
        return await self._store.read(lambda tx: rows.find_base(tx, organization_id, base_id))

    async def totals(self, organization_id: str) -> Totals:
        """What the organization holds."""
        every = await self._store.read(lambda tx: rows.list_bases(tx, organization_id, limit=1_000_000))
        return Totals(
            knowledge_base_count=len(every),
            total_documents=sum(base.document_count for base in every),
            total_chunks=sum(base.total_chunks for base in every),
            total_tokens=sum(base.total_tokens for base in every),
            total_file_size_bytes=sum(base.total_bytes for base in every),
        )

    async def change(self, organization_id: str, base_id: str, changes: JsonObject) -> Base:
        """Change name, description and configurations; what is left out stays.

        Whatever decides where and how an external base is searched is checked there before it is kept.
        Raises BaseNotFound, BadConfig, StoreUnavailable, or EmbeddingFixed once there are documents.
        """
        old = await self.get(organization_id, base_id)
        values: dict[str, Any] = {name: changes[name] for name in ("name", "description") if name in changes}
        if "chunking_config" in changes:
            values["chunking_config"] = shown_chunking(chunking_of(_object(changes["chunking_config"])))
        model: Embedding | None = None
        if "embedding_config" in changes:
            model = embedding_of(_object(changes["embedding_config"]))
            await self._embedder.check(organization_id, model)
            values["embedding_config"] = changes["embedding_config"] or {}
            if not old.external:
                values["credential_id"] = model.credential_id
        values |= await self._rebound(old, changes, model or old.embedding)
        values["updated_at"] = self._clock.now()

        def work(tx: WriteTx) -> Base:
            base = rows.find_base(tx, organization_id, base_id)
            if model is not None and base.document_count and not _same_model(model, base.embedding):
                raise EmbeddingFixed
            rows.change_base(tx, organization_id, base_id, values)
            return rows.find_base(tx, organization_id, base_id)

        return await self._store.write(work)

    async def _bound(self, organization_id: str, wish: NewBase, model: Embedding) -> dict[str, Any]:
        """The columns of a base that is elsewhere; none for one of ours."""
        if wish.provider == OURS:
            if wish.external_config is not None or wish.credential_id is not None:
                raise BadConfig("external_config and credential_id need the provider_type of an external store.")
            return {}
        if wish.external_config is None:
            raise BadConfig("A base in an external store needs external_config with its collection.")
        credential_id, external = await self._external.bind(
            organization_id, wish.provider, wish.credential_id, wish.external_config, model
        )
        return {"credential_id": credential_id, "external_config": msgspec.to_builtins(external)}

    async def _rebound(self, old: Base, changes: JsonObject, model: Embedding) -> dict[str, Any]:
        if changes.keys().isdisjoint({"credential_id", "external_config", "embedding_config"}):
            return {}
        credential_id = changes.get("credential_id", old.credential_id if old.external else None)
        config = changes.get("external_config", old.external_config)
        wish = NewBase(
            name=old.name,
            provider=old.provider,
            credential_id=None if credential_id is None else str(credential_id),
            external_config=None if config is None else _object(config),
        )
        return await self._bound(old.organization_id, wish, model)

    async def archive(self, organization_id: str, base_id: str) -> Base:
        """Make it read-only: it can still be searched by name, but the assistant does not look there by itself."""
        known(base_id)
        values = {"status": "archived", "updated_at": self._clock.now()}

        def work(tx: WriteTx) -> Base:
            rows.find_base(tx, organization_id, base_id)
            rows.change_base(tx, organization_id, base_id, values)
            return rows.find_base(tx, organization_id, base_id)

        return await self._store.write(work)

    async def delete(self, organization_id: str, base_id: str) -> None:
        """Erase the base with its documents and files. Raises BaseNotFound.

        A few documents at a time, so that no transaction is long; it takes no new ones meanwhile.
        """
        await self.archive(organization_id, base_id)
        while await self._store.write(lambda tx: rows.delete_some_documents(tx, base_id, DOCUMENTS_AT_ONCE)):
            continue
        await self._store.write(lambda tx: rows.delete_base(tx, organization_id, base_id))


def known(base_id: str) -> None:
    """Raises BaseNotFound for what is no id at all."""
    if not is_id(base_id):
        raise BaseNotFound


def chunking_of(config: JsonObject) -> Chunking:
    """Raises BadConfig, naming what is wrong. ``overlap`` is taken for ``chunk_overlap`` (contract §12)."""
    given = {name: value for name, value in config.items() if value is not None}
    if "overlap" in given:
        given.setdefault("chunk_overlap", given.pop("overlap"))
    try:
        chunking = msgspec.convert(given, Chunking)
    except msgspec.ValidationError as error:
        raise BadConfig(f"chunking_config cannot be used: {error}") from None
    if not SMALLEST_CHUNK <= chunking.chunk_size <= LARGEST_CHUNK:
        raise BadConfig(f"chunking_config.chunk_size must be {SMALLEST_CHUNK} to {LARGEST_CHUNK} tokens.")
    if not 0 <= chunking.chunk_overlap <= chunking.chunk_size // 2:
        raise BadConfig("chunking_config.chunk_overlap must be 0 to half of chunk_size.")
    if len(chunking.separators) > MOST_SEPARATORS or not all(chunking.separators):
        raise BadConfig(f"chunking_config.separators must be at most {MOST_SEPARATORS} texts, none of them empty.")
    return chunking


def embedding_of(config: JsonObject) -> Embedding:
    """Raises BadConfig, naming what is wrong."""
    try:
        return msgspec.convert({name: value for name, value in config.items() if value is not None}, Embedding)
    except msgspec.ValidationError as error:
        raise BadConfig(f"embedding_config cannot be used: {error}") from None


def shown_chunking(chunking: Chunking) -> JsonObject:
    """The configuration with every value, as it is stored and shown."""
    separators: Sequence[str] = chunking.separators
    return {
        "strategy": chunking.strategy,
        "chunk_size": chunking.chunk_size,
        "chunk_overlap": chunking.chunk_overlap,
        "separators": list(separators),
    }


def _same_model(one: Embedding, other: Embedding) -> bool:
    """Whether both make the same vectors; another credential for the same model may be chosen at any time."""
    return (one.own, one.model_id, one.integration_name, one.dimension) == (
        other.own,
        other.model_id,
        other.integration_name,
        other.dimension,
    )


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}
