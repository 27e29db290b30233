"""Kills under billed traffic: the ledger, what was used and the balances still agree, and nothing stays held.

``PARLEY_BILLED_KILLS`` asks for more kills than the few of the default suite.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from typing import Any

import aiohttp
import pytest
from sqlalchemy import func, select

from parley.base.settings import read_settings
from parley.billing.plans import MICRO
from parley.storage import ReadTx, open_store
from parley.storage.tables.billing import holds, ledger
from parley.storage.tables.chats import runs
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import Answer as Given
from parley.testing.provider_proxy import Asked, ProviderProxy, json_answer
from parley.testing.scripted_wire import ScriptedReply, ScriptedUsage
from tests.billing.office import PLAN_FILE
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import PATIENCE, TEST_SECONDS, Server, Site
from tests.stage import Client, Json, caller, executes, says

KILLS = int(os.environ.get("PARLEY_BILLED_KILLS", "3"))
TURNS_AT_ONCE = 5
CALM_SECONDS = 120.0
# Less than between two rounds of the sweeper: a server that starts sweeps at once.
SWEPT_SECONDS = 20.0
MANAGED = {"integration_name": "modulexai", "provider_id": "openai", "model_id": "gpt-4o"}
# A plan with a ceiling, so that every managed call is held for; a token costs a credit.
WIDE = """
[[plans]]
slug = "wide"
name = "Wide"
overage = true
monthly_credits = 1000000
"""
CREATE = {"owner": "octocat", "repo": "hello-world", "title": "Bug"}
YES: Json = {"kind": "yes_no", "answer": True}


async def hacker_news(asked: Asked) -> Given:
    """Three stories, each the same."""
    return json_answer([1, 2, 3] if "stories" in asked.path else {"id": 1, "title": "A story", "type": "story"})


@pytest.fixture
def github(proxy: ProviderProxy, github: FakeGitHub) -> FakeGitHub:
    """GitHub, and Hacker News beside it."""
    proxy.answer("hacker-news.firebaseio.com", hacker_news)
    return github


@pytest.fixture
async def billed(site: Site) -> Site:
    """A site whose turns run on the managed model of a plan with a ceiling."""
    plans = site.folder / "plans.toml"
    plans.write_text(PLAN_FILE.replace('default_plan = "open"', 'default_plan = "wide"') + WIDE, encoding="utf-8")
    site.environment |= {
        "PARLEY_PLANS_FILE": str(plans),
        "OPENAI_API_KEY": site.model_key,
        "OPENAI_BASE_URL": site.model.openai_url,
    }
    return site


def costing(credit: int, reply: ScriptedReply, *, delay: float = 0.0) -> ScriptedReply:
    """The reply, at that many credits."""
    reply.usage, reply.delay = ScriptedUsage(input=credit, cached=0, output=0), delay
    return reply


async def begin(client: Client, key: str) -> Json | None:
    """Start a turn; None where the server died first."""
    try:
        answer = await client.post("/assistant/chat", {"message": "Go", "llm": MANAGED}, Idempotency_Key=key)
    except (aiohttp.ClientError, ConnectionError):
        return None
    assert answer.status == 200, answer.body
    return answer.body


async def resting(client: Client) -> list[Json]:
    """Every chat, once none of them runs."""
    async with asyncio.timeout(CALM_SECONDS):
        while True:
            page = (await client.get("/assistant/chats?limit=100")).body["items"]
            if not any(chat["is_running"] for chat in page):
                return page
            await asyncio.sleep(0.05)


async def runs_at_rest(site: Site) -> Counter[str]:
    """How many runs stand how, once none is queued or running; from the store, since traffic uses up a key's rate."""
    store = open_store(read_settings(site.environment).store_url).across
    try:
        async with asyncio.timeout(CALM_SECONDS):
            while True:
                counts = Counter(await store.read(lambda tx: list(tx.execute(select(runs.c.status)).scalars())))
                if not counts["queued"] + counts["running"]:
                    return counts
                await asyncio.sleep(0.2)
    finally:
        await store.close()


