"""The admission gate: rate, quota, credit, wallet, in that order, before any row is written."""

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from parley.base.clock import SECOND, Clock
from parley.base.ids import new_id
from parley.billing import (
    ApiRate,
    Denial,
    Plans,
    admit,
    closed_on_outage,
    limit_of,
    require_room,
    reserve,
)
from parley.billing.denials import (
    ApiRateDenied,
    CreditDenied,
    GateUnavailable,
    PlanFull,
    QuotaDenied,
    RateDenied,
    WalletDenied,
)
from parley.billing.ledger import Charge, deposit
from parley.billing.plans import MICRO, QuotaName
from parley.billing.store import balance
from parley.storage import ReadTx, Store, WriteTx, open_store
from parley.storage.tables.billing import ledger, rate_windows
from parley.storage.tables.chats import chats
from tests.billing.office import NOON, add_organization, add_run, put_on


def turn(plans: Plans, organization_id: str, key: str | None = None, now: int = NOON) -> Callable[[WriteTx], None]:
    charge_key = key or f"chat:{new_id()}"
    return lambda tx: reserve(tx, plans, organization_id, charge_key=charge_key, run_id="run", now=now)


def entries(organization_id: str) -> Callable[[ReadTx], list[tuple[str, str, int]]]:
    query = select(ledger.c.account, ledger.c.kind, ledger.c.amount_micro).where(
        ledger.c.organization_id == organization_id
    )
    return lambda tx: sorted((row[0], row[1], row[2]) for row in tx.execute(query))


async def denial_of(store: Store, work: Callable[[WriteTx], None]) -> Denial:
    with pytest.raises(Denial) as caught:
        await store.write(work)
    return caught.value


async def test_a_turn_costs_one_credit_of_the_month(store: Store, plans: Plans, organization: str) -> None:
    await store.write(put_on(organization, "tiny"))
    await store.write(turn(plans, organization))
    assert await store.read(entries(organization)) == [("plan", "turn", -MICRO)]


async def test_the_same_turn_is_charged_once_however_often_it_is_admitted(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))
    for _ in range(3):
        await store.write(turn(plans, organization, "chat:run"))
    assert await store.read(entries(organization)) == [("plan", "turn", -MICRO)]


async def test_a_plan_without_a_ceiling_is_charged_and_never_denied(
    store: Store, plans: Plans, organization: str
) -> None:
    for _ in range(30):
        await store.write(turn(plans, organization))
    assert len(await store.read(entries(organization))) == 30


async def test_a_used_up_month_is_denied_on_the_credit_layer_and_leaves_no_row(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))
    for _ in range(10):
        await store.write(turn(plans, organization))
    denial = await denial_of(store, turn(plans, organization))
    assert isinstance(denial, CreditDenied)
    assert denial.status == 402
    assert denial.envelope == {
        "code": "credit_plan_exhausted",
        "layer": "credit",
        "key": "monthly_credits",
        "current": 10.0,
        "limit": 10.0,
        "reason": "credit_plan_exhausted",
    }
    assert len(await store.read(entries(organization))) == 10


async def test_an_empty_wallet_is_denied_on_the_wallet_layer_only_with_overage_on(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "paid"))
    for _ in range(10):
        await store.write(turn(plans, organization))
    assert isinstance(await denial_of(store, turn(plans, organization)), CreditDenied)
    await store.write(put_on(organization, "paid", overage=True))
    denial = await denial_of(store, turn(plans, organization))
    assert isinstance(denial, WalletDenied)
    assert denial.status == 402
    assert denial.envelope["code"] == denial.envelope["reason"] == "wallet_insufficient"


async def test_the_wallet_pays_beyond_the_month_and_no_further(store: Store, plans: Plans, organization: str) -> None:
    await store.write(put_on(organization, "paid", overage=True))
    await store.write(lambda tx: deposit(tx, plans, organization, Charge("gift", "grant", 2 * MICRO), NOON))
    for _ in range(12):
        await store.write(turn(plans, organization))
    assert isinstance(await denial_of(store, turn(plans, organization)), WalletDenied)
    spent = await store.read(entries(organization))
    assert [line for line in spent if line[0] == "wallet"] == [
        ("wallet", "grant", 2 * MICRO),
        ("wallet", "turn", -MICRO),
        ("wallet", "turn", -MICRO),
    ]


