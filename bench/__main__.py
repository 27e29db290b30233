"""``python -m bench``: measure, print the table, keep the figures in artifacts/."""

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path

from bench.idle import measure_idle
from bench.machine import load
from bench.models import measure_adapters, measure_long_chat
from bench.neighbours import measure_neighbours
from bench.recovery import measure_admission, measure_takeover, measure_two_processes
from bench.report import Report
from bench.rounds import BenchFailed
from bench.start import measure_start
from bench.stores import measure_stores
from bench.turns import Ground, lay_ground, measure_turns

PARTS = ("start", "turns", "idle", "store", "recovery", "adapters", "longchat", "neighbours")
PACKAGES = ("aiohttp", "fastapi", "msgspec", "sqlalchemy", "uvicorn", "uvloop")


async def _measure(report: Report, parts: list[str], *, quick: bool) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parley-bench-")))
        ground = await lay_ground(stack, folder)
        for part in parts:
            print(f"  {part}, load {load():.1f}", flush=True)
            await _part(report, ground, part, quick=quick)


async def _part(report: Report, ground: Ground, part: str, *, quick: bool) -> None:
    match part:
        case "start":
            await measure_start(report, ground.folder, ground.measured_core, count=2 if quick else 5)
        case "turns":
            await measure_turns(report, ground, count=2 if quick else 6, crowd=100 if quick else 500)
        case "idle":
            async with AsyncExitStack() as stack:
                house = await ground.house(stack, "idle")
                count = 200 if quick else 2_000
                await measure_idle(report, house, ground.model, ground.key, ground.listeners, count=count)
        case "store":
            await measure_stores(report, ground, count=2 if quick else 5)
        case "recovery":
            await measure_admission(report, ground, count=30 if quick else 200)
            await measure_takeover(report, ground, turns=3 if quick else 10)
            await measure_two_processes(report, ground, turns=100 if quick else 400)
        case "adapters":
            await measure_adapters(report, ground, count=3 if quick else 9)
        case "longchat":
            await measure_long_chat(report, ground, turns=100 if quick else 500)
        case "neighbours":
            await measure_neighbours(report, ground, rounds=2 if quick else 6)
        case _:
            raise AssertionError(part)


def main() -> int:
    """Run it; 1 where something that was measured did not do its work. A mark that is missed is only told."""
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer rounds and smaller crowds, to see a change")
    arguments.add_argument("--only", choices=PARTS, action="append", help="this part; may be given more than once")
    chosen = arguments.parse_args()
    report = Report()
    report.begin()
    report.figures["versions"] = {name: version(name) for name in PACKAGES} | {"python": sys.version.split()[0]}
    failed: ExceptionGroup[BenchFailed] | None = None
    try:
        asyncio.run(_measure(report, chosen.only or list(PARTS), quick=chosen.quick))
    except* BenchFailed as failures:
        failed = failures
    if failed is not None:
        print(f"bench: {_words(failed)}", file=sys.stderr)
        return 1
    report.show("bench-quick" if chosen.quick else "bench")
    return 0


def _words(failed: ExceptionGroup[BenchFailed]) -> str:
    return "; ".join(_words(error) if isinstance(error, ExceptionGroup) else str(error) for error in failed.exceptions)


if __name__ == "__main__":
    sys.exit(main())
