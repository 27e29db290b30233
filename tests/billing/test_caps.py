"""When a turn asks before it uses more, and what a yes allows."""

from collections.abc import Callable

from parley.base.clock import DAY
from parley.base.ids import new_id
from parley.billing import CapNear, Plans, ToolUse, cap_near, charge_tool
from parley.billing.ledger import Charge, charge
from parley.billing.plans import MICRO
from parley.storage import ReadTx, Store, WriteTx
from parley.storage.tables.chats import questions, runs
from tests.billing.office import NOON, add_organization, add_run, put_on


def spend(plans: Plans, organization_id: str, run_id: str, credit: float) -> Callable[[WriteTx], object]:
    what = Charge(new_id(), "tool", int(credit * MICRO), run_id)
    return lambda tx: charge(tx, plans, organization_id, what, NOON)


def asks(organization_id: str, turn_id: str, run_id: str | None = None) -> Callable[[ReadTx], CapNear | None]:
    return lambda tx: cap_near(tx, organization_id, turn_id, run_id=run_id or turn_id, step=1)


def answer(organization_id: str, run_id: str, near: CapNear, *, yes: bool) -> Callable[[WriteTx], object]:
    def work(tx: WriteTx) -> None:
        run = tx.execute(runs.select().where(runs.c.id == run_id)).one()
        row = {"id": new_id(), "organization_id": organization_id, "chat_id": run.chat_id, "run_id": run_id}
        tx.execute(
            questions.insert().values(
                **row,
                user_id=run.user_id,
                kind="yes_no",
                payload={},
                binding=near.binding,
                answer={"kind": "yes_no", "answer": yes},
                outcome="answered",
                created_at=NOON,
                expires_at=NOON + DAY,
            )
        )

    return work


async def test_a_turn_asks_with_a_fifth_of_its_cap_left_and_again_after_every_yes(
    store: Store, plans: Plans, organization: str
) -> None:
    run_id = await store.write(lambda tx: add_run(tx, organization))
    await store.write(spend(plans, organization, run_id, 11.999999))
    assert await store.read(asks(organization, run_id)) is None
    await store.write(put_on(organization, "open", turn_cap_micro=15 * MICRO))
    assert await store.read(asks(organization, run_id)) is None
    await store.write(spend(plans, organization, run_id, 0.000001))
    near = await store.read(asks(organization, run_id))
    assert near is not None and near == CapNear(12 * MICRO, 15 * MICRO, 30 * MICRO)
    await store.write(answer(organization, run_id, near, yes=True))
    later = await store.write(lambda tx: add_run(tx, organization, turn_id=run_id))
    assert await store.read(asks(organization, run_id, later)) is None
    await store.write(spend(plans, organization, later, 14.999999))
    assert await store.read(asks(organization, run_id, later)) is None
    await store.write(spend(plans, organization, later, 0.000001))
    assert await store.read(asks(organization, run_id, later)) == CapNear(27 * MICRO, 30 * MICRO, 45 * MICRO)


async def test_a_yes_long_past_the_cap_allows_the_cap_once_more_from_there(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "open", turn_cap_micro=15 * MICRO))
    run_id = await store.write(lambda tx: add_run(tx, organization))
    await store.write(spend(plans, organization, run_id, 100))
    near = await store.read(asks(organization, run_id))
    assert near is not None and near.next_micro == 115 * MICRO
    await store.write(answer(organization, run_id, near, yes=True))
    assert await store.read(asks(organization, run_id)) is None


async def test_a_no_allows_nothing_and_a_yes_counts_for_its_own_turn_only(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "open", turn_cap_micro=15 * MICRO))
    first, other = [await store.write(lambda tx: add_run(tx, organization)) for _ in range(2)]
    for run_id in (first, other):
        await store.write(spend(plans, organization, run_id, 12))
    near = await store.read(asks(organization, first))
    assert near is not None
    await store.write(answer(organization, first, near, yes=False))
    assert await store.read(asks(organization, first)) == near
    await store.write(answer(organization, first, near, yes=True))
    assert await store.read(asks(organization, first)) is None
    assert await store.read(asks(organization, other)) == near


async def test_a_raised_or_removed_cap_counts_at_once_and_a_lowered_one_takes_back_no_yes(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "open", turn_cap_micro=15 * MICRO))
    run_id = await store.write(lambda tx: add_run(tx, organization))
    await store.write(spend(plans, organization, run_id, 12))
    near = await store.read(asks(organization, run_id))
    assert near is not None
    await store.write(put_on(organization, "open", turn_cap_micro=100 * MICRO))
    assert await store.read(asks(organization, run_id)) is None
    await store.write(put_on(organization, "open", turn_cap_micro=None))
    assert await store.read(asks(organization, run_id)) is None
    await store.write(answer(organization, run_id, near, yes=True))
    await store.write(put_on(organization, "open", turn_cap_micro=2 * MICRO))
    assert await store.read(asks(organization, run_id)) is None


async def test_a_call_that_was_paid_before_its_process_died_is_not_asked_about(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "open", turn_cap_micro=2 * MICRO))
    run_id = await store.write(lambda tx: add_run(tx, organization))
    use = ToolUse("exa", "search", run_id, 1)
    assert await store.write(lambda tx: charge_tool(tx, plans, organization, use, NOON)) is None
    assert await store.read(asks(organization, run_id)) is None
    assert await store.read(lambda tx: cap_near(tx, organization, run_id, run_id=run_id, step=2)) is not None


async def test_another_organizations_cap_is_not_this_ones(store: Store, plans: Plans, organization: str) -> None:
    stranger = await store.write(lambda tx: add_organization(tx, "stranger"))
    await store.write(put_on(stranger, "open", turn_cap_micro=2 * MICRO))
    run_id = await store.write(lambda tx: add_run(tx, organization))
    await store.write(spend(plans, organization, run_id, 50))
    assert await store.read(asks(organization, run_id)) is None
