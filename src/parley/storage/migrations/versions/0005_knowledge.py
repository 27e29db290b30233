"""Knowledge: bases, documents, passages, and their full text."""

import sqlalchemy as sa
from alembic import op

revision = '0005'
down_revision = '0004'
branch_labels = None
depends_on = None

# The full text, in each dialect's own form: on SQLite a contentless FTS5 table that triggers keep true,
# on PostgreSQL a table of tsvectors, filled by a trigger.
SQLITE = (
    """CREATE VIRTUAL TABLE chunk_words USING fts5(
        heading, content, content='', tokenize='porter unicode61 remove_diacritics 2')""",
    """CREATE TRIGGER chunks_words_insert AFTER INSERT ON chunks BEGIN
        INSERT INTO chunk_words(rowid, heading, content) VALUES (new.number, new.heading, new.content);
    END""",
    """CREATE TRIGGER chunks_words_delete AFTER DELETE ON chunks BEGIN
        INSERT INTO chunk_words(chunk_words, rowid, heading, content)
        VALUES ('delete', old.number, old.heading, old.content);
    END""",
)
POSTGRESQL = (
    """CREATE TABLE chunk_words (
        number bigint NOT NULL CONSTRAINT pk_chunk_words PRIMARY KEY
            CONSTRAINT fk_chunk_words_number REFERENCES chunks (number) ON DELETE CASCADE,
        knowledge_base_id varchar(36) NOT NULL,
        words tsvector NOT NULL)""",
    "CREATE INDEX ix_chunk_words_words ON chunk_words USING gin (words)",
    "CREATE INDEX ix_chunk_words_base ON chunk_words (knowledge_base_id)",
    """CREATE FUNCTION parley_chunk_words() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO chunk_words (number, knowledge_base_id, words) VALUES (
            NEW.number, NEW.knowledge_base_id,
            setweight(to_tsvector('english', left(NEW.heading, 2000)), 'A')
                || to_tsvector('english', left(NEW.content, 200000)));
        RETURN NULL;
    END $$""",
    """CREATE TRIGGER chunks_words AFTER INSERT ON chunks
        FOR EACH ROW EXECUTE FUNCTION parley_chunk_words()""",
)


