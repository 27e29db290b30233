"""SQL of bases, documents and their bytes. Every statement names the organization or a row found by it."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Row, Select, cast, delete, func, insert, select, update

from parley.knowledge.model import Base, BaseNotFound, Document, DocumentNotFound
from parley.storage import ReadTx, WriteTx
from parley.storage.tables.knowledge import document_pieces as pieces
from parley.storage.tables.knowledge import documents
from parley.storage.tables.knowledge import knowledge_bases as bases
from parley.turn.model import JsonObject

_BASE = tuple(bases.c[name] for name in Base.__slots__ if name in bases.c)
_DOCUMENT = tuple(documents.c[name] for name in Document.__slots__)


def _bases(organization_id: str) -> Select[Any]:
    """The organization's bases with what they hold."""
    held = (
        select(
            documents.c.knowledge_base_id,
            func.count().label("document_count"),
            func.sum(documents.c.chunk_count).label("total_chunks"),
            func.sum(documents.c.token_count).label("total_tokens"),
            func.sum(documents.c.size_bytes).label("total_bytes"),
        )
        .where(documents.c.organization_id == organization_id)
        .group_by(documents.c.knowledge_base_id)
        .subquery()
    )
    counts = (held.c.document_count, held.c.total_chunks, held.c.total_tokens, held.c.total_bytes)
    return (
        select(*_BASE, *(cast(func.coalesce(column, 0), BigInteger) for column in counts))
        .select_from(bases.outerjoin(held, held.c.knowledge_base_id == bases.c.id))
        .where(bases.c.organization_id == organization_id)
    )


def _base(row: Row[Any]) -> Base:
    return Base(*row)


# ── bases ───────────────────────────────────────────────────────────────────────────────────────


def insert_base(tx: WriteTx, values: dict[str, Any]) -> None:
    """A new base."""
    tx.execute(insert(bases), values)


def find_base(tx: ReadTx, organization_id: str, base_id: str) -> Base:
    """One base of the organization. Raises BaseNotFound."""
    row = tx.execute(_bases(organization_id).where(bases.c.id == base_id)).first()
    if row is None:
        raise BaseNotFound
    return _base(row)


def searchable(tx: ReadTx, organization_id: str, base_ids: Sequence[str] | None) -> list[Base]:
    """Bases without what they hold: the named ones of the organization, or all its active ones."""
    query = select(*_BASE).where(bases.c.organization_id == organization_id)
    narrowed = query.where(bases.c.status == "active") if base_ids is None else query.where(bases.c.id.in_(base_ids))
    return [_base(row) for row in tx.execute(narrowed.order_by(bases.c.created_at))]


def list_bases(
    tx: ReadTx, organization_id: str, *, status: str | None = None, limit: int = 500, offset: int = 0
) -> list[Base]:
    """The organization's bases, newest first."""
    query = _bases(organization_id).order_by(bases.c.created_at.desc(), bases.c.id).limit(limit).offset(offset)
    rows = tx.execute(query if status is None else query.where(bases.c.status == status))
    return [_base(row) for row in rows]


def change_base(tx: WriteTx, organization_id: str, base_id: str, values: dict[str, Any]) -> None:
    """Set these columns."""
    tx.execute(update(bases).where(bases.c.organization_id == organization_id, bases.c.id == base_id).values(**values))


def touch_base(tx: WriteTx, base_id: str, now: int) -> None:
    """What can be found in the base has changed."""
    tx.execute(update(bases).where(bases.c.id == base_id).values(version=bases.c.version + 1, updated_at=now))


def delete_base(tx: WriteTx, organization_id: str, base_id: str) -> None:
    """The base itself, and whatever it still holds. Raises BaseNotFound."""
    gone = tx.execute(delete(bases).where(bases.c.organization_id == organization_id, bases.c.id == base_id))
    if gone.rowcount == 0:
        raise BaseNotFound


def delete_some_documents(tx: WriteTx, base_id: str, most: int) -> int:
    """Up to so many documents of a base, with their passages and bytes; how many that were."""
    query = select(documents.c.id).where(documents.c.knowledge_base_id == base_id).limit(most)
    chosen = list(tx.execute(query).scalars())
    if chosen:
        tx.execute(delete(pieces).where(pieces.c.document_id.in_(chosen)))
        tx.execute(delete(documents).where(documents.c.id.in_(chosen)))
    return len(chosen)


def count_bases(tx: ReadTx, organization_id: str) -> int:
    """How many bases the organization has, archived ones too."""
    return tx.execute(
        select(func.count()).select_from(bases).where(bases.c.organization_id == organization_id)
    ).scalar_one()


def count_documents(tx: ReadTx, organization_id: str) -> int:
    """How many documents the organization has, in whatever state."""
    return tx.execute(
        select(func.count()).select_from(documents).where(documents.c.organization_id == organization_id)
    ).scalar_one()


