"""Links to PostgreSQL that break or crawl, and a PostgreSQL that restarts, during turns (durability §6.3).

A blip shorter than the lease costs nothing: every action is done once and its outcome known. The fake
GitHub is the outside witness.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from parley.testing.fake_github import FakeGitHub
from parley.testing.fault_proxy import FaultProxy, fault_proxy
from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedReply
from tests.conftest import fresh_database
from tests.contract.conftest import ORGANIZATION
from tests.durability.cluster import Cluster, cluster
from tests.durability.conftest import PATIENCE, Nursery, Server, Site, opened_site, start
from tests.stage import Client, caller, executes, shown_text

PATIENT = {"PARLEY_LEASE_SECONDS": "15", "PARLEY_HEARTBEAT_SECONDS": "1"}
# Short enough to wait for, long enough for a turn to get on with between two beats of a busy machine.
SHORT_LEASE_SECONDS = 3.0
TURNS = 8
PIECES = [f"{number}-wörd " for number in range(15)]
FOLLOW_SECONDS = 200.0
# Time enough to open a connection and do something with it, also on a busy machine.
RESET_SECONDS = 0.5


@pytest.fixture
async def postgres_site(
    tmp_path: Any, postgres_template: str | None, nursery: Nursery, model: ScriptedModel, proxy: ProviderProxy
) -> AsyncIterator[Site]:
    async with (
        fresh_database("postgresql", tmp_path, postgres_template) as url,
        opened_site(url, tmp_path, nursery, model, proxy) as site,
    ):
        yield site


@asynccontextmanager
async def linked(site: Site, role: str, **extra: str) -> AsyncGenerator[tuple[Server, FaultProxy]]:
    """A process whose every connection to PostgreSQL goes through a link that can be broken."""
    url = urlsplit(site.environment["PARLEY_DATABASE_URL"])
    async with fault_proxy(url.hostname or "127.0.0.1", url.port or 5432) as between:
        through = url._replace(netloc=f"{url.username}@127.0.0.1:{between.port}").geturl()
        yield await site.serve(role, PARLEY_DATABASE_URL=through, **extra), between


@asynccontextmanager
async def worked_over_a_link(
    site: Site, github: FakeGitHub, lease: Mapping[str, str]
) -> AsyncGenerator[tuple[Client, FaultProxy]]:
    """A caller of a sound front, with the model's script ready, and the link of the one worker behind it."""
    site.environment |= lease
    front = await site.serve("api")
    await site.furnish(front)
    async with linked(site, "worker") as (_, link), caller(front.base_url, site.key, ORGANIZATION) as client:
        await script(site, client, github)
        yield client, link


async def follow_while_it_is_reset(
    client: Client, started: list[dict[str, Any]], link: FaultProxy
) -> list[list[dict[str, Any]]]:
    """Every turn's events, read while the link breaks again and again."""
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow_all(client, started))
        while not following.done():
            link.reset()
            await asyncio.wait([following], timeout=RESET_SECONDS)
    return following.result()


async def script(site: Site, client: Client, github: FakeGitHub) -> None:
    """Every turn says something, makes an issue, and says something more."""
    await site.connect(client, "github", github.token)
    acting = executes("create_issue", {"owner": "octocat", "repo": "hello-world", "title": "Bug"})
    acting.text, acting.delay = PIECES, 0.04
    await site.model.script(site.model_key, acting, ScriptedReply(text=PIECES, delay=0.04), by_step=True)


async def follow(client: Client, started: dict[str, Any]) -> list[dict[str, Any]]:
    """Every event of a run; a stream that ends early is taken up again at its cursor."""
    events: list[dict[str, Any]] = []
    cursor: str | None = None
    async with asyncio.timeout(FOLLOW_SECONDS):
        while not events or events[-1]["type"] != "done":
            try:
                async for event in client.stream(started["chat_id"], started["run_id"], cursor):
                    if event["type"] != "heartbeat":
                        events.append(event)
                        cursor = event["_id"]
            except (aiohttp.ClientError, AssertionError, TimeoutError):
                await asyncio.sleep(0.05)
    return events


