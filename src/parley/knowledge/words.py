"""Searching by words, in each dialect's full text (contract §12).

Any of a question's words may match, so one that stands in half of all passages would make the store
look at half of all passages. Words are taken from the rarest on until enough passages hold one.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Result, text

from parley.storage import ReadTx

MOST_PASSAGES: Final = 1_500
MOST_WORDS: Final = 24
SPARE: Final = 10
HEADING_WEIGHT: Final = 1.5

type Hit = tuple[str, int, float]
"""A passage by its document and index, with a score whose size only compares within one search."""

_WORD = re.compile(r"\w+")
_EMPTY: Final = frozenset(
    _WORD.findall(
        "a about after all also am an and any are as at be because been before being but by can could did do "
        "does doing for from had has have having he her here him his how i if in into is it its just may me "
        "might more most must my no nor not of on one or our out over own shall she should so some such than "
        "that the their them then there these they this those through to too under until up upon us very was "
        "we were what when where which while who whom why will with would you your "
    )
)


def search_words(
    tx: ReadTx, base_ids: Sequence[str], query: str, count: int, only: frozenset[str] | None = None
) -> list[Hit]:
    """The passages of these bases that hold the query's words, best first.

    ``only`` narrows it to these documents.
    """
    if not base_ids:
        return []
    if tx.dialect.name == "postgresql":
        return _postgres(tx, base_ids, query, count, only)
    return _sqlite(tx, base_ids, query, count, only)


def _rarest(found: Sequence[tuple[str, float]]) -> list[str]:
    """Words from the rarest on, as long as few passages hold one of them; always one."""
    chosen: list[str] = []
    passages = 0.0
    for word, held_by in sorted(found, key=lambda pair: pair[1]):
        if held_by == 0:
            continue
        passages += held_by
        if chosen and passages > MOST_PASSAGES:
            break
        chosen.append(word)
    return chosen


def _placed(ranked: Sequence[tuple[float, int]], count: int, look: Callable[[Sequence[int]], Result[Any]]) -> list[Hit]:
    """The first ``count`` of the ranked passages that may be shown; where each is, is looked up best first.

    Looking up all that hold a word, to show a few, takes longer than ranking them.
    """
    hits: list[Hit] = []
    for start in range(0, len(ranked), count):
        some = ranked[start : start + count]
        places = {row.number: (row.document_id, row.chunk_index) for row in look([number for _, number in some])}
        hits += [(*places[number], score) for score, number in some if number in places]
        if len(hits) >= count:
            break
    return hits[:count]


# ── SQLite ──────────────────────────────────────────────────────────────────────────────────────

_SQLITE_COUNT = text("SELECT count(*) FROM (SELECT 1 FROM chunk_words WHERE chunk_words MATCH :match LIMIT :most)")
# Without an order: the last words of a search may be common ones, and then the first passages will do, but of
# these bases only: the words are everybody's. Whose a passage is, the named index says without its row.
_SQLITE_RANKED = text(
    """
    SELECT chunk_words.rowid AS number, -bm25(chunk_words, :heading, 1.0) AS score FROM chunk_words
    WHERE chunk_words MATCH :match
        AND EXISTS (SELECT 1 FROM chunks INDEXED BY ix_chunks_knowledge_base_id
            WHERE chunks.knowledge_base_id IN (SELECT value FROM json_each(:bases))
                AND chunks.number = chunk_words.rowid)
        AND (:everything OR EXISTS (SELECT 1 FROM chunks
            WHERE chunks.number = chunk_words.rowid
                AND chunks.document_id IN (SELECT value FROM json_each(:only))))
    LIMIT :most
    """
)
_SQLITE_PLACED = text(
    """
    SELECT chunks.number, chunks.document_id, chunks.chunk_index
    FROM json_each(:numbers) AS ranked CROSS JOIN chunks ON chunks.number = ranked.value
        CROSS JOIN documents ON documents.id = chunks.document_id AND documents.status = 'completed'
    """
)


def _sqlite(tx: ReadTx, base_ids: Sequence[str], query: str, count: int, only: frozenset[str] | None) -> list[Hit]:
    words = _query_words(query)

    def match(alternatives: Sequence[str]) -> str:
        return " OR ".join(f'"{word}"' for word in alternatives)

    held = [
        (word, float(tx.execute(_SQLITE_COUNT, {"match": match([word]), "most": MOST_PASSAGES + 1}).scalar_one()))
        for word in words
    ]
    chosen = _rarest(held)
    if not chosen:
        return []
    parameters = {
        "match": match(chosen),
        "heading": HEADING_WEIGHT,
        "bases": _json_list(base_ids),
        "everything": only is None,
        "only": _json_list(only or ()),
        "most": MOST_PASSAGES,
    }
    ranked = sorted(((row.score, row.number) for row in tx.execute(_SQLITE_RANKED, parameters)), reverse=True)
    return _placed(
        ranked, count, lambda some: tx.execute(_SQLITE_PLACED, {"numbers": msgspec.json.encode(some).decode()})
    )


def _query_words(query: str) -> list[str]:
    """The words worth looking for; all of them where none is."""
    found = list(dict.fromkeys(word.lower() for word in _WORD.findall(query)))
    return ([word for word in found if word not in _EMPTY] or found)[:MOST_WORDS]


def _json_list(ids: Iterable[str]) -> str:
    return msgspec.json.encode(sorted(ids)).decode()


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────

# Which words are common, the store's own statistics know; what they do not list is rare.
_POSTGRES_WORDS = text(
    """
    SELECT asked.lexeme, coalesce(common.share, 0) AS share
    FROM (SELECT unnest(tsvector_to_array(to_tsvector('english', :query))) AS lexeme) AS asked
    LEFT JOIN (
        SELECT listed.lexeme, listed.share FROM pg_stats,
            unnest(most_common_elems::text::text[], most_common_elem_freqs) AS listed (lexeme, share)
        WHERE schemaname = current_schema() AND tablename = 'chunk_words' AND attname = 'words'
            AND listed.lexeme IS NOT NULL
    ) AS common ON common.lexeme = asked.lexeme
    LIMIT :most
    """
)
_POSTGRES_PLACED = text(
    """
    SELECT chunks.number, chunks.document_id, chunks.chunk_index
    FROM chunks JOIN documents ON documents.id = chunks.document_id AND documents.status = 'completed'
    WHERE chunks.number = ANY(:numbers) AND (:everything OR chunks.document_id = ANY(:only))
    """
)
_POSTGRES_SIZE = text("SELECT coalesce(sum(chunk_count), 0) FROM documents WHERE knowledge_base_id = ANY(:bases)")


def _postgres(tx: ReadTx, base_ids: Sequence[str], query: str, count: int, only: frozenset[str] | None) -> list[Hit]:
    shares = [(row.lexeme, row.share) for row in tx.execute(_POSTGRES_WORDS, {"query": query, "most": MOST_WORDS})]
    if not shares:
        return []
    size = int(tx.execute(_POSTGRES_SIZE, {"bases": list(base_ids)}).scalar_one())
    chosen = _rarest([(lexeme, max(1.0, share * size)) for lexeme, share in shares])
    parameters: dict[str, Any] = {
        "bases": list(base_ids),
        "any": " | ".join(_quoted(lexeme) for lexeme in chosen),
        "most": 2 * MOST_PASSAGES,
        "size": size,
        # Some of the best may be of documents that are still being read, or all of others than those asked for.
        "depth": SPARE * count if only is None else 2 * MOST_PASSAGES,
        **{f"word{number}": _quoted(lexeme) for number, lexeme in enumerate(chosen)},
    }
    ranked = [(row.score, row.number) for row in tx.execute(text(_postgres_ranked(len(chosen))), parameters)]
    narrowed = {"everything": only is None, "only": sorted(only or ())}
    return _placed(ranked, count, lambda some: tx.execute(_POSTGRES_PLACED, {"numbers": some, **narrowed}))


def _postgres_ranked(words: int) -> str:
    """The passages with one of so many words, each word counting the more the fewer passages hold it.

    PostgreSQL's own rank knows no rarity: here it only says how much of a word a passage has.
    """
    each = range(words)
    ranks = ", ".join(
        f"ts_rank('{{0.1, 0.1, 0.1, 0.15}}', words, CAST(CAST(:word{n} AS text) AS tsquery), 1) AS rank{n}"
        for n in each
    )
    held = ", ".join(f"count(*) FILTER (WHERE rank{n} > 0) AS held{n}" for n in each)
    score = " + ".join(f"sqrt(rank{n}) * ln(1 + (:size - held{n} + 0.5) / (held{n} + 0.5))" for n in each)
    return f"""
        WITH found AS MATERIALIZED (
            SELECT number, {ranks} FROM chunk_words
            WHERE words @@ CAST(CAST(:any AS text) AS tsquery) AND knowledge_base_id = ANY(:bases)
            LIMIT :most),
        rarity AS (SELECT {held} FROM found)
        SELECT number, {score} AS score FROM found, rarity ORDER BY score DESC, number LIMIT :depth
    """  # noqa: S608 - only numbers are put in


def _quoted(lexeme: str) -> str:
    """A lexeme as a tsquery that means just that."""
    doubled = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"
