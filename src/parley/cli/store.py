"""The SQL of the operator's commands that no other package asks for."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select, text

from parley.accounts import PEPPER
from parley.credentials.rotation import SEALED
from parley.runs.presence import Process, living
from parley.runs.run_store import count_queued
from parley.storage import ReadTx
from parley.storage.schema import head_revision, revision
from parley.storage.sealed import rows_by_key
from parley.storage.tables.accounts import instance_secrets, users
from parley.storage.tables.chats import chats, tool_calls
from parley.storage.tables.credentials import credentials
from parley.storage.tenancy import passes_policies


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What one look at the store told.

    ``skew_seconds`` is how far the database's clock is ahead of this machine's.
    ``second_net``: PostgreSQL itself keeps organizations' rows apart; SQLite never does, and is not asked.
    ``seals`` are rows by the id of the master key that seals them; ``pepper`` is one of them, with that id.
    ``waiting`` is how many turns no process has taken yet.
    """

    revision: str | None
    skew_seconds: float
    second_net: bool = True
    people: int = 0
    model_keys: int = 0
    seals: Mapping[str, int] = field(default_factory=dict[str, int])
    pepper: tuple[bytes, str] | None = None
    processes: Sequence[Process] = ()
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class PastCall:
    """One action that a model asked for. ``tainted``: its chat has read text from outside by now."""

    input: Any
    tainted: bool


def store_facts(tx: ReadTx, lease_seconds: float) -> StoreFacts:
    """The facts; of a store with another schema only what every schema has."""
    skew, found = _skew(tx), revision(tx)
    if found != head_revision():
        return StoreFacts(found, skew)
    model_keys = select(func.count()).where(credentials.c.integration_type == "llm_provider")
    pepper = tx.execute(
        select(instance_secrets.c.sealed, instance_secrets.c.key_id).where(instance_secrets.c.name == PEPPER)
    ).first()
    return StoreFacts(
        found,
        skew,
        second_net=tx.dialect.name == "sqlite" or not passes_policies(tx),
        people=tx.execute(select(func.count()).select_from(users)).scalar_one(),
        model_keys=tx.execute(model_keys).scalar_one(),
        seals=rows_by_key(tx, SEALED),
        pepper=None if pepper is None else (pepper.sealed, pepper.key_id),
        processes=living(tx, lease_seconds),
        waiting=count_queued(tx),
    )


def past_calls(tx: ReadTx, *, since: int, limit: int) -> Sequence[PastCall]:
    """The newest calls of actions, started since a time."""
    query = (
        select(tool_calls.c.input, chats.c.tainted)
        .join(chats, chats.c.id == tool_calls.c.chat_id)
        .where(tool_calls.c.tool == "execute_integration_tool", tool_calls.c.started_at >= since)
        .order_by(tool_calls.c.started_at.desc())
        .limit(limit)
    )
    return [PastCall(given, tainted) for given, tainted in tx.execute(query)]


def _skew(tx: ReadTx) -> float:
    if tx.dialect.name != "postgresql":
        return 0.0
    before = time.time()
    there = float(tx.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
    return there - (before + time.time()) / 2
