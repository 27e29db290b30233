"""A plan file with small figures, organizations, and runs for the ledger to point at."""

from collections.abc import Callable

from sqlalchemy import Integer, insert

from parley.base.clock import from_iso
from parley.base.ids import new_id
from parley.billing.store import change_subscription, lock
from parley.storage import WriteTx
from parley.storage.tables.accounts import memberships, organizations, users
from parley.storage.tables.chats import chats, runs

NOON = from_iso("2026-06-20T12:00:00")

PLAN_FILE = """
default_plan = "open"

[[plans]]
slug = "open"
name = "Open"
is_enterprise = true
overage = true

[[plans]]
slug = "tiny"
name = "Tiny"
monthly_credits = 10
quotas = { concurrent_turns = 3, credentials = 2, seats = 1 }
rates = { sync_exec = 20, api = 40, api_user = 30 }

[[plans]]
slug = "paid"
name = "Paid"
overage = true
monthly_credits = 10
prices = { month = 20, year = 200 }

[[plans]]
slug = "brisk"
name = "Brisk"
selectable = false
rates = { sync_exec = 4 }

[[plans]]
slug = "busy"
name = "Busy"
selectable = false
rates = { api = 1000, api_user = 5 }

[[plans]]
slug = "still"
name = "Still"
selectable = false
quotas = { concurrent_turns = 0, knowledge_bases = 1, documents = 3 }

[[models]]
match = ""
input = 1000000
cached = 100000
output = 2000000

[tools]
call = 1
multipliers = { exa = 2.5 }

[knowledge]
ingest_per_1000_tokens = 2
retrieval = 0.5
"""


def add_organization(tx: WriteTx, slug: str) -> str:
    organization_id, user_id, made_at = new_id(), new_id(), from_iso("2026-01-31T09:00:00")
    tx.execute(
        insert(organizations).values(
            id=organization_id, name=slug, slug=slug, domain=None, is_active=True, settings={}, created_at=made_at
        )
    )
    tx.execute(
        insert(users).values(
            id=user_id,
            email=f"owner@{slug}.test",
            username=slug,
            platform_role="USER",
            is_active=True,
            created_at=made_at,
        )
    )
    tx.execute(
        insert(memberships).values(organization_id=organization_id, user_id=user_id, role="owner", joined_at=made_at)
    )
    return organization_id


def put_on(organization_id: str, plan_slug: str, **changes: str | int | bool | None) -> Callable[[WriteTx], None]:
    """A unit that puts an organization on a plan."""

    def work(tx: WriteTx) -> None:
        lock(tx, organization_id, NOON)
        change_subscription(tx, organization_id, {"plan_slug": plan_slug, **changes})

    return work


def add_run(
    tx: WriteTx, organization_id: str, *, status: str = "running", turn_id: str | None = None, at: int = NOON
) -> str:
    """A run with a chat of its own; its id."""
    run_id, chat_id = new_id(), new_id()
    member = memberships.select().where(memberships.c.organization_id == organization_id)
    user_id = tx.execute(member).one().user_id
    tx.execute(
        insert(chats).values(
            id=chat_id,
            organization_id=organization_id,
            user_id=user_id,
            kind="assistant",
            title="Hello",
            tainted=False,
            next_seq=1,
            created_at=at,
            updated_at=at,
        )
    )
    # Whatever else a run counts begins at nothing.
    counters = {column.name: 0 for column in runs.columns if isinstance(column.type, Integer) and not column.nullable}
    tx.execute(
        insert(runs).values(
            {
                **counters,
                "id": run_id,
                "organization_id": organization_id,
                "chat_id": chat_id,
                "user_id": user_id,
                "turn_id": turn_id or run_id,
                "resumed_from": turn_id,
                "status": status,
                "llm": {},
                "created_at": at,
                "updated_at": at,
            }
        )
    )
    return run_id
