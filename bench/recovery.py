"""What issue 4 asks for: how fast a turn begins, how fast a dead worker's turns go on, what a second process adds."""

import asyncio
import os
import signal
import sqlite3
import time
from contextlib import AsyncExitStack, closing
from statistics import median

import asyncpg

from bench.contestants import LLM, Contestant, new_owner_key, parley, parley_house
from bench.machine import cores
from bench.postgres import answers, fresh_database
from bench.report import Report
from bench.rounds import measure, quantile
from bench.scenario import MESSAGE, MODEL_CALLS, Shape, replies
from bench.turns import Ground

TAKEN_SECONDS = 60.0
LOOK_SECONDS = 0.02
LEASE_SECONDS = 15.0
SLOW_EVENT_SECONDS = 0.1


async def measure_admission(report: Report, ground: Ground, *, count: int) -> None:
    """From the time that a turn's rows carry to the arrival of its first request at the model."""
    async with AsyncExitStack() as stack:
        house = await ground.house(stack, "admission")
        await ground.pace(0)
        entrant = parley(house, ground.listeners)
        await measure(entrant, Shape(20, 1, 0.0))
        seen = len(await ground.model.requests(ground.key))
        await measure(entrant, Shape(count, 1, 0.0))
        asked = [request.at for request in (await ground.model.requests(ground.key))[seen:]][::MODEL_CALLS]
        with closing(sqlite3.connect(f"file:{ground.folder / 'admission' / 'parley.db'}?mode=ro", uri=True)) as rows:
            begun = [row[0] / 1e6 for row in rows.execute("SELECT created_at FROM runs ORDER BY created_at")][-count:]
    waits = [1e3 * (at - since) for at, since in zip(asked, begun, strict=True)]
    report.most("admission to first model request, p50", median(waits), 10, "{:.1f} ms")
    report.add("admission to first model request, p99", f"{quantile(waits, 0.99):.1f} ms")
    report.figures["admission"] = {"p50_ms": median(waits), "p99_ms": quantile(waits, 0.99)}


async def measure_takeover(report: Report, ground: Ground, *, turns: int) -> None:
    """SIGKILL a worker in mid-stream: how long until another one goes on with every turn of it."""
    if not await answers():
        report.add("takeover after SIGKILL", "no PostgreSQL answers")
        return
    async with AsyncExitStack() as stack:
        url, key = await stack.enter_async_context(fresh_database()), new_owner_key()
        api = await stack.enter_async_context(
            parley_house(ground.folder / "shared", None, database_url=url, owner_key=key, role="api")
        )
        doomed = await stack.enter_async_context(
            parley_house(ground.folder / "shared", None, database_url=url, owner_key=key, role="worker")
        )
        await api.connect_model(ground.model, ground.key)
        await ground.model.script(ground.key, *replies(SLOW_EVENT_SECONDS), by_step=True)
        for _ in range(turns):
            await api.call("POST", "/assistant/chat", {"message": MESSAGE, "llm": LLM})
        rows = await asyncpg.connect(url)
        stack.push_async_callback(rows.close)
        await _until(rows, "SELECT count(DISTINCT run_id) FROM run_events WHERE type = 'response_chunk'", turns)
        await stack.enter_async_context(
            parley_house(ground.folder / "shared", None, database_url=url, owner_key=key, role="worker")
        )
        os.kill(doomed.pid, signal.SIGKILL)
        killed = time.perf_counter()
        await _until(rows, "SELECT count(*) FROM runs WHERE epoch > 1 AND status = 'running'", turns)
        took = time.perf_counter() - killed
        await ground.pace(0)
        await _until(rows, "SELECT count(*) FROM runs WHERE status = 'completed'", turns)
    report.most(f"takeover of {turns} turns after SIGKILL", took, LEASE_SECONDS + 2, "{:.1f} s")
    report.figures["takeover"] = {"turns": turns, "seconds": took}


async def _until(rows: asyncpg.Connection, query: str, count: int) -> None:
    async with asyncio.timeout(TAKEN_SECONDS):
        while int(await rows.fetchval(query) or 0) < count:
            await asyncio.sleep(LOOK_SECONDS)


async def measure_two_processes(report: Report, ground: Ground, *, turns: int) -> None:
    """Turns a second in bursts, of one process and of two on one PostgreSQL."""
    if not await answers():
        report.add("two processes: turns a second", "no PostgreSQL answers")
        return
    mine = cores()
    async with AsyncExitStack() as stack:
        url, key = await stack.enter_async_context(fresh_database()), new_owner_key()
        houses = [
            await stack.enter_async_context(
                parley_house(ground.folder / "twins", mine[-1 - number], database_url=url, owner_key=key)
            )
            for number in range(min(2, len(mine)))
        ]
        await houses[0].connect_model(ground.model, ground.key)
        await ground.pace(0)
        both = [parley(house, ground.listeners) for house in houses]
        await _per_second(both, 20)
        # The first alone cannot be measured while the second claims its turns: stop it for the time.
        for house in houses[1:]:
            os.kill(house.pid, signal.SIGSTOP)
        one = await _per_second(both[:1], turns)
        for house in houses[1:]:
            os.kill(house.pid, signal.SIGCONT)
        two = await _per_second(both, turns)
    note = "" if len(mine) > 3 else f"; {len(mine)} cores for everything, PostgreSQL and the model included"
    report.add("two processes: turns a second", f"{one:.0f} of one, {two:.0f} of two ({two / one:.2f} x{note})")
    report.figures["two_processes"] = {"one_per_second": one, "two_per_second": two, "cores": len(mine)}


async def _per_second(entrants: list[Contestant], turns: int) -> float:
    """Through one listening process: half of the turns ask the one, half the other."""
    order = {**entrants[0].order, "turns": turns, "at_once": 16, "spread": 0.0, "patience": TAKEN_SECONDS}
    places = [(entrant.order["host"], entrant.order["port"]) for entrant in entrants]
    said = await entrants[0].asks.ask({**order, "places": places})
    if said["errors"]:
        raise RuntimeError(said["errors"][0])
    return turns / said["seconds"]
