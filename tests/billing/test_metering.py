"""Models, managed tools and managed knowledge: what is charged, what is only recorded, what happens at the end."""

from collections.abc import Callable
from decimal import Decimal

import pytest
from sqlalchemy import select

from parley.base.clock import Clock
from parley.billing import (
    CreditExhausted,
    ModelCall,
    Plans,
    ToolUse,
    charge_ingest,
    charge_retrieval,
    charge_tool,
    hold_model,
    reserve,
    settle_model,
    turn_receipt,
)
from parley.billing.ledger import Charge, ChargeKeyReused, charge
from parley.billing.plans import MICRO
from parley.billing.subscriptions import Subscriptions
from parley.billing.usage import TurnNotFound
from parley.billing.verify import billing_faults
from parley.storage import ReadTx, Store, WriteTx
from parley.storage.tables.billing import holds, ledger, model_usage
from parley.storage.tables.chats import runs
from parley.turn.model import Usage
from tests.billing.office import NOON, add_organization, add_run, put_on


def model_call(organization_id: str, run_id: str, *, call: int = 1, managed: bool = True) -> ModelCall:
    return ModelCall(organization_id, "user", run_id, call, 1, "modulexai", "any-model", managed)


def settled(plans: Plans, call: ModelCall, usage: Usage, *, succeeded: bool = True) -> Callable[[WriteTx], int]:
    return lambda tx: settle_model(tx, plans, call, usage, started_at=NOON, succeeded=succeeded, now=NOON)


def use(run_id: str, integration: str = "github", step: int = 1) -> ToolUse:
    return ToolUse(integration, "list_repositories", run_id, step)


def charged(tx: ReadTx) -> dict[str, int]:
    return {row[0]: row[1] for row in tx.execute(select(ledger.c.charge_key, ledger.c.amount_micro))}


def test_a_models_price_counts_cached_tokens_apart_and_rounds_up(plans: Plans) -> None:
    price = plans.models[0]
    assert (price.input, price.cached, price.output) == (Decimal(1_000_000), Decimal(100_000), Decimal(2_000_000))
    assert plans.model_micro("any", Usage(input=10, cached=4, output=3)) == (6 + 6) * MICRO + 4 * MICRO // 10
    assert plans.model_micro("any", Usage()) == 0


async def test_an_own_key_is_recorded_and_costs_nothing_even_with_nothing_left(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))
    await store.write(lambda tx: charge(tx, plans, organization, Charge("all", "tool", 10 * MICRO), NOON))
    call = model_call(organization, "run", managed=False)
    assert await store.write(lambda tx: hold_model(tx, plans, call, Usage(10**9, 10**9), NOON)) is None
    assert await store.write(settled(plans, call, Usage(1000, 500))) == 0
    row = await store.read(lambda tx: tx.execute(select(model_usage)).one())
    assert (row.input_tokens, row.output_tokens, row.cost_micro, row.managed) == (1000, 500, 0, False)
    assert await store.read(charged) == {"all": -10 * MICRO}
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


@pytest.mark.parametrize("succeeded", [True, False])
async def test_a_managed_call_is_charged_from_what_it_used_however_it_ended(
    store: Store, plans: Plans, organization: str, succeeded: bool
) -> None:
    await store.write(put_on(organization, "paid"))
    call = model_call(organization, "run")
    assert await store.write(lambda tx: hold_model(tx, plans, call, Usage(4, 1), NOON)) is None
    assert await store.write(settled(plans, call, Usage(2, 1, exact=False), succeeded=succeeded)) == 0
    assert await store.read(charged) == {"model:run:1:1": -4 * MICRO}
    row = await store.read(lambda tx: tx.execute(select(model_usage)).one())
    assert (row.exact, row.succeeded) == (False, succeeded)
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_a_call_settled_twice_is_charged_once(store: Store, plans: Plans, organization: str) -> None:
    await store.write(put_on(organization, "paid"))
    call = model_call(organization, "run")
    for _ in range(3):
        assert await store.write(settled(plans, call, Usage(2, 1))) == 0
    assert await store.read(charged) == {"model:run:1:1": -4 * MICRO}


