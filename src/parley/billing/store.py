"""The SQL of money: subscriptions, balances, ledger entries, holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, and_, bindparam, func, insert, select, text, update

from parley.base.ids import new_id
from parley.storage import ReadTx, WriteTx
from parley.storage.prepared import PreparedChange, PreparedQuery
from parley.storage.tables.accounts import organizations
from parley.storage.tables.billing import balances, holds, ledger, subscriptions
from parley.turn.model import JsonObject

type Account = Literal["plan", "wallet"]

WALLET_PERIOD = 0


@dataclass(frozen=True, slots=True)
class Subscription:
    """An organization's plan and its wallet switches. ``plan_slug`` None: the default plan."""

    organization_id: str
    plan_slug: str | None
    status: str
    billing_interval: str | None
    quantity: int
    anchor_at: int
    paid_from_at: int | None
    paid_until_at: int | None
    cancel_at_period_end: bool
    overage: bool
    top_up_below_micro: int | None
    top_up_amount_micro: int | None
    top_up_tried_at: int | None
    turn_cap_micro: int | None
    stripe_customer: str | None
    stripe_subscription: str | None
    created_at: int


@dataclass(frozen=True, slots=True)
class Balance:
    """What an account was granted, what was posted to it, what is held of it; None grants without end."""

    allowance_micro: int | None
    posted_micro: int
    held_micro: int

    @property
    def available_micro(self) -> int | None:
        """What can still be spent; None: anything."""
        if self.allowance_micro is None:
            return None
        return self.allowance_micro + self.posted_micro - self.held_micro


@dataclass(frozen=True, slots=True)
class Entry:
    """One ledger row to be written. ``amount_micro`` is negative for what is spent."""

    charge_key: str
    account: Account
    period_at: int
    kind: str
    amount_micro: int
    run_id: str | None
    integration_name: str | None
    item: str | None
    detail: JsonObject


@dataclass(frozen=True, slots=True)
class Hold:
    """Credits set aside for a model call."""

    organization_id: str
    charge_key: str
    period_at: int
    plan_micro: int
    wallet_micro: int
    run_id: str


_SUBSCRIPTION = [subscriptions.c[name] for name in Subscription.__dataclass_fields__]

_OPEN_SUBSCRIPTION = text(
    "INSERT INTO subscriptions (organization_id, status, quantity, anchor_at, cancel_at_period_end, overage, "
    "created_at, touched_at) "
    "SELECT id, 'active', 1, created_at, :no, :no, created_at, 0 FROM organizations WHERE id = :organization_id "
    "ON CONFLICT (organization_id) DO NOTHING"
)
_OPEN_BALANCE = text(
    "INSERT INTO balances (organization_id, account, period_at, allowance_micro, posted_micro, held_micro) "
    "VALUES (:organization_id, :account, :period_at, :allowance_micro, 0, 0) "
    "ON CONFLICT (organization_id, account, period_at) DO NOTHING"
)
_LOCK: PreparedQuery[*tuple[Any, ...]] = PreparedQuery(
    update(subscriptions)
    .where(subscriptions.c.organization_id == bindparam("of_organization"))
    .returning(*_SUBSCRIPTION)
)
_PEEK: PreparedQuery[*tuple[Any, ...]] = PreparedQuery(
    select(*_SUBSCRIPTION).where(subscriptions.c.organization_id == bindparam("of_organization"))
)
_BALANCES = PreparedQuery(
    select(
        balances.c.account,
        balances.c.period_at,
        balances.c.allowance_micro,
        balances.c.posted_micro,
        balances.c.held_micro,
    ).where(
        balances.c.organization_id == bindparam("of_organization"),
        balances.c.period_at.in_((bindparam("one_period"), bindparam("other_period"))),
    )
)
_MOVE = PreparedChange(
    update(balances)
    .where(
        balances.c.organization_id == bindparam("of_organization"),
        balances.c.account == bindparam("of_account"),
        balances.c.period_at == bindparam("of_period"),
    )
    .values(
        posted_micro=balances.c.posted_micro + bindparam("more_posted"),
        held_micro=balances.c.held_micro + bindparam("more_held"),
    )
)
_ENTER = PreparedChange(insert(ledger))
_ENTERED = PreparedQuery(
    select(ledger.c.amount_micro).where(
        ledger.c.organization_id == bindparam("of_organization"),
        ledger.c.charge_key.in_((bindparam("one_key"), bindparam("other_key"))),
    )
)
# Literal states, so that the partial indexes serve.
_OPEN = text("holds.state = 'open'")
_OPEN_HOLDS = select(*(holds.c[name] for name in Hold.__dataclass_fields__)).where(_OPEN).order_by(holds.c.period_at)
_HOLDS_OF_CHARGE: PreparedQuery[*tuple[Any, ...]] = PreparedQuery(
    _OPEN_HOLDS.where(
        holds.c.organization_id == bindparam("of_organization"), holds.c.charge_key == bindparam("of_charge")
    )
)
_HOLDS_OF_RUN: PreparedQuery[*tuple[Any, ...]] = PreparedQuery(
    _OPEN_HOLDS.where(holds.c.run_id == bindparam("of_run"), holds.c.organization_id == bindparam("of_organization"))
)
_LIVE_TURNS = text(
    "SELECT (SELECT count(*) FROM runs WHERE organization_id = :organization_id AND status = 'queued') + "
    "(SELECT count(*) FROM runs WHERE organization_id = :organization_id AND status = 'running')"
)


