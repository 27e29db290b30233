"""The tables of chats and of the runs behind them: messages, events, calls, questions, leases."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from parley.storage.tables.columns import Json, identity, metadata, moment, reference

chats = Table(
    "chats",
    metadata,
    identity(),
    reference("organization_id", "organizations.id"),
    reference("user_id", "users.id"),
    Column("kind", String(10), nullable=False),
    Column("title", Text, nullable=False),
    Column("running_id", String(36)),
    Column("workflow_id", String(36)),
    Column("tainted", Boolean, nullable=False),
    Column("next_seq", Integer, nullable=False),
    moment("created_at"),
    moment("updated_at"),
    moment("deleted_at", nullable=True),
    CheckConstraint("kind IN ('assistant', 'composer')", name="kind"),
    Index("ix_chats_page", "organization_id", "user_id", "kind", "updated_at", "id"),
    Index("ix_chats_oldest", "organization_id", "updated_at"),
)

messages = Table(
    "messages",
    metadata,
    identity(),
    reference("chat_id", "chats.id"),
    Column("seq", Integer, nullable=False),
    Column("role", String(10), nullable=False),
    Column("content", Text, nullable=False),
    Column("thinking", Text),
    Column("run_id", String(36)),
    Column("running_status", String(12)),
    moment("created_at"),
    UniqueConstraint("chat_id", "seq"),
    CheckConstraint("role IN ('human', 'ai', 'system')", name="role"),
)

# What the model is sent, in order; `messages` is what people are shown.
transcript = Table(
    "transcript",
    metadata,
    reference("chat_id", "chats.id"),
    Column("seq", Integer, nullable=False),
    Column("run_id", String(36), nullable=False),
    Column("step", Integer, nullable=False),
    Column("role", String(10), nullable=False),
    Column("body", Json, nullable=False),
    moment("created_at"),
    PrimaryKeyConstraint("chat_id", "seq"),
    CheckConstraint("role IN ('user', 'assistant', 'tool', 'note', 'summary')", name="role"),
    Index(
        "ix_transcript_summaries",
        "chat_id",
        "seq",
        sqlite_where=text("role = 'summary'"),
        postgresql_where=text("role = 'summary'"),
    ),
)

runs = Table(
    "runs",
    metadata,
    identity(),
    reference("organization_id", "organizations.id"),
    reference("chat_id", "chats.id", index=True),
    Column("user_id", String(36), nullable=False),
    Column("turn_id", String(36), nullable=False, index=True),
    Column("resumed_from", String(36)),
    Column("status", String(12), nullable=False),
    Column("llm", Json, nullable=False),
    Column("owner", String(36)),
    Column("epoch", Integer, nullable=False),
    moment("lease_until", nullable=True),
    Column("attempts", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("model_calls", Integer, nullable=False),
    Column("failures_in_row", Integer, nullable=False),
    Column("context_tokens", BigInteger, nullable=False),
    Column("reason", String(40)),
    Column("error", Text),
    moment("created_at"),
    moment("started_at", nullable=True),
    moment("updated_at"),
    moment("ended_at", nullable=True),
    CheckConstraint(
        "status IN ('queued', 'running', 'interrupted', 'completed', 'failed', 'cancelled', 'resumed')", name="status"
    ),
    Index(
        "uq_runs_one_live",
        "chat_id",
        unique=True,
        sqlite_where=text("status IN ('queued', 'running', 'interrupted')"),
        postgresql_where=text("status IN ('queued', 'running', 'interrupted')"),
    ),
    Index("ix_runs_newest", "chat_id", "created_at"),
    Index(
        "ix_runs_queued",
        "organization_id",
        "created_at",
        sqlite_where=text("status = 'queued'"),
        postgresql_where=text("status = 'queued'"),
    ),
    Index(
        "ix_runs_leased",
        "lease_until",
        sqlite_where=text("status = 'running'"),
        postgresql_where=text("status = 'running'"),
    ),
)

# The intent (started) and the receipt (any other status) of every tool call.
tool_calls = Table(
    "tool_calls",
    metadata,
    reference("run_id", "runs.id"),
    Column("step", Integer, nullable=False),
    reference("chat_id", "chats.id", index=True),
    reference("organization_id", "organizations.id"),
    Column("tool_call_id", String(255), nullable=False),
    Column("tool", String(60), nullable=False),
    Column("input", Json, nullable=False),
    Column("status", String(10), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("integration_name", String(100)),
    Column("action_name", String(150)),
    Column("credential_id", String(36)),
    Column("effect", String(12)),
    Column("arguments_digest", String(64)),
    Column("idempotency_key", String(64)),
    Column("managed", Boolean, nullable=False),
    Column("output", Json),
    Column("succeeded", Boolean),
    moment("started_at"),
    moment("ended_at", nullable=True),
    PrimaryKeyConstraint("run_id", "step"),
    CheckConstraint("status IN ('started', 'asked', 'done', 'unknown', 'not_run')", name="status"),
    Index("ix_tool_calls_usage", "organization_id", "credential_id", "started_at"),
    Index(
        "ix_tool_calls_unknown",
        "chat_id",
        "arguments_digest",
        sqlite_where=text("status = 'unknown'"),
        postgresql_where=text("status = 'unknown'"),
    ),
)

# Results too large for the conversation; the call's output carries the id.
tool_results = Table(
    "tool_results",
    metadata,
    identity(),
    reference("chat_id", "chats.id", index=True),
    Column("run_id", String(36), nullable=False),
    Column("value", Json, nullable=False),
    moment("created_at"),
)

run_events = Table(
    "run_events",
    metadata,
    reference("run_id", "runs.id"),
    Column("seq", Integer, nullable=False),
    Column("last_seq", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("type", String(30), nullable=False),
    # The JSON text of the event's `data`, spliced into frames as it is.
    Column("body", Text, nullable=False),
    # Lengths of the chunks a compacted row stands for, so that any cursor inside it still works.
    Column("parts", Json),
    moment("created_at"),
    PrimaryKeyConstraint("run_id", "seq"),
)

questions = Table(
    "questions",
    metadata,
    identity(),
    reference("organization_id", "organizations.id"),
    reference("chat_id", "chats.id", index=True),
    reference("run_id", "runs.id", index=True),
    Column("user_id", String(36), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("payload", Json, nullable=False),
    # What the answer is bound to: for an approval the resolved action, account and arguments digest.
    Column("binding", Json, nullable=False),
    Column("answer", Json),
    Column("answered_by", String(36)),
    Column("outcome", String(20), nullable=False),
    moment("created_at"),
    moment("expires_at"),
    moment("resolved_at", nullable=True),
    CheckConstraint(
        "outcome IN ('pending', 'answered', 'skipped', 'credential_added', 'credential_failed', "
        "'cancelled', 'expired')",
        name="outcome",
    ),
    Index(
        "uq_questions_one_open",
        "chat_id",
        unique=True,
        sqlite_where=text("outcome = 'pending'"),
        postgresql_where=text("outcome = 'pending'"),
    ),
)

# The processes that serve this store, while they live.
workers = Table(
    "workers",
    metadata,
    identity(),
    Column("role", String(10), nullable=False),
    Column("version", String(20), nullable=False),
    moment("started_at"),
    moment("beat_at"),
    Column("draining", Boolean, nullable=False),
    Column("host", String(255)),
    Column("pid", Integer),
)

# The lock target of the per-organization cap, and the round-robin between organizations.
turn_slots = Table(
    "turn_slots",
    metadata,
    Column("organization_id", String(36), ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True),
    Column("cap", Integer, nullable=False),
    moment("claimed_at"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    reference("organization_id", "organizations.id"),
    Column("route", String(60), nullable=False),
    Column("key", String(255), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("response", Json, nullable=False),
    moment("created_at"),
    PrimaryKeyConstraint("organization_id", "route", "key"),
)
