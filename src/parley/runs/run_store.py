"""SQL of runs: leases and fences, events, tool calls, model usage (durability §4).

Statements that every turn needs are prepared (``storage/prepared.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from parley.base.clock import SECOND
from parley.runs.hub import Row
from parley.storage import EVENTS, ReadTx, WriteTx, notify
from parley.storage.leasing import now_parameters, server_now
from parley.storage.prepared import PreparedChange, PreparedQuery
from parley.storage.tables.billing import model_usage
from parley.storage.tables.chats import run_events, runs, tool_calls, turn_slots
from parley.turn.model import JsonObject, Receipt, Usage
from parley.turn.pace import Turn

LIVE = ("queued", "running", "interrupted")


class LeaseLost(Exception):
    """Another process owns the run now, or it has ended; nothing more may be written for it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One process's right to write for one run."""

    run_id: str
    chat_id: str
    organization_id: str
    user_id: str
    turn_id: str
    epoch: int
    attempts: int
    llm: JsonObject

    @property
    def pair(self) -> tuple[str, int]:
        """What this right is: the run, and the epoch it was given in."""
        return self.run_id, self.epoch


def insert_ignore(tx: WriteTx, table: Any, values: dict[str, Any]) -> None:
    """Insert a row unless its key is there already."""
    _insert_ignore(tx.dialect.name, table).run(tx, values)


@cache
def _insert_ignore(dialect: str, table: Any) -> PreparedChange:
    insert_there = postgres_insert if dialect == "postgresql" else sqlite_insert
    return PreparedChange(insert_there(table).on_conflict_do_nothing())


def count_queued(tx: ReadTx) -> int:
    """How many runs no process has taken yet."""
    return tx.execute(select(func.count()).select_from(runs).where(_QUEUED)).scalar_one()


# ── leases ──────────────────────────────────────────────────────────────────────────────────────

# Written out, not bound: SQLite uses a partial index only where it can read its condition.
_QUEUED = runs.c.status == literal_column("'queued'")
_RUNNING = runs.c.status == literal_column("'running'")


def waiting_organizations(tx: ReadTx) -> list[str]:
    """Organizations with a run to claim, the one served longest ago first."""
    return [found for (found,) in _waiting(tx.dialect.name).rows(tx, now_parameters(tx))]


@cache
def _waiting(dialect: str) -> PreparedQuery[str]:
    waiting = union_all(
        select(runs.c.organization_id).where(_QUEUED),
        select(runs.c.organization_id).where(_RUNNING, runs.c.lease_until < server_now(dialect)),
    )
    return PreparedQuery(
        select(turn_slots.c.organization_id)
        .where(turn_slots.c.organization_id.in_(waiting))
        .order_by(turn_slots.c.claimed_at)
    )


def lock_slot(tx: WriteTx, organization_id: str) -> int | None:
    """The organization's cap, its slot locked until commit; None while another process holds it."""
    return _LOCK_SLOT.scalar(tx, {"of_organization": organization_id})


_LOCK_SLOT = PreparedQuery(
    select(turn_slots.c.cap)
    .where(turn_slots.c.organization_id == bindparam("of_organization"))
    .with_for_update(skip_locked=True)
)


def claim(
    tx: WriteTx, organization_id: str, *, owner: str, cap: int, room: int, lease_seconds: float, stamp: int
) -> list[Lease]:
    """Take up to ``room`` runs of the organization within its cap, oldest first.

    Must follow ``lock_slot`` as its own statement: the count has to be taken under the lock.
    """
    statements, now = _claiming(tx.dialect.name), now_parameters(tx)
    held = statements.held.scalar(tx, {"of_organization": organization_id, **now})
    count = min(cap - held, room)
    if count <= 0:
        return []
    ids = [found for (found,) in statements.free.rows(tx, {"of_organization": organization_id, "most": count, **now})]
    if not ids:
        return []
    lease = int(lease_seconds * SECOND)
    taken = statements.take.rows(tx, {"of_runs": ids, "new_owner": owner, "lease": lease, "stamp": stamp, **now})
    _NOTE_CLAIM.run(tx, {"of_organization": organization_id, "claimed_at": stamp})
    return [Lease(*row) for row in taken]


_NOTE_CLAIM = PreparedChange(update(turn_slots).where(turn_slots.c.organization_id == bindparam("of_organization")))


@dataclass(frozen=True, slots=True)
class _Claiming:
    """The statements of a claim: how many runs are held, which are free, taking them."""

    held: PreparedQuery[int]
    free: PreparedQuery[str]
    take: PreparedQuery[*tuple[Any, ...]]


