"""The cap of a turn, and its receipt, over HTTP: it pauses and asks, and a yes, a no or a cancel each end well."""

import asyncio
import time
from collections.abc import Callable

import pytest
from modulex import Modulex
from sqlalchemy import func, select, update

from parley.base.clock import DAY, SECOND
from parley.billing.ledger import Charge, deposit
from parley.billing.plans import MICRO
from parley.storage import WriteTx
from parley.storage.tables.billing import holds, ledger, model_usage
from parley.storage.tables.chats import runs
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import Answer as Given
from parley.testing.provider_proxy import Asked, ProviderProxy, json_answer
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedReply, ScriptedUsage
from tests.billing.office import put_on
from tests.contract.conftest import billed
from tests.stage import Answer, Json, Stage, Turn, calls, executes, new_model_key, says

POOLED_KEY = new_model_key()
MANAGED = {"integration_name": "modulexai", "provider_id": "openai", "model_id": "gpt-4o"}
YES: Json = {"kind": "yes_no", "answer": True}
NO: Json = {"kind": "yes_no", "answer": False}
CREATE = {"owner": "octocat", "repo": "hello-world", "title": "Bug"}


@pytest.fixture(scope="module")
def settings_extra(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> dict[str, str]:
    return billed(tmp_path_factory.mktemp("plans"), model, POOLED_KEY)


@pytest.fixture
async def capped(stage: Stage, github: FakeGitHub) -> Stage:
    """An organization that lets a turn use 15 credits without asking, its turns on the managed model."""
    await stage.connect_github(github.token)
    changed = await stage.client.call("PATCH", "/billing/wallet", {"turn_cap": 15})
    assert (changed.status, changed.body["turn_cap"]) == (200, 15)
    stage.llm = MANAGED
    stage.model_key = POOLED_KEY
    return stage


def costing(credit: int, reply: ScriptedReply) -> ScriptedReply:
    """The reply, at that many credits."""
    reply.usage = ScriptedUsage(input=credit, cached=0, output=0)
    return reply


async def asked_at_twelve(stage: Stage, reply: ScriptedReply | None = None) -> Turn:
    """A turn that has used 12 of its 15 credits and waits before its first call."""
    await stage.script(costing(11, reply or executes("create_issue", CREATE)))
    before = len(await stage.sent())
    turn = await stage.follow(await stage.start())
    assert turn.types[-1] == "user_input_request"
    assert len(await stage.sent()) == before + 1
    return turn


async def receipt_of(stage: Stage, turn: Turn) -> Json:
    answer = await stage.client.get(f"/assistant/chat/{turn.chat_id}/runs/{turn.run_id}")
    assert answer.status == 200, answer.body
    return answer.body


async def test_a_turn_near_its_cap_asks_before_it_goes_on_and_a_yes_goes_on(capped: Stage, github: FakeGitHub) -> None:
    turn = await asked_at_twelve(capped)
    card = turn.question
    assert (card["kind"], card["required"], card["yes_label"], card["no_label"]) == (
        "yes_no",
        True,
        "Go on",
        "Stop here",
    )
    assert "used **12 of 15 credits**. Go on?" in card["message"]
    assert card["context"] == {
        "type": "turn_cap",
        "used_micro": 12 * MICRO,
        "allowance_micro": 15 * MICRO,
        "next_allowance_micro": 30 * MICRO,
    }
    assert github.created == []
    detail = (await capped.client.get(f"/assistant/chat/{turn.chat_id}")).body
    assert detail["pending_user_input_request"] == card
    await capped.script(costing(1, says("Created.")))
    resumed = await capped.resume(turn, YES)
    assert resumed.status == 200, resumed.body
    after = await capped.follow(resumed.body)
    assert after.types == ["metadata", "tool_result", "response_chunk", "done"]
    assert after.data("tool_result")["tool_call_id"] == turn.data("tool_call")["tool_call_id"]
    assert after.data("tool_result")["output"]["status"] == "ok"
    assert len(github.created) == 1
    receipt = (await receipt_of(capped, after))["receipt"]
    assert receipt["credits"] == "13"


async def test_a_no_ends_the_turn_with_an_answer_and_runs_and_charges_nothing_more(
    capped: Stage, github: FakeGitHub
) -> None:
    turn = await asked_at_twelve(capped)
    sent = len(await capped.sent())
    after = await capped.follow((await capped.resume(turn, NO)).body)
    assert after.types == ["metadata", "tool_result", "response_chunk", "done"]
    assert after.data("tool_result")["output"]["status"] == "cancelled"
    done = after.data("done")
    assert "error" not in done
    assert done["response"] == after.text
    assert done["response"].startswith("I stopped here, as you chose: this turn has used 12 of 15 credits.")
    assert [call["output"]["status"] for call in done["tool_calls"]] == ["cancelled"]
    assert github.created == []
    assert len(await capped.sent()) == sent
    run = await receipt_of(capped, after)
    assert (run["status"], run["receipt"]["credits"]) == ("completed", "12")
    detail = (await capped.client.get(f"/assistant/chat/{turn.chat_id}")).body
    assert (detail["messages"][-1]["content"], detail["running_id"]) == (done["response"], None)
    await capped.script(costing(1, says("Again.")))
    again = await capped.follow(await capped.start("And now?", turn.chat_id))
    assert (again.types[-1], again.text) == ("done", "Again.")


async def test_a_turn_that_answers_is_never_asked(capped: Stage) -> None:
    await capped.script(costing(40, says("A long answer.")))
    turn = await capped.follow(await capped.start())
    assert turn.types[-1] == "done"


async def test_every_yes_allows_the_cap_once_more(capped: Stage) -> None:
    listing = executes("list_repositories")
    turn = await asked_at_twelve(capped, listing)
    more = [costing(credit, executes("list_repositories", id=f"call_{number}")) for number, credit in ((2, 14), (3, 1))]
    await capped.script(*more)
    second = await capped.follow((await capped.resume(turn, YES)).body)
    assert second.types == ["metadata", "tool_result", "tool_call", "tool_result", "tool_call", "user_input_request"]
    assert "used **27 of 30 credits**" in second.question["message"]
    await capped.script(costing(1, says("Enough.")))
    third = await capped.follow((await capped.resume(second, YES)).body)
    assert third.types[-1] == "done"
    run = await receipt_of(capped, third)
    assert [each["status"] for each in run["runs"]] == ["interrupted", "interrupted", "completed"]
    assert (run["turn_id"], run["receipt"]["llm_calls"], run["receipt"]["credits"]) == (turn.run_id, 4, "28")


async def test_a_call_that_needs_approval_asks_for_it_after_the_cap(capped: Stage, github: FakeGitHub) -> None:
    delete = executes("delete_repository", {"owner": "octocat", "repo": "hello-world"})
    turn = await asked_at_twelve(capped, delete)
    assert turn.question["context"]["type"] == "turn_cap"
    approval = await capped.follow((await capped.resume(turn, YES)).body)
    assert approval.question["context"]["type"] == "approval"
    assert github.deleted == []
    await capped.script(costing(1, says("Gone.")))
    after = await capped.follow((await capped.resume(approval, YES)).body)
    assert after.data("tool_result")["output"]["status"] == "ok"
    assert github.deleted == ["hello-world"]


async def test_of_many_answers_at_once_one_counts_and_nothing_is_charged_twice(
    capped: Stage, github: FakeGitHub
) -> None:
    turn = await asked_at_twelve(capped)
    await capped.script(costing(1, says("Created.")))
    answers: list[Answer] = []

    async def give(response: Json) -> None:
        answers.append(await capped.resume(turn, response))

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(give(YES))
    won = [answer for answer in answers if answer.status == 200]
    assert (len(won), {answer.status for answer in answers}) == (1, {200, 410})
    after = await capped.follow(won[0].body)
    assert len(github.created) == 1
    assert (await receipt_of(capped, after))["receipt"]["credits"] == "13"
    assert (await capped.resume(turn, NO)).status == 410


@pytest.mark.parametrize("response", [{"kind": "skipped"}, {"kind": "free_text", "text": "yes"}])
async def test_only_yes_or_no_answers_it(capped: Stage, response: Json) -> None:
    turn = await asked_at_twelve(capped)
    assert (await capped.resume(turn, response)).status == 400
    assert (await capped.client.post(f"/assistant/chat/{turn.chat_id}/cancel")).status == 200


async def test_a_cancel_while_it_asks_ends_the_turn_and_the_answer_is_too_late(
    capped: Stage, github: FakeGitHub
) -> None:
    turn = await asked_at_twelve(capped)
    stopped = await capped.client.post(f"/assistant/chat/{turn.chat_id}/cancel")
    assert (stopped.status, stopped.body["run_id"]) == (200, turn.run_id)
    assert (await capped.resume(turn, YES)).status == 410
    assert github.created == []
    assert (await receipt_of(capped, turn))["receipt"]["credits"] == "12"


async def test_nobody_answers_for_seven_days_and_the_chat_goes_on(capped: Stage, github: FakeGitHub) -> None:
    turn = await asked_at_twelve(capped)
    now = capped.clock.now()
    try:
        capped.clock.advance(days=8)
        assert (await capped.resume(turn, YES)).status == 410
        await capped.script(costing(1, says("Fresh.")))
        after = await capped.follow(await capped.start("Hello again", turn.chat_id))
    finally:
        capped.clock.advance(days=(now - capped.clock.now()) / DAY)
    assert after.text == "Fresh."
    assert github.created == []


async def test_a_receipt_says_what_a_turn_used_and_who_paid_in_whole_micro_credits(
    capped: Stage, github: FakeGitHub
) -> None:
    organization_id, plans = capped.client.organization_id, capped.parley.plans
    await capped.parley.store.write(put_on(organization_id, "paid", overage=True))
    gift = Charge("gift", "grant", 50 * MICRO)
    await capped.parley.store.write(lambda tx: deposit(tx, plans, organization_id, gift, capped.clock.now()))
    reply = executes("list_repositories")
    reply.usage = ScriptedUsage(input=8, cached=3, output=2)
    await capped.script(reply, costing(2, says("Two.")))
    turn = await capped.follow(await capped.start())
    assert turn.types[-1] == "done"
    run = await receipt_of(capped, turn)
    receipt = run["receipt"]
    # 1 for the turn; 5 fresh, 3 cached at a tenth, 2 out at two, and 2 more in: 12.3 of a month of 10.
    assert (receipt["credits"], receipt["micro_credits"]) == ("12.3", 12_300_000)
    assert (receipt["from_plan_micro"], receipt["from_wallet_micro"]) == (10_000_000, 2_300_000)
    tokens = [receipt[name] for name in ("input_tokens", "cached_tokens", "output_tokens", "llm_calls")]
    assert tokens == [10, 3, 2, 2]
    assert [(line["model_id"], line["paid_by"], line["calls"]) for line in receipt["models"]] == [
        ("gpt-4o", "credits", 2)
    ]
    assert [(line["action_name"], line["paid_by"], line["calls"]) for line in receipt["actions"]] == [
        ("list_repositories", "own_key", 1)
    ]
    assert [(line["kind"], line["credits"], line["charges"]) for line in receipt["charges"]] == [
        ("model", "11.3", 2),
        ("turn", "1", 1),
    ]
    assert receipt["knowledge"] == []
    assert not [figure for figure in _figures(run) if isinstance(figure, float)]


def _figures(value: object) -> list[object]:
    if isinstance(value, dict):
        # A share of tokens is no money.
        return [leaf for name, item in value.items() if name != "cache_hit_share" for leaf in _figures(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _figures(item)]
    return [value]


async def test_a_receipt_of_another_chat_run_or_organization_is_404(capped: Stage) -> None:
    await capped.script(costing(1, says("One.")), costing(1, says("Two.")))
    first, second = [await capped.follow(await capped.start()) for _ in range(2)]
    path = f"/assistant/chat/{first.chat_id}/runs"
    for run_id in (second.run_id, "not-a-run", first.chat_id):
        assert (await capped.client.get(f"{path}/{run_id}")).status == 404
    made = await capped.client.post("/organizations", {"name": "Strangers"})
    capped.client.organization_id = made.body["organization"]["id"]
    missing = await capped.client.get(f"{path}/{first.run_id}")
    assert (missing.status, missing.body) == (404, {"detail": "Chat not found"})


async def test_the_published_client_answers_the_cap_like_any_question(capped: Stage) -> None:
    client = capped.client
    await capped.script(costing(11, calls("get_available_integrations")), costing(1, says("Done.")))
    async with Modulex(
        api_key=client.key, organization_id=client.organization_id, base_url=client.base_url, max_retries=0
    ) as sdk:
        begun = await sdk.assistant.chat("Hi", llm=MANAGED)
        assert begun.chat_id and begun.run_id
        asked: Json = {}
        async for event in sdk.assistant.listen(begun.chat_id, begun.run_id):
            if event.data["type"] == "user_input_request":
                asked = event.data["data"]
                break
        await capped.settled(begun.chat_id)
        resumed = await sdk.assistant.resume(begun.chat_id, request_id=asked["request_id"], response=YES, llm=MANAGED)
        assert resumed.run_id
        kinds = [event.data["type"] async for event in sdk.assistant.listen(begun.chat_id, resumed.run_id)]
    assert kinds[-1] == "done"


async def test_the_same_action_wanted_again_after_an_answer_is_no_repeat_to_its_provider(
    stage: Stage, proxy: ProviderProxy
) -> None:
    keys: list[str] = []

    async def incidents(asked: Asked) -> Given:
        assert isinstance(asked.json, dict)
        keys.append(str(asked.json["idempotency_key"]))
        return json_answer({"incident": {"id": "1"}})

    proxy.answer("api.incident.io", incidents)
    credential = {"integration_name": "incidentio", "auth_type": "api_key", "auth_data": {"api_key": "inc_key"}}
    assert (await stage.client.post("/credentials", credential)).status == 201
    opened = {"severity_id": "1", "visibility": "public", "name": "Fire"}
    asked = await stage.turn(
        executes("incidents_create", opened, integration="incidentio"),
        calls("ask_user_yes_no", {"message": "And another?"}, id="call_2"),
    )
    await stage.script(executes("incidents_create", opened, integration="incidentio", id="call_3"), says("Two."))
    after = await stage.follow((await stage.resume(asked, YES)).body)
    assert after.types[-1] == "done"
    assert (len(keys), len(set(keys))) == (2, 2)


# ── what ended runs held ────────────────────────────────────────────────────────────────────────


async def test_a_turn_that_ended_however_holds_nothing(stage: Stage) -> None:
    organization_id = stage.client.organization_id
    await stage.parley.store.write(put_on(organization_id, "paid", overage=True))
    grant = Charge("gift", "grant", 10_000 * MICRO)
    plans, now = stage.parley.plans, stage.clock.now()
    await stage.parley.store.write(lambda tx: deposit(tx, plans, organization_id, grant, now))
    stage.llm, stage.model_key = MANAGED, POOLED_KEY
    await stage.script(costing(1, says("Fine.")), ScriptedReply(status=400))
    for _ in range(2):
        await stage.follow(await stage.start())
    barrier = f"held-{organization_id}"
    await stage.script(says("Slow", "er", barrier=barrier, barrier_after=2))
    begun = await stage.start()
    async for event in stage.client.stream(begun["chat_id"], begun["run_id"]):
        if event["type"] == "response_chunk":
            break
    open_now = select(func.count()).select_from(holds).where(holds.c.organization_id == organization_id)
    open_now = open_now.where(holds.c.state == "open")
    assert await stage.parley.store.read(lambda tx: tx.execute(open_now).scalar_one()) == 1
    assert (await stage.client.post(f"/assistant/chat/{begun['chat_id']}/cancel")).status == 200
    async with asyncio.timeout(60):
        while await stage.parley.store.read(lambda tx: tx.execute(open_now).scalar_one()):
            await asyncio.sleep(0.01)
    await stage.model.release(barrier)
    charged = select(func.count()).select_from(ledger).where(ledger.c.run_id == begun["run_id"])
    charged = charged.where(ledger.c.kind == "model")
    # What the cancelled call had used by then was charged from what it held.
    assert await stage.parley.store.read(lambda tx: tx.execute(charged).scalar_one()) >= 1


async def test_what_an_owner_used_before_it_lost_the_run_is_charged_too(stage: Stage) -> None:
    stage.llm, stage.model_key = MANAGED, POOLED_KEY
    barrier = f"lost-{stage.client.organization_id}"
    first = costing(3, says("One ", "moment.", barrier=barrier, barrier_after=2))
    await stage.script(first, costing(4, says("Second try.")))
    begun = await stage.start()
    async for event in stage.client.stream(begun["chat_id"], begun["run_id"]):
        if event["type"] == "response_chunk":
            break

    def hand(owner: str, lease_until: int) -> Callable[[WriteTx], object]:
        taken = {"owner": owner, "lease_until": lease_until, "epoch": runs.c.epoch + 1}
        return lambda tx: tx.execute(update(runs).where(runs.c.id == begun["run_id"]).values(**taken))

    store, used = stage.parley.store, select(func.count()).select_from(model_usage)
    used = used.where(model_usage.c.run_id == begun["run_id"])
    await store.write(hand("elsewhere", time.time_ns() // 1_000 + 600 * SECOND))
    await stage.model.release(barrier)
    async with asyncio.timeout(60):
        while not await store.read(lambda tx: tx.execute(used).scalar_one()):
            await asyncio.sleep(0.01)
    await store.write(hand("elsewhere", 0))
    events = await stage.client.listen(begun["chat_id"], begun["run_id"])
    assert events[-1]["type"] == "done"
    run = (await stage.client.get(f"/assistant/chat/{begun['chat_id']}/runs/{begun['run_id']}")).body
    assert (run["receipt"]["credits"], run["receipt"]["llm_calls"]) == ("8", 2)
