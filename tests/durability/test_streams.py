"""Readers that come and go at random over several processes see the same thing, byte for byte (durability §6.8)."""

import asyncio
import random
import signal
from typing import Any

from parley.testing.scripted_wire import ScriptedReply
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import TEST_SECONDS, Server, Site, only_postgres, start
from tests.stage import Client, caller, calls, shown_text

# Nothing dies here: a busy machine must not look like a dead one.
PATIENT = {"PARLEY_LEASE_SECONDS": "15", "PARLEY_HEARTBEAT_SECONDS": "3"}
TURNS = 20
RECONNECTS = 50
PIECES = [f"{number}-älpha " for number in range(150)]


def text_of(events: list[dict[str, Any]]) -> str:
    """All streamed text."""
    return "".join(event["data"]["chunk"] for event in events if event["type"] == "response_chunk")


def facts(events: list[dict[str, Any]]) -> list[str]:
    """Everything but text, in order."""
    return [event["type"] for event in events if event["type"] != "response_chunk"]


async def follow_with_cuts(clients: list[Client], started: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Read a few frames, hang up, come back to another process with the cursor; until the end."""
    events: list[dict[str, Any]] = []
    cursor: str | None = None
    cuts = 0
    while True:
        client = random.choice(clients)
        left = random.randint(1, 6) if cuts < RECONNECTS else 1_000_000
        stream = client.stream(started["chat_id"], started["run_id"], cursor)
        async for event in stream:
            if event["type"] == "heartbeat":
                continue
            events.append(event)
            cursor = event["_id"]
            left -= 1
            if event["type"] == "done":
                return events, cuts
            if left <= 0:
                break
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        cuts += 1


async def test_a_thousand_reconnects_at_random_cursors_over_four_processes_lose_and_double_nothing(site: Site) -> None:
    only_postgres(site)
    site.environment |= PATIENT
    fronts = [await site.serve("api"), await site.serve("all")]
    await site.serve("worker")
    await site.serve("all")
    await site.furnish(fronts[0])
    reply = ScriptedReply(text=PIECES, delay=0.02)
    tool = calls("get_organization_credentials", {})
    tool.text, tool.delay = PIECES[:40], 0.02
    await site.model.script(site.model_key, tool, reply, by_step=True)
    reconnects: list[int] = []
    async with (
        caller(fronts[0].base_url, site.key, ORGANIZATION) as one,
        caller(fronts[1].base_url, site.key, ORGANIZATION) as two,
    ):

        async def turn() -> None:
            started = await start(site, one)
            events, count = await follow_with_cuts([one, two], started)
            assert shown_text(events) == "".join(PIECES[:40]) + "".join(PIECES)
            whole = await two.listen(started["chat_id"], started["run_id"])
            assert shown_text(whole) == shown_text(events)
            assert facts(whole) == facts(events)
            seen = [number for number, event in enumerate(events[:-1]) if event["_id"]]
            for number in random.choices(seen, k=RECONNECTS):
                client = random.choice([one, two])
                rest = await client.listen(started["chat_id"], started["run_id"], events[number]["_id"])
                assert text_of(events[: number + 1]) + text_of(rest) == text_of(whole)
                assert facts(events[: number + 1]) + facts(rest) == facts(whole)
                count += 1
            reconnects.append(count)

        async with asyncio.timeout(TEST_SECONDS), asyncio.TaskGroup() as group:
            for _ in range(TURNS):
                group.create_task(turn())
    assert sum(reconnects) >= 1_000
    assert await site.faults() == []


async def test_a_rolling_restart_under_load_fails_no_turn(site: Site) -> None:
    only_postgres(site)
    site.environment |= PATIENT
    front = await site.serve("api")
    workers: list[Server] = [await site.serve("worker") for _ in range(3)]
    await site.furnish(front)
    await site.model.script(site.model_key, ScriptedReply(text=[f"{n} " for n in range(40)], delay=0.05), by_step=True)
    async with caller(front.base_url, site.key, ORGANIZATION) as client:
        started = [await start(site, client) for _ in range(15)]
        for worker in workers:
            await site.serve("worker")
            worker.signal(signal.SIGTERM)
            await worker.gone()
        for each in started:
            events = await client.listen(each["chat_id"], each["run_id"])
            assert events[-1]["type"] == "done"
            assert events[-1]["data"].get("error") is None
            assert shown_text(events) == "".join(f"{n} " for n in range(40))
    assert await site.faults() == []