async def figures(site: Site) -> tuple[int, int]:
    """How many holds are open, and how many micro-credits were spent."""
    store = open_store(read_settings(site.environment).store_url).across

    def read(tx: ReadTx) -> tuple[int, int]:
        held = tx.execute(select(func.count()).select_from(holds).where(holds.c.state == "open")).scalar_one()
        return held, -int(tx.execute(select(func.coalesce(func.sum(ledger.c.amount_micro), 0))).scalar_one())

    try:
        return await store.read(read)
    finally:
        await store.close()


async def spent_with_nothing_held(site: Site) -> int:
    """How many micro-credits were spent, once the sweeper has given back what a dead run still held."""
    async with asyncio.timeout(SWEPT_SECONDS):
        while True:
            held, spent = await figures(site)
            if not held:
                return spent
            await asyncio.sleep(0.1)


# ── the cap ─────────────────────────────────────────────────────────────────────────────────────

# The transactions around the question: 1 the call, 2 the pause, then the answer's own and 3 what came of it.
AROUND = [
    ("before:RunJournal._commit:2", True),
    ("after:RunJournal._commit:2", True),
    ("after:Chats.commit:2", True),
    ("before:RunJournal._commit:3", True),
    ("before:RunJournal._commit:3", False),
    ("after:RunJournal._commit:3", False),
]


@pytest.mark.parametrize(("crash", "yes"), AROUND)
async def test_a_server_killed_around_the_caps_question_asks_once_and_charges_once(
    billed: Site, github: FakeGitHub, crash: str, yes: bool
) -> None:
    script = [costing(11, executes("list_repositories")), costing(1, says("Done."))]
    await billed.model.script(billed.model_key, *script, by_step=True)
    doomed = await billed.serve(crash=crash)
    async with caller(doomed.base_url, billed.key, ORGANIZATION) as client:
        await billed.connect(client, "github", github.token)
        assert (await client.call("PATCH", "/billing/wallet", {"turn_cap": 15})).status == 200
        started = await begin(client, "capped")
        assert started is not None
        if not crash.endswith("RunJournal._commit:2"):
            asked = await _question(client, started["chat_id"])
            await _answer(client, started["chat_id"], asked, yes=yes)
    await doomed.gone()
    rescuer = await billed.serve()
    async with caller(rescuer.base_url, billed.key, ORGANIZATION) as client:
        chat_id = started["chat_id"]
        asked = await _question(client, chat_id)
        if asked is not None:
            await _answer(client, chat_id, asked, yes=yes)
        await resting(client)
        status = (await client.get(f"/assistant/chat/{chat_id}/status")).body
        assert status["run_status"]["status"] == "completed", status
        run = (await client.get(f"/assistant/chat/{chat_id}/runs/{status['run_status']['run_id']}")).body
    assert len([each for each in run["runs"] if each["status"] == "interrupted"]) == 1
    assert run["receipt"]["credits"] == ("13" if yes else "12")
    assert len(await billed.model.requests(billed.model_key)) == (2 if yes else 1)
    assert await billed.faults() == []
    assert await figures(billed) == (0, (13 if yes else 12) * MICRO)


async def _question(client: Client, chat_id: str) -> Json | None:
    """The open question once the chat runs no more."""
    await resting(client)
    return (await client.get(f"/assistant/chat/{chat_id}")).body["pending_user_input_request"]


async def _answer(client: Client, chat_id: str, asked: Json | None, *, yes: bool) -> None:
    """Answer; the server may die over it."""
    assert asked is not None
    body = {"request_id": asked["request_id"], "response": {"kind": "yes_no", "answer": yes}, "llm": MANAGED}
    try:
        await client.post(f"/assistant/chat/{chat_id}/resume", body, Idempotency_Key="answer")
    except (aiohttp.ClientError, ConnectionError):
        return


# ── a cancel ────────────────────────────────────────────────────────────────────────────────────