async def test_a_plan_without_a_ceiling_sets_nothing_aside(store: Store, plans: Plans, organization: str) -> None:
    call = model_call(organization, "run")
    assert await store.write(lambda tx: hold_model(tx, plans, call, Usage(10**6, 10**6), NOON)) is None
    assert await store.read(lambda tx: tx.execute(select(holds.c.state)).all()) == []


async def test_a_call_that_used_nothing_gives_its_hold_back_at_once(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))
    first, second = model_call(organization, "run"), model_call(organization, "run", call=2)
    assert await store.write(lambda tx: hold_model(tx, plans, first, Usage(100, 100), NOON)) is None
    assert await store.write(settled(plans, first, Usage(), succeeded=False)) == 0
    assert await store.write(lambda tx: hold_model(tx, plans, second, Usage(1, 1), NOON)) is None
    assert await store.read(charged) == {}
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_the_last_credits_can_be_used_and_the_operator_bears_what_one_call_uses_beyond_them(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))
    await store.write(lambda tx: charge(tx, plans, organization, Charge("most", "tool", 9 * MICRO), NOON))
    first, second = model_call(organization, "run"), model_call(organization, "run", call=2)
    assert await store.write(lambda tx: hold_model(tx, plans, first, Usage(100, 100), NOON)) is None
    denied = await store.write(lambda tx: hold_model(tx, plans, second, Usage(1, 1), NOON))
    assert isinstance(denied, CreditExhausted)
    assert denied.message.startswith("The model was not called. This month's credits are used up.")
    assert await store.write(settled(plans, first, Usage(3, 0))) == 2 * MICRO
    assert (await store.read(charged))["model:run:1:1"] == -MICRO
    assert await store.write(settled(plans, first, Usage(3, 0))) == 0
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_a_call_that_nothing_is_left_for_is_written_down_so_that_it_is_never_charged_later(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))
    await store.write(lambda tx: charge(tx, plans, organization, Charge("all", "tool", 10 * MICRO), NOON))
    call = model_call(organization, "run")
    assert await store.write(settled(plans, call, Usage(3, 0))) == 3 * MICRO
    await store.write(put_on(organization, "open"))
    assert await store.write(settled(plans, call, Usage(3, 0))) == 0
    assert (await store.read(charged))["model:run:1:1"] == 0
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_a_managed_tool_costs_its_multiplier_before_it_runs_and_a_retry_of_the_step_nothing(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))
    for _ in range(2):
        assert await store.write(lambda tx: charge_tool(tx, plans, organization, use("r1"), NOON)) is None
        assert await store.write(lambda tx: charge_tool(tx, plans, organization, use("r1", "exa", 2), NOON)) is None
    assert await store.read(charged) == {"tool:r1:1": -MICRO, "tool:r1:2": -2_500_000}


async def test_a_managed_tool_past_the_ceiling_is_a_value_with_the_wires_reason(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))
    await store.write(lambda tx: charge(tx, plans, organization, Charge("all", "tool", 10 * MICRO), NOON))
    answer = await store.write(lambda tx: charge_tool(tx, plans, organization, use("r1"), NOON))
    assert isinstance(answer, CreditExhausted)
    assert answer.reason == "credit_exhausted"
    assert answer.denial.envelope["code"] == "credit_plan_exhausted"
    assert await store.read(charged) == {"all": -10 * MICRO}