def lock(tx: WriteTx, organization_id: str, now: int) -> Subscription | None:
    """The organization's subscription, locked until the transaction ends; None where there is no such organization.

    An organization that has none gets one on the default plan, whose months start on the day it was made.
    """
    touch = {"of_organization": organization_id, "touched_at": now}
    row = _LOCK.first(tx, touch)
    if row is None:
        tx.execute(_OPEN_SUBSCRIPTION, {"organization_id": organization_id, "no": False})
        row = _LOCK.first(tx, touch)
    return None if row is None else Subscription(*row)


def peek(tx: ReadTx, organization_id: str) -> Subscription | None:
    """The organization's subscription without the lock; None where it never had one."""
    row = _PEEK.first(tx, {"of_organization": organization_id})
    return None if row is None else Subscription(*row)


def made_at(tx: ReadTx, organization_id: str) -> int:
    """When the organization was made: its credit months start on that day until it subscribes. 0 for an unknown one."""
    query = select(organizations.c.created_at).where(organizations.c.id == organization_id)
    return tx.execute(query).scalar_one_or_none() or 0


def change_subscription(tx: WriteTx, organization_id: str, changes: Mapping[str, str | int | bool | None]) -> None:
    """Set the named columns of an organization's subscription."""
    tx.execute(update(subscriptions).where(subscriptions.c.organization_id == organization_id).values(**changes))


def balance(tx: ReadTx, organization_id: str, account: Account, period_at: int) -> Balance | None:
    """One account's balance; None where nothing ever happened on it."""
    return _balances(tx, organization_id, period_at, period_at).get((account, period_at))


def month_and_wallet(tx: ReadTx, organization_id: str, period_at: int) -> tuple[Balance | None, Balance | None]:
    """The balances of a month and of the wallet; None where nothing ever happened on one."""
    found = _balances(tx, organization_id, period_at, WALLET_PERIOD)
    return found.get(("plan", period_at)), found.get(("wallet", WALLET_PERIOD))


def open_balance(
    tx: WriteTx, organization_id: str, account: Account, period_at: int, allowance_micro: int | None
) -> None:
    """Make the account where it is missing."""
    key = {"organization_id": organization_id, "account": account, "period_at": period_at}
    tx.execute(_OPEN_BALANCE, key | {"allowance_micro": allowance_micro})


def set_allowance(tx: WriteTx, organization_id: str, period_at: int, allowance_micro: int | None) -> None:
    """Change what a month grants."""
    tx.execute(
        update(balances)
        .where(
            balances.c.organization_id == organization_id,
            balances.c.account == "plan",
            balances.c.period_at == period_at,
        )
        .values(allowance_micro=allowance_micro)
    )


def move(
    tx: WriteTx, organization_id: str, account: Account, period_at: int, *, posted_micro: int = 0, held_micro: int = 0
) -> None:
    """Add to what is posted and what is held. The database refuses to let the account fall below zero."""
    key = {"of_organization": organization_id, "of_account": account, "of_period": period_at}
    _MOVE.run(tx, key | {"more_posted": posted_micro, "more_held": held_micro})


def enter(tx: WriteTx, organization_id: str, entry: Entry, now: int) -> None:
    """Write one ledger row, and its amount into the balance. Nothing ever changes a row again."""
    row = {"id": new_id(), "organization_id": organization_id, "created_at": now}
    _ENTER.run(tx, row | {name: getattr(entry, name) for name in Entry.__dataclass_fields__})
    move(tx, organization_id, entry.account, entry.period_at, posted_micro=entry.amount_micro)


