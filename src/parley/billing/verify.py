"""Proof that ledger, usage and balances agree: the billing part of ``parley verify``.

Every function returns sentences, one for each thing that is wrong; no sentence means that all is well.
Each looks at one moment, so a server may go on working meanwhile.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import ColumnElement, String, and_, case, cast, func, literal, literal_column, or_, select
from sqlalchemy.sql.selectable import FromClause

from parley.billing.plans import Plans
from parley.billing.store import WALLET_PERIOD, Account
from parley.billing.usage_store import RAN, SECOND_PART
from parley.storage import ReadTx
from parley.storage.tables.billing import balances, holds, ledger, model_usage
from parley.storage.tables.chats import runs, tool_calls
from parley.turn.model import JsonValue

MOST_SENTENCES = 100


def billing_faults(tx: ReadTx, plans: Plans) -> Sequence[str]:
    """Every fault found in the money of this store, at most a hundred of each kind."""
    checks: Sequence[Callable[[ReadTx], list[str]]] = (
        _balances_are_sums,
        _nothing_is_below_zero,
        _held_is_what_is_open,
        _managed_calls_are_charged,
        _charged_calls_are_used,
        lambda tx: _turns_are_charged_once(tx, plans),
        lambda tx: _managed_actions_are_charged(tx, plans),
    )
    return [sentence for check in checks for sentence in check(tx)[:MOST_SENTENCES]]


def _balances_are_sums(tx: ReadTx) -> list[str]:
    entries, kept = ledger.c, balances.c
    sums = (
        select(entries.organization_id, entries.account, entries.period_at, func.sum(entries.amount_micro).label("sum"))
        .group_by(entries.organization_id, entries.account, entries.period_at)
        .subquery()
    )
    same = and_(
        sums.c.organization_id == kept.organization_id,
        sums.c.account == kept.account,
        sums.c.period_at == kept.period_at,
    )
    found = func.coalesce(sums.c.sum, 0)
    unequal = (
        select(kept.organization_id, kept.account, kept.period_at, kept.posted_micro, found)
        .select_from(balances.outerjoin(sums, same))
        .where(kept.posted_micro != found)
    )
    missing = (
        select(sums.c.organization_id, sums.c.account, sums.c.period_at)
        .select_from(sums.outerjoin(balances, same))
        .where(kept.account.is_(None))
    )
    return [
        f"{row[1]} of organization {row[0]} (month {row[2]}) says {row[3]}, but its entries sum to {int(row[4])}"
        for row in tx.execute(unequal)
    ] + [
        f"{row[1]} of organization {row[0]} (month {row[2]}) has entries and no balance" for row in tx.execute(missing)
    ]


def _nothing_is_below_zero(tx: ReadTx) -> list[str]:
    columns = balances.c
    available = columns.allowance_micro + columns.posted_micro - columns.held_micro
    query = select(columns.organization_id, columns.account, available).where(
        or_(available < 0, columns.held_micro < 0)
    )
    return [f"{row[1]} of organization {row[0]} is below zero: {row[2]}" for row in tx.execute(query)]


def _held_is_what_is_open(tx: ReadTx) -> list[str]:
    parts: Sequence[tuple[Account, ColumnElement[int], ColumnElement[int]]] = (
        ("plan", holds.c.plan_micro, holds.c.period_at),
        ("wallet", holds.c.wallet_micro, literal_column(str(WALLET_PERIOD))),
    )
    return [sentence for account, amount, month in parts for sentence in _held(tx, account, amount, month)]


def _held(tx: ReadTx, account: Account, amount: ColumnElement[int], month: ColumnElement[int]) -> list[str]:
    sums = (
        select(holds.c.organization_id, month.label("month_at"), func.sum(amount).label("held_micro"))
        .where(holds.c.state == "open")
        .group_by(holds.c.organization_id, "month_at")
        .subquery()
    )
    same = and_(sums.c.organization_id == balances.c.organization_id, sums.c.month_at == balances.c.period_at)
    found = func.coalesce(sums.c.held_micro, 0)
    query = (
        select(balances.c.organization_id, balances.c.held_micro, found)
        .select_from(balances.outerjoin(sums, same))
        .where(balances.c.account == account, balances.c.held_micro != found)
    )
    return [
        f"{account} of organization {row[0]} holds {row[1]}, but its open holds sum to {int(row[2])}"
        for row in tx.execute(query)
    ]


def _managed_calls_are_charged(tx: ReadTx) -> list[str]:
    own, second = ledger.alias("own"), ledger.alias("second")
    key = _model_key()
    charged = -(func.coalesce(own.c.amount_micro, 0) + func.coalesce(second.c.amount_micro, 0))
    query = (
        select(key, model_usage.c.cost_micro, charged, own.c.detail)
        .select_from(
            model_usage.outerjoin(own, _keyed(own, key)).outerjoin(second, _keyed(second, key + literal(SECOND_PART)))
        )
        .where(model_usage.c.managed, model_usage.c.cost_micro != charged)
    )
    return [
        f"{row[0]} costs {row[1]}, but {int(row[2])} were charged"
        for row in tx.execute(query)
        if row[1] != row[2] + (row[3] or {}).get("uncollected_micro", 0)
    ]


def _charged_calls_are_used(tx: ReadTx) -> list[str]:
    key = _model_key()
    query = (
        select(ledger.c.charge_key)
        .select_from(
            ledger.outerjoin(
                model_usage,
                and_(
                    model_usage.c.run_id == ledger.c.run_id,
                    or_(ledger.c.charge_key == key, ledger.c.charge_key == key + literal(SECOND_PART)),
                ),
            )
        )
        .where(ledger.c.kind == "model", model_usage.c.run_id.is_(None))
    )
    return [f"{row[0]} was charged, but no such model call is recorded" for row in tx.execute(query)]


def _turns_are_charged_once(tx: ReadTx, plans: Plans) -> list[str]:
    if not plans.turn_micro:
        return []
    begins = runs.c.id == runs.c.turn_id
    keys = (
        select(ledger.c.run_id, func.count().label("charges"))
        .where(ledger.c.kind == "turn", ledger.c.charge_key.not_like(f"%{SECOND_PART}"))
        .group_by(ledger.c.run_id)
        .subquery()
    )
    counted = func.coalesce(keys.c.charges, 0)
    query = (
        select(runs.c.id, counted, begins)
        .select_from(runs.outerjoin(keys, keys.c.run_id == runs.c.id))
        .where(counted != case((begins, 1), else_=0))
    )
    return [
        f"run {row[0]} {'begins' if row[2] else 'continues'} a turn and was charged {row[1]} times as one"
        for row in tx.execute(query)
    ]


def _managed_actions_are_charged(tx: ReadTx, plans: Plans) -> list[str]:
    columns = tool_calls.c
    key = literal("tool:") + columns.run_id + ":" + cast(columns.step, String)
    query = (
        select(key, columns.integration_name, columns.output)
        .select_from(
            tool_calls.outerjoin(
                ledger, and_(ledger.c.organization_id == columns.organization_id, ledger.c.charge_key == key)
            )
        )
        .where(columns.managed, RAN, ledger.c.id.is_(None))
    )
    return [
        f"{row[0]} ran an action of {row[1]} with a managed credential and was not charged"
        for row in tx.execute(query)
        if plans.tool_micro(row[1]) and not _refused(row[2])
    ]


def _refused(output: JsonValue) -> bool:
    return isinstance(output, dict) and output.get("status") == "credit_limit"


def _model_key() -> ColumnElement[str]:
    columns = model_usage.c
    call, attempt = cast(columns.call, String), cast(columns.attempt, String)
    return literal("model:") + columns.run_id + ":" + call + ":" + attempt


def _keyed(entries: FromClause, key: ColumnElement[str]) -> ColumnElement[bool]:
    return and_(entries.c.organization_id == model_usage.c.organization_id, entries.c.charge_key == key)