# ── documents ───────────────────────────────────────────────────────────────────────────────────


def _document(row: Row[Any]) -> Document:
    return Document(*row)


def insert_document(tx: WriteTx, values: dict[str, Any]) -> None:
    """A new document, waiting to be read. Its bytes are there already."""
    tx.execute(insert(documents), values)


def find_document(tx: ReadTx, organization_id: str, base_id: str, document_id: str) -> Document:
    """One document of a base of the organization. Raises DocumentNotFound."""
    row = tx.execute(
        select(*_DOCUMENT).where(
            documents.c.organization_id == organization_id,
            documents.c.knowledge_base_id == base_id,
            documents.c.id == document_id,
        )
    ).first()
    if row is None:
        raise DocumentNotFound
    return _document(row)


def same_bytes(tx: ReadTx, base_id: str, sha256: str) -> Document | None:
    """The document of the base that has exactly these bytes."""
    row = tx.execute(
        select(*_DOCUMENT).where(documents.c.knowledge_base_id == base_id, documents.c.sha256 == sha256)
    ).first()
    return None if row is None else _document(row)


def list_documents(tx: ReadTx, base_id: str, *, status: str | None, limit: int, offset: int) -> list[Document]:
    """A base's documents, newest first."""
    query = (
        select(*_DOCUMENT)
        .where(documents.c.knowledge_base_id == base_id)
        .order_by(documents.c.created_at.desc(), documents.c.id)
        .limit(limit)
        .offset(offset)
    )
    rows = tx.execute(query if status is None else query.where(documents.c.status == status))
    return [_document(row) for row in rows]


def begin_again(tx: WriteTx, document: Document, now: int) -> bool:
    """Let a failed document wait to be read once more; False where it has not failed."""
    changed = tx.execute(
        update(documents)
        .where(documents.c.id == document.id, documents.c.status == "failed")
        .values(status="pending", error=None, attempts=0, reading=documents.c.reading + 1, updated_at=now)
    )
    return changed.rowcount == 1


def note_progress(tx: WriteTx, document_id: str, epoch: int, sentence: str) -> None:
    """What a reader is at, for whoever asks."""
    tx.execute(
        update(documents)
        .where(documents.c.id == document_id, documents.c.epoch == epoch, documents.c.status == "processing")
        .values(progress=sentence)
    )


def delete_document(tx: WriteTx, document_id: str) -> None:
    """The document, its passages and its bytes."""
    tx.execute(delete(pieces).where(pieces.c.document_id == document_id))
    tx.execute(delete(documents).where(documents.c.id == document_id))


def facts_of(tx: ReadTx, base_ids: Sequence[str]) -> list[tuple[str, str, str, JsonObject]]:
    """Of every finished document: its id, file name, file type and metadata."""
    rows = tx.execute(
        select(documents.c.id, documents.c.filename, documents.c.file_type, documents.c.metadata).where(
            documents.c.knowledge_base_id.in_(base_ids), documents.c.status == "completed"
        )
    )
    return [(row.id, row.filename, row.file_type, row.metadata) for row in rows]


def names_of(tx: ReadTx, document_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Documents' bases and file names, by id."""
    rows = tx.execute(
        select(documents.c.id, documents.c.knowledge_base_id, documents.c.filename).where(
            documents.c.id.in_(document_ids)
        )
    )
    return {document_id: (base_id, filename) for document_id, base_id, filename in rows}


# ── bytes ───────────────────────────────────────────────────────────────────────────────────────


def insert_piece(tx: WriteTx, document_id: str, seq: int, body: bytes, now: int) -> None:
    """One piece of a document's bytes."""
    tx.execute(insert(pieces), {"document_id": document_id, "seq": seq, "body": body, "created_at": now})


def read_piece(tx: ReadTx, document_id: str, seq: int) -> bytes | None:
    """One piece; None behind the last."""
    return tx.execute(
        select(pieces.c.body).where(pieces.c.document_id == document_id, pieces.c.seq == seq)
    ).scalar_one_or_none()


def drop_pieces(tx: WriteTx, document_id: str) -> None:
    """The bytes of a document that did not come to be."""
    tx.execute(delete(pieces).where(pieces.c.document_id == document_id))


def drop_orphans(tx: WriteTx, before: int) -> int:
    """Drop bytes older than this whose document never came: their upload's process died."""
    known = select(documents.c.id).where(documents.c.id == pieces.c.document_id)
    orphans = select(pieces.c.document_id).where(pieces.c.seq == 0, pieces.c.created_at < before, ~known.exists())
    return tx.execute(delete(pieces).where(pieces.c.document_id.in_(orphans))).rowcount
