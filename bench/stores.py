"""What one more step costs the store: a model call and its tool, with nothing said.

Taken from the difference between long turns and short ones, so that what a turn costs once is left
out. On SQLite the store has threads of its own. On PostgreSQL it is the server's processes, and what
a step costs Parley's main thread beyond what the same step costs it on SQLite.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from statistics import median

from bench.contestants import Contestant, parley
from bench.machine import cpu_by_thread
from bench.postgres import answers, fresh_database, server_cpu, spent
from bench.report import Report
from bench.rounds import BenchFailed
from bench.scenario import TOOL, Shape
from bench.turns import Ground
from parley.testing.scripted_wire import ScriptedCall, ScriptedReply

SHORT, LONG = 2, 12
SHAPE = Shape(60, 6, 0.0)


async def measure_stores(report: Report, ground: Ground, *, count: int) -> None:
    """CPU of the store for each step, on each store."""
    async with AsyncExitStack() as stack:
        sqlite = parley(await ground.house(stack, "store-sqlite"), ground.listeners)
        own = await _per_step(ground, sqlite, count, dict)
    report.most("store: CPU a step, SQLite", own["threads"], 2, "{:.2f} ms")
    report.figures["store_sqlite_ms_per_step"] = own
    if not await answers():
        report.add("store: CPU a step, PostgreSQL", "no PostgreSQL answers")
        return
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(fresh_database())
        postgres = parley(await ground.house(stack, "store-postgres", url), ground.listeners)
        theirs = await _per_step(ground, postgres, count, lambda: server_cpu(url))
    driver = max(0.0, theirs["main"] - own["main"])
    report.most("store: CPU a step, PostgreSQL", theirs["server"] + driver, 5, "{:.2f} ms")
    report.add("store: of these in the server, in the driver", f"{theirs['server']:.2f} ms, {driver:.2f} ms")
    report.figures["store_postgres_ms_per_step"] = theirs


async def _per_step(
    ground: Ground, entrant: Contestant, count: int, server: Callable[[], dict[int, float]]
) -> Mapping[str, float]:
    """Median CPU of a step in ms: of the main thread, the other threads, and the database server."""
    found: dict[str, list[float]] = {"main": [], "threads": [], "server": []}
    await _turns(ground, entrant, SHORT, server)
    for _ in range(count):
        short = await _turns(ground, entrant, SHORT, server)
        long = await _turns(ground, entrant, LONG, server)
        for name, values in found.items():
            values.append(1e3 * (long[name] - short[name]) / SHAPE.turns / (LONG - SHORT))
    return {name: median(values) for name, values in found.items()}


async def _turns(
    ground: Ground, entrant: Contestant, steps: int, server: Callable[[], dict[int, float]]
) -> Mapping[str, float]:
    calls = [ScriptedReply(calls=[ScriptedCall(TOOL, id=f"call_{number}")]) for number in range(steps - 1)]
    await ground.model.script(ground.key, *calls, ScriptedReply(text=["done"]), by_step=True)
    threads, database = cpu_by_thread(entrant.pid), server()
    said = await entrant.turns(SHAPE)
    if said["errors"] or len(said["walls"]) != SHAPE.turns:
        raise BenchFailed(f"{len(said['errors'])} of {SHAPE.turns} turns failed: {said['errors'][:1]}")
    after = cpu_by_thread(entrant.pid)
    main = after[entrant.pid] - threads[entrant.pid]
    return {
        "main": main,
        "threads": sum(after.values()) - sum(threads.values()) - main,
        "server": spent(database, server()),
    }