@pytest.mark.parametrize(("plan", "overage"), [("paid", False), ("tiny", True)])
async def test_the_wallet_is_not_touched_with_overage_off_or_on_a_plan_without_it(
    store: Store, plans: Plans, organization: str, plan: str, overage: bool
) -> None:
    await store.write(put_on(organization, plan, overage=overage))
    await store.write(lambda tx: deposit(tx, plans, organization, Charge("gift", "grant", 5 * MICRO), NOON))
    for _ in range(10):
        await store.write(turn(plans, organization))
    assert isinstance(await denial_of(store, turn(plans, organization)), CreditDenied)
    assert ("wallet", "turn", -MICRO) not in await store.read(entries(organization))


async def test_exactly_as_many_turns_a_minute_as_the_plan_says(store: Store, plans: Plans, organization: str) -> None:
    await store.write(put_on(organization, "brisk"))
    for _ in range(4):
        await store.write(turn(plans, organization))
    assert isinstance(await denial_of(store, turn(plans, organization)), RateDenied)
    await store.write(turn(plans, organization, now=NOON + 60 * SECOND))


async def test_only_admitted_turns_count_towards_the_minute(store: Store, plans: Plans, organization: str) -> None:
    await store.write(put_on(organization, "tiny"))
    for _ in range(10):
        await store.write(turn(plans, organization))
    for _ in range(10):
        assert isinstance(await denial_of(store, turn(plans, organization)), CreditDenied)
    assert await store.read(lambda tx: tx.execute(select(rate_windows.c.taken)).scalar_one()) == 10


async def test_a_denial_by_rate_comes_before_every_other_reason(store: Store, plans: Plans, organization: str) -> None:
    late = NOON + 45 * SECOND
    open_plan = await store.write(lambda tx: add_organization(tx, "busy"))
    await store.write(put_on(open_plan, "tiny"))
    await store.write(
        lambda tx: tx.execute(
            rate_windows.insert().values(subject=open_plan, rate_class="sync_exec", window_at=NOON, taken=20)
        )
    )
    for _ in range(3):
        await store.write(lambda tx: add_run(tx, open_plan))
    denial = await denial_of(store, turn(plans, open_plan, now=late))
    assert isinstance(denial, RateDenied)
    assert denial.status == 429
    assert denial.headers == {
        "Retry-After": "15",
        "X-RateLimit-Limit": "20",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": str((NOON + 60 * SECOND) // SECOND),
    }
    assert denial.envelope["layer"] == "rate"
    following = NOON + 60 * SECOND
    assert isinstance(await denial_of(store, turn(plans, open_plan, now=following)), QuotaDenied)


async def test_as_many_turns_at_once_as_the_plan_allows(store: Store, plans: Plans, organization: str) -> None:
    await store.write(put_on(organization, "tiny"))
    await store.write(lambda tx: add_run(tx, organization, status="queued"))
    await store.write(lambda tx: add_run(tx, organization, status="running"))
    await store.write(lambda tx: add_run(tx, organization, status="interrupted"))
    await store.write(turn(plans, organization))
    await store.write(lambda tx: add_run(tx, organization, status="running"))
    denial = await denial_of(store, turn(plans, organization))
    assert isinstance(denial, QuotaDenied)
    assert denial.status == 403
    assert (denial.envelope["key"], denial.envelope["current"], denial.envelope["limit"]) == ("concurrent_turns", 3, 3)


async def test_the_last_credits_are_shared_out_exactly_among_callers_at_once(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "paid"))
    outcomes: list[str] = []

    async def attempt() -> None:
        try:
            await store.write(turn(plans, organization))
            outcomes.append("admitted")
        except Denial as denial:
            outcomes.append(denial.code)

    async with asyncio.TaskGroup() as group:
        for _ in range(40):
            group.create_task(attempt())
    assert sorted(outcomes) == ["admitted"] * 10 + ["credit_plan_exhausted"] * 30
    spent = await store.read(lambda tx: tx.execute(select(func.sum(ledger.c.amount_micro))).scalar_one())
    assert int(spent) == -10 * MICRO


async def test_a_full_plan_refuses_plain_routes_without_the_gates_envelope(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))

    def one_more(used: int) -> Callable[[WriteTx], None]:
        return lambda tx: require_room(tx, plans, organization, "credentials", lambda _tx, _id: used, NOON)

    await store.write(one_more(1))
    with pytest.raises(PlanFull, match="Your plan allows 2 credentials"):
        await store.write(one_more(2))