@cache
def _claiming(dialect: str) -> _Claiming:
    now = server_now(dialect)
    mine = runs.c.organization_id == bindparam("of_organization")
    return _Claiming(
        held=PreparedQuery(select(func.count()).select_from(runs).where(mine, _RUNNING, runs.c.lease_until >= now)),
        free=PreparedQuery(
            select(runs.c.id)
            .where(mine, _QUEUED | (_RUNNING & (runs.c.lease_until < now)))
            .order_by(runs.c.created_at)
            .limit(bindparam("most"))
            .with_for_update(skip_locked=True)
        ),
        take=PreparedQuery(
            update(runs)
            .where(runs.c.id.in_(bindparam("of_runs", expanding=True)))
            .values(
                status="running",
                owner=bindparam("new_owner"),
                epoch=runs.c.epoch + 1,
                attempts=runs.c.attempts + 1,
                lease_until=now + bindparam("lease", type_=BigInteger),
                started_at=func.coalesce(runs.c.started_at, bindparam("stamp", type_=BigInteger)),
                updated_at=bindparam("stamp", type_=BigInteger),
            )
            .returning(*LEASE_COLUMNS),
            listed="of_runs",
        ),
    )


LEASE_COLUMNS = (
    runs.c.id,
    runs.c.chat_id,
    runs.c.organization_id,
    runs.c.user_id,
    runs.c.turn_id,
    runs.c.epoch,
    runs.c.attempts,
    runs.c.llm,
)


def renew(tx: WriteTx, leases: Sequence[tuple[str, int]], *, lease_seconds: float) -> set[tuple[str, int]]:
    """Extend the leases of ``(run id, epoch)`` pairs; the pairs that are still owned."""
    until = server_now(tx.dialect.name) + int(lease_seconds * SECOND)
    # By id too: SQLite looks for pairs in the whole table.
    run_ids = [run_id for run_id, _ in leases]
    rows = tx.execute(
        update(runs)
        .where(runs.c.id.in_(run_ids), tuple_(runs.c.id, runs.c.epoch).in_(leases), runs.c.status == "running")
        .values(lease_until=until)
        .returning(runs.c.id, runs.c.epoch),
        now_parameters(tx),
    )
    return {(run_id, epoch) for run_id, epoch in rows}


def expire_all_leases(tx: WriteTx) -> None:
    """Every running run is up for takeover: the one process that could own them has just started."""
    tx.execute(update(runs).where(runs.c.status == "running").values(lease_until=0))


def fence(tx: WriteTx, run_id: str, epoch: int, now: int, turn: Turn | None = None) -> None:
    """Begin a write for a run, keeping how far it has come. Raises LeaseLost when it is no longer this owner's."""
    pace: dict[str, int] = {}
    if turn is not None:
        pace = {
            "step": turn.step,
            "model_calls": turn.model_calls,
            "failures_in_row": turn.failures_in_row,
            "context_tokens": turn.context_tokens,
        }
    if _FENCE.run(tx, {"of_run": run_id, "of_epoch": epoch, "updated_at": now, **pace}) != 1:
        raise LeaseLost(run_id)


_FENCE = PreparedChange(
    update(runs).where(runs.c.id == bindparam("of_run"), runs.c.epoch == bindparam("of_epoch"), _RUNNING)
)


def release(tx: WriteTx, run_id: str, epoch: int, now: int, *, attempts: int) -> None:
    """Hand a run back so that another process goes on at once (durability §4.9); ``attempts`` tries count."""
    tx.execute(
        update(runs)
        .where(runs.c.id == run_id, runs.c.epoch == epoch, runs.c.status == "running")
        .values(
            status="queued", owner=None, epoch=runs.c.epoch + 1, attempts=attempts, lease_until=None, updated_at=now
        )
    )


def is_live(tx: ReadTx, run_id: str) -> bool:
    """Whether the run waits or works, here or elsewhere."""
    query = select(runs.c.id).where(runs.c.id == run_id, runs.c.status.in_(("queued", "running")))
    return tx.execute(query).first() is not None


def has_ended(tx: ReadTx, run_id: str) -> bool:
    """Whether the run is over, or gone; one that was answered goes on as another run."""
    query = select(runs.c.id).where(runs.c.id == run_id, runs.c.status.in_(LIVE))
    return tx.execute(query).first() is None


