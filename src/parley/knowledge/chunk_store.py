"""SQL of passages and of the lease under which they are written (durability §4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, delete, func, insert, literal_column, or_, select, tuple_, update

from parley.base.clock import SECOND
from parley.base.ids import new_id
from parley.knowledge.model import Chunk, Document, Piece
from parley.storage import ReadTx, WriteTx
from parley.storage.leasing import now_parameters, server_now
from parley.storage.tables.knowledge import chunk_vectors as vectors
from parley.storage.tables.knowledge import chunks, documents

# Written out, not bound: SQLite uses a partial index only where it can read its condition.
_PENDING = documents.c.status == literal_column("'pending'")
_PROCESSING = documents.c.status == literal_column("'processing'")
_CHUNK = tuple(chunks.c[name] for name in Chunk.__slots__)


class ReadingLost(Exception):
    """Another process reads the document now, or it was deleted; nothing more may be written for it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One process's right to write for one document."""

    document: Document
    epoch: int
    attempts: int


# ── the lease ───────────────────────────────────────────────────────────────────────────────────


def claim(tx: WriteTx, owner: str, *, room: int, lease_seconds: float, stamp: int) -> list[Reading]:
    """Take up to ``room`` documents to read, oldest first; also those whose reader is gone."""
    now = server_now(tx.dialect.name)
    free = (
        select(documents.c.id)
        .where(or_(_PENDING, and_(_PROCESSING, documents.c.lease_until < now)))
        .order_by(documents.c.created_at)
        .limit(room)
        .with_for_update(skip_locked=True)
    )
    ids = list(tx.execute(free, now_parameters(tx)).scalars())
    if not ids:
        return []
    columns = tuple(documents.c[name] for name in Document.__slots__)
    taken = tx.execute(
        update(documents)
        .where(documents.c.id.in_(ids))
        .values(
            status="processing",
            owner=owner,
            epoch=documents.c.epoch + 1,
            attempts=documents.c.attempts + 1,
            lease_until=now + int(lease_seconds * SECOND),
            started_at=stamp,
            updated_at=stamp,
            progress="Reading the file",
        )
        .returning(documents.c.epoch, documents.c.attempts, *columns),
        now_parameters(tx),
    ).all()
    return [Reading(_document(row[2:]), row.epoch, row.attempts) for row in taken]


def _document(values: Sequence[Any]) -> Document:
    return Document(*values)


def something_waits(tx: ReadTx) -> bool:
    """Whether ``claim`` would find a document."""
    now = server_now(tx.dialect.name)
    waiting = select(documents.c.id).where(or_(_PENDING, and_(_PROCESSING, documents.c.lease_until < now))).limit(1)
    return tx.execute(waiting, now_parameters(tx)).first() is not None


def renew(tx: WriteTx, readings: Sequence[Reading], lease_seconds: float) -> set[str]:
    """Keep these for longer; the ids of those that are still this process's."""
    pairs = [(reading.document.id, reading.epoch) for reading in readings]
    renewed = tx.execute(
        update(documents)
        # By id too: SQLite looks for pairs in the whole table.
        .where(
            _PROCESSING,
            documents.c.id.in_([document_id for document_id, _ in pairs]),
            tuple_(documents.c.id, documents.c.epoch).in_(pairs),
        )
        .values(lease_until=server_now(tx.dialect.name) + int(lease_seconds * SECOND))
        .returning(documents.c.id),
        now_parameters(tx),
    )
    return set(renewed.scalars())


def fence(tx: WriteTx, reading: Reading) -> None:
    """Every write of a reader begins here, in the same transaction. Raises ReadingLost."""
    held = tx.execute(
        select(documents.c.id)
        .where(documents.c.id == reading.document.id, documents.c.epoch == reading.epoch, _PROCESSING)
        .with_for_update()
    ).first()
    if held is None:
        raise ReadingLost(reading.document.id)


