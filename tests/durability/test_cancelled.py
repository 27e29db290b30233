"""Cancel, whatever becomes of the process that executes the turn: no rescue undoes it (issue 3, sentence 8).

``tests/contract/test_cancel.py`` has the states of a turn whose owner is alive, and of one that waits or asks.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
from sqlalchemy import select

from parley.base.settings import read_settings
from parley.storage import open_store
from parley.storage.tables.chats import runs
from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedReply
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import PATIENCE, Server, Site, start
from tests.stage import Client, Json, caller, executes, says

# Nothing waits for a lease to end here, and a busy machine must not look like a dead one.
PATIENT = {"PARLEY_LEASE_SECONDS": "15"}
CREATE = {"owner": "octocat", "repo": "hello-world", "title": "Bug"}


async def asked(site: Site, client: Client, started: Json, github: FakeGitHub) -> None:
    """The model has the request and says nothing."""
    del client, started, github
    async with asyncio.timeout(PATIENCE):
        while not await site.model.requests(site.model_key):
            await asyncio.sleep(0.01)


async def spoken(site: Site, client: Client, started: Json, github: FakeGitHub) -> None:
    """Some text is there, and stored."""
    del site, github
    async for event in client.stream(started["chat_id"], started["run_id"]):
        if event["type"] == "response_chunk":
            return


async def acting(site: Site, client: Client, started: Json, github: FakeGitHub) -> None:
    """An action with an effect has left and has not returned."""
    del site, client, started
    async with asyncio.timeout(PATIENCE):
        await github.held.wait()


type Reached = Callable[[Site, Client, Json, FakeGitHub], Awaitable[None]]
STATES: dict[str, tuple[Callable[[], ScriptedReply], Reached]] = {
    "asks the model": (lambda: ScriptedReply(text=["never"], hang_at=0), asked),
    "streams": (lambda: says("Half", " never", barrier=uuid4().hex, barrier_after=2), spoken),
    "acts": (lambda: executes("create_issue", CREATE), acting),
}


async def begun(site: Site, client: Client, github: FakeGitHub, state: str) -> Json:
    """A turn in that state."""
    reply, reached = STATES[state]
    await site.connect(client, "github", github.token)
    github.hold()
    # Whoever takes it over is held as well.
    await site.model.script(site.model_key, reply(), ScriptedReply(text=["never"], hang_at=0), by_step=True)
    started = await start(site, client)
    await reached(site, client, started, github)
    return started


async def cancel(client: Client, started: Json) -> list[Json]:
    """Cancel the turn; its events then."""
    answer = await client.post(f"/assistant/chat/{started['chat_id']}/cancel")
    assert (answer.status, answer.body["run_id"]) == (200, started["run_id"])
    events = await client.listen(started["chat_id"], started["run_id"])
    assert [event["type"] for event in events if event["type"] in ("cancelled", "done", "error")] == ["cancelled"]
    assert events[-1]["type"] == "cancelled"
    return events


async def stays_cancelled(site: Site, client: Client, started: Json, events: list[Json], github: FakeGitHub) -> None:
    """Whoever executes turns now leaves it alone, and its chat goes on."""
    github.let_go()
    await site.model.script(site.model_key, says("After."))
    after = await start(site, client, chat_id=started["chat_id"])
    assert (await client.listen(after["chat_id"], after["run_id"]))[-1]["data"]["response"] == "After."
    assert await client.listen(started["chat_id"], started["run_id"]) == events
    detail = (await client.get(f"/assistant/chat/{started['chat_id']}")).body
    assert [message["running_status"] for message in detail["messages"] if message["role"] == "ai"] == [
        "cancelled", "completed"
    ]  # fmt: skip
    assert len(github.created) <= 1
    assert await site.faults() == []


async def dead(owner: Server) -> None:
    owner.signal(signal.SIGKILL)
    await owner.gone()


async def frozen(owner: Server) -> None:
    owner.signal(signal.SIGSTOP)


async def leaving(owner: Server) -> None:
    owner.signal(signal.SIGTERM)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("fate", [dead, frozen, leaving])
async def test_cancel_holds_while_the_owner_is_dead_frozen_or_leaving(
    site: Site, github: FakeGitHub, fate: Callable[[Server], Awaitable[None]], state: str
) -> None:
    if site.environment["PARLEY_DATABASE_URL"].startswith("sqlite"):
        pytest.skip("several processes need PostgreSQL")
    site.environment |= PATIENT
    front = await site.serve("api")
    owner = await site.serve("worker")
    await site.furnish(front)
    async with caller(front.base_url, site.key, ORGANIZATION) as client:
        started = await begun(site, client, github, state)
        await fate(owner)
        events = await cancel(client, started)
        asks = len(await site.model.requests(site.model_key))
        await site.serve("worker")
        owner.signal(signal.SIGCONT)
        # An orderly end hands back what it still holds: that must not bring the turn back.
        owner.signal(signal.SIGTERM)
        await owner.gone()
        await stays_cancelled(site, client, started, events, github)
        assert len(await site.model.requests(site.model_key)) == asks + 1


async def test_cancel_holds_for_a_turn_that_was_handed_back_and_nobody_took(site: Site, github: FakeGitHub) -> None:
    if site.environment["PARLEY_DATABASE_URL"].startswith("sqlite"):
        pytest.skip("several processes need PostgreSQL")
    site.environment |= PATIENT
    front = await site.serve("api")
    owner = await site.serve("worker")
    await site.furnish(front)
    async with caller(front.base_url, site.key, ORGANIZATION) as client:
        started = await begun(site, client, github, "streams")
        owner.signal(signal.SIGTERM)
        await owner.gone()
        store = open_store(read_settings(site.environment).store_url).across
        status = select(runs.c.status).where(runs.c.id == started["run_id"])
        assert await store.read(lambda tx: tx.execute(status).scalar_one()) == "queued"
        await store.close()
        events = await cancel(client, started)
        await site.serve("worker")
        await stays_cancelled(site, client, started, events, github)


@pytest.mark.parametrize("state", STATES)
async def test_cancel_holds_for_a_turn_that_a_restarted_process_takes_up(
    site: Site, github: FakeGitHub, state: str
) -> None:
    site.environment |= PATIENT
    owner = await site.serve()
    await site.furnish(owner)
    async with caller(owner.base_url, site.key, ORGANIZATION) as client:
        started = await begun(site, client, github, state)
    await dead(owner)
    rescuer = await site.serve()
    async with caller(rescuer.base_url, site.key, ORGANIZATION) as client:
        events = await cancel(client, started)
        await stays_cancelled(site, client, started, events, github)
