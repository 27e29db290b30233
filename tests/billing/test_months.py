"""Credit months turn on the subscription's own day, also while a turn is under way."""

import pytest

from parley.base.clock import from_iso, iso
from parley.billing import Denial, ModelCall, Plans, hold_model, reserve, settle_model
from parley.billing.ledger import Charge, charge, release
from parley.billing.plans import MICRO, month_of
from parley.billing.store import balance
from parley.billing.verify import billing_faults
from parley.storage import ReadTx, Store, WriteTx
from parley.turn.model import Usage
from tests.billing.office import add_run, put_on

ANCHOR = from_iso("2026-01-31T09:00:00")


@pytest.mark.parametrize(
    ("moment", "start", "end"),
    [
        ("2026-01-31T09:00:00", "2026-01-31T09:00:00", "2026-02-28T09:00:00"),
        ("2026-02-28T08:59:59", "2026-01-31T09:00:00", "2026-02-28T09:00:00"),
        ("2026-02-28T09:00:00", "2026-02-28T09:00:00", "2026-03-31T09:00:00"),
        ("2026-03-30T23:00:00", "2026-02-28T09:00:00", "2026-03-31T09:00:00"),
        ("2026-04-30T09:00:00", "2026-04-30T09:00:00", "2026-05-31T09:00:00"),
        ("2026-12-31T10:00:00", "2026-12-31T09:00:00", "2027-01-31T09:00:00"),
        ("2028-02-29T09:00:00", "2028-02-29T09:00:00", "2028-03-31T09:00:00"),
        ("2026-01-10T00:00:00", "2025-12-31T09:00:00", "2026-01-31T09:00:00"),
    ],
)
def test_a_month_starts_on_the_anchors_day_or_the_last_one(moment: str, start: str, end: str) -> None:
    month = month_of(ANCHOR, from_iso(moment))
    assert (iso(month.start), iso(month.end)) == (f"{start}+00:00", f"{end}+00:00")


def test_every_moment_of_four_years_lies_in_exactly_one_month() -> None:
    start = month_of(ANCHOR, ANCHOR).start
    for _ in range(48):
        month = month_of(ANCHOR, start)
        assert month.start == start
        assert month_of(ANCHOR, month.end - 1) == month
        start = month.end
    assert iso(start) == "2030-01-31T09:00:00+00:00"


async def test_a_used_up_month_opens_again_at_its_turn_and_not_a_second_before(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "paid"))
    last, first = from_iso("2026-06-30T08:59:59"), from_iso("2026-06-30T09:00:00")
    everything = Charge("everything", "tool", 10 * MICRO)
    assert await store.write(lambda tx: charge(tx, plans, organization, everything, last)) is None

    with pytest.raises(Denial):
        await store.write(lambda tx: reserve(tx, plans, organization, charge_key="c:1", run_id="1", now=last))
    await store.write(lambda tx: reserve(tx, plans, organization, charge_key="c:2", run_id="2", now=first))


async def test_a_model_call_across_the_turn_of_the_month_is_paid_by_the_new_one(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "paid"))
    before, after = from_iso("2026-06-30T08:59:59"), from_iso("2026-06-30T09:00:05")
    run_id = await store.write(lambda tx: add_run(tx, organization, status="interrupted", turn_id="earlier"))
    call = ModelCall(organization, "user", run_id, 1, 1, "modulexai", "any", managed=True)
    assert await store.write(lambda tx: hold_model(tx, plans, call, Usage(4, 2), before)) is None

    def month(tx: ReadTx, now: int) -> tuple[int, int]:
        found = balance(tx, organization, "plan", month_of(ANCHOR, now).start)
        assert found is not None
        return -found.posted_micro, found.held_micro

    assert await store.read(lambda tx: month(tx, before)) == (0, 8 * MICRO)

    def settled(tx: WriteTx) -> int:
        return settle_model(tx, plans, call, Usage(5, 1), started_at=before, succeeded=True, now=after)

    assert await store.write(settled) == 0
    assert await store.read(lambda tx: month(tx, before)) == (0, 0)
    assert await store.read(lambda tx: month(tx, after)) == (7 * MICRO, 0)
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_a_dead_runs_hold_of_last_month_is_given_back_to_last_month(
    store: Store, plans: Plans, organization: str
) -> None:
    await store.write(put_on(organization, "paid"))
    before, after = from_iso("2026-06-30T08:00:00"), from_iso("2026-07-02T00:00:00")
    call = ModelCall(organization, "user", "gone", 1, 1, "modulexai", "any", managed=True)
    await store.write(lambda tx: hold_model(tx, plans, call, Usage(4, 2), before))
    assert await store.write(lambda tx: release(tx, organization, run_id="gone", now=after)) == 1
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_a_smaller_plan_in_mid_month_keeps_what_was_used_and_allows_no_more(
    store: Store, plans: Plans, organization: str
) -> None:
    now = from_iso("2026-06-20T12:00:00")
    many = Charge("many", "tool", 50 * MICRO)
    assert await store.write(lambda tx: charge(tx, plans, organization, many, now)) is None
    await store.write(put_on(organization, "paid"))
    with pytest.raises(Denial):
        await store.write(lambda tx: reserve(tx, plans, organization, charge_key="c:1", run_id="1", now=now))
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []
    await store.write(put_on(organization, "open"))
    await store.write(lambda tx: reserve(tx, plans, organization, charge_key="c:2", run_id="2", now=now))
