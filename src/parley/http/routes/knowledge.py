"""``/knowledge-bases``: bases and their documents (contract §12). Searching is in ``knowledge_search``."""

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, File, Form, Query, UploadFile, status
from pydantic import BaseModel, ConfigDict, StringConstraints

from parley.accounts import Caller
from parley.base.clock import iso, iso_or_none
from parley.base.errors import BadRequest
from parley.http.identity import Identity
from parley.http.limits import json_fault
from parley.http.schemas import NOT_FOUND, described
from parley.knowledge.bases import NewBase
from parley.knowledge.documents import Upload
from parley.knowledge.model import FILE_TYPES, MIB, MOST_FILE_BYTES, Base, Chunk, Document
from parley.knowledge.opening import Knowledge
from parley.turn.model import JsonObject

PREFIX = "/knowledge-bases"
# What a form needs around the file itself.
MOST_UPLOAD_BYTES = MOST_FILE_BYTES + MIB
PREVIEW_CHARACTERS = 200
METADATA_CHARACTERS = 20_000

type Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=255)]
type Description = Annotated[str, StringConstraints(max_length=10_000)]
type FieldName = Annotated[str, StringConstraints(min_length=1, max_length=255)]
type Provider = Literal["modulexdb", "qdrant", "pinecone", "mongodb_atlas", "weaviate"]
type Limit = Annotated[int, Query(ge=1, le=500)]
type Offset = Annotated[int, Query(ge=0, le=1_000_000_000)]


class BadMetadata(BadRequest):
    """metadata must be a JSON object of at most 20,000 characters."""


class ExternalIn(BaseModel):
    """Where the passages are in an external store, and under which names (decision 0037)."""

    model_config = ConfigDict(extra="forbid")

    collection: FieldName
    database: FieldName | None = None
    index: FieldName | None = None
    text_index: FieldName | None = None
    namespace: FieldName | None = None
    vector_field: FieldName | None = None
    text_field: FieldName = "text"
    source_field: FieldName | None = None


class BaseIn(BaseModel):
    """A new base. Sizes in ``chunking_config`` are tokens; without ``embedding_config`` the built-in model is used.

    With the ``provider_type`` of an external store its passages stay there: ``external_config`` says where,
    ``credential_id`` which account of yours opens it (the default one where it is left out), and
    ``embedding_config`` the model that made the vectors there.
    """

    name: Name
    description: Description | None = None
    embedding_config: dict[str, Any] | None = None
    chunking_config: dict[str, Any] | None = None
    provider_type: Provider = "modulexdb"
    credential_id: FieldName | None = None
    external_config: ExternalIn | None = None


class BaseChange(BaseModel):
    """What is left out stays as it is."""

    name: Name | None = None
    description: Description | None = None
    embedding_config: dict[str, Any] | None = None
    chunking_config: dict[str, Any] | None = None
    credential_id: FieldName | None = None
    external_config: ExternalIn | None = None


class BaseOut(BaseModel):
    """A base and what it holds."""

    id: str
    organization_id: str
    created_by_user_id: str
    credential_id: str | None
    provider_type: str
    external_config: dict[str, Any] | None
    name: str
    description: str | None
    embedding_config: dict[str, Any]
    chunking_config: dict[str, Any]
    document_count: int
    total_chunks: int
    total_tokens: int
    status: Literal["active", "archived"]
    created_at: str
    updated_at: str
    stats: dict[str, int]


class TotalsOut(BaseModel):
    knowledge_base_count: int
    total_documents: int
    total_chunks: int
    total_tokens: int
    total_file_size_bytes: int


class FileTypesOut(BaseModel):
    supported_types: list[str]
    max_file_size_bytes: int
    max_file_size_mb: int


class DocumentOut(BaseModel):
    """A document; ``message`` says what is being done, ``error_message`` what to do where it failed."""

    id: str
    knowledge_base_id: str
    filename: str
    file_type: str
    file_size_bytes: int
    status: Literal["pending", "processing", "completed", "failed"]
    chunk_count: int
    token_count: int
    error_message: str | None
    message: str | None
    metadata: dict[str, Any]
    created_at: str


class DocumentStatusOut(BaseModel):
    """How far reading a document has come; ``message`` says what is being done."""

    document_id: str
    status: Literal["pending", "processing", "completed", "failed"]
    filename: str
    file_type: str
    message: str | None
    processing_started_at: str | None
    processing_completed_at: str | None
    chunk_count: int
    token_count: int
    error: str | None


class ChunkOut(BaseModel):
    """A passage; its place counts characters of the document's text."""

    id: str
    document_id: str
    chunk_index: int
    content: str
    content_preview: str
    token_count: int
    has_embedding: bool
    start_char: int
    end_char: int
    metadata: dict[str, Any]
    created_at: str


class ChunksOut(BaseModel):
    """A page of passages; ``count`` is how many the document has."""

    chunks: list[ChunkOut]
    count: int


