"""The ledger: append-only, whole micro-credits, each charge key once, never below zero.

Every change takes the organization's lock first, so that what was read stays true until it is written;
the balance row's CHECK and the unique charge key are the second net.
"""

from dataclasses import dataclass, field, replace

from parley.base.errors import Conflict
from parley.billing import store
from parley.billing.denials import CreditDenied, WalletDenied, credit_denied, wallet_denied
from parley.billing.plans import Month, Plan, Plans, month_of
from parley.billing.store import WALLET_PERIOD, Account, Balance, Entry, Hold, Subscription
from parley.billing.usage_store import SECOND_PART
from parley.storage import WriteTx
from parley.turn.model import JsonObject, JsonValue

# What a subscription may be in and still give its plan; anything else falls back to the default plan.
PAID_FOR = ("active", "trialing", "past_due")


# Sums stay well within 64 bits: SQLite would go on with a float beyond them.
MOST_MICRO = 10**17
MOST_IN_WALLET = 10**18


class WalletFull(Conflict):
    """The wallet cannot hold so many credits. Nothing was put into it."""


class ChargeKeyReused(Exception):
    """One charge key came with two different amounts: a fault in the caller."""


@dataclass(frozen=True, slots=True)
class Charge:
    """Something to be paid for. ``key`` names it for ever; ``item`` is the model or the action of ``integration_name``.

    Raises ValueError for an amount below zero or beyond what can be added up.
    """

    key: str
    kind: str
    amount_micro: int
    run_id: str | None = None
    integration_name: str | None = None
    item: str | None = None
    detail: JsonObject = field(default_factory=dict[str, JsonValue])

    def __post_init__(self) -> None:
        if not 0 <= self.amount_micro <= MOST_MICRO:
            raise ValueError(f"{self.key}: {self.amount_micro} micro-credits cannot be moved")

    def entry(self, key: str, account: Account, period_at: int, amount_micro: int) -> Entry:
        """The ledger row that moves ``amount_micro`` for it."""
        return Entry(
            key,
            account,
            period_at,
            self.kind,
            amount_micro,
            self.run_id,
            self.integration_name,
            self.item,
            self.detail,
        )


@dataclass(frozen=True, slots=True)
class Split:
    """Who pays: the month's allowance, then the wallet."""

    plan_micro: int
    wallet_micro: int

    @property
    def total_micro(self) -> int:
        """Both together."""
        return self.plan_micro + self.wallet_micro


@dataclass(frozen=True, slots=True)
class Books:
    """An organization's money under its lock."""

    organization_id: str
    subscription: Subscription
    plan: Plan
    month: Month
    spending: Balance
    wallet: Balance

    @property
    def beyond_micro(self) -> int:
        """What the wallet may add once the month is used up; 0 where overage is off or the plan has none."""
        available = self.wallet.available_micro or 0
        return available if self.plan.overage and self.subscription.overage else 0

    def draw(self, amount_micro: int) -> Split | CreditDenied | WalletDenied:
        """Who would pay the whole amount, or why nobody can."""
        split = self.draw_up_to(amount_micro)
        if split.total_micro == amount_micro:
            return split
        allowance = self.spending.allowance_micro or 0
        if not (self.plan.overage and self.subscription.overage):
            return credit_denied(used_micro=-self.spending.posted_micro, allowance_micro=allowance)
        return wallet_denied(left_micro=self.beyond_micro, needed_micro=amount_micro - split.plan_micro)

    def draw_up_to(self, amount_micro: int) -> Split:
        """Who pays as much of the amount as there is."""
        available = self.spending.available_micro
        if available is None:
            return Split(amount_micro, 0)
        from_plan = min(amount_micro, max(available, 0))
        return Split(from_plan, min(amount_micro - from_plan, self.beyond_micro))


