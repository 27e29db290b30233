"""What the gate leaves behind when it refuses or cannot answer, and what a lying provider can do to the books."""

from collections.abc import Callable

import pytest
from sqlalchemy import func, insert, select, text

from parley.billing.ledger import Charge, charge
from parley.billing.plans import MICRO
from parley.storage import ReadTx, WriteTx
from parley.storage.tables.billing import rate_windows
from parley.storage.tables.columns import metadata
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedUsage
from tests.billing.office import put_on
from tests.contract.conftest import billed
from tests.stage import Stage, calls, new_model_key, says

POOLED_KEY = new_model_key()
MANAGED = {"integration_name": "modulexai", "provider_id": "openai", "model_id": "gpt-4o"}


@pytest.fixture(scope="module")
def settings_extra(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> dict[str, str]:
    return billed(tmp_path_factory.mktemp("plans"), model, POOLED_KEY)


def rows(tx: ReadTx) -> dict[str, int]:
    """How many rows every table has; requests are counted apart from turns."""
    found = {
        table.name: tx.execute(select(func.count()).select_from(table)).scalar_one()
        for table in metadata.sorted_tables
        if table is not rate_windows
    }
    turns = select(func.coalesce(func.sum(rate_windows.c.taken), 0)).where(rate_windows.c.rate_class == "sync_exec")
    return {**found, "turns counted": int(tx.execute(turns).scalar_one())}


def _used_up(stage: Stage, plan: str, *, overage: bool) -> Callable[[WriteTx], None]:
    def work(tx: WriteTx) -> None:
        put_on(stage.client.organization_id, plan, overage=overage)(tx)
        what = Charge("used", "tool", 10 * MICRO)
        assert charge(tx, stage.parley.plans, stage.client.organization_id, what, stage.clock.now()) is None

    return work


def _full_minute(stage: Stage) -> Callable[[WriteTx], None]:
    def work(tx: WriteTx) -> None:
        put_on(stage.client.organization_id, "tiny")(tx)
        window = {"rate_class": "sync_exec", "window_at": stage.clock.now(), "taken": 20}
        tx.execute(insert(rate_windows).values(subject=stage.client.organization_id, **window))

    return work


def _busy(stage: Stage) -> Callable[[WriteTx], None]:
    def work(tx: WriteTx) -> None:
        put_on(stage.client.organization_id, "still")(tx)

    return work


@pytest.mark.parametrize(("layer", "status"), [("credit", 402), ("wallet", 402), ("quota", 403), ("rate", 429)])
async def test_a_denied_turn_leaves_no_row_in_any_table(stage: Stage, layer: str, status: int) -> None:
    prepare = {
        "credit": _used_up(stage, "tiny", overage=False),
        "wallet": _used_up(stage, "paid", overage=True),
        "quota": _busy(stage),
        "rate": _full_minute(stage),
    }[layer]
    await stage.parley.store.write(prepare)
    before = await stage.parley.store.read(rows)
    body = {"message": "Hi", "llm": stage.llm}
    for headers in ({}, {"Idempotency_Key": "again"}):
        denied = await stage.client.post("/assistant/chat", body, **headers)
        assert (denied.status, denied.body["layer"]) == (status, layer)
    assert await stage.parley.store.read(rows) == before


async def test_a_gate_that_cannot_look_is_a_clear_503_that_leaves_no_row_and_opens_again(stage: Stage) -> None:
    store = stage.parley.store
    body = {"message": "Hi", "llm": stage.llm}
    before = await store.read(rows)
    await store.write(lambda tx: tx.execute(text("ALTER TABLE balances RENAME TO balances_away")))
    try:
        closed = await stage.client.post("/assistant/chat", body)
    finally:
        await store.write(lambda tx: tx.execute(text("ALTER TABLE balances_away RENAME TO balances")))
    assert closed.status == 503
    assert closed.body == {
        "detail": "Usage cannot be checked right now, so nothing was started or charged. Try again in a moment."
    }
    assert await store.read(rows) == before
    turn = await stage.turn(says("Back."))
    assert turn.types[-1] == "done"


async def test_an_answer_passes_no_gate_however_little_is_left(stage: Stage) -> None:
    asked = await stage.turn(calls("ask_user_yes_no", {"message": "Go on?"}))
    await stage.parley.store.write(_full_minute(stage))
    await stage.parley.store.write(_used_up(stage, "still", overage=False))
    refused = await stage.client.post("/assistant/chat", {"message": "More", "llm": stage.llm})
    assert refused.status == 403
    await stage.script(says("Done."))
    answered = await stage.resume(asked, {"kind": "yes_no", "answer": True})
    assert answered.status == 200, answered.body
    assert (await stage.follow(answered.body)).types[-1] == "done"


async def test_a_managed_model_that_uses_the_last_credits_ends_the_turn_before_its_next_call(stage: Stage) -> None:
    await stage.parley.store.write(put_on(stage.client.organization_id, "tiny"))
    await stage.connect_github("ghp_none")
    listing = calls("get_organization_credentials")
    listing.usage = ScriptedUsage(input=500, cached=0, output=0)
    await stage.model.script(POOLED_KEY, listing, says("Never asked for."))
    asked_before = len(await stage.model.requests(POOLED_KEY))
    stage.llm = MANAGED
    turn = await stage.follow(await stage.start())
    assert turn.types[-3:] == ["tool_result", "error", "done"]
    message = turn.data("error")["message"]
    assert message.startswith("The model was not called. This month's credits are used up.")
    assert turn.data("done")["error"] is True
    assert len(await stage.model.requests(POOLED_KEY)) == asked_before + 1
    usage = (await stage.client.get("/billing/usage")).body
    assert (usage["used"], usage["limit"], usage["models"][0]["input_tokens"]) == (10.0, 10.0, 500)


@pytest.mark.parametrize("managed", [True, False])
async def test_a_provider_that_says_absurd_figures_ends_its_turn_and_harms_no_other(
    stage: Stage, managed: bool
) -> None:
    absurd = says("Hello.", usage=ScriptedUsage(input=2**62, cached=-5, output=2**62))
    if managed:
        await stage.model.script(POOLED_KEY, absurd)
        stage.llm, own = MANAGED, stage.llm
        turn = await stage.follow(await stage.start())
        stage.llm = own
    else:
        turn = await stage.turn(absurd)
    assert turn.types[-1] == "done"
    run = (await stage.client.get(f"/assistant/chat/{turn.chat_id}/runs/{turn.run_id}")).body
    assert 0 < run["receipt"]["input_tokens"] <= 10**9
    assert run["receipt"]["cached_tokens"] == 0
    assert (await stage.turn(says("Fine."))).types[-1] == "done"


@pytest.mark.parametrize(
    "body",
    [
        {"turn_cap": -1},
        {"turn_cap": 1},
        {"turn_cap": 10**30},
        {"turn_cap": 2.5},
        {"turn_cap": "many"},
        {"top_up_below": -1},
        {"top_up_amount": 10**18},
        {"overage": None},
        {"overage": "perhaps"},
    ],
)
async def test_a_setting_of_the_wallet_out_of_bounds_is_422_and_changes_nothing(
    stage: Stage, body: dict[str, object]
) -> None:
    before = (await stage.client.get("/billing/wallet")).body
    assert (await stage.client.call("PATCH", "/billing/wallet", body)).status == 422
    assert (await stage.client.get("/billing/wallet")).body == before


async def test_the_ledger_shows_another_organization_nothing_of_this_one(stage: Stage) -> None:
    await stage.turn(says("Hello."))
    assert len((await stage.client.get("/billing/ledger")).body["items"]) == 1
    made = await stage.client.post("/organizations", {"name": "Elsewhere"})
    stage.client.organization_id = made.body["organization"]["id"]
    assert (await stage.client.get("/billing/ledger")).body == {"items": [], "next_cursor": None}
    assert (await stage.client.get("/billing/usage")).body["credits"] == 0
