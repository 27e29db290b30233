"""Whatever happens in whatever order: nothing is charged twice, nothing falls below zero, every sum agrees.

The machine drives the real ledger and a model of a few lines, and compares them after each step.
``PARLEY_LEDGER_EXAMPLES=2000`` runs the full 2,000 examples of 50 steps.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import func, select

from parley.base.clock import DAY
from parley.billing import Plans
from parley.billing.ledger import Charge, ChargeKeyReused, charge, deposit, hold, release, settle, withdraw
from parley.billing.plans import MICRO, month_of
from parley.billing.store import WALLET_PERIOD, Account, balance, change_subscription, lock
from parley.billing.verify import billing_faults
from parley.storage import ReadTx, Store, WriteTx, open_store
from parley.storage.schema import migrate
from parley.storage.tables.billing import ledger
from tests.billing.office import NOON, add_organization
from tests.conftest import STORES, fresh_database

EXAMPLES = int(os.environ.get("PARLEY_LEDGER_EXAMPLES", "12"))
STEPS = 50 if EXAMPLES >= 1_000 else 25
ALLOWANCE = 10 * MICRO

amounts = st.integers(1, 8 * MICRO)
names = count()


class LedgerMachine(RuleBasedStateMachine):
    """One organization on a plan of ten credits with a wallet, and what its books must say."""

    def __init__(self, runner: asyncio.Runner, store: Store, plans: Plans) -> None:
        super().__init__()
        self.runner, self.store, self.plans = runner, store, plans
        self.now = NOON
        self.overage = False
        self.spent: dict[int, int] = {}
        self.wallet = 0
        self.holds: dict[str, tuple[int, int, int]] = {}
        self.paid: dict[str, int] = {}
        self.organization = self.write(lambda tx: add_organization(tx, f"org-{next(names)}"))
        self.anchor = self.write(lambda tx: self._subscribe(tx))

    def _subscribe(self, tx: WriteTx) -> int:
        subscription = lock(tx, self.organization, self.now)
        assert subscription is not None
        change_subscription(tx, self.organization, {"plan_slug": "paid"})
        return subscription.anchor_at

    def write(self, work: Callable[[WriteTx], Any]) -> Any:
        return self.runner.run(self.store.write(work))

    def read(self, work: Callable[[ReadTx], Any]) -> Any:
        return self.runner.run(self.store.read(work))

    # ── the model ───────────────────────────────────────────────────────────────────────────────

    @property
    def month(self) -> int:
        return month_of(self.anchor, self.now).start

    def left(self) -> tuple[int, int]:
        held_plan = sum(plan for month, plan, _ in self.holds.values() if month == self.month)
        held_wallet = sum(wallet for _, _, wallet in self.holds.values())
        beyond = self.wallet - held_wallet if self.overage else 0
        return ALLOWANCE - self.spent.get(self.month, 0) - held_plan, beyond

    def split(self, amount: int) -> tuple[int, int]:
        plan, beyond = self.left()
        from_plan = min(amount, plan)
        return from_plan, min(amount - from_plan, beyond)

    def book(self, key: str, amount: int, from_plan: int, from_wallet: int) -> None:
        self.spent[self.month] = self.spent.get(self.month, 0) + from_plan
        self.wallet -= from_wallet
        self.paid[key] = amount

    # ── what can happen ─────────────────────────────────────────────────────────────────────────

    @rule(amount=amounts)
    def charge(self, amount: int) -> None:
        key = f"charge-{next(names)}"
        what = Charge(key, "tool", amount)
        denial = self.write(lambda tx: charge(tx, self.plans, self.organization, what, self.now))
        from_plan, from_wallet = self.split(amount)
        assert (denial is None) == (from_plan + from_wallet == amount)
        if denial is None:
            self.book(key, amount, from_plan, from_wallet)
        else:
            assert denial.layer == ("wallet" if self.overage else "credit")

    @precondition(lambda self: self.paid)
    @rule(data=st.data())
    def charge_again(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.paid)))
        what = Charge(key, "tool", self.paid[key])
        assert self.write(lambda tx: charge(tx, self.plans, self.organization, what, self.now)) is None

    @precondition(lambda self: self.paid)
    @rule(data=st.data(), amount=amounts)
    def charge_another_amount_under_the_same_key(self, data: st.DataObject, amount: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.paid)))
        what = Charge(key, "tool", self.paid[key] + amount)
        with pytest.raises(ChargeKeyReused):
            self.write(lambda tx: charge(tx, self.plans, self.organization, what, self.now))

    @rule(amount=amounts)
    def hold(self, amount: int) -> None:
        key = f"hold-{next(names)}"
        denial = self.write(
            lambda tx: hold(
                tx, self.plans, self.organization, charge_key=key, amount_micro=amount, run_id=key, now=self.now
            )
        )
        from_plan, from_wallet = self.split(amount)
        assert (denial is None) == (from_plan + from_wallet > 0)
        if denial is None:
            self.holds[key] = (self.month, from_plan, from_wallet)

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), amount=amounts)
    def settle(self, data: st.DataObject, amount: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.holds)))
        what = Charge(key, "knowledge", amount)
        lost = self.write(lambda tx: settle(tx, self.plans, self.organization, what, self.now))
        del self.holds[key]
        from_plan, from_wallet = self.split(amount)
        assert lost == amount - from_plan - from_wallet
        self.book(key, from_plan + from_wallet, from_plan, from_wallet)
        assert self.write(lambda tx: settle(tx, self.plans, self.organization, what, self.now)) == 0

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def void(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.holds)))
        assert self.write(lambda tx: release(tx, self.organization, run_id=key, now=self.now)) == 1
        assert self.write(lambda tx: release(tx, self.organization, run_id=key, now=self.now)) == 0
        del self.holds[key]

    @rule(amount=amounts)
    def deposit(self, amount: int) -> None:
        what = Charge(f"deposit-{next(names)}", "grant", amount)
        for _ in range(2):
            self.write(lambda tx: deposit(tx, self.plans, self.organization, what, self.now))
        self.wallet += amount

    @rule(amount=amounts)
    def refund(self, amount: int) -> None:
        what = Charge(f"refund-{next(names)}", "refund", amount)
        held = sum(wallet for _, _, wallet in self.holds.values())
        for _ in range(2):
            self.write(lambda tx: withdraw(tx, self.plans, self.organization, what, self.now))
        self.wallet -= min(amount, self.wallet - held)

    @rule()
    def switch_overage(self) -> None:
        self.overage = not self.overage
        self.write(lambda tx: change_subscription(tx, self.organization, {"overage": self.overage}))

    @rule(days=st.integers(0, 8))
    def let_time_pass(self, days: int) -> None:
        self.now += days * DAY

    # ── what always holds ───────────────────────────────────────────────────────────────────────

    @invariant()
    def balances_entries_and_the_model_say_the_same(self) -> None:
        spent, wallet = self.spent.get(self.month, 0), self.wallet
        assert self.read(lambda tx: books(tx, self.organization, self.month)) == (-spent, wallet, -spent, wallet)

    @invariant()
    def nothing_is_below_zero(self) -> None:
        plan, _ = self.left()
        assert plan >= 0
        assert self.wallet >= sum(wallet for _, _, wallet in self.holds.values())

    def teardown(self) -> None:
        assert self.read(lambda tx: billing_faults(tx, self.plans)) == []


def books(tx: ReadTx, organization: str, month: int) -> tuple[int, int, int, int]:
    """What month and wallet hold by their balances, and by the sums of their entries."""
    accounts: tuple[tuple[Account, int], ...] = (("plan", month), ("wallet", WALLET_PERIOD))
    kept = [balance(tx, organization, account, period) for account, period in accounts]
    summed = [
        tx.execute(
            select(func.coalesce(func.sum(ledger.c.amount_micro), 0)).where(
                ledger.c.organization_id == organization,
                ledger.c.account == account,
                ledger.c.period_at == period,
            )
        ).scalar_one()
        for account, period in accounts
    ]
    posted = [found.posted_micro if found else 0 for found in kept]
    return posted[0], posted[1], int(summed[0]), int(summed[1])


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.timeout(60 if EXAMPLES < 1_000 else 14_400)
def test_the_ledger_keeps_its_promises_in_any_order(
    kind: str, plans: Plans, tmp_path: Path, postgres_template: str | None
) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        url = runner.run(stack.enter_async_context(fresh_database(kind, tmp_path, postgres_template)))
        store = open_store(url).across
        stack.push_async_callback(store.close)
        try:
            runner.run(migrate(store))

            class Machine(LedgerMachine):
                def __init__(self) -> None:
                    super().__init__(runner, store, plans)

            run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
                Machine,
                settings=settings(
                    max_examples=EXAMPLES,
                    stateful_step_count=STEPS,
                    deadline=None,
                    database=None,
                    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
                ),
            )
        finally:
            runner.run(stack.aclose())