def plan_of(plans: Plans, subscription: Subscription | None) -> Plan:
    """The plan that counts now: the default one without a subscription, or with one nobody pays for."""
    if subscription is None or subscription.status not in PAID_FOR:
        return plans.of(None)
    return plans.of(subscription.plan_slug)


def open_books(tx: WriteTx, plans: Plans, organization_id: str, now: int) -> Books:
    """Take the organization's lock and read its money as of ``now``.

    Raises LookupError where there is no such organization.
    """
    return _books(tx, plans, _lock(tx, organization_id, now), now)


def charge(
    tx: WriteTx, plans: Plans, organization_id: str, what: Charge, now: int
) -> CreditDenied | WalletDenied | None:
    """Pay for something whole, or not at all; paying twice under one key is once.

    Raises ChargeKeyReused when the key was charged with another amount.
    """
    books = open_books(tx, plans, organization_id, now)
    return charge_books(tx, books, what, now)


def charge_books(tx: WriteTx, books: Books, what: Charge, now: int) -> CreditDenied | WalletDenied | None:
    """As ``charge``, on books already open in this transaction."""
    if not what.amount_micro or _already_charged(tx, books.organization_id, what):
        return None
    split = books.draw(what.amount_micro)
    if not isinstance(split, Split):
        return split
    _post(tx, books, what, split, now)
    return None


def deposit(tx: WriteTx, plans: Plans, organization_id: str, what: Charge, now: int) -> None:
    """Put prepaid credits into the wallet; once under one key.

    Raises ChargeKeyReused when the key was used with another amount, and WalletFull.
    """
    books = open_books(tx, plans, organization_id, now)
    known = store.entered_micro(tx, organization_id, what.key)
    if known is None:
        if books.wallet.posted_micro + what.amount_micro > MOST_IN_WALLET:
            raise WalletFull
        entry = what.entry(what.key, "wallet", WALLET_PERIOD, what.amount_micro)
        store.enter(tx, books.organization_id, entry, now)
    elif known != what.amount_micro:
        raise ChargeKeyReused(what.key)


def withdraw(tx: WriteTx, plans: Plans, organization_id: str, what: Charge, now: int) -> None:
    """Take prepaid credits out of the wallet again, as far as they are still there; once under one key."""
    books = open_books(tx, plans, organization_id, now)
    if store.entered_micro(tx, organization_id, what.key) is not None:
        return
    amount = min(what.amount_micro, books.wallet.available_micro or 0)
    lost = what.amount_micro - amount
    if lost:
        what = replace(what, detail={**what.detail, "uncollected_micro": lost})
    store.enter(tx, organization_id, what.entry(what.key, "wallet", WALLET_PERIOD, -amount), now)


def hold(
    tx: WriteTx, plans: Plans, organization_id: str, *, charge_key: str, amount_micro: int, run_id: str, now: int
) -> CreditDenied | WalletDenied | None:
    """Set aside as much of the amount as there is, before a call whose price is known only afterwards.

    Denies only when nothing at all is left, so that the last credits can still be used. A plan without a
    ceiling needs no hold.
    """
    books = open_books(tx, plans, organization_id, now)
    if books.spending.allowance_micro is None or store.hold_state(tx, organization_id, charge_key) is not None:
        return None
    split = books.draw_up_to(amount_micro)
    if not split.total_micro:
        least = books.draw(1)
        return None if isinstance(least, Split) else least
    held = Hold(organization_id, charge_key, books.month.start, split.plan_micro, split.wallet_micro, run_id)
    store.open_hold(tx, held, now)
    return None


def settle(tx: WriteTx, plans: Plans, organization_id: str, what: Charge, now: int) -> int:
    """Post what a held call really cost, and let go of its hold; the micro-credits that could not be collected.

    What goes beyond the hold is drawn from what is left. The account never falls below zero: the operator
    bears the rest, which the entry's detail names.
    """
    subscription = _lock(tx, organization_id, now)
    if store.entered_micro(tx, organization_id, what.key) is not None:
        return 0
    for held in store.holds_of_charge(tx, organization_id, what.key):
        store.close_hold(tx, held, "posted" if what.amount_micro else "voided", now)
    if not what.amount_micro:
        return 0
    books = _books(tx, plans, subscription, now)
    split = books.draw_up_to(what.amount_micro)
    lost = what.amount_micro - split.total_micro
    if lost:
        what = replace(what, detail={**what.detail, "uncollected_micro": lost})
    _post(tx, books, what, split, now)
    return lost


