"""The vocabulary of knowledge: bases, documents, passages, matches, and the ways it says no."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import msgspec

from parley.base.errors import BadRequest, Conflict, NotFound, Unavailable
from parley.turn.model import JsonObject

MIB: Final = 1024 * 1024
MOST_FILE_BYTES: Final = 50 * MIB
OURS: Final = "modulexdb"
"""The provider whose passages are in this store."""

type FileType = Literal["pdf", "docx", "doc", "txt", "md", "html", "csv", "json", "xlsx", "pptx"]
type DocumentStatus = Literal["pending", "processing", "completed", "failed"]
type BaseStatus = Literal["active", "archived"]

FILE_TYPES: Final[tuple[FileType, ...]] = get_args(FileType.__value__)
SUFFIXES: Final[Mapping[str, FileType]] = {
    **{name: name for name in FILE_TYPES},
    "htm": "html",
    "markdown": "md",
    "text": "txt",
}


class BaseNotFound(NotFound):
    """Knowledge base not found"""


class DocumentNotFound(NotFound):
    """Document not found"""


class BaseArchived(Conflict):
    """The knowledge base is archived: it can be searched, not changed. Make a new one to add documents."""


class BaseElsewhere(Conflict):
    """The passages of this base are in an external store: add, change and erase documents there."""


class UnsupportedFile(BadRequest):
    """Only these kinds of file can be read: pdf, docx, doc, txt, md, html, csv, json, xlsx, pptx."""


class NotRetryable(Conflict):
    """Only a document that failed can be read again."""


class EmbeddingFixed(Conflict):
    """A base with documents keeps its embedding model. Make a new base for another model."""


class BadConfig(BadRequest):
    """The configuration of the knowledge base cannot be used."""


class EmbeddingUnavailable(Unavailable):
    """The embedding model does not answer. Try again in a moment."""


class Chunking(msgspec.Struct, frozen=True, omit_defaults=True):
    """How documents are cut: sizes in tokens; ``separators`` are places where a passage must end."""

    strategy: Literal["recursive", "semantic", "fixed", "markdown", "sentence"] = "recursive"
    chunk_size: int = 256
    chunk_overlap: int = 32
    separators: Sequence[str] = ()


class Embedding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which model makes the vectors; without ``model_id`` the one that comes with Parley."""

    credential_id: str | None = None
    model_id: str | None = None
    integration_name: str | None = None
    provider: str | None = None
    dimension: int | None = None

    @property
    def own(self) -> bool:
        """Whether the organization's own key pays for the vectors."""
        return self.model_id is not None and self.integration_name is not None


@dataclass(frozen=True, slots=True)
class Base:
    """One knowledge base and what it holds."""

    id: str
    organization_id: str
    created_by: str
    credential_id: str | None
    name: str
    description: str | None
    provider: str
    external_config: JsonObject | None
    embedding_config: JsonObject
    chunking_config: JsonObject
    status: BaseStatus
    version: int
    created_at: int
    updated_at: int
    document_count: int = 0
    total_chunks: int = 0
    total_tokens: int = 0
    total_bytes: int = 0

    @property
    def embedding(self) -> Embedding:
        """Its embedding model."""
        return msgspec.convert(self.embedding_config, Embedding)

    @property
    def chunking(self) -> Chunking:
        """How its documents are cut."""
        return msgspec.convert(self.chunking_config, Chunking)

    @property
    def external(self) -> bool:
        """Whether its passages are in a store of the organization's own."""
        return self.provider != OURS

    @property
    def managed(self) -> bool:
        """Whether the plan pays for reading and searching: not with a model or a store of the organization's own."""
        return not self.external and not self.embedding.own


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a base."""

    id: str
    organization_id: str
    knowledge_base_id: str
    filename: str
    file_type: FileType
    size_bytes: int
    sha256: str
    metadata: JsonObject
    status: DocumentStatus
    progress: str | None
    error: str | None
    chunk_count: int
    token_count: int
    reading: int
    created_at: int
    started_at: int | None
    completed_at: int | None


class Piece(msgspec.Struct, frozen=True):
    """One passage as the reader cut it; ``content`` is ``text[start:end]`` of the document's text."""

    content: str
    start: int
    end: int
    tokens: int
    headings: tuple[str, ...] = ()
    page: int | None = None
    table_head: str | None = None

    @property
    def heading(self) -> str:
        """What it stands under, as one line a level."""
        return "\n".join((*self.headings, self.table_head) if self.table_head else self.headings)

    @property
    def embedded(self) -> str:
        """What its vector is made of."""
        return f"{self.heading}\n{self.content}" if self.heading else self.content

    @property
    def metadata(self) -> JsonObject:
        """What a match tells of it besides its text."""
        found: JsonObject = {}
        if self.page is not None:
            found["page"] = self.page
        if self.headings:
            found["headings"] = list(self.headings)
        if self.table_head:
            found["table_head"] = self.table_head
        return found


@dataclass(frozen=True, slots=True)
class Chunk:
    """One stored passage."""

    id: str
    document_id: str
    chunk_index: int
    content: str
    token_count: int
    start_char: int
    end_char: int
    metadata: JsonObject
    created_at: int


@dataclass(frozen=True, slots=True)
class Match:
    """One passage that answers a query. Scores are 0 to 1; ``None`` where that half did not look.

    ``metadata`` is what an answer can cite: page, headings and place for a document of ours, and for an
    external store the short fields that it keeps with the passage.
    """

    knowledge_base_id: str
    chunk_id: str
    document_id: str
    filename: str
    chunk_index: int
    content: str
    token_count: int
    metadata: JsonObject
    score: float
    semantic_score: float | None = None
    keyword_score: float | None = None
