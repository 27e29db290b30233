"""The tables of people: organizations, members, keys, sessions, and the audit of what they did."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)

from parley.storage.tables.columns import Json, identity, metadata, moment, reference

organizations = Table(
    "organizations",
    metadata,
    identity(),
    Column("name", String(40), nullable=False),
    Column("slug", String(50), nullable=False, unique=True),
    Column("domain", String(255)),
    Column("is_active", Boolean, nullable=False),
    Column("settings", Json, nullable=False),
    moment("created_at"),
)

users = Table(
    "users",
    metadata,
    identity(),
    Column("email", String(320), nullable=False, unique=True),
    Column("username", String(100), nullable=False),
    Column("platform_role", String(20), nullable=False),
    Column("is_active", Boolean, nullable=False),
    Column("password_hash", Text),
    Column("primary_organization_id", String(36)),
    moment("created_at"),
)

memberships = Table(
    "memberships",
    metadata,
    reference("organization_id", "organizations.id"),
    reference("user_id", "users.id", index=True),
    Column("role", String(10), nullable=False),
    moment("joined_at"),
    PrimaryKeyConstraint("organization_id", "user_id"),
    CheckConstraint("role IN ('owner', 'admin')", name="role"),
)

invitations = Table(
    "invitations",
    metadata,
    identity(),
    reference("organization_id", "organizations.id", index=True),
    Column("email", String(320), nullable=False, index=True),
    Column("role", String(10), nullable=False),
    Column("status", String(10), nullable=False),
    Column("message", Text),
    Column("token_hash", LargeBinary, nullable=False, unique=True),
    reference("invited_by", "users.id"),
    moment("created_at"),
    moment("expires_at"),
    CheckConstraint("status IN ('pending', 'accepted', 'rejected', 'cancelled', 'expired')", name="status"),
    Index(
        "uq_invitations_one_pending",
        "organization_id",
        "email",
        unique=True,
        sqlite_where=text("status = 'pending'"),
        postgresql_where=text("status = 'pending'"),
    ),
)

api_keys = Table(
    "api_keys",
    metadata,
    identity(),
    reference("user_id", "users.id", index=True),
    Column("name", String(255), nullable=False),
    Column("key_hash", LargeBinary, nullable=False, unique=True),
    Column("masked_key", String(40), nullable=False),
    # Chosen by an operator, so without the checksum of our own keys.
    Column("opaque", Boolean, nullable=False),
    reference("organization_id", "organizations.id", nullable=True),
    Column("rate_limit_per_minute", Integer, nullable=False),
    moment("expires_at", nullable=True),
    moment("last_used_at", nullable=True),
    moment("created_at"),
    moment("revoked_at", nullable=True),
)

sessions = Table(
    "sessions",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    reference("user_id", "users.id", index=True),
    # Set for a session opened with an API key: it can do what the key can, and ends with it.
    reference("api_key_id", "api_keys.id", nullable=True),
    moment("created_at"),
    moment("seen_at"),
    moment("expires_at"),
)

sign_in_links = Table(
    "sign_in_links",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    reference("user_id", "users.id", index=True),
    moment("created_at"),
    moment("expires_at"),
    moment("used_at", nullable=True),
)

audit_log = Table(
    "audit_log",
    metadata,
    identity(),
    reference("organization_id", "organizations.id"),
    Column("user_id", String(36)),
    Column("category", String(20), nullable=False),
    Column("operation", String(60), nullable=False),
    Column("message", Text, nullable=False),
    Column("detail", Json, nullable=False),
    moment("created_at"),
    Index("ix_audit_log_page", "organization_id", "created_at"),
)

# Random secrets of this installation, such as the pepper of API keys; sealed like credentials.
instance_secrets = Table(
    "instance_secrets",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("key_id", String(40), nullable=False),
    moment("created_at"),
)