def upgrade() -> None:
    op.create_table('document_pieces',
    sa.Column('document_id', sa.String(length=36), nullable=False),
    sa.Column('seq', sa.Integer(), nullable=False),
    sa.Column('body', sa.LargeBinary(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('document_id', 'seq', name=op.f('pk_document_pieces'))
    )
    with op.batch_alter_table('document_pieces', schema=None) as batch_op:
        batch_op.create_index('ix_document_pieces_first', ['created_at'], unique=False, sqlite_where=sa.text('seq = 0'), postgresql_where=sa.text('seq = 0'))

    op.create_table('knowledge_bases',
    sa.Column('id', sa.String(length=36), nullable=False),
    sa.Column('organization_id', sa.String(length=36), nullable=False),
    sa.Column('created_by', sa.String(length=36), nullable=False),
    sa.Column('credential_id', sa.String(length=36), nullable=True),
    sa.Column('name', sa.String(length=255), nullable=False),
    sa.Column('description', sa.Text(), nullable=True),
    sa.Column('provider', sa.String(length=30), nullable=False),
    sa.Column('embedding_config', sa.Text(), nullable=False),
    sa.Column('chunking_config', sa.Text(), nullable=False),
    sa.Column('status', sa.String(length=12), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('updated_at', sa.BigInteger(), nullable=False),
    sa.CheckConstraint("status IN ('active', 'archived')", name=op.f('ck_knowledge_bases_status')),
    sa.ForeignKeyConstraint(['organization_id'], ['organizations.id'], name=op.f('fk_knowledge_bases_organization_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_knowledge_bases'))
    )
    with op.batch_alter_table('knowledge_bases', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_knowledge_bases_organization_id'), ['organization_id'], unique=False)

    op.create_table('documents',
    sa.Column('id', sa.String(length=36), nullable=False),
    sa.Column('organization_id', sa.String(length=36), nullable=False),
    sa.Column('knowledge_base_id', sa.String(length=36), nullable=False),
    sa.Column('filename', sa.String(length=255), nullable=False),
    sa.Column('file_type', sa.String(length=10), nullable=False),
    sa.Column('size_bytes', sa.BigInteger(), nullable=False),
    sa.Column('sha256', sa.String(length=64), nullable=False),
    sa.Column('metadata', sa.Text(), nullable=False),
    sa.Column('status', sa.String(length=12), nullable=False),
    sa.Column('progress', sa.Text(), nullable=True),
    sa.Column('error', sa.Text(), nullable=True),
    sa.Column('chunk_count', sa.Integer(), nullable=False),
    sa.Column('token_count', sa.BigInteger(), nullable=False),
    sa.Column('reading', sa.Integer(), nullable=False),
    sa.Column('attempts', sa.Integer(), nullable=False),
    sa.Column('owner', sa.String(length=36), nullable=True),
    sa.Column('epoch', sa.Integer(), nullable=False),
    sa.Column('lease_until', sa.BigInteger(), nullable=True),
    sa.Column('created_by', sa.String(length=36), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('updated_at', sa.BigInteger(), nullable=False),
    sa.Column('started_at', sa.BigInteger(), nullable=True),
    sa.Column('completed_at', sa.BigInteger(), nullable=True),
    sa.CheckConstraint("status IN ('pending', 'processing', 'completed', 'failed')", name=op.f('ck_documents_status')),
    sa.ForeignKeyConstraint(['knowledge_base_id'], ['knowledge_bases.id'], name=op.f('fk_documents_knowledge_base_id'), ondelete='CASCADE'),
    sa.ForeignKeyConstraint(['organization_id'], ['organizations.id'], name=op.f('fk_documents_organization_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_documents')),
    sa.UniqueConstraint('knowledge_base_id', 'sha256', name=op.f('uq_documents_knowledge_base_id_sha256'))
    )
    with op.batch_alter_table('documents', schema=None) as batch_op:
        batch_op.create_index('ix_documents_leased', ['lease_until'], unique=False, sqlite_where=sa.text("status = 'processing'"), postgresql_where=sa.text("status = 'processing'"))
        batch_op.create_index(batch_op.f('ix_documents_organization_id'), ['organization_id'], unique=False)
        batch_op.create_index('ix_documents_page', ['knowledge_base_id', 'created_at', 'id'], unique=False)
        batch_op.create_index('ix_documents_pending', ['created_at'], unique=False, sqlite_where=sa.text("status = 'pending'"), postgresql_where=sa.text("status = 'pending'"))

    op.create_table('chunk_vectors',
    sa.Column('document_id', sa.String(length=36), nullable=False),
    sa.Column('first_index', sa.Integer(), nullable=False),
    sa.Column('count', sa.Integer(), nullable=False),
    sa.Column('body', sa.LargeBinary(), nullable=False),
    sa.ForeignKeyConstraint(['document_id'], ['documents.id'], name=op.f('fk_chunk_vectors_document_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('document_id', 'first_index', name=op.f('pk_chunk_vectors'))
    )
    op.create_table('chunks',
    sa.Column('number', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=True, nullable=False),
    sa.Column('id', sa.String(length=36), nullable=False),
    sa.Column('document_id', sa.String(length=36), nullable=False),
    sa.Column('knowledge_base_id', sa.String(length=36), nullable=False),
    sa.Column('chunk_index', sa.Integer(), nullable=False),
    sa.Column('content', sa.Text(), nullable=False),
    sa.Column('heading', sa.Text(), nullable=False),
    sa.Column('token_count', sa.Integer(), nullable=False),
    sa.Column('start_char', sa.Integer(), nullable=False),
    sa.Column('end_char', sa.Integer(), nullable=False),
    sa.Column('metadata', sa.Text(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['document_id'], ['documents.id'], name=op.f('fk_chunks_document_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('number', name=op.f('pk_chunks')),
    sa.UniqueConstraint('document_id', 'chunk_index', name=op.f('uq_chunks_document_id_chunk_index')),
    sa.UniqueConstraint('id', name=op.f('uq_chunks_id'))
    )
    with op.batch_alter_table('chunks', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_chunks_knowledge_base_id'), ['knowledge_base_id'], unique=False)

    sqlite = op.get_bind().dialect.name == 'sqlite'
    for statement in SQLITE if sqlite else POSTGRESQL:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    if op.get_bind().dialect.name == 'sqlite':
        op.execute('DROP TABLE chunk_words')
    else:
        op.execute('DROP TRIGGER chunks_words ON chunks')
        op.execute('DROP FUNCTION parley_chunk_words()')
        op.execute('DROP TABLE chunk_words')
    with op.batch_alter_table('chunks', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_chunks_knowledge_base_id'))

    op.drop_table('chunks')
    op.drop_table('chunk_vectors')
    with op.batch_alter_table('documents', schema=None) as batch_op:
        batch_op.drop_index('ix_documents_pending', sqlite_where=sa.text("status = 'pending'"), postgresql_where=sa.text("status = 'pending'"))
        batch_op.drop_index('ix_documents_page')
        batch_op.drop_index(batch_op.f('ix_documents_organization_id'))
        batch_op.drop_index('ix_documents_leased', sqlite_where=sa.text("status = 'processing'"), postgresql_where=sa.text("status = 'processing'"))

    op.drop_table('documents')
    with op.batch_alter_table('knowledge_bases', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_knowledge_bases_organization_id'))

    op.drop_table('knowledge_bases')
    with op.batch_alter_table('document_pieces', schema=None) as batch_op:
        batch_op.drop_index('ix_document_pieces_first', sqlite_where=sa.text('seq = 0'), postgresql_where=sa.text('seq = 0'))

    op.drop_table('document_pieces')