async def test_knowledge_is_priced_by_the_plan_file(store: Store, plans: Plans, organization: str) -> None:
    await store.write(put_on(organization, "tiny"))

    def ingest(tx: WriteTx) -> CreditExhausted | None:
        return charge_ingest(tx, plans, organization, document_id="d1", attempt=1, tokens=1500, now=NOON)

    def search(tx: WriteTx) -> CreditExhausted | None:
        return charge_retrieval(tx, plans, organization, search_id="s1", run_id=None, now=NOON)

    assert await store.write(ingest) is None
    assert await store.write(search) is None
    assert await store.read(charged) == {"ingest:d1:1": -3 * MICRO, "retrieval:s1": -MICRO // 2}


async def test_knowledge_that_was_paid_is_not_paid_again_and_what_cannot_be_paid_is_not_done(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "tiny"))

    def ingest(tx: WriteTx, attempt: int, tokens: int) -> CreditExhausted | None:
        return charge_ingest(tx, plans, organization, document_id="d", attempt=attempt, tokens=tokens, now=NOON)

    def search(tx: WriteTx, search_id: str) -> CreditExhausted | None:
        return charge_retrieval(tx, plans, organization, search_id=search_id, run_id=None, now=NOON)

    for _ in range(3):
        assert await store.write(lambda tx: ingest(tx, 1, 4_500)) is None
        assert await store.write(lambda tx: search(tx, "s")) is None
    assert await store.read(charged) == {"ingest:d:1": -9 * MICRO, "retrieval:s": -MICRO // 2}
    broke = await store.write(lambda tx: ingest(tx, 2, 500))
    assert broke is not None
    assert (broke.reason, broke.denial.status) == ("credit_exhausted", 402)
    assert broke.message.startswith("The document was not read. This month's credits are used up.")
    assert await store.write(lambda tx: search(tx, "last")) is None
    broke = await store.write(lambda tx: search(tx, "one more"))
    assert broke is not None and broke.message.startswith("The search was not made.")
    with pytest.raises(ValueError, match="cannot be moved"):
        await store.write(lambda tx: ingest(tx, 3, -1))
    with pytest.raises(ChargeKeyReused):
        await store.write(lambda tx: ingest(tx, 1, 100))


async def test_a_receipt_lists_what_a_turn_used_over_all_its_runs(
    store: Store, plans: Plans, organization: str
) -> None:
    first = await store.write(lambda tx: add_run(tx, organization, status="resumed"))
    second = await store.write(lambda tx: add_run(tx, organization, status="completed", turn_id=first))
    await store.write(lambda tx: reserve(tx, plans, organization, charge_key="c:1", run_id=first, now=NOON))
    await store.write(settled(plans, model_call(organization, first), Usage(2, 1)))
    await store.write(settled(plans, model_call(organization, second), Usage(10, 2, cached=5)))
    await store.write(lambda tx: charge_tool(tx, plans, organization, use(second, "exa"), NOON))
    receipt = await store.read(lambda tx: turn_receipt(tx, organization, first))
    assert [(line.calls, line.input_tokens, line.cached_tokens, line.output_tokens) for line in receipt.models] == [
        (2, 12, 5, 3)
    ]
    spending = {(line.kind, line.item): line.plan_micro for line in receipt.spending}
    assert spending == {
        ("turn", None): MICRO,
        ("model", "any-model"): (4 + 9) * MICRO + MICRO // 2,
        ("tool", "list_repositories"): 2_500_000,
    }
    assert receipt.spent_micro == sum(spending.values())
    stranger = await store.write(lambda tx: add_organization(tx, "stranger"))
    with pytest.raises(TurnNotFound):
        await store.read(lambda tx: turn_receipt(tx, stranger, first))


async def test_the_sweeper_gives_back_what_dead_runs_held_and_leaves_living_ones_alone(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "paid"))
    living = await store.write(lambda tx: add_run(tx, organization))
    dying = await store.write(lambda tx: add_run(tx, organization))
    for run_id in (living, dying, "never-written"):
        call = model_call(organization, run_id)
        assert await store.write(lambda tx, call=call: hold_model(tx, plans, call, Usage(2, 0), NOON)) is None
    await store.write(lambda tx: tx.execute(runs.update().where(runs.c.id == dying).values(status="failed")))
    await Subscriptions(store, plans, Clock(), None).sweep()
    states = await store.read(lambda tx: {row[0]: row[1] for row in tx.execute(select(holds.c.run_id, holds.c.state))})
    assert states == {living: "open", dying: "voided", "never-written": "voided"}
    faults = await store.read(lambda tx: billing_faults(tx, plans))
    assert [fault for fault in faults if "begins a turn" not in fault] == []