def routes(identity: Identity, knowledge: Knowledge) -> APIRouter:
    """Every route under ``/knowledge-bases`` but the searches."""
    router = APIRouter(prefix=PREFIX, tags=["knowledge"])
    _overview_routes(router, identity, knowledge)
    _base_routes(router, identity, knowledge)
    _document_routes(router, identity, knowledge)
    return router


def _overview_routes(router: APIRouter, identity: Identity, knowledge: Knowledge) -> None:
    signed_in, bases = Depends(identity.admin), knowledge.bases

    @router.get("/info/supported-file-types")
    async def supported_file_types() -> FileTypesOut:
        """What can be uploaded. Public."""
        return FileTypesOut(
            supported_types=list(FILE_TYPES),
            max_file_size_bytes=MOST_FILE_BYTES,
            max_file_size_mb=MOST_FILE_BYTES // MIB,
        )

    @router.get("/stats", responses=described())
    async def totals(caller: Annotated[Caller, signed_in]) -> TotalsOut:
        """What all bases of the organization hold."""
        found = await bases.totals(caller.organization_id)
        return TotalsOut(**{name: getattr(found, name) for name in TotalsOut.model_fields})

    @router.get("", responses=described())
    async def list_bases(
        caller: Annotated[Caller, signed_in],
        status: Literal["active", "processing", "error", "archived"] | None = None,
        limit: Limit = 100,
        offset: Offset = 0,
    ) -> list[BaseOut]:
        """The organization's bases, newest first."""
        found = await bases.list(caller.organization_id, status=status, limit=limit, offset=offset)
        return [_base_out(base) for base in found]

    @router.post("", status_code=status.HTTP_201_CREATED, responses=described(402, 429, 503))
    async def create(caller: Annotated[Caller, signed_in], wish: BaseIn) -> BaseOut:
        """Make a base."""
        made = await bases.create(
            caller.organization_id,
            caller.user_id,
            NewBase(
                name=wish.name,
                description=wish.description,
                embedding_config=wish.embedding_config,
                chunking_config=wish.chunking_config,
                provider=wish.provider_type,
                credential_id=wish.credential_id,
                external_config=wish.external_config.model_dump(exclude_none=True) if wish.external_config else None,
            ),
        )
        return _base_out(made)


def _base_routes(router: APIRouter, identity: Identity, knowledge: Knowledge) -> None:
    signed_in, bases = Depends(identity.admin), knowledge.bases

    @router.get("/{base_id}", responses=NOT_FOUND)
    async def get(caller: Annotated[Caller, signed_in], base_id: str) -> BaseOut:
        """One base."""
        return _base_out(await bases.get(caller.organization_id, base_id))

    @router.put("/{base_id}", responses=described(404, 409, 503))
    async def change(caller: Annotated[Caller, signed_in], base_id: str, wish: BaseChange) -> BaseOut:
        """Change a base; chunking counts for documents that come later."""
        changes: JsonObject = {
            name: value for name, value in wish.model_dump(exclude_unset=True).items() if value is not None
        }
        return _base_out(await bases.change(caller.organization_id, base_id, changes))

    @router.delete("/{base_id}", status_code=status.HTTP_204_NO_CONTENT, responses=NOT_FOUND)
    async def delete(caller: Annotated[Caller, signed_in], base_id: str, *, delete_files: bool = True) -> None:  # noqa: ARG001
        """Erase a base. Its files are nowhere else, so they always go with it, whatever ``delete_files`` says."""
        await bases.delete(caller.organization_id, base_id)

    @router.post("/{base_id}/archive", responses=NOT_FOUND)
    async def archive(caller: Annotated[Caller, signed_in], base_id: str) -> BaseOut:
        """Make a base read-only and take it out of the assistant's general search."""
        return _base_out(await bases.archive(caller.organization_id, base_id))


