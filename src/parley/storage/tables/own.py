"""The tables of an organization's own integrations: MCP servers and imported APIs, and what people decided of them."""

from sqlalchemy import Column, Index, Integer, PrimaryKeyConstraint, String, Table, Text, UniqueConstraint

from parley.storage.tables.columns import Json, identity, metadata, moment, reference

own_integrations = Table(
    "own_integrations",
    metadata,
    identity(),
    reference("organization_id", "organizations.id"),
    # The credential it came with, which takes it along when it goes; none for an imported API.
    reference("credential_id", "credentials.id", nullable=True),
    Column("kind", String(10), nullable=False),
    Column("name", String(100), nullable=False),
    Column("display_name", String(255), nullable=False),
    Column("description", Text, nullable=False),
    # How it is reached and how its credentials are made, without any secret.
    Column("source", Json, nullable=False),
    Column("revision", Integer, nullable=False),
    moment("created_at"),
    moment("refreshed_at"),
    UniqueConstraint("organization_id", "name"),
    Index("uq_own_integrations_one_a_credential", "credential_id", unique=True),
)

own_actions = Table(
    "own_actions",
    metadata,
    reference("integration_id", "own_integrations.id"),
    Column("name", String(150), nullable=False),
    Column("position", Integer, nullable=False),
    Column("description", Text, nullable=False),
    # The JSON Schema of its arguments, and what else is needed to run it.
    Column("body", Json, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    # What a person of the organization decided that it does; none until somebody has looked at it as it is now.
    Column("effect", String(12)),
    Column("reviewed_by", String(36)),
    moment("reviewed_at", nullable=True),
    PrimaryKeyConstraint("integration_id", "name"),
)
