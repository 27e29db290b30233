"""The open holds of a run are found without a look at all that ever were."""

import sqlalchemy as sa
from alembic import op

revision = '0003'
down_revision = '0002'
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table('holds', schema=None) as batch_op:
        batch_op.create_index('ix_holds_of_run', ['run_id'], unique=False, sqlite_where=sa.text("state = 'open'"), postgresql_where=sa.text("state = 'open'"))


def downgrade() -> None:
    with op.batch_alter_table('holds', schema=None) as batch_op:
        batch_op.drop_index('ix_holds_of_run', sqlite_where=sa.text("state = 'open'"), postgresql_where=sa.text("state = 'open'"))
