"""Indexes that keep a turn's cost apart from how long its chat has been."""

import sqlalchemy as sa
from alembic import op

revision = '0004'
down_revision = '0003'
branch_labels = None
depends_on = None

SUMMARY = sa.text("role = 'summary'")
UNKNOWN = sa.text("status = 'unknown'")


def upgrade() -> None:
    op.create_index('ix_runs_newest', 'runs', ['chat_id', 'created_at'], unique=False)
    op.create_index('ix_transcript_summaries', 'transcript', ['chat_id', 'seq'], unique=False, sqlite_where=SUMMARY, postgresql_where=SUMMARY)
    op.create_index('ix_tool_calls_unknown', 'tool_calls', ['chat_id', 'arguments_digest'], unique=False, sqlite_where=UNKNOWN, postgresql_where=UNKNOWN)


def downgrade() -> None:
    op.drop_index('ix_tool_calls_unknown', table_name='tool_calls')
    op.drop_index('ix_transcript_summaries', table_name='transcript')
    op.drop_index('ix_runs_newest', table_name='runs')