def owned_pairs(tx: WriteTx, pairs: Sequence[tuple[str, int]]) -> set[tuple[str, int]]:
    """Which of these ``(run id, epoch)`` pairs may still write; their rows are locked until commit.

    By pair, not by run: a process that takes its own run over again has two writers of it for a moment.
    """
    return set(_OWNED.rows(tx, {"of_runs": {run_id for run_id, _ in pairs}})).intersection(pairs)


_OWNED = PreparedQuery(
    select(runs.c.id, runs.c.epoch)
    .where(runs.c.id.in_(bindparam("of_runs", expanding=True)), _RUNNING)
    .with_for_update(),
    listed="of_runs",
)


# ── events ──────────────────────────────────────────────────────────────────────────────────────


def last_seq(tx: ReadTx, run_id: str) -> int:
    """The number of the run's newest event; 0 before the first."""
    return _LAST_SEQ.scalar(tx, {"of_run": run_id}) or 0


_LAST_SEQ = PreparedQuery(
    select(run_events.c.last_seq)
    .where(run_events.c.run_id == bindparam("of_run"))
    .order_by(run_events.c.seq.desc())
    .limit(1)
)


def append_events(tx: WriteTx, rows: Sequence[tuple[str, Row]], now: int) -> None:
    """Store events of ``(run id, row)`` and tell other processes."""
    if rows:
        _APPEND.run_many(tx, _event_values(rows, now))
        notify(tx, EVENTS, dict.fromkeys(run_id for run_id, _ in rows))


def append_texts(tx: WriteTx, rows: Sequence[tuple[str, Row]], now: int) -> None:
    """Store rows of text that an earlier try, whose commit nobody heard of, may have stored already."""
    if rows:
        _insert_ignore(tx.dialect.name, run_events).run_many(tx, _event_values(rows, now))
        notify(tx, EVENTS, dict.fromkeys(run_id for run_id, _ in rows))


_APPEND = PreparedChange(insert(run_events))


def _event_values(rows: Sequence[tuple[str, Row]], now: int) -> list[dict[str, Any]]:
    return [
        {
            "run_id": run_id,
            "seq": row.seq,
            "last_seq": row.last_seq,
            "epoch": row.epoch,
            "type": row.type,
            "body": row.body,
            "parts": row.parts,
            "created_at": now,
        }
        for run_id, row in rows
    ]


def events_after(tx: ReadTx, run_id: str, seq: int, limit: int) -> list[Row]:
    """The run's events beyond ``seq``, in order; a compacted row counts by its last number."""
    return [Row(*row) for row in _EVENTS_AFTER.rows(tx, {"of_run": run_id, "after": seq, "most": limit})]


_EVENTS_AFTER = PreparedQuery(
    select(
        run_events.c.seq,
        run_events.c.last_seq,
        run_events.c.epoch,
        run_events.c.type,
        run_events.c.body,
        run_events.c.parts,
    )
    .where(run_events.c.run_id == bindparam("of_run"), run_events.c.last_seq > bindparam("after"))
    .order_by(run_events.c.seq)
    .limit(bindparam("most"))
)


def newest_events(tx: ReadTx, run_ids: Sequence[str]) -> dict[str, int]:
    """The newest event number of each of these runs."""
    rows = tx.execute(
        select(run_events.c.run_id, func.max(run_events.c.last_seq))
        .where(run_events.c.run_id.in_(run_ids))
        .group_by(run_events.c.run_id)
    )
    return {row[0]: row[1] for row in rows}


def supersede_chunks(tx: WriteTx, run_id: str, after: int) -> None:
    """Text of an attempt that died: its rows keep their numbers and are shown to nobody (durability §4.7)."""
    tx.execute(
        update(run_events)
        .where(run_events.c.run_id == run_id, run_events.c.seq > after, run_events.c.type == "response_chunk")
        .values(type="superseded", body="{}")
    )


def last_settled_seq(tx: ReadTx, run_id: str) -> int:
    """The number of the newest event that is not text: text beyond it belongs to an unfinished reply."""
    return _LAST_SETTLED_SEQ.scalar(tx, {"of_run": run_id}) or 0


_LAST_SETTLED_SEQ = PreparedQuery(
    select(func.max(run_events.c.last_seq)).where(
        run_events.c.run_id == bindparam("of_run"),
        run_events.c.type.not_in(("response_chunk", "superseded", "metadata", "guidance")),
    )
)


