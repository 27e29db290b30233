"""The tables of money: what was charged, what is held, what is left, and how fast.

``ledger`` is only ever added to. ``balances`` is its running sum, kept so that the database itself can
refuse to let one go below zero; ``parley verify`` proves the two agree.
"""

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
    UniqueConstraint,
    text,
)

from parley.storage.tables.columns import Json, identity, metadata, moment, reference

# One row an organization: its plan, its wallet switches, and the lock every charge takes first.
subscriptions = Table(
    "subscriptions",
    metadata,
    Column("organization_id", String(36), ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True),
    # Empty: the plan file's default plan.
    Column("plan_slug", String(40)),
    Column("status", String(20), nullable=False),
    Column("billing_interval", String(10)),
    Column("quantity", Integer, nullable=False),
    # The moment whose day of the month every credit month starts on.
    moment("anchor_at"),
    moment("paid_from_at", nullable=True),
    moment("paid_until_at", nullable=True),
    Column("cancel_at_period_end", Boolean, nullable=False),
    Column("overage", Boolean, nullable=False),
    Column("top_up_below_micro", BigInteger),
    Column("top_up_amount_micro", BigInteger),
    moment("top_up_tried_at", nullable=True),
    Column("turn_cap_micro", BigInteger),
    Column("stripe_customer", String(255)),
    Column("stripe_subscription", String(255)),
    moment("created_at"),
    # Written by every charge: the write is the lock.
    moment("touched_at"),
    Index("ix_subscriptions_stripe_customer", "stripe_customer"),
)

ledger = Table(
    "ledger",
    metadata,
    identity(),
    reference("organization_id", "organizations.id"),
    Column("charge_key", String(160), nullable=False),
    # plan: the month's allowance is used up; wallet: prepaid money moves.
    Column("account", String(10), nullable=False),
    # The start of the credit month for `plan`, 0 for `wallet`.
    moment("period_at"),
    Column("kind", String(20), nullable=False),
    Column("amount_micro", BigInteger, nullable=False),
    Column("run_id", String(36), index=True),
    # What was paid for: an integration, and its model or action.
    Column("integration_name", String(100)),
    Column("item", String(200)),
    Column("detail", Json, nullable=False),
    moment("created_at"),
    UniqueConstraint("organization_id", "charge_key"),
    CheckConstraint("account IN ('plan', 'wallet')", name="account"),
    CheckConstraint("account = 'wallet' OR amount_micro <= 0", name="plan_is_spent"),
    Index("ix_ledger_period", "organization_id", "created_at", "id"),
)

# The sum of an account's ledger entries, and what is held of it. `allowance_micro` is what the month
# grants: empty where the plan has no ceiling, 0 for the wallet.
balances = Table(
    "balances",
    metadata,
    reference("organization_id", "organizations.id"),
    Column("account", String(10), nullable=False),
    moment("period_at"),
    Column("allowance_micro", BigInteger),
    Column("posted_micro", BigInteger, nullable=False),
    Column("held_micro", BigInteger, nullable=False),
    PrimaryKeyConstraint("organization_id", "account", "period_at"),
    CheckConstraint("account IN ('plan', 'wallet')", name="account"),
    CheckConstraint("held_micro >= 0", name="held"),
    CheckConstraint(
        "allowance_micro IS NULL OR allowance_micro + posted_micro - held_micro >= 0", name="never_negative"
    ),
)

# Credits set aside for a model call whose price is only known afterwards.
holds = Table(
    "holds",
    metadata,
    reference("organization_id", "organizations.id"),
    Column("charge_key", String(160), nullable=False),
    moment("period_at"),
    Column("plan_micro", BigInteger, nullable=False),
    Column("wallet_micro", BigInteger, nullable=False),
    Column("run_id", String(36), nullable=False),
    Column("state", String(10), nullable=False),
    moment("created_at"),
    moment("resolved_at", nullable=True),
    PrimaryKeyConstraint("organization_id", "charge_key"),
    CheckConstraint("state IN ('open', 'posted', 'voided')", name="state"),
    Index(
        "ix_holds_of_run",
        "run_id",
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    ),
    Index(
        "ix_holds_open",
        "created_at",
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    ),
)

model_usage = Table(
    "model_usage",
    metadata,
    Column("run_id", String(36), nullable=False),
    Column("call", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    reference("organization_id", "organizations.id"),
    Column("user_id", String(36)),
    Column("integration_name", String(100), nullable=False),
    Column("model_id", String(200), nullable=False),
    Column("credential_id", String(36)),
    Column("managed", Boolean, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    # False when the stream was cut before the provider said its figures.
    Column("exact", Boolean, nullable=False),
    Column("succeeded", Boolean),
    # What the call costs by the plan file; the ledger may have been able to collect less.
    Column("cost_micro", BigInteger),
    moment("started_at", nullable=True),
    moment("created_at"),
    PrimaryKeyConstraint("run_id", "call", "attempt"),
    Index("ix_model_usage_period", "organization_id", "created_at"),
)

# How much of a subject's running window was handed out; a window begins with its first call.
rate_windows = Table(
    "rate_windows",
    metadata,
    Column("subject", String(400), nullable=False),
    Column("rate_class", String(20), nullable=False),
    moment("window_at"),
    Column("taken", BigInteger, nullable=False),
    PrimaryKeyConstraint("subject", "rate_class"),
    Index("ix_rate_windows_old", "window_at"),
)
