"""Searching knowledge bases (contract §12). A managed base passes the gate: 402, 403 or 429 with its envelope."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field, StringConstraints

from parley.accounts import Caller
from parley.http.identity import Identity
from parley.http.routes.knowledge import PREFIX
from parley.http.schemas import described
from parley.knowledge.model import Match
from parley.knowledge.opening import Knowledge
from parley.knowledge.search import Query, Weights

type Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]
type TopK = Annotated[int, Field(ge=1, le=50)]
type Score = Annotated[float, Field(ge=0, le=1)]
type Weight = Annotated[float, Field(ge=0, le=1)]


class SearchIn(BaseModel):
    """``filters`` are values a document's file name, type, id or metadata must have."""

    query: Words
    top_k: TopK = 5
    min_score: Score = 0.0
    filters: dict[str, Any] | None = None
    include_content: bool = True
    include_metadata: bool = True


class HybridIn(SearchIn):
    """By words and by meaning; the weights say how much each counts."""

    keyword_weight: Weight = 0.3
    semantic_weight: Weight = 0.7


class MultiIn(BaseModel):
    """The same search in several bases."""

    knowledge_base_ids: Annotated[list[str], Field(min_length=1, max_length=50)]
    query: Words
    top_k: TopK = 5
    min_score: Score = 0.0


class ContextIn(BaseModel):
    """Passages for a prompt, within so many tokens."""

    query: Words
    max_tokens: Annotated[int, Field(ge=100, le=10_000)] = 2000
    top_k: TopK = 10
    min_score: Score = 0.3


class MatchOut(BaseModel):
    """A passage that was found. ``content`` and ``metadata`` are null where they were not asked for."""

    chunk_id: str
    document_id: str
    document_filename: str
    knowledge_base_id: str
    chunk_index: int
    score: float
    content: str | None
    metadata: dict[str, Any] | None


class HybridMatchOut(MatchOut):
    """The same with the scores of both halves; 0 where a half did not find it."""

    semantic_score: float
    keyword_score: float


class FoundOut(BaseModel):
    query: str
    knowledge_base_id: str
    top_k: int
    total_matches: int
    matches: list[MatchOut]


class HybridOut(BaseModel):
    query: str
    knowledge_base_id: str
    search_type: Literal["hybrid"] = "hybrid"
    weights: dict[str, float]
    top_k: int
    total_matches: int
    matches: list[HybridMatchOut]


class UnsearchedOut(BaseModel):
    """A base that could not be searched with the others, and why."""

    knowledge_base_id: str
    detail: str


class MultiOut(BaseModel):
    """``unsearched`` are bases whose model or store did not answer; where none did, the search fails instead."""

    query: str
    knowledge_bases_searched: int
    top_k: int
    total_matches: int
    matches: list[MatchOut]
    unsearched: list[UnsearchedOut]


class ContextOut(BaseModel):
    context: str
    query: str


def routes(identity: Identity, knowledge: Knowledge) -> APIRouter:
    """The searches under ``/knowledge-bases``."""
    router = APIRouter(prefix=PREFIX, tags=["knowledge"], responses=described(402, 404))
    signed_in, search = Depends(identity.admin), knowledge.search

    @router.post("/search")
    async def multi_search(caller: Annotated[Caller, signed_in], wish: MultiIn) -> MultiOut:
        """Search several bases by meaning."""
        bases = await search.bases(caller.organization_id, list(dict.fromkeys(wish.knowledge_base_ids)))
        await search.charge(bases)
        found = await search.by_meaning(bases, Query(wish.query, wish.top_k, wish.min_score))
        return MultiOut(
            query=wish.query,
            knowledge_bases_searched=len(bases),
            top_k=wish.top_k,
            total_matches=len(found.matches),
            matches=[MatchOut(**_shown(match)) for match in found.matches],
            unsearched=[
                UnsearchedOut(knowledge_base_id=each.base.id, detail=each.refusal.detail) for each in found.unsearched
            ],
        )

    @router.post("/{base_id}/search")
    async def search_one(caller: Annotated[Caller, signed_in], base_id: str, wish: SearchIn) -> FoundOut:
        """Search a base by meaning."""
        bases = await search.bases(caller.organization_id, [base_id])
        await search.charge(bases)
        found = await search.by_meaning(bases, _query(wish))
        return FoundOut(
            query=wish.query,
            knowledge_base_id=base_id,
            top_k=wish.top_k,
            total_matches=len(found.matches),
            matches=[MatchOut(**_shown(match, wish)) for match in found.matches],
        )

    @router.post("/{base_id}/hybrid-search")
    async def hybrid_search(caller: Annotated[Caller, signed_in], base_id: str, wish: HybridIn) -> HybridOut:
        """Search a base by words and by meaning."""
        bases = await search.bases(caller.organization_id, [base_id])
        await search.charge(bases)
        found = await search.by_both(bases, _query(wish), Weights(wish.keyword_weight, wish.semantic_weight))
        return HybridOut(
            query=wish.query,
            knowledge_base_id=base_id,
            weights={"keyword": wish.keyword_weight, "semantic": wish.semantic_weight},
            top_k=wish.top_k,
            total_matches=len(found.matches),
            matches=[
                HybridMatchOut(
                    **_shown(match, wish),
                    semantic_score=match.semantic_score or 0.0,
                    keyword_score=match.keyword_score or 0.0,
                )
                for match in found.matches
            ],
        )

    @router.post("/{base_id}/retrieve-context")
    async def retrieve_context(caller: Annotated[Caller, signed_in], base_id: str, wish: ContextIn) -> ContextOut:
        """Passages for a prompt, each under its source."""
        (base,) = await search.bases(caller.organization_id, [base_id])
        await search.charge([base])
        text = await search.context(base, Query(wish.query, wish.top_k, wish.min_score), wish.max_tokens)
        return ContextOut(context=text, query=wish.query)

    return router


def _query(wish: SearchIn) -> Query:
    return Query(wish.query, wish.top_k, wish.min_score, wish.filters)


def _shown(match: Match, wish: SearchIn | None = None) -> dict[str, Any]:
    """A match's fields."""
    return {
        "chunk_id": match.chunk_id,
        "document_id": match.document_id,
        "document_filename": match.filename,
        "knowledge_base_id": match.knowledge_base_id,
        "chunk_index": match.chunk_index,
        "score": match.score,
        "content": match.content if wish is None or wish.include_content else None,
        "metadata": match.metadata if wish is None or wish.include_metadata else None,
    }
