"""Two hundred callers at once, over real connections of several processes' worth of stores."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from parley.billing import CreditExhausted, Denial, ModelCall, Plans, ToolUse, charge_tool, hold_model, reserve
from parley.billing.ledger import Charge, deposit
from parley.billing.metering import settle_model
from parley.billing.plans import MICRO, month_of
from parley.billing.store import WALLET_PERIOD, balance, peek
from parley.billing.verify import billing_faults
from parley.storage import ReadTx, Store, WriteTx, open_store
from parley.turn.model import Usage
from tests.billing.office import NOON, put_on

CALLERS = 200
PROCESSES = 3


@pytest.fixture
async def stores(store: Store, store_url: str) -> AsyncIterator[list[Store]]:
    """The store, and on PostgreSQL two more with connections of their own, as other processes would have."""
    others = [open_store(store_url).across for _ in range(PROCESSES - 1)] if store.dialect == "postgresql" else []
    yield [store, *others]
    for other in others:
        await other.close()


async def test_two_hundred_callers_share_out_exactly_what_there_is(
    stores: list[Store], plans: Plans, organization: str
) -> None:
    store = stores[0]
    await store.write(put_on(organization, "paid", overage=True))
    await store.write(lambda tx: deposit(tx, plans, organization, Charge("gift", "grant", 90 * MICRO), NOON))
    outcomes: Counter[str] = Counter()

    async def attempt(number: int) -> None:
        work = (_turn, _tool, _model)[number % 3]
        outcomes[await work(stores[number % len(stores)], plans, organization, f"run-{number}")] += 1

    async with asyncio.TaskGroup() as group:
        for number in range(CALLERS):
            group.create_task(attempt(number))

    assert outcomes["paid"] == 100
    assert outcomes["refused"] == 100
    assert await store.read(lambda tx: _left(tx, organization)) == (0, 0)
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def _turn(store: Store, plans: Plans, organization: str, run_id: str) -> str:
    key = f"chat:{run_id}"
    try:
        await store.write(lambda tx: reserve(tx, plans, organization, charge_key=key, run_id=run_id, now=NOON))
    except Denial:
        return "refused"
    return "paid"


async def _tool(store: Store, plans: Plans, organization: str, run_id: str) -> str:
    use = ToolUse("github", "list_repositories", run_id, 1)
    answer = await store.write(lambda tx: charge_tool(tx, plans, organization, use, NOON))
    return "refused" if answer else "paid"


async def _model(store: Store, plans: Plans, organization: str, run_id: str) -> str:
    call = ModelCall(organization, "user", run_id, 1, 1, "modulexai", "any", managed=True)

    def settled(tx: WriteTx) -> int:
        return settle_model(tx, plans, call, Usage(1, 0), started_at=NOON, succeeded=True, now=NOON)

    held = await store.write(lambda tx: hold_model(tx, plans, call, Usage(1, 0), NOON))
    if isinstance(held, CreditExhausted):
        return "refused"
    return "paid" if await store.write(settled) == 0 else "at a loss"


def _left(tx: ReadTx, organization: str) -> tuple[int | None, int | None]:
    subscription = peek(tx, organization)
    assert subscription is not None
    month = month_of(subscription.anchor_at, NOON)
    plan = balance(tx, organization, "plan", month.start)
    wallet = balance(tx, organization, "wallet", WALLET_PERIOD)
    assert plan is not None and wallet is not None
    return plan.available_micro, wallet.available_micro
