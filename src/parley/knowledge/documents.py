"""Documents of a base: taking them in, watching, reading again, erasing (contract §12)."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import IO, Any

from sqlalchemy.exc import IntegrityError

from parley.base.clock import DAY, Clock
from parley.base.ids import is_id, new_id
from parley.billing import Plans, admit, closed_on_outage
from parley.knowledge import store as rows
from parley.knowledge.bases import known
from parley.knowledge.chunk_store import count_chunks, list_chunks
from parley.knowledge.model import (
    MIB,
    MOST_FILE_BYTES,
    SUFFIXES,
    Base,
    BaseArchived,
    BaseElsewhere,
    Chunk,
    Document,
    DocumentNotFound,
    FileType,
    NotRetryable,
    UnsupportedFile,
)
from parley.storage import ReadTx, Store, WriteTx
from parley.turn.model import JsonObject

PIECE_BYTES = MIB
NAME_CHARACTERS = 255


class FileTooLarge(UnsupportedFile):
    """A file may have at most 50 MB. Split it into smaller files."""

    status = 413


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that has arrived, open at its beginning."""

    filename: str
    file: IO[bytes]
    metadata: JsonObject


class Documents:
    """The documents of bases. ``ring`` tells the readers of this process that one is waiting."""

    def __init__(self, store: Store, clock: Clock, plans: Plans, ring: Callable[[], None]) -> None:
        self._store = store
        self._clock = clock
        self._plans = plans
        self._ring = ring

    async def upload(self, organization_id: str, user_id: str, base_id: str, upload: Upload) -> Document:
        """Take a file in, to be read in the background. The same bytes again are the document they already are.

        Raises BaseNotFound, BaseArchived, UnsupportedFile, FileTooLarge, or QuotaDenied.
        """
        known(base_id)
        file_type = file_type_of(upload.filename)
        base = await self._store.read(lambda tx: rows.find_base(tx, organization_id, base_id))
        _writable(base)
        sha256, size = await asyncio.to_thread(_digest, upload.file)
        if size > MOST_FILE_BYTES:
            raise FileTooLarge
        same = await self._store.read(lambda tx: rows.same_bytes(tx, base_id, sha256))
        if same is not None:
            return same
        document_id = new_id()
        values = _new_row(base, user_id, upload, document_id, file_type, sha256, size, self._clock.now())
        await self._keep_bytes(document_id, upload.file)
        try:
            with closed_on_outage():
                document = await self._store.write(lambda tx: self._insert(tx, base, values))
        except IntegrityError:
            # The same bytes came twice at once, or the base was deleted meanwhile.
            await self._drop_bytes(document_id)
            return await self._store.read(lambda tx: _twin(tx, organization_id, base_id, sha256))
        except BaseException:
            await self._drop_bytes(document_id)
            raise
        self._ring()
        return document

    async def page(
        self, organization_id: str, base_id: str, *, status: str | None, limit: int, offset: int
    ) -> list[Document]:
        """A base's documents, newest first. Raises BaseNotFound."""
        known(base_id)

        def work(tx: ReadTx) -> list[Document]:
            rows.find_base(tx, organization_id, base_id)
            return rows.list_documents(tx, base_id, status=status, limit=limit, offset=offset)

        return await self._store.read(work)

    async def get(self, organization_id: str, base_id: str, document_id: str) -> Document:
        """One document. Raises DocumentNotFound."""
        _known(base_id, document_id)
        return await self._store.read(lambda tx: rows.find_document(tx, organization_id, base_id, document_id))

    async def delete(self, organization_id: str, base_id: str, document_id: str) -> None:
        """Erase a document with its file; whoever is reading it stops. Raises DocumentNotFound."""
        _known(base_id, document_id)
        now = self._clock.now()

        def work(tx: WriteTx) -> None:
            rows.find_document(tx, organization_id, base_id, document_id)
            rows.delete_document(tx, document_id)
            rows.touch_base(tx, base_id, now)

        await self._store.write(work)

    async def retry(self, organization_id: str, base_id: str, document_id: str) -> Document:
        """Read a failed document again. Raises DocumentNotFound, BaseArchived or NotRetryable."""
        _known(base_id, document_id)
        now = self._clock.now()

        def work(tx: WriteTx) -> Document:
            document = rows.find_document(tx, organization_id, base_id, document_id)
            _writable(rows.find_base(tx, organization_id, base_id))
            if not rows.begin_again(tx, document, now):
                raise NotRetryable
            return rows.find_document(tx, organization_id, base_id, document_id)

        document = await self._store.write(work)
        self._ring()
        return document

    async def chunks(
        self, organization_id: str, base_id: str, document_id: str, *, limit: int, offset: int
    ) -> tuple[list[Chunk], int]:
        """Passages of a document in order, and how many there are. Raises DocumentNotFound."""
        _known(base_id, document_id)

        def work(tx: ReadTx) -> tuple[list[Chunk], int]:
            rows.find_document(tx, organization_id, base_id, document_id)
            return list_chunks(tx, document_id, limit=limit, offset=offset), count_chunks(tx, document_id)

        return await self._store.read(work)

    async def sweep(self) -> None:
        """Drop the bytes of uploads whose process died a day ago or more."""
        before = self._clock.now() - DAY
        await self._store.across.write(lambda tx: rows.drop_orphans(tx, before))

    def _insert(self, tx: WriteTx, base: Base, values: dict[str, Any]) -> Document:
        organization_id = base.organization_id
        _writable(rows.find_base(tx, organization_id, base.id))
        if base.managed:
            admit(tx, self._plans, organization_id, "documents", rows.count_documents, values["created_at"])
        rows.insert_document(tx, values)
        return rows.find_document(tx, organization_id, base.id, values["id"])

    async def _keep_bytes(self, document_id: str, file: IO[bytes]) -> None:
        """Store the file in pieces, so that a worker on any machine can read it."""
        now = self._clock.now()
        await asyncio.to_thread(file.seek, 0)
        seq = 0
        while body := await asyncio.to_thread(file.read, PIECE_BYTES):
            await self._store.write(lambda tx, n=seq, part=body: rows.insert_piece(tx, document_id, n, part, now))
            seq += 1

    async def _drop_bytes(self, document_id: str) -> None:
        """Drop the bytes of an upload that became no document: without one they are nobody's."""
        await self._store.across.write(lambda tx: rows.drop_pieces(tx, document_id))