def release(tx: WriteTx, organization_id: str, *, run_id: str, now: int) -> int:
    """Give back every open hold of a run that will settle nothing more; how many there were.

    Call it after the run's last ``settle``, in the same transaction: what it frees is there for others at once.
    """
    # Most runs hold nothing: those pay one look and no lock.
    if not store.holds_of_run(tx, organization_id, run_id):
        return 0
    store.lock(tx, organization_id, now)
    open_now = store.holds_of_run(tx, organization_id, run_id)
    for held in open_now:
        store.close_hold(tx, held, "voided", now)
    return len(open_now)


def _already_charged(tx: WriteTx, organization_id: str, what: Charge) -> bool:
    """Whether the key was charged before. Raises ChargeKeyReused when that was another amount."""
    paid = store.entered_micro(tx, organization_id, *_keys(what.key))
    if paid is None:
        return False
    if paid != -what.amount_micro:
        raise ChargeKeyReused(what.key)
    return True


def _post(tx: WriteTx, books: Books, what: Charge, split: Split, now: int) -> None:
    """Write what each account pays. One part always has the charge's own key, so no replay slips past it."""
    parts: list[tuple[Account, int, int]] = []
    if split.plan_micro or not split.wallet_micro:
        parts.append(("plan", books.month.start, split.plan_micro))
    if split.wallet_micro:
        parts.append(("wallet", WALLET_PERIOD, split.wallet_micro))
    for key, (account, period_at, amount) in zip(_keys(what.key), parts, strict=False):
        store.enter(tx, books.organization_id, what.entry(key, account, period_at, -amount), now)


def _lock(tx: WriteTx, organization_id: str, now: int) -> Subscription:
    subscription = store.lock(tx, organization_id, now)
    if subscription is None:
        raise LookupError(f"no organization {organization_id}")
    return subscription


def _books(tx: WriteTx, plans: Plans, subscription: Subscription, now: int) -> Books:
    organization_id = subscription.organization_id
    plan = plan_of(plans, subscription)
    month = month_of(subscription.anchor_at, now)
    spending, wallet = store.month_and_wallet(tx, organization_id, month.start)
    return Books(
        organization_id,
        subscription,
        plan,
        month,
        _month_balance(tx, organization_id, month, plan.allowance_micro, spending),
        _wallet_balance(tx, organization_id, wallet),
    )


def _month_balance(
    tx: WriteTx, organization_id: str, month: Month, allowance_micro: int | None, found: Balance | None
) -> Balance:
    """The month's balance with the plan's present allowance, or with what is used where that is more."""
    if found is None:
        store.open_balance(tx, organization_id, "plan", month.start, allowance_micro)
        return Balance(allowance_micro, 0, 0)
    wanted = allowance_micro
    if wanted is not None:
        wanted = max(wanted, found.held_micro - found.posted_micro)
    if wanted != found.allowance_micro:
        store.set_allowance(tx, organization_id, month.start, wanted)
    return Balance(wanted, found.posted_micro, found.held_micro)


def _wallet_balance(tx: WriteTx, organization_id: str, found: Balance | None) -> Balance:
    if found is None:
        store.open_balance(tx, organization_id, "wallet", WALLET_PERIOD, 0)
        return Balance(0, 0, 0)
    return found


def _keys(charge_key: str) -> tuple[str, str]:
    """A charge's own key, and the key of the wallet's part where the month could only pay some of it."""
    return charge_key, charge_key + SECOND_PART
