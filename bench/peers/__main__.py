"""``python -m bench.peers``: Parley beside what a team would pick instead, each on a PostgreSQL database of its own."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bench.contestants import Contestant, parley
from bench.machine import load
from bench.peers import peer
from bench.peers.crashes import measure_crashes
from bench.postgres import fresh_database, required, table_bytes
from bench.report import Report
from bench.rounds import Series, measure, rounds
from bench.scenario import EVENT_SECONDS, MODEL_CALLS, Shape
from bench.turns import Ground, lay_ground

CROWDS = (20, 100, 500)
PATIENCE = 900.0
"""Seconds for one turn: five hundred at once wait long for the slowest, and a crowd that gives up says nothing."""
IDEAL_SECONDS = 2.1 * MODEL_CALLS
PARLEY = "Parley"
NAMES = (PARLEY, peer.LANGCHAIN.title, peer.PYDANTIC_AI.title)


async def _entrants(ground: Ground, stack: AsyncExitStack, name: str) -> list[Contestant]:
    """Everybody, each in a fresh process on a fresh database; the model speaks at its pace."""
    urls = [await stack.enter_async_context(fresh_database()) for _ in NAMES]
    house = await ground.house(stack, name, urls[0])
    await ground.pace(EVENT_SECONDS)
    theirs = [
        await stack.enter_async_context(
            peer.contestant(one, url, ground.model, ground.key, ground.listeners, ground.measured_core)
        )
        for one, url in zip((peer.LANGCHAIN, peer.PYDANTIC_AI), urls[1:], strict=True)
    ]
    return [parley(house, ground.listeners, urls[0]), *theirs]


async def measure_crowds(report: Report, ground: Ground, crowds: Sequence[int], *, count: int) -> None:
    """CPU, memory and times of the same turns, so many at once; fresh processes for each crowd."""
    for crowd in crowds:
        print(f"  {crowd} at once, load {load():.1f}", flush=True)
        async with AsyncExitStack() as stack:
            entrants = await _entrants(ground, stack, f"crowd-{crowd}")
            shape = Shape(crowd, crowd, IDEAL_SECONDS, PATIENCE)
            series = await rounds(entrants, {one.name: shape for one in entrants}, count, warm=True)
        _tell(report, series, f"{crowd} at once")
        report.figures[f"crowd_{crowd}"] = series.as_json()


def _tell(report: Report, series: Series, title: str) -> None:
    for name in NAMES:
        ratio = "" if name == PARLEY else f" ({series.ratio(name, PARLEY):.1f} x Parley)"
        report.add(f"{title}: {name}, CPU a turn", f"{series.cpu_ms(name):.1f} ms{ratio}")
        report.add(f"{title}: {name}, CPU of PostgreSQL a turn", f"{series.store_cpu_ms(name):.1f} ms")
        report.add(f"{title}: {name}, memory a turn in flight", f"{series.memory_kb(name):.0f} KB")
        first = [1e3 * series.first_text(name, share) for share in (0.5, 0.99)]
        report.add(f"{title}: {name}, to the first text, p50 / p99", f"{first[0]:.0f} / {first[1]:.0f} ms")
        walls = [series.wall(name, share) for share in (0.5, 0.99)]
        report.add(f"{title}: {name}, to done, p50 / p99", f"{walls[0]:.2f} / {walls[1]:.2f} s")


async def measure_bytes(report: Report, ground: Ground, *, turns: int) -> None:
    """What the tables and indexes of a store grow by with turns of new chats."""
    async with AsyncExitStack() as stack:
        entrants = await _entrants(ground, stack, "bytes")
        await ground.pace(0)
        kept: dict[str, float] = {}
        for one in entrants:
            await measure(one, Shape(10, 5, 0.0))
            before = await table_bytes(one.store)
            await measure(one, Shape(turns, 10, 0.0, PATIENCE))
            grown = await table_bytes(one.store)
            kept[one.name] = sum(grown.values()) - sum(before.values())
            most = sorted(grown, key=lambda name: before.get(name, 0) - grown[name])[:3]
            told = ", ".join(f"{name} {(grown[name] - before.get(name, 0)) / 1024:.0f}" for name in most)
            report.add(f"store: {one.name}, 100 turns", f"{100 * kept[one.name] / turns / 1024:.0f} KB (KB: {told})")
    report.figures["store_bytes_per_turn"] = {name: each / turns for name, each in kept.items()}


async def _measure(report: Report, parts: Sequence[str], crowds: Sequence[int], count: int) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parley-peers-")))
        ground = await lay_ground(stack, folder)
        if "turns" in parts:
            await measure_crowds(report, ground, crowds, count=count)
        if "store" in parts:
            await measure_bytes(report, ground, turns=100)
        if "crashes" in parts:
            await measure_crashes(report, ground)


def main() -> int:
    """Run it. Everything is only told; there is nothing to reach."""
    parts = ("turns", "store", "crashes")
    arguments = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    arguments.add_argument("--only", choices=parts, action="append", help="this part; may be given more than once")
    arguments.add_argument("--crowd", type=int, action="append", help="so many turns at once; may be given repeatedly")
    arguments.add_argument("--rounds", type=int, default=3)
    chosen = arguments.parse_args()
    if not asyncio.run(required("bench.peers")):
        return 1
    report = Report()
    report.begin()
    report.figures["versions"] = {one.title: one.versions() for one in (peer.LANGCHAIN, peer.PYDANTIC_AI)}
    asyncio.run(_measure(report, chosen.only or parts, chosen.crowd or CROWDS, chosen.rounds))
    report.add_load()
    report.show("-".join(["bench-peers", *(chosen.only or ())]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
