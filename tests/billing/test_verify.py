"""The proof notices every way in which money can go wrong."""

from collections.abc import Callable

import pytest
from sqlalchemy import delete, insert, text, update

from parley.billing import ModelCall, Plans, ToolUse, charge_tool, hold_model, reserve, settle_model
from parley.billing.ledger import Charge
from parley.billing.store import enter
from parley.billing.verify import billing_faults
from parley.storage import Store, WriteTx
from parley.storage.tables.billing import balances, holds, ledger, model_usage
from parley.storage.tables.chats import runs, tool_calls
from parley.turn.model import Usage
from tests.billing.office import NOON, add_run, put_on

type Tamper = Callable[[WriteTx, str, str], None]


async def furnish(store: Store, plans: Plans, organization: str) -> str:
    """One honest turn with a model call, a managed action and an open hold; its run."""
    await store.write(put_on(organization, "paid"))
    run_id = await store.write(lambda tx: add_run(tx, organization))
    call = ModelCall(organization, "user", run_id, 1, 1, "modulexai", "any", managed=True)
    later = ModelCall(organization, "user", run_id, 2, 1, "modulexai", "any", managed=True)

    def work(tx: WriteTx) -> None:
        chat_id = tx.execute(runs.select().where(runs.c.id == run_id)).one().chat_id
        reserve(tx, plans, organization, charge_key=f"{chat_id}:{run_id}", run_id=run_id, now=NOON)
        settle_model(tx, plans, call, Usage(1, 0), started_at=NOON, succeeded=True, now=NOON)
        hold_model(tx, plans, later, Usage(1, 0), NOON)
        charge_tool(tx, plans, organization, ToolUse("github", "list_repositories", run_id, 1), NOON)
        tx.execute(
            insert(tool_calls).values(
                run_id=run_id,
                step=1,
                chat_id=chat_id,
                organization_id=organization,
                tool_call_id="call_1",
                tool="execute_integration_tool",
                input={},
                status="done",
                epoch=1,
                integration_name="github",
                action_name="list_repositories",
                managed=True,
                succeeded=True,
                started_at=NOON,
            )
        )

    await store.write(work)
    return run_id


def change_an_amount(tx: WriteTx, _organization: str, _run_id: str) -> None:
    tx.execute(update(ledger).where(ledger.c.kind == "turn").values(amount_micro=-2_000_000))


def lose_an_entry(tx: WriteTx, _organization: str, _run_id: str) -> None:
    tx.execute(delete(ledger).where(ledger.c.kind == "turn"))


def charge_the_turn_twice(tx: WriteTx, organization: str, run_id: str) -> None:
    again = Charge(f"again:{run_id}", "turn", 1_000_000, run_id)
    period = tx.execute(ledger.select().where(ledger.c.kind == "turn")).one().period_at
    enter(tx, organization, again.entry(again.key, "plan", period, -1_000_000), NOON)


def lose_the_balance(tx: WriteTx, _organization: str, _run_id: str) -> None:
    tx.execute(delete(balances).where(balances.c.account == "plan"))


def forget_a_hold(tx: WriteTx, _organization: str, _run_id: str) -> None:
    tx.execute(update(holds).values(state="voided"))


def use_more_than_was_charged(tx: WriteTx, _organization: str, _run_id: str) -> None:
    tx.execute(update(model_usage).values(cost_micro=9_000_000))


def charge_a_call_nobody_made(tx: WriteTx, _organization: str, _run_id: str) -> None:
    tx.execute(delete(model_usage))


def run_a_managed_action_for_nothing(tx: WriteTx, _organization: str, _run_id: str) -> None:
    tx.execute(update(tool_calls).values(step=7))


@pytest.mark.parametrize(
    ("tamper", "sentence"),
    [
        (change_an_amount, "but its entries sum to"),
        (lose_an_entry, "begins a turn and was charged 0 times"),
        (charge_the_turn_twice, "begins a turn and was charged 2 times"),
        (lose_the_balance, "has entries and no balance"),
        (forget_a_hold, "but its open holds sum to 0"),
        (use_more_than_was_charged, "costs 9000000, but 1000000 were charged"),
        (charge_a_call_nobody_made, "was charged, but no such model call is recorded"),
        (run_a_managed_action_for_nothing, "ran an action of github with a managed credential and was not charged"),
    ],
)
async def test_a_tampered_store_is_found_out(
    store: Store, plans: Plans, organization: str, tamper: Tamper, sentence: str
) -> None:
    run_id = await furnish(store, plans, organization)
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []
    await store.write(lambda tx: tamper(tx, organization, run_id))
    assert any(sentence in fault for fault in await store.read(lambda tx: billing_faults(tx, plans)))


async def test_the_database_itself_refuses_a_balance_below_zero(store: Store, plans: Plans, organization: str) -> None:
    await furnish(store, plans, organization)
    overdraw = text("UPDATE balances SET posted_micro = posted_micro - 100000000 WHERE account = :account")
    for account in ("plan", "wallet"):
        with pytest.raises(Exception, match=r"(?i)check"):
            await store.write(lambda tx, account=account: tx.execute(overdraw, {"account": account}))
