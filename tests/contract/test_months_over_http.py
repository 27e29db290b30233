"""A subscription bought on the 31st: its months as its people see them, and a turn that runs across the turn of one."""

import calendar
from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from parley.base.clock import SECOND, from_iso, iso
from parley.billing.ledger import Charge, charge
from parley.billing.plans import MICRO
from parley.storage import WriteTx
from parley.storage.tables.billing import ledger
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedUsage
from tests.billing.office import put_on
from tests.contract.conftest import billed
from tests.stage import Stage, new_model_key, says

POOLED_KEY = new_model_key()
MANAGED = {"integration_name": "modulexai", "provider_id": "openai", "model_id": "gpt-4o"}


@pytest.fixture(scope="module")
def settings_extra(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> dict[str, str]:
    """The clock is moved in mid-turn, which must not look like a worker that died."""
    return {**billed(tmp_path_factory.mktemp("plans"), model, POOLED_KEY), "PARLEY_LEASE_SECONDS": "3600"}


def wait_until(stage: Stage, moment: int) -> None:
    stage.clock.advance(seconds=(moment - stage.clock.now()) / SECOND)


async def period(stage: Stage) -> tuple[str, str, float]:
    usage = (await stage.client.get("/billing/usage")).body
    return usage["period_start"], usage["period_end"], usage["used"]


async def test_months_from_the_31st_turn_on_each_months_last_day_and_in_mid_turn(stage: Stage) -> None:
    organization_id, store = stage.client.organization_id, stage.parley.store
    bought = datetime.fromtimestamp(stage.clock.now() // SECOND, UTC).year
    year = bought + 1
    january, march, april = (from_iso(f"{year}-{day}T09:00:00") for day in ("01-31", "03-31", "04-30"))
    february = from_iso(f"{year}-02-{calendar.monthrange(year, 2)[1]}T09:00:00")
    await store.write(put_on(organization_id, "tiny", anchor_at=from_iso(f"{bought}-01-31T09:00:00")))

    wait_until(stage, february - 600 * SECOND)
    used = Charge("used", "tool", 5 * MICRO)

    def use(tx: WriteTx) -> None:
        assert charge(tx, stage.parley.plans, organization_id, used, stage.clock.now()) is None

    await store.write(use)
    assert await period(stage) == (iso(january), iso(february), 5.0)
    overview = (await stage.client.get("/dashboard/analytics/overview")).body["data"]["overview"]
    assert overview["current_month_credit_usage"]["used_credit"] == 5.0
    assert overview["current_month_credit_usage"]["next_reset_date"] == iso(february)

    barrier = f"month-{organization_id}"
    reply = says("Across.", usage=ScriptedUsage(input=3, cached=0, output=0), barrier=barrier)
    await stage.model.script(POOLED_KEY, reply)
    stage.llm = MANAGED
    begun = await stage.start()
    wait_until(stage, february)
    await stage.model.release(barrier)
    turn = await stage.follow(begun)
    assert turn.types[-1] == "done"
    assert await period(stage) == (iso(february), iso(march), 3.0)
    query = select(ledger.c.kind, ledger.c.period_at, ledger.c.amount_micro).where(
        ledger.c.organization_id == organization_id
    )
    assert sorted(tuple(row) for row in await store.read(lambda tx: tx.execute(query).all())) == [
        ("model", february, -3 * MICRO),
        ("tool", january, -5 * MICRO),
        ("turn", january, -MICRO),
    ]

    wait_until(stage, march - 60 * SECOND)
    assert await period(stage) == (iso(february), iso(march), 3.0)
    wait_until(stage, march)
    assert await period(stage) == (iso(march), iso(april), 0.0)
