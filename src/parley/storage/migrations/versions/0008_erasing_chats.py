"""A chat is found by its age, and goes without a look at all questions that ever were."""

from alembic import op

revision = '0008'
down_revision = '0007'
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table('chats', schema=None) as batch_op:
        batch_op.create_index('ix_chats_oldest', ['organization_id', 'updated_at'], unique=False)
    with op.batch_alter_table('questions', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_questions_chat_id'), ['chat_id'], unique=False)
        batch_op.create_index(batch_op.f('ix_questions_run_id'), ['run_id'], unique=False)


def downgrade() -> None:
    with op.batch_alter_table('questions', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_questions_run_id'))
        batch_op.drop_index(batch_op.f('ix_questions_chat_id'))
    with op.batch_alter_table('chats', schema=None) as batch_op:
        batch_op.drop_index('ix_chats_oldest')
