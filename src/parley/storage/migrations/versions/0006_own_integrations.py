"""An organization's own integrations and their actions."""

import sqlalchemy as sa
from alembic import op

revision = '0006'
down_revision = '0005'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('own_integrations',
    sa.Column('id', sa.String(length=36), nullable=False),
    sa.Column('organization_id', sa.String(length=36), nullable=False),
    sa.Column('credential_id', sa.String(length=36), nullable=True),
    sa.Column('kind', sa.String(length=10), nullable=False),
    sa.Column('name', sa.String(length=100), nullable=False),
    sa.Column('display_name', sa.String(length=255), nullable=False),
    sa.Column('description', sa.Text(), nullable=False),
    sa.Column('source', sa.Text(), nullable=False),
    sa.Column('revision', sa.Integer(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('refreshed_at', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['credential_id'], ['credentials.id'], name=op.f('fk_own_integrations_credential_id'), ondelete='CASCADE'),
    sa.ForeignKeyConstraint(['organization_id'], ['organizations.id'], name=op.f('fk_own_integrations_organization_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_own_integrations')),
    sa.UniqueConstraint('organization_id', 'name', name=op.f('uq_own_integrations_organization_id_name'))
    )
    with op.batch_alter_table('own_integrations', schema=None) as batch_op:
        batch_op.create_index('uq_own_integrations_one_a_credential', ['credential_id'], unique=True)

    op.create_table('own_actions',
    sa.Column('integration_id', sa.String(length=36), nullable=False),
    sa.Column('name', sa.String(length=150), nullable=False),
    sa.Column('position', sa.Integer(), nullable=False),
    sa.Column('description', sa.Text(), nullable=False),
    sa.Column('body', sa.Text(), nullable=False),
    sa.Column('fingerprint', sa.String(length=64), nullable=False),
    sa.Column('effect', sa.String(length=12), nullable=True),
    sa.Column('reviewed_by', sa.String(length=36), nullable=True),
    sa.Column('reviewed_at', sa.BigInteger(), nullable=True),
    sa.ForeignKeyConstraint(['integration_id'], ['own_integrations.id'], name=op.f('fk_own_actions_integration_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('integration_id', 'name', name=op.f('pk_own_actions'))
    )