def file_type_of(filename: str) -> FileType:
    """The kind of a file by its name's ending. Raises UnsupportedFile."""
    file_type = SUFFIXES.get(PurePath(filename).suffix.lstrip(".").lower())
    if file_type is None:
        raise UnsupportedFile
    return file_type


def shown_name(filename: str) -> str:
    """A file's name without its folders, and without characters that cannot be seen or no store can hold."""
    name = PurePath(filename.replace("\\", "/")).name
    return "".join(character for character in name if character.isprintable())[-NAME_CHARACTERS:]


def _new_row(
    base: Base, user_id: str, upload: Upload, document_id: str, file_type: FileType, sha256: str, size: int, now: int
) -> dict[str, Any]:
    return {
        "id": document_id,
        "organization_id": base.organization_id,
        "knowledge_base_id": base.id,
        "filename": shown_name(upload.filename),
        "file_type": file_type,
        "size_bytes": size,
        "sha256": sha256,
        "metadata": upload.metadata,
        "status": "pending",
        "chunk_count": 0,
        "token_count": 0,
        "reading": 1,
        "attempts": 0,
        "epoch": 0,
        "created_by": user_id,
        "created_at": now,
        "updated_at": now,
    }


def _digest(file: IO[bytes]) -> tuple[str, int]:
    file.seek(0)
    digest, size = hashlib.sha256(), 0
    while part := file.read(PIECE_BYTES):
        digest.update(part)
        size += len(part)
    return digest.hexdigest(), size


def _twin(tx: ReadTx, organization_id: str, base_id: str, sha256: str) -> Document:
    rows.find_base(tx, organization_id, base_id)
    same = rows.same_bytes(tx, base_id, sha256)
    if same is None:
        raise DocumentNotFound
    return same


def _writable(base: Base) -> None:
    if base.external:
        raise BaseElsewhere
    if base.status == "archived":
        raise BaseArchived


def _known(base_id: str, document_id: str) -> None:
    if not is_id(base_id) or not is_id(document_id):
        raise DocumentNotFound
