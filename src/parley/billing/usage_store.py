"""The SQL of what was used: model calls, receipts of turns, the ledger as people read it."""

from dataclasses import asdict, dataclass

from sqlalchemy import ColumnElement, Table, and_, case, func, literal_column, or_, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from parley.base.clock import DAY
from parley.storage import ReadTx, WriteTx
from parley.storage.prepared import PreparedChange
from parley.storage.tables.billing import holds, ledger, model_usage
from parley.storage.tables.chats import runs, tool_calls
from parley.turn.model import JsonObject

SPENT = ("turn", "model", "tool", "knowledge")
"""The kinds of ledger entries that are usage; the others move money into and out of the wallet."""

SECOND_PART = "#wallet"
"""What the key of a charge's second ledger row ends with, where the month could only pay some of it."""

RAN = and_(tool_calls.c.integration_name.is_not(None), tool_calls.c.status.in_(("done", "unknown")))
"""Tool calls that reached an integration's action."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One model call as it is recorded."""

    run_id: str
    call: int
    attempt: int
    organization_id: str
    user_id: str
    integration_name: str
    model_id: str
    credential_id: str | None
    managed: bool
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    exact: bool
    succeeded: bool
    cost_micro: int
    started_at: int


@dataclass(frozen=True, slots=True)
class ModelLine:
    """What one model was used for."""

    integration_name: str
    model_id: str
    managed: bool
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ActionLine:
    """How often one action of an integration ran."""

    integration_name: str
    action_name: str
    managed: bool
    calls: int


@dataclass(frozen=True, slots=True)
class SpendingLine:
    """What one thing was charged, and who paid: the month's allowance or the wallet.

    ``item`` is the model or action of ``integration_name``; both are None for a turn's own credit. ``charges``:
    how often it was charged.
    """

    kind: str
    integration_name: str | None
    item: str | None
    plan_micro: int
    wallet_micro: int
    charges: int


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One ledger row as people read it."""

    id: str
    charge_key: str
    account: str
    kind: str
    amount_micro: int
    run_id: str | None
    detail: JsonObject
    created_at: int


def record_usage(tx: WriteTx, row: UsageRow, now: int) -> None:
    """Record a model call, unless it is recorded already."""
    _RECORD_USAGE[tx.dialect.name].run(tx, {**asdict(row), "created_at": now})


_RECORD_USAGE = {
    "sqlite": PreparedChange(sqlite_insert(model_usage).on_conflict_do_nothing()),
    "postgresql": PreparedChange(postgres_insert(model_usage).on_conflict_do_nothing()),
}


def turn_spent_micro(tx: ReadTx, turn_id: str) -> int:
    """What a turn was charged so far, over all its runs."""
    query = (
        select(func.coalesce(func.sum(-ledger.c.amount_micro), 0))
        .select_from(ledger.join(runs, runs.c.id == ledger.c.run_id))
        .where(runs.c.turn_id == turn_id, ledger.c.kind.in_(SPENT))
    )
    return int(tx.execute(query).scalar_one())


def dead_holds(tx: ReadTx) -> list[tuple[str, str]]:
    """Organization and run of every open hold whose run neither waits nor works."""
    query = (
        select(holds.c.organization_id, holds.c.run_id)
        .select_from(holds.outerjoin(runs, runs.c.id == holds.c.run_id))
        .where(text("holds.state = 'open'"), or_(runs.c.id.is_(None), runs.c.status.not_in(("queued", "running"))))
        .distinct()
    )
    return [(row.organization_id, row.run_id) for row in tx.execute(query)]


def turn_models(tx: ReadTx, turn_id: str) -> list[ModelLine]:
    """The model calls of a turn, by model and payer."""
    return _models(tx, runs.c.turn_id == turn_id)


def models_between(tx: ReadTx, organization_id: str, start: int, end: int) -> list[ModelLine]:
    """The organization's model calls in a span of time, by model and payer, the most used first."""
    return _models(tx, _within(model_usage, organization_id, start, end))


def turn_actions(tx: ReadTx, turn_id: str) -> list[ActionLine]:
    """The actions a turn ran, by action and payer."""
    return _actions(tx, runs.c.turn_id == turn_id)


def actions_between(tx: ReadTx, organization_id: str, start: int, end: int) -> list[ActionLine]:
    """The actions the organization ran in a span of time, by action and payer, the most used first."""
    condition = and_(
        tool_calls.c.organization_id == organization_id,
        tool_calls.c.started_at >= start,
        tool_calls.c.started_at < end,
    )
    return _actions(tx, condition)