def streamed_text(tx: ReadTx, run_id: str) -> list[str]:
    """What the run has streamed, one text for each reply; the last one is unfinished or empty."""
    rows = tx.execute(
        select(run_events.c.type, run_events.c.body)
        .where(run_events.c.run_id == run_id, run_events.c.type.in_(("response_chunk", "tool_call")))
        .order_by(run_events.c.seq)
    )
    texts: list[str] = [""]
    for kind, body in rows:
        if kind == "tool_call":
            texts.append("")
        else:
            texts[-1] += msgspec.json.decode(body)["chunk"]
    return texts


# ── tool calls and usage ────────────────────────────────────────────────────────────────────────


def insert_tool_call(tx: WriteTx, values: dict[str, Any]) -> None:
    """Record that a call is about to run."""
    _INSERT_TOOL_CALL.run(tx, values)


_INSERT_TOOL_CALL = PreparedChange(insert(tool_calls))


def record_intent(tx: WriteTx, run_id: str, step: int, receipt: Receipt) -> None:
    """Record what is about to leave: after this, a crash can have had an effect."""
    finish_tool_call(tx, run_id, step, receipt_values(receipt))


def receipt_values(receipt: Receipt) -> dict[str, Any]:
    """A receipt as columns of ``tool_calls``."""
    return {
        "integration_name": receipt.integration_name,
        "action_name": receipt.action_name,
        "effect": receipt.effect,
        "credential_id": receipt.credential_id,
        "managed": receipt.managed,
        "arguments_digest": receipt.arguments_digest,
        "idempotency_key": receipt.idempotency_key,
    }


def finish_tool_call(tx: WriteTx, run_id: str, step: int, values: dict[str, Any]) -> None:
    """Record what came of a call."""
    _CHANGE_TOOL_CALL.run(tx, {"of_run": run_id, "at_step": step, **values})


_CHANGE_TOOL_CALL = PreparedChange(
    update(tool_calls).where(tool_calls.c.run_id == bindparam("of_run"), tool_calls.c.step == bindparam("at_step"))
)


def tool_call_rows(tx: ReadTx, turn_id: str) -> list[Any]:
    """Every tool call of a turn, over all its runs, in order."""
    return _TOOL_CALLS.records(tx, {"of_turn": turn_id})


_TOOL_CALLS = PreparedQuery(
    select(tool_calls)
    .join(runs, runs.c.id == tool_calls.c.run_id)
    .where(runs.c.turn_id == bindparam("of_turn"))
    .order_by(tool_calls.c.started_at, tool_calls.c.step)
)


def last_context_tokens(tx: ReadTx, chat_id: str) -> int:
    """The provider's own figure for the chat's newest model request and its reply; 0 before the first."""
    return _LAST_CONTEXT_TOKENS.scalar(tx, {"of_chat": chat_id}) or 0


_LAST_CONTEXT_TOKENS = PreparedQuery(
    select(runs.c.context_tokens)
    .where(runs.c.chat_id == bindparam("of_chat"), runs.c.context_tokens > 0)
    .order_by(runs.c.created_at.desc())
    .limit(1)
)


def unsettled_call(tx: ReadTx, chat_id: str, digest: str) -> bool:
    """Whether exactly this action was sent in the chat with an outcome nobody knows."""
    found = tx.execute(
        select(tool_calls.c.step).where(
            tool_calls.c.chat_id == chat_id,
            tool_calls.c.arguments_digest == digest,
            # Written out, not bound: SQLite uses a partial index only where it can read its condition.
            tool_calls.c.status == literal_column("'unknown'"),
        )
    ).first()
    return found is not None


def turn_usage(tx: ReadTx, turn_id: str) -> tuple[Usage, int]:
    """What all model calls of a turn used, over all its runs, and how many there were."""
    given, output, cached, calls = _TURN_USAGE.rows(tx, {"of_turn": turn_id})[0]
    return Usage(int(given), int(output), int(cached)), calls


def run_usage(tx: ReadTx, run_id: str) -> Usage:
    """What the model calls of one run used."""
    given, output = tx.execute(
        select(
            func.coalesce(func.sum(model_usage.c.input_tokens), 0),
            func.coalesce(func.sum(model_usage.c.output_tokens), 0),
        ).where(model_usage.c.run_id == run_id)
    ).one()
    return Usage(int(given), int(output))


_TURN_USAGE = PreparedQuery(
    select(
        func.coalesce(func.sum(model_usage.c.input_tokens), 0),
        func.coalesce(func.sum(model_usage.c.output_tokens), 0),
        func.coalesce(func.sum(model_usage.c.cached_tokens), 0),
        func.count(),
    )
    .select_from(model_usage.join(runs, runs.c.id == model_usage.c.run_id))
    .where(runs.c.turn_id == bindparam("of_turn"))
)
