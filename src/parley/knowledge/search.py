"""Finding passages: by meaning, by words, by both (contract §12, §17 row 1)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from parley.base.clock import Clock
from parley.base.errors import Refusal
from parley.base.ids import is_id, new_id
from parley.billing import Plans, charge_retrieval, closed_on_outage
from parley.knowledge import store as rows
from parley.knowledge.chunk_store import chunks_at
from parley.knowledge.embedding.embedder import Embedder
from parley.knowledge.external.stores import ExternalStores
from parley.knowledge.model import Base, BaseNotFound, Chunk, Embedding, Match
from parley.knowledge.vectors import Vectors
from parley.knowledge.words import search_words
from parley.storage import ReadTx, Store, WriteTx
from parley.turn.model import JsonObject, JsonValue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Reciprocal rank fusion: how far a first place is ahead of a tenth.
RANK_OFFSET: Final = 60
DEPTH: Final = 60
SCORE_DIGITS: Final = 6

type Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each half of a search by both counts."""

    keyword: float = 0.3
    semantic: float = 0.7


@dataclass(frozen=True, slots=True)
class Query:
    """One search: what for, how many passages at most, from which score on, among which documents.

    ``filters`` are values that a document's file name, type, id or metadata must have.
    """

    text: str
    top_k: int = 5
    min_score: float = 0.0
    filters: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class Unsearched:
    """A base that could not be searched with the others, and why."""

    base: Base
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, best first, and where it could not look."""

    matches: Sequence[Match]
    unsearched: Sequence[Unsearched] = ()


@dataclass(slots=True)
class _Candidate:
    """One passage on its way to being a match; ``ready`` is the match itself where an external store gave it."""

    semantic: float | None = None
    keyword: float | None = None
    score: float = 0.0
    ready: Match | None = None


@dataclass(slots=True)
class _Pool:
    """What the bases of one search gave so far."""

    candidates: dict[Place, _Candidate] = field(default_factory=dict[Place, _Candidate])
    unsearched: list[Unsearched] = field(default_factory=list[Unsearched])
    vectors: "dict[Embedding, NDArray[np.float32]]" = field(default_factory=dict)
    only: frozenset[str] | None = None

    def at(self, place: Place) -> _Candidate:
        return self.candidates.setdefault(place, _Candidate())


class Search:
    """All searches of this process."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        plans: Plans,
        embedder: Embedder,
        vectors: Vectors,
        external: ExternalStores,
    ) -> None:
        self._store = store
        self._clock = clock
        self._plans = plans
        self.embedder = embedder
        self._vectors = vectors
        self._external = external

    async def bases(self, organization_id: str, base_ids: Sequence[str] | None) -> list[Base]:
        """The named bases, or every active one. Raises BaseNotFound when one of them is not the organization's."""
        if base_ids is not None and not all(map(is_id, base_ids)):
            raise BaseNotFound
        found = await self._store.read(lambda tx: rows.searchable(tx, organization_id, base_ids))
        if base_ids is not None and len(found) != len(set(base_ids)):
            raise BaseNotFound
        return found

    async def by_meaning(self, bases: Sequence[Base], query: Query) -> Found:
        """The passages whose meaning is nearest.

        A base whose model or store does not answer is left out and told; where none is left, its refusal is
        raised: EmbeddingUnavailable, StoreUnavailable or BadConfig.
        """
        pool = await self._gathered(bases, query, query.top_k, words=False)
        for each in pool.candidates.values():
            each.score = each.semantic or 0.0
        return Found(await self._matches(pool.candidates, query), pool.unsearched)

    async def by_both(self, bases: Sequence[Base], query: Query, weights: Weights) -> Found:
        """Meaning and words fused by rank; a match's own scores of both halves beside it. Raises as ``by_meaning``."""
        pool = await self._fused(bases, query, weights)
        return Found(await self._matches(pool.candidates, query), pool.unsearched)

    async def context(self, base: Base, query: Query, max_tokens: int) -> str:
        """Passages for a prompt, each under its source, within so many tokens; best first."""
        pool = await self._fused([base], replace(query, min_score=0.0), Weights())
        near = {
            place: each
            for place, each in pool.candidates.items()
            if max(each.semantic or 0.0, each.keyword or 0.0) >= query.min_score
        }
        parts: list[str] = []
        left = max_tokens
        for match in await self._matches(near, replace(query, min_score=0.0)):
            if match.token_count > left:
                break
            left -= match.token_count
            parts.append(f"[{source_of(match)}]\n{match.content}")
        return "\n\n".join(parts)

    async def charge(self, bases: Sequence[Base], run_id: str | None = None) -> None:
        """Charge one search of managed knowledge. Raises the gate's Denial (contract §9.3)."""
        managed = next((base for base in bases if base.managed), None)
        if managed is None:
            return
        search_id, now = new_id(), self._clock.now()

        def work(tx: WriteTx) -> None:
            exhausted = charge_retrieval(
                tx, self._plans, managed.organization_id, search_id=search_id, run_id=run_id, now=now
            )
            if exhausted is not None:
                raise exhausted.denial

        with closed_on_outage():
            await self._store.write(work)

    # ── the halves ──────────────────────────────────────────────────────────────────────────────

    async def _fused(self, bases: Sequence[Base], query: Query, weights: Weights) -> _Pool:
        pool = await self._gathered(bases, query, max(DEPTH, 2 * query.top_k), words=True)
        halves = (
            (weights.semantic, [each for each in pool.candidates.values() if each.semantic is not None]),
            (weights.keyword, [each for each in pool.candidates.values() if each.keyword is not None]),
        )
        halves[0][1].sort(key=lambda each: -(each.semantic or 0.0))
        halves[1][1].sort(key=lambda each: -(each.keyword or 0.0))
        most = (weights.keyword + weights.semantic) or 1.0
        for weight, ranked in halves:
            for rank, each in enumerate(ranked, 1):
                each.score += weight / (RANK_OFFSET + rank)
        for each in pool.candidates.values():
            each.score = min(1.0, each.score * (RANK_OFFSET + 1) / most)
        return pool

    async def _gathered(self, bases: Sequence[Base], query: Query, count: int, *, words: bool) -> _Pool:
        """Up to ``count`` passages of each half, from every base that answers. Raises where none does."""
        pool = _Pool(only=await self._only([base for base in bases if not base.external], query))
        await self._embed(pool, bases, query.text)
        answering = [base for base in bases if base.embedding in pool.vectors]
        try:
            await self._search_all(pool, answering, query, count, words=words)
        except ExceptionGroup as several:
            # One trouble of the store is told as itself, for whoever knows how to say it.
            raise several.exceptions[0] from None
        if bases and len(pool.unsearched) == len(bases):
            raise pool.unsearched[0].refusal
        _keep_nearest(pool, count)
        return pool

    async def _search_all(self, pool: _Pool, bases: Sequence[Base], query: Query, count: int, *, words: bool) -> None:
        ours = [base for base in bases if not base.external]
        async with asyncio.TaskGroup() as group:
            for base in bases:
                if base.external:
                    group.create_task(self._ask(pool, base, query, count, words=words), name=f"search {base.provider}")
            if words and ours:
                group.create_task(self._by_words(pool, ours, query.text, count), name="search words")
            for base in ours:
                for place, cosine in await self._vectors.nearest(base, pool.vectors[base.embedding], count, pool.only):
                    pool.at(place).semantic = _part(cosine)

    async def _embed(self, pool: _Pool, bases: Sequence[Base], text: str) -> None:
        """The query's vector by each model that the bases have; a model that fails is asked once."""
        for model in dict.fromkeys(base.embedding for base in bases):
            of_model = [base for base in bases if base.embedding == model]
            try:
                (pool.vectors[model],) = await self.embedder.embed(of_model[0].organization_id, model, [text])
            except Refusal as refusal:
                pool.unsearched += [Unsearched(base, refusal) for base in of_model]

    async def _by_words(self, pool: _Pool, bases: Sequence[Base], text: str, count: int) -> None:
        ids = [base.id for base in bases]
        hits = await self._store.read(lambda tx: search_words(tx, ids, text, count, pool.only))
        best = hits[0][2] if hits else 0.0
        for document_id, index, score in hits:
            pool.at((document_id, index)).keyword = _part(score / best) if best > 0 else 0.0

    async def _ask(self, pool: _Pool, base: Base, query: Query, count: int, *, words: bool) -> None:
        """Search a base where it is."""
        vector = [float(number) for number in pool.vectors[base.embedding]]
        filters = None if query.filters is None else dict(query.filters)
        try:
            found = await self._external.search(base, query.text, vector, count, filters, words=words)
        except Refusal as refusal:
            pool.unsearched.append(Unsearched(base, refusal))
            return
        for match in found.semantic:
            each = pool.at((f"{base.id}/{match.chunk_id}", 0))
            each.ready, each.semantic = match, _part(match.score)
        best = max((match.score for match in found.keyword), default=0.0)
        for match in found.keyword:
            each = pool.at((f"{base.id}/{match.chunk_id}", 0))
            each.ready, each.keyword = match, _part(match.score / best) if best > 0 else 0.0

    async def _only(self, bases: Sequence[Base], query: Query) -> frozenset[str] | None:
        """The documents that a query's filters leave; None for all."""
        filters = query.filters
        if not filters:
            return None
        ids = [base.id for base in bases]
        facts = await self._store.read(lambda tx: rows.facts_of(tx, ids))
        return frozenset(
            document_id
            for document_id, filename, file_type, metadata in facts
            if _fits(filters, {**metadata, "document_id": document_id, "filename": filename, "file_type": file_type})
        )

    async def _matches(self, candidates: Mapping[Place, _Candidate], query: Query) -> list[Match]:
        best = sorted(candidates, key=lambda place: (-candidates[place].score, place))
        chosen = [place for place in best if candidates[place].score >= query.min_score][: query.top_k]
        stored = [place for place in chosen if candidates[place].ready is None]
        if stored:
            chunks, named = await self._store.read(lambda tx: _stored(tx, stored))
        else:
            chunks, named = {}, {}
        matches: list[Match] = []
        for place in chosen:
            each = candidates[place]
            match = each.ready or _stored_match(chunks.get(place), named.get(place[0]))
            # A document that was deleted while we searched is not there any more.
            if match is not None:
                score = round(each.score, SCORE_DIGITS)
                matches.append(replace(match, score=score, semantic_score=each.semantic, keyword_score=each.keyword))
        return matches


