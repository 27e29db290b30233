"""The tables of knowledge: bases, documents with their bytes, passages with their vectors.

What is found by words is in ``chunk_words``, which each dialect has in a form of its own, made by the
migration 0005 and kept true by triggers on ``chunks``: FTS5 on SQLite, tsvectors on PostgreSQL.
Vectors are little-endian float16, of length one, many passages to a row.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from parley.storage.tables.columns import Json, identity, metadata, moment, reference

knowledge_bases = Table(
    "knowledge_bases",
    metadata,
    identity(),
    reference("organization_id", "organizations.id", index=True),
    Column("created_by", String(36), nullable=False),
    Column("credential_id", String(36)),
    Column("name", String(255), nullable=False),
    Column("description", Text),
    # Where its passages are: modulexdb for this store, else the name of an external one.
    Column("provider", String(30), nullable=False),
    # Which collection there, under which names; null for this store.
    Column("external_config", Json),
    Column("embedding_config", Json, nullable=False),
    Column("chunking_config", Json, nullable=False),
    Column("status", String(12), nullable=False),
    # Goes up with every change of what can be found, so that each process knows its copy is old.
    Column("version", Integer, nullable=False),
    moment("created_at"),
    moment("updated_at"),
    CheckConstraint("status IN ('active', 'archived')", name="status"),
)

documents = Table(
    "documents",
    metadata,
    identity(),
    reference("organization_id", "organizations.id", index=True),
    reference("knowledge_base_id", "knowledge_bases.id"),
    Column("filename", String(255), nullable=False),
    Column("file_type", String(10), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("metadata", Json, nullable=False),
    Column("status", String(12), nullable=False),
    Column("progress", Text),
    Column("error", Text),
    Column("chunk_count", Integer, nullable=False),
    Column("token_count", BigInteger, nullable=False),
    # How often a person asked for it to be read, and how often its reader was lost in this reading.
    Column("reading", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("owner", String(36)),
    Column("epoch", Integer, nullable=False),
    moment("lease_until", nullable=True),
    Column("created_by", String(36), nullable=False),
    moment("created_at"),
    moment("updated_at"),
    moment("started_at", nullable=True),
    moment("completed_at", nullable=True),
    # The same bytes are one document of a base.
    UniqueConstraint("knowledge_base_id", "sha256"),
    CheckConstraint("status IN ('pending', 'processing', 'completed', 'failed')", name="status"),
    Index("ix_documents_page", "knowledge_base_id", "created_at", "id"),
    Index(
        "ix_documents_pending",
        "created_at",
        sqlite_where=text("status = 'pending'"),
        postgresql_where=text("status = 'pending'"),
    ),
    Index(
        "ix_documents_leased",
        "lease_until",
        sqlite_where=text("status = 'processing'"),
        postgresql_where=text("status = 'processing'"),
    ),
)

# A document's bytes, in order. They come before the document's own row, so they refer to nothing;
# pieces whose document never came are swept.
document_pieces = Table(
    "document_pieces",
    metadata,
    Column("document_id", String(36), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    moment("created_at"),
    PrimaryKeyConstraint("document_id", "seq"),
    Index("ix_document_pieces_first", "created_at", sqlite_where=text("seq = 0"), postgresql_where=text("seq = 0")),
)

chunks = Table(
    "chunks",
    metadata,
    # The name that the full text knows a passage by.
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("id", String(36), nullable=False, unique=True),
    reference("document_id", "documents.id"),
    Column("knowledge_base_id", String(36), nullable=False, index=True),
    Column("chunk_index", Integer, nullable=False),
    Column("content", Text, nullable=False),
    # What the passage stands under: its headings, or the head of its table. Found by words too.
    Column("heading", Text, nullable=False),
    Column("token_count", Integer, nullable=False),
    Column("start_char", Integer, nullable=False),
    Column("end_char", Integer, nullable=False),
    Column("metadata", Json, nullable=False),
    moment("created_at"),
    UniqueConstraint("document_id", "chunk_index"),
)

chunk_vectors = Table(
    "chunk_vectors",
    metadata,
    reference("document_id", "documents.id"),
    Column("first_index", Integer, nullable=False),
    Column("count", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("document_id", "first_index"),
)