def entered_micro(tx: ReadTx, organization_id: str, charge_key: str, other_key: str | None = None) -> int | None:
    """The sum of the entries under the key, or under either; None where there is none."""
    key = {"of_organization": organization_id, "one_key": charge_key, "other_key": other_key or charge_key}
    amounts = [amount for (amount,) in _ENTERED.rows(tx, key)]
    return sum(amounts) if amounts else None


def open_hold(tx: WriteTx, hold: Hold, now: int) -> None:
    """Write a hold, and set its amounts aside."""
    tx.execute(
        insert(holds).values(
            organization_id=hold.organization_id,
            charge_key=hold.charge_key,
            period_at=hold.period_at,
            plan_micro=hold.plan_micro,
            wallet_micro=hold.wallet_micro,
            run_id=hold.run_id,
            state="open",
            created_at=now,
        )
    )
    _set_aside(tx, hold, 1)


def close_hold(tx: WriteTx, hold: Hold, state: Literal["posted", "voided"], now: int) -> None:
    """End an open hold and give back what it set aside."""
    tx.execute(
        update(holds)
        .where(
            holds.c.organization_id == hold.organization_id,
            holds.c.charge_key == hold.charge_key,
            holds.c.state == "open",
        )
        .values(state=state, resolved_at=now)
    )
    _set_aside(tx, hold, -1)


def hold_state(tx: ReadTx, organization_id: str, charge_key: str) -> str | None:
    """The state of a hold; None where there is none."""
    query = select(holds.c.state).where(holds.c.organization_id == organization_id, holds.c.charge_key == charge_key)
    return tx.execute(query).scalar_one_or_none()


def holds_of_charge(tx: ReadTx, organization_id: str, charge_key: str) -> list[Hold]:
    """The charge's hold, as long as it is open."""
    key = {"of_organization": organization_id, "of_charge": charge_key}
    return [Hold(*row) for row in _HOLDS_OF_CHARGE.rows(tx, key)]


def holds_of_run(tx: ReadTx, organization_id: str, run_id: str) -> list[Hold]:
    """The run's open holds."""
    return [Hold(*row) for row in _HOLDS_OF_RUN.rows(tx, {"of_organization": organization_id, "of_run": run_id})]


def live_turns(tx: ReadTx, organization_id: str) -> int:
    """How many runs of the organization wait or work."""
    return tx.execute(_LIVE_TURNS, {"organization_id": organization_id}).scalar_one()


def low_wallets(tx: ReadTx, tried_before: int) -> list[str]:
    """Organizations whose wallet fell below the mark at which it is topped up by itself, unless that was just tried."""
    available = func.coalesce(balances.c.posted_micro - balances.c.held_micro, 0)
    query = (
        select(subscriptions.c.organization_id)
        .select_from(
            subscriptions.outerjoin(
                balances,
                and_(
                    balances.c.organization_id == subscriptions.c.organization_id,
                    balances.c.account == "wallet",
                    balances.c.period_at == WALLET_PERIOD,
                ),
            )
        )
        .where(
            subscriptions.c.overage,
            subscriptions.c.top_up_amount_micro > 0,
            subscriptions.c.stripe_customer.is_not(None),
            available < subscriptions.c.top_up_below_micro,
            _not_tried_since(tried_before),
        )
    )
    return list(tx.execute(query).scalars())


def claim_top_up(tx: WriteTx, organization_id: str, now: int, *, before: int) -> Subscription | None:
    """Mark that a top-up is being tried; None where another process does it."""
    statement = (
        update(subscriptions)
        .where(subscriptions.c.organization_id == organization_id, _not_tried_since(before))
        .values(top_up_tried_at=now)
        .returning(*_SUBSCRIPTION)
    )
    row = tx.execute(statement).one_or_none()
    return None if row is None else Subscription(*row)


def _balances(tx: ReadTx, organization_id: str, period_at: int, other: int) -> dict[tuple[str, int], Balance]:
    key = {"of_organization": organization_id, "one_period": period_at, "other_period": other}
    return {(account, period): Balance(*figures) for account, period, *figures in _BALANCES.rows(tx, key)}


def _not_tried_since(moment: int) -> ColumnElement[bool]:
    return func.coalesce(subscriptions.c.top_up_tried_at, 0) < moment


def _set_aside(tx: WriteTx, hold: Hold, sign: Literal[1, -1]) -> None:
    if hold.plan_micro:
        move(tx, hold.organization_id, "plan", hold.period_at, held_micro=sign * hold.plan_micro)
    if hold.wallet_micro:
        move(tx, hold.organization_id, "wallet", WALLET_PERIOD, held_micro=sign * hold.wallet_micro)