def _stored(tx: ReadTx, places: Sequence[Place]) -> tuple[dict[Place, Chunk], dict[str, tuple[str, str]]]:
    return chunks_at(tx, places), rows.names_of(tx, [document_id for document_id, _ in places])


def _stored_match(chunk: Chunk | None, named: tuple[str, str] | None) -> Match | None:
    if chunk is None or named is None:
        return None
    places = {"start_char": chunk.start_char, "end_char": chunk.end_char}
    return Match(
        knowledge_base_id=named[0],
        chunk_id=chunk.id,
        document_id=chunk.document_id,
        filename=named[1],
        chunk_index=chunk.chunk_index,
        content=chunk.content,
        token_count=chunk.token_count,
        metadata={**chunk.metadata, **places},
        score=0.0,
    )


def _keep_nearest(pool: _Pool, count: int) -> None:
    """Of what several bases hold by meaning, the nearest ``count`` together."""
    near = sorted(
        (place for place, each in pool.candidates.items() if each.semantic is not None),
        key=lambda place: -(pool.candidates[place].semantic or 0.0),
    )
    for place in near[count:]:
        each = pool.candidates[place]
        each.semantic = None
        if each.keyword is None:
            del pool.candidates[place]


def _part(score: float) -> float:
    """A score as a part of one."""
    return max(0.0, min(1.0, score))


def source_of(match: Match) -> str:
    """Where a passage is from, in words: file, page, headings."""
    page, headings = match.metadata.get("page"), match.metadata.get("headings")
    parts = [match.filename, f"page {page}" if page is not None else ""]
    parts.append(" › ".join(map(str, headings)) if isinstance(headings, list) else "")
    return ", ".join(part for part in parts if part)


def _fits(filters: Mapping[str, JsonValue], facts: JsonObject) -> bool:
    return all(
        facts.get(name) in wanted if isinstance(wanted, list) else facts.get(name) == wanted
        for name, wanted in filters.items()
    )
