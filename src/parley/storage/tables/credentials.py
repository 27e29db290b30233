"""The tables of credentials, sealed, and of sign-ins under way."""

from sqlalchemy import (
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    text,
)

from parley.storage.tables.columns import Json, identity, metadata, moment, reference

credentials = Table(
    "credentials",
    metadata,
    identity(),
    reference("organization_id", "organizations.id"),
    Column("integration_name", String(100), nullable=False),
    Column("integration_type", String(30), nullable=False),
    Column("display_name", String(255), nullable=False),
    Column("auth_type", String(20), nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("key_id", String(40), nullable=False, index=True),
    Column("masked", String(60), nullable=False),
    Column("is_default", Boolean, nullable=False),
    Column("is_valid", Boolean, nullable=False),
    Column("metadata", Json, nullable=False),
    Column("version", Integer, nullable=False),
    reference("created_by", "users.id"),
    moment("created_at"),
    moment("updated_at"),
    moment("last_used_at", nullable=True),
    moment("expires_at", nullable=True),
    # Until when one process alone may refresh this OAuth grant.
    moment("refresh_until", nullable=True),
    Index("ix_credentials_find", "organization_id", "integration_name"),
    Index(
        "uq_credentials_one_default",
        "organization_id",
        "integration_name",
        unique=True,
        sqlite_where=text("is_default"),
        postgresql_where=text("is_default"),
    ),
)

credential_audit = Table(
    "credential_audit",
    metadata,
    identity(),
    reference("organization_id", "organizations.id"),
    Column("credential_id", String(36), nullable=False, index=True),
    Column("event_type", String(30), nullable=False),
    Column("user_id", String(36)),
    Column("changes", Json, nullable=False),
    Column("ip_address", String(60)),
    Column("user_agent", String(255)),
    moment("created_at"),
)

oauth_states = Table(
    "oauth_states",
    metadata,
    Column("state_hash", LargeBinary, primary_key=True),
    reference("organization_id", "organizations.id"),
    reference("user_id", "users.id"),
    Column("integration_name", String(100), nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("redirect_uri", Text, nullable=False),
    Column("chat_id", String(36)),
    Column("request_id", String(36)),
    moment("created_at"),
    moment("expires_at"),
)