async def test_what_a_cancelled_run_held_is_free_again_after_its_server_died_before_it_settled(billed: Site) -> None:
    # Chats: 1 the turn, 2 the cancel, whose run then has no time to settle what its call used.
    await billed.model.script(billed.model_key, costing(3, says(*("on " * 400).split(), "."), delay=0.1), by_step=True)
    doomed = await billed.serve(crash="after:Chats.commit:2")
    async with caller(doomed.base_url, billed.key, ORGANIZATION) as client:
        started = await begin(client, "stopped")
        assert started is not None
        async with asyncio.timeout(PATIENCE):
            while (await figures(billed))[0] == 0:
                await asyncio.sleep(0.05)
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await client.post(f"/assistant/chat/{started['chat_id']}/cancel")
    await doomed.gone()
    assert await runs_at_rest(billed) == {"cancelled": 1}
    assert (await figures(billed))[0] == 1
    await billed.serve()
    assert await spent_with_nothing_held(billed) == MICRO
    assert await billed.faults() == []


# ── at random ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.timeout(TEST_SECONDS + 20 * KILLS)
async def test_after_random_kills_under_billed_traffic_ledger_usage_and_balances_agree(
    billed: Site, github: FakeGitHub
) -> None:
    dice = random.Random(f"{billed.environment['PARLEY_DATABASE_URL'][:6]}-{KILLS}")
    script = [
        costing(3, executes("get_top_stories", {}, integration="hackernews", text="Look"), delay=0.03),
        costing(5, executes("create_issue", CREATE, text="Write", id="call_2"), delay=0.03),
        costing(2, says("All ", "of ", "it ", "done."), delay=0.03),
    ]
    await billed.model.script(billed.model_key, *script, by_step=True)
    await _connected(billed, github)
    for number in range(KILLS):
        await _traffic_until_killed(billed, dice, number)
    await billed.serve()
    stand = await runs_at_rest(billed)
    assert stand.total() > 0
    assert stand["interrupted"] == 0
    spent = await spent_with_nothing_held(billed)
    assert await billed.faults() == []
    # Every turn that was admitted cost its credit at least.
    assert spent >= stand.total() * MICRO


async def _connected(site: Site, github: FakeGitHub) -> None:
    server = await site.serve()
    async with caller(server.base_url, site.key, ORGANIZATION) as client:
        await site.connect(client, "github", github.token)
        made = await client.post("/credentials", {"integration_name": "hackernews", "auth_type": "modulex_key"})
        assert made.status == 201, made.body
    server.signal(signal.SIGKILL)
    await server.gone()


async def _traffic_until_killed(site: Site, dice: random.Random, number: int) -> None:
    """Some turns at once, one of them cancelled, and a kill somewhere in the middle of them."""
    server = await site.serve()
    admitted = asyncio.Event()
    async with caller(server.base_url, site.key, ORGANIZATION) as client, asyncio.TaskGroup() as group:
        group.create_task(_kill(server, admitted, dice.uniform(0.0, 0.6)))
        for turn in range(TURNS_AT_ONCE):
            group.create_task(
                _turn(client, f"{number}-{turn}", admitted, cancel_after=dice.uniform(0, 0.4) if turn == 0 else None)
            )
    await server.gone()


async def _kill(server: Server, admitted: asyncio.Event, after: float) -> None:
    """Not before there is a turn: on a slow machine nothing would have begun."""
    async with asyncio.timeout(PATIENCE):
        await admitted.wait()
    await asyncio.sleep(after)
    server.signal(signal.SIGKILL)


async def _turn(client: Client, key: str, admitted: asyncio.Event, *, cancel_after: float | None) -> None:
    started = await begin(client, key)
    if started is not None:
        admitted.set()
    if started is None or cancel_after is None:
        return
    await asyncio.sleep(cancel_after)
    try:
        answer: Any = await client.post(f"/assistant/chat/{started['chat_id']}/cancel")
    except (aiohttp.ClientError, ConnectionError):
        return
    assert answer.status in (200, 400), answer.body