async def follow_all(client: Client, started: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = []

    async def one(each: dict[str, Any]) -> None:
        found.append(await follow(client, each))

    async with asyncio.TaskGroup() as group:
        for each in started:
            group.create_task(one(each))
    return found


def outcomes(turns: list[list[dict[str, Any]]]) -> list[str]:
    """What each turn's action came to; every turn must have ended well, its text shown once."""
    found: list[str] = []
    for events in turns:
        assert events[-1]["data"].get("error") is None, events[-2:]
        assert [event["type"] for event in events].count("done") == 1
        assert shown_text(events) == 2 * "".join(PIECES)
        (output,) = [event["data"]["output"] for event in events if event["type"] == "tool_result"]
        found.append(output["status"] if output["status"] == "ok" else output["error"])
    return found


async def acts(client: Client, started: list[dict[str, Any]]) -> None:
    """Wait until a turn has begun to speak."""
    async for event in client.stream(started[0]["chat_id"], started[0]["run_id"]):
        if event["type"] == "response_chunk":
            return


async def test_links_that_are_reset_again_and_again_cost_no_turn_and_no_outcome(
    postgres_site: Site, github: FakeGitHub
) -> None:
    site = postgres_site
    async with worked_over_a_link(site, github, PATIENT) as (client, link):
        started = [await start(site, client) for _ in range(TURNS)]
        await acts(client, started)
        assert outcomes(await follow_while_it_is_reset(client, started, link)) == ["ok"] * TURNS
    assert len(github.created) == TURNS
    assert await site.faults() == []


async def test_streams_over_links_that_are_reset_double_and_lose_nothing(
    postgres_site: Site, github: FakeGitHub
) -> None:
    site = postgres_site
    site.environment |= PATIENT
    await site.serve("worker")
    async with linked(site, "api") as (front, link):
        await site.furnish(front)
        async with caller(front.base_url, site.key, ORGANIZATION) as client:
            await script(site, client, github)
            started = [await start(site, client) for _ in range(TURNS)]
            assert outcomes(await follow_while_it_is_reset(client, started, link)) == ["ok"] * TURNS
    assert len(github.created) == TURNS
    assert await site.faults() == []


async def test_slow_links_slow_turns_down_and_move_none(postgres_site: Site, github: FakeGitHub) -> None:
    site = postgres_site
    async with worked_over_a_link(site, github, PATIENT) as (client, link):
        link.slow()
        started = [await start(site, client) for _ in range(TURNS)]
        turns = await follow_all(client, started)
    assert outcomes(turns) == ["ok"] * TURNS
    # One `metadata`: no turn changed its owner.
    assert [[event["type"] for event in events].count("metadata") for events in turns] == [1] * TURNS
    assert len(github.created) == TURNS
    assert await site.faults() == []


async def test_an_outage_longer_than_the_lease_loses_no_turn_and_repeats_no_effect(
    postgres_site: Site, github: FakeGitHub
) -> None:
    site = postgres_site
    lease = {"PARLEY_LEASE_SECONDS": f"{SHORT_LEASE_SECONDS}", "PARLEY_HEARTBEAT_SECONDS": "0.5"}
    async with worked_over_a_link(site, github, lease) as (client, link):
        started = [await start(site, client) for _ in range(TURNS)]
        await acts(client, started)
        link.refuse()
        await asyncio.sleep(SHORT_LEASE_SECONDS + 0.5)  # the fault
        link.heal()
        told = outcomes(await follow_all(client, started))
    assert set(told) <= {"ok", "outcome_unknown"}
    assert told.count("ok") <= len(github.created) <= TURNS
    assert await site.faults() == []


async def test_connections_that_a_router_forgets_cost_no_turn_and_no_outcome(
    postgres_site: Site, github: FakeGitHub
) -> None:
    site = postgres_site
    async with worked_over_a_link(site, github, PATIENT) as (client, link):
        started = [await start(site, client) for _ in range(TURNS)]
        await acts(client, started)
        link.strand()
        turns = await follow_all(client, started)
    assert outcomes(turns) == ["ok"] * TURNS
    assert len(github.created) == TURNS
    assert await site.faults() == []


@pytest.fixture
async def own_cluster() -> AsyncIterator[Cluster]:
    async with cluster() as running:
        yield running


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_postgres_that_restarts_during_turns_costs_none_of_them(
    own_cluster: Cluster,
    mode: str,
    tmp_path: Any,
    nursery: Nursery,
    model: ScriptedModel,
    proxy: ProviderProxy,
    github: FakeGitHub,
) -> None:
    async with opened_site(own_cluster.url, tmp_path, nursery, model, proxy) as site:
        site.environment |= PATIENT
        front = await site.serve("api")
        await site.serve("worker")
        await site.furnish(front)
        async with caller(front.base_url, site.key, ORGANIZATION) as client:
            await script(site, client, github)
            started = [await start(site, client) for _ in range(TURNS)]
            await acts(client, started)
            async with asyncio.TaskGroup() as group:
                following = group.create_task(follow_all(client, started))
                await own_cluster.restart(mode)
                begun = await start_anyhow(site, client)
                await own_cluster.restart(mode)
            assert outcomes(following.result()) == ["ok"] * TURNS
            assert outcomes([await follow(client, begun)]) == ["ok"]
        assert len(github.created) == TURNS + 1
        assert await site.faults() == []


async def start_anyhow(site: Site, client: Client) -> dict[str, Any]:
    """Start a turn on a server that may not answer yet, as a client should: again, with one key."""
    body = {"message": "Go", "llm": site.llm}
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await client.post("/assistant/chat", body, Idempotency_Key="again")
            if answer.status == 200:
                return answer.body
            assert answer.status == 503, answer.body
            await asyncio.sleep(0.05)