def _document_routes(router: APIRouter, identity: Identity, knowledge: Knowledge) -> None:
    signed_in, documents = Depends(identity.admin), knowledge.documents

    @router.get("/{base_id}/documents", responses=NOT_FOUND)
    async def list_documents(
        caller: Annotated[Caller, signed_in],
        base_id: str,
        status: Literal["pending", "processing", "completed", "failed"] | None = None,
        limit: Limit = 100,
        offset: Offset = 0,
    ) -> list[DocumentOut]:
        """A base's documents, newest first."""
        found = await documents.page(caller.organization_id, base_id, status=status, limit=limit, offset=offset)
        return [_document_out(document) for document in found]

    @router.post("/{base_id}/documents", status_code=status.HTTP_201_CREATED, responses=described(402, 404, 409))
    async def upload(
        caller: Annotated[Caller, signed_in],
        base_id: str,
        file: Annotated[UploadFile, File()],
        metadata: Annotated[str | None, Form()] = None,
    ) -> DocumentOut:
        """Take a file in; it is read in the background. The same bytes again answer with the document they are."""
        arrived = Upload(file.filename or "", file.file, _metadata(metadata))
        return _document_out(await documents.upload(caller.organization_id, caller.user_id, base_id, arrived))

    @router.get("/{base_id}/documents/{document_id}", responses=NOT_FOUND)
    async def get_document(caller: Annotated[Caller, signed_in], base_id: str, document_id: str) -> DocumentOut:
        """One document."""
        return _document_out(await documents.get(caller.organization_id, base_id, document_id))

    @router.delete("/{base_id}/documents/{document_id}", status_code=status.HTTP_204_NO_CONTENT, responses=NOT_FOUND)
    async def delete_document(
        caller: Annotated[Caller, signed_in],
        base_id: str,
        document_id: str,
        *,
        delete_file: bool = True,  # noqa: ARG001
    ) -> None:
        """Erase a document. Its file is nowhere else, so it always goes with it, whatever ``delete_file`` says."""
        await documents.delete(caller.organization_id, base_id, document_id)

    @router.get("/{base_id}/documents/{document_id}/status", responses=NOT_FOUND)
    async def document_status(
        caller: Annotated[Caller, signed_in], base_id: str, document_id: str
    ) -> DocumentStatusOut:
        """How far reading it has come."""
        return _status_out(await documents.get(caller.organization_id, base_id, document_id))

    @router.post("/{base_id}/documents/{document_id}/retry", responses=described(404, 409))
    async def retry(caller: Annotated[Caller, signed_in], base_id: str, document_id: str) -> DocumentOut:
        """Read a failed document again."""
        return _document_out(await documents.retry(caller.organization_id, base_id, document_id))

    @router.get("/{base_id}/documents/{document_id}/chunks", responses=NOT_FOUND)
    async def chunks(
        caller: Annotated[Caller, signed_in],
        base_id: str,
        document_id: str,
        limit: Limit = 100,
        offset: Offset = 0,
    ) -> ChunksOut:
        """Its passages in order."""
        found, count = await documents.chunks(caller.organization_id, base_id, document_id, limit=limit, offset=offset)
        return ChunksOut(chunks=[_chunk_out(chunk) for chunk in found], count=count)


def _metadata(text: str | None) -> JsonObject:
    if not text:
        return {}
    # Limits on JSON know request bodies only; this text came inside a form.
    if len(text) > METADATA_CHARACTERS or json_fault(text.encode("utf-8", "replace")) is not None:
        raise BadMetadata
    try:
        value = json.loads(text)
    except ValueError:
        raise BadMetadata from None
    if not isinstance(value, dict):
        raise BadMetadata
    return value


def _base_out(base: Base) -> BaseOut:
    return BaseOut(
        id=base.id,
        organization_id=base.organization_id,
        created_by_user_id=base.created_by,
        credential_id=base.credential_id,
        provider_type=base.provider,
        external_config=base.external_config,
        name=base.name,
        description=base.description,
        embedding_config=base.embedding_config,
        chunking_config=base.chunking_config,
        document_count=base.document_count,
        total_chunks=base.total_chunks,
        total_tokens=base.total_tokens,
        status=base.status,
        created_at=iso(base.created_at),
        updated_at=iso(base.updated_at),
        stats={
            "document_count": base.document_count,
            "total_chunks": base.total_chunks,
            "total_tokens": base.total_tokens,
            "total_file_size_bytes": base.total_bytes,
        },
    )


def _document_out(document: Document) -> DocumentOut:
    return DocumentOut(
        id=document.id,
        knowledge_base_id=document.knowledge_base_id,
        filename=document.filename,
        file_type=document.file_type,
        file_size_bytes=document.size_bytes,
        status=document.status,
        chunk_count=document.chunk_count,
        token_count=document.token_count,
        error_message=document.error,
        message=_said(document),
        metadata=document.metadata,
        created_at=iso(document.created_at),
    )


def _status_out(document: Document) -> DocumentStatusOut:
    return DocumentStatusOut(
        document_id=document.id,
        status=document.status,
        filename=document.filename,
        file_type=document.file_type,
        message=_said(document),
        processing_started_at=iso_or_none(document.started_at),
        processing_completed_at=iso_or_none(document.completed_at),
        chunk_count=document.chunk_count,
        token_count=document.token_count,
        error=document.error,
    )


def _said(document: Document) -> str | None:
    """What is being done with it, in words."""
    said = {"pending": "Waiting to be read", "completed": "Ready", "failed": "Failed"}
    return said.get(document.status, document.progress)


def _chunk_out(chunk: Chunk) -> ChunkOut:
    return ChunkOut(
        id=chunk.id,
        document_id=chunk.document_id,
        chunk_index=chunk.chunk_index,
        content=chunk.content,
        content_preview=chunk.content[:PREVIEW_CHARACTERS],
        token_count=chunk.token_count,
        has_embedding=True,
        start_char=chunk.start_char,
        end_char=chunk.end_char,
        metadata=chunk.metadata,
        created_at=iso(chunk.created_at),
    )