def end(tx: WriteTx, reading: Reading, values: dict[str, Any]) -> None:
    """The reader's last word on a document. Raises ReadingLost."""
    fence(tx, reading)
    tx.execute(
        update(documents)
        .where(documents.c.id == reading.document.id)
        .values(owner=None, lease_until=None, progress=None, **values)
    )


def hand_back(tx: WriteTx, reading: Reading) -> None:
    """Let another process read it, at once; this try does not count. Raises ReadingLost."""
    end(tx, reading, {"status": "pending", "attempts": reading.attempts - 1})


def try_again(tx: WriteTx, reading: Reading) -> None:
    """Let whoever is next read it; this try counts. Raises ReadingLost."""
    end(tx, reading, {"status": "pending"})


def expire_readings(tx: WriteTx) -> None:
    """On SQLite, where one process is all there is: whoever read a document is gone."""
    tx.execute(update(documents).where(_PROCESSING).values(lease_until=0))


# ── passages ────────────────────────────────────────────────────────────────────────────────────


def drop_chunks(tx: WriteTx, document_id: str) -> None:
    """What an earlier reader of the document left."""
    tx.execute(delete(chunks).where(chunks.c.document_id == document_id))
    tx.execute(delete(vectors).where(vectors.c.document_id == document_id))


def insert_chunks(
    tx: WriteTx, document: Document, first_index: int, found: Sequence[Piece], body: bytes, now: int
) -> None:
    """Passages from ``first_index`` on, and their vectors as one row."""
    tx.execute(
        insert(chunks),
        [
            {
                "id": new_id(),
                "document_id": document.id,
                "knowledge_base_id": document.knowledge_base_id,
                "chunk_index": first_index + offset,
                "content": piece.content,
                "heading": piece.heading,
                "token_count": piece.tokens,
                "start_char": piece.start,
                "end_char": piece.end,
                "metadata": piece.metadata,
                "created_at": now,
            }
            for offset, piece in enumerate(found)
        ],
    )
    row = {"document_id": document.id, "first_index": first_index, "count": len(found), "body": body}
    tx.execute(insert(vectors), row)


def list_chunks(tx: ReadTx, document_id: str, *, limit: int, offset: int) -> list[Chunk]:
    """A document's passages in order."""
    rows = tx.execute(
        select(*_CHUNK)
        .where(chunks.c.document_id == document_id)
        .order_by(chunks.c.chunk_index)
        .limit(limit)
        .offset(offset)
    )
    return [Chunk(*row) for row in rows]


def count_chunks(tx: ReadTx, document_id: str) -> int:
    """How many passages a document has by now."""
    return tx.execute(select(func.count()).select_from(chunks).where(chunks.c.document_id == document_id)).scalar_one()


def chunks_at(tx: ReadTx, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Chunk]:
    """Passages by document and index."""
    if not places:
        return {}
    # Not IN of pairs: SQLite looks through the whole table for that.
    here = [and_(chunks.c.document_id == document_id, chunks.c.chunk_index == index) for document_id, index in places]
    rows = tx.execute(select(*_CHUNK).where(or_(*here)))
    found = [Chunk(*row) for row in rows]
    return {(chunk.document_id, chunk.chunk_index): chunk for chunk in found}


def finished_documents(tx: ReadTx, base_id: str) -> dict[str, int]:
    """The documents of a base that can be searched, each with the epoch its passages are of."""
    rows = tx.execute(
        select(documents.c.id, documents.c.epoch).where(
            documents.c.knowledge_base_id == base_id, documents.c.status == "completed"
        )
    )
    return {row.id: row.epoch for row in rows}


def vectors_of(tx: ReadTx, document_ids: Sequence[str]) -> list[tuple[str, int, int, bytes]]:
    """Rows of vectors: document, first index, count, body."""
    rows = tx.execute(
        select(vectors.c.document_id, vectors.c.first_index, vectors.c.count, vectors.c.body)
        .where(vectors.c.document_id.in_(document_ids))
        .order_by(vectors.c.document_id, vectors.c.first_index)
    )
    return [(document_id, first, count, body) for document_id, first, count, body in rows]
