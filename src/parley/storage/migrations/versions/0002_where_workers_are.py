"""Where a process is: its host and its pid. Both may be missing, so that older processes go on writing."""

import sqlalchemy as sa
from alembic import op

revision = '0002'
down_revision = '0001'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('workers', sa.Column('host', sa.String(length=255), nullable=True))
    op.add_column('workers', sa.Column('pid', sa.Integer(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table('workers', schema=None) as batch_op:
        batch_op.drop_column('pid')
        batch_op.drop_column('host')