def turn_spending(tx: ReadTx, turn_id: str) -> list[SpendingLine]:
    """What a turn was charged, by kind and item, and who paid."""
    return _spending(tx, runs.c.turn_id == turn_id)


def spending_between(tx: ReadTx, organization_id: str, start: int, end: int) -> list[SpendingLine]:
    """What the organization was charged in a span of time, by kind and item, and who paid."""
    return _spending(tx, _within(ledger, organization_id, start, end))


def spent_by_day(tx: ReadTx, organization_id: str, start: int, end: int) -> dict[int, tuple[int, int]]:
    """Micro-credits charged and turns begun on each UTC day of a span, by the day's number since 1970."""
    turns = func.sum(case((ledger.c.kind == "turn", 1), else_=0))
    day = (ledger.c.created_at // literal_column(str(DAY))).label("day")
    query = (
        select(day, func.sum(-ledger.c.amount_micro), turns)
        .where(_within(ledger, organization_id, start, end), ledger.c.kind.in_(SPENT))
        .group_by("day")
    )
    return {int(row[0]): (int(row[1]), int(row[2])) for row in tx.execute(query)}


def turn_exists(tx: ReadTx, organization_id: str, turn_id: str) -> bool:
    """Whether the turn is one of the organization's."""
    query = select(runs.c.id).where(runs.c.organization_id == organization_id, runs.c.turn_id == turn_id).limit(1)
    return tx.execute(query).first() is not None


def ledger_page(tx: ReadTx, organization_id: str, *, before: tuple[int, str] | None, limit: int) -> list[LedgerLine]:
    """Ledger rows, the newest first, after the row ``before`` names by its time and id."""
    columns = [ledger.c[name] for name in LedgerLine.__dataclass_fields__]
    query = select(*columns).where(ledger.c.organization_id == organization_id)
    if before is not None:
        query = query.where(tuple_(ledger.c.created_at, ledger.c.id) < tuple_(*before))
    query = query.order_by(ledger.c.created_at.desc(), ledger.c.id.desc()).limit(limit)
    return [LedgerLine(*row) for row in tx.execute(query)]


def _within(table: Table, organization_id: str, start: int, end: int) -> ColumnElement[bool]:
    columns = table.c
    return and_(columns.organization_id == organization_id, columns.created_at >= start, columns.created_at < end)


def _models(tx: ReadTx, condition: ColumnElement[bool]) -> list[ModelLine]:
    columns = model_usage.c
    query = (
        select(
            columns.integration_name,
            columns.model_id,
            columns.managed,
            func.count(),
            func.sum(columns.input_tokens),
            func.sum(columns.cached_tokens),
            func.sum(columns.output_tokens),
        )
        .select_from(model_usage.outerjoin(runs, runs.c.id == columns.run_id))
        .where(condition)
        .group_by(columns.integration_name, columns.model_id, columns.managed)
        .order_by(func.count().desc(), columns.model_id)
    )
    return [ModelLine(row[0], row[1], row[2], *(int(figure) for figure in row[3:])) for row in tx.execute(query)]


def _actions(tx: ReadTx, condition: ColumnElement[bool]) -> list[ActionLine]:
    columns = tool_calls.c
    query = (
        select(columns.integration_name, columns.action_name, columns.managed, func.count())
        .select_from(tool_calls.join(runs, runs.c.id == columns.run_id))
        .where(condition, RAN)
        .group_by(columns.integration_name, columns.action_name, columns.managed)
        .order_by(func.count().desc(), columns.integration_name, columns.action_name)
    )
    return [ActionLine(*row) for row in tx.execute(query)]


def _spending(tx: ReadTx, condition: ColumnElement[bool]) -> list[SpendingLine]:
    columns = ledger.c
    query = (
        select(
            columns.kind,
            columns.integration_name,
            columns.item,
            func.sum(case((columns.account == "plan", -columns.amount_micro), else_=0)),
            func.sum(case((columns.account == "wallet", -columns.amount_micro), else_=0)),
            # A charge that two accounts share has two rows, one of them under its own key.
            func.sum(case((columns.charge_key.like(f"%{SECOND_PART}"), 0), else_=1)),
        )
        .select_from(ledger.outerjoin(runs, runs.c.id == columns.run_id))
        .where(condition, columns.kind.in_(SPENT))
        .group_by(columns.kind, columns.integration_name, columns.item)
        .order_by(columns.kind, columns.integration_name, columns.item)
    )
    return [SpendingLine(row[0], row[1], row[2], *(int(figure) for figure in row[3:])) for row in tx.execute(query)]