async def test_a_full_plan_denies_gated_surfaces_with_the_envelope(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))
    denial = await denial_of(store, lambda tx: admit(tx, plans, organization, "seats", lambda _tx, _id: 1, NOON))
    assert denial.envelope["layer"] == "quota"
    await store.write(lambda tx: admit(tx, plans, organization, "documents", lambda _tx, _id: 10**6, NOON))


@pytest.mark.parametrize(("quota", "limit"), [("knowledge_bases", 1), ("documents", 3)])
async def test_callers_at_once_share_out_exactly_the_bases_and_documents_of_the_plan(
    store: Store, plans: Plans, organization: str, quota: QuotaName, limit: int
) -> None:
    await store.write(put_on(organization, "still"))

    def things(tx: ReadTx, organization_id: str) -> int:
        query = select(func.count()).select_from(chats).where(chats.c.organization_id == organization_id)
        return tx.execute(query).scalar_one()

    def add(tx: WriteTx) -> None:
        admit(tx, plans, organization, quota, things, NOON)
        add_run(tx, organization, status="completed")

    outcomes: list[str] = []

    async def attempt() -> None:
        try:
            await store.write(add)
            outcomes.append("added")
        except Denial as denial:
            outcomes.append(str(denial.envelope["key"]))

    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(attempt())
    assert sorted(outcomes) == sorted(["added"] * limit + [quota] * (12 - limit))
    assert await store.read(lambda tx: limit_of(tx, plans, organization, quota)) == limit


async def test_a_store_that_does_not_answer_closes_the_gate(plans: Plans, organization: str) -> None:
    gone = open_store("postgresql://postgres@127.0.0.1:1/nowhere")
    with pytest.raises(GateUnavailable, match="nothing was started or charged") as caught, closed_on_outage():
        await gone.write(turn(plans, organization))
    await gone.close()
    assert caught.value.status == 503


async def test_a_months_balance_is_the_sum_of_its_entries(store: Store, plans: Plans, organization: str) -> None:
    await store.write(put_on(organization, "tiny"))
    for _ in range(4):
        await store.write(turn(plans, organization))

    def read(tx: ReadTx) -> tuple[int, int]:
        period = tx.execute(select(ledger.c.period_at).distinct()).scalar_one()
        found = balance(tx, organization, "plan", period)
        assert found is not None
        return found.posted_micro, found.available_micro or 0

    assert await store.read(read) == (-4 * MICRO, 6 * MICRO)


async def test_requests_of_a_person_and_of_the_organization_are_limited_by_the_plan(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))
    rate = ApiRate(store, plans, Clock())
    for _ in range(30):
        await rate.count(organization, "ada")
    with pytest.raises(ApiRateDenied) as caught:
        await rate.count(organization, "ada")
    assert set(caught.value.envelope) == {"detail"}
    detail = caught.value.envelope["detail"]
    assert isinstance(detail, dict)
    assert (detail["layer"], detail["key"], detail["limit"]) == ("rate", "api_user", 30)
    assert int(caught.value.headers["Retry-After"]) >= 1
    for _ in range(10):
        await rate.count(organization, "bob")
    with pytest.raises(ApiRateDenied) as whole:
        await rate.count(organization, "bob")
    assert "Your plan takes at most 40 requests a minute" in whole.value.detail


async def test_an_open_plan_is_not_counted_and_a_store_that_is_gone_lets_requests_pass(
    store: Store, plans: Plans, organization: str
) -> None:
    rate = ApiRate(store, plans, Clock())
    for _ in range(100):
        await rate.count(organization, "ada")
    assert await store.read(lambda tx: tx.execute(select(rate_windows.c.subject)).all()) == []
    gone = open_store("postgresql://postgres@127.0.0.1:1/nowhere")
    await ApiRate(gone, plans, Clock()).count(organization, "ada")
    await gone.close()


@pytest.mark.parametrize(
    "trouble",
    [
        OperationalError("SELECT 1", {}, OSError("gone")),
        PoolTimeout("no connection is free"),
        OSError(),
        TimeoutError(),
    ],
    ids=lambda trouble: type(trouble).__name__,
)
def test_whatever_a_store_in_trouble_raises_is_a_503_and_never_a_free_pass(trouble: Exception) -> None:
    with pytest.raises(GateUnavailable), closed_on_outage():
        raise trouble
