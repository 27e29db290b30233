"""``python -m bench.load``: an hour's worth of turns in ten minutes, on PostgreSQL.

Turns begin at an even pace, whatever has become of those before them. Each is two model calls with one action of a
real integration between them, which creates something at a provider on this machine; each is followed to its end by
a listener of its own. What became of them is asked of three who know: the listeners, the store, and the provider.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from uuid import uuid4

import asyncpg
import msgspec

from bench.child import Order, child, module
from bench.contestants import LLM, House, parley_house
from bench.machine import cpu_seconds, load, resident_bytes
from bench.postgres import fresh_database, required, server_cpu, spent
from bench.report import Report
from bench.rounds import quantile
from bench.scenario import CHARACTERS, CHUNKS, EVENT_SECONDS, MESSAGE, MODEL_CALLS, replies
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import provider_proxy
from parley.testing.scripted_model import ScriptedModel, scripted_model
from parley.testing.scripted_wire import ScriptedCall

PER_SECOND, SECONDS = 20.0, 600.0
SAMPLE_SECONDS = 1.0
TURN_SECONDS = 180.0
"""How long a listener waits for the end of its turn; long enough that a busy machine loses none."""
SETTLE_SECONDS = 60.0
"""How long the store may take to agree that everything has ended, once every listener has gone."""
REMEMBERED = 100
WARM_TURNS = 20
FLAT = 1.05
"""Memory is flat when the median of the last quarter is at most this much of that of the second."""
VARIES = re.compile(r"[0-9a-f-]{36}|[0-9.]+")
ACTION = ScriptedCall(
    "execute_integration_tool",
    json.dumps(
        {
            "integration_name": "github",
            "tool_name": "create_issue",
            "parameters": {"owner": "octocat", "repo": "hello-world", "title": "Bug"},
        }
    ),
)


class Logged(msgspec.Struct):
    """A line of the server's log."""

    level: str
    logger: str
    message: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of the server, sampled at an even pace from the first turn's start to the last one's."""

    samples: Sequence[int]

    def quarter(self, number: int) -> float:
        """Median of one quarter of the time, counted from 0. Raises ValueError below four samples."""
        if len(self.samples) < 4:
            raise ValueError("four samples at least")
        size = len(self.samples) / 4
        return median(self.samples[int(number * size) : int((number + 1) * size)])

    @property
    def growth(self) -> float:
        """The last quarter to the second; the first belongs to the caches that fill."""
        return self.quarter(3) / self.quarter(1)

    @property
    def is_flat(self) -> bool:
        return self.growth <= FLAT


@dataclass(frozen=True, slots=True)
class Told:
    """What became of the turns. Times are seconds, ``cpu`` and ``store_cpu`` seconds of a core.

    ``asked`` were to begin, ``started`` were accepted, ``done`` were followed to their end with all of their text.
    ``completed`` and ``failed`` are the store's ends; what has neither is lost. ``effects`` were done at the provider.
    ``errors`` are the listeners', ``complaints`` what the server logged as errors.
    """

    asked: int
    started: int
    done: int
    completed: int
    failed: int
    effects: int
    errors: Sequence[str]
    walls: Sequence[float]
    first_texts: Sequence[float]
    arrived: float
    late: float
    cpu: float
    store_cpu: float
    complaints: Sequence[str]
    memory: Memory

    @property
    def lost(self) -> int:
        """Accepted, and never ended."""
        return self.started - self.completed - self.failed

    @property
    def is_whole(self) -> bool:
        """Whether every turn began, ended well before its listener's eyes, and did its work exactly once."""
        return self.asked == self.started == self.done == self.completed == self.effects


async def play(per_second: float, seconds: float, chunks: int) -> Told:
    """Have so many turns a second for so many seconds; each of a turn's two replies has so many chunks of text.

    Needs a PostgreSQL; see ``bench.postgres``. Its database and every process are gone afterwards.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parley-load-")))
        url = await stack.enter_async_context(fresh_database())
        model = await stack.enter_async_context(scripted_model(REMEMBERED))
        proxy = await stack.enter_async_context(provider_proxy(folder))
        github = FakeGitHub(f"ghp_{uuid4().hex}")
        proxy.answer("api.github.com", github)
        house = await stack.enter_async_context(
            parley_house(folder / "house", None, database_url=url, variables=proxy.environment)
        )
        await _furnish(house, model, github, chunks)
        listeners = await stack.enter_async_context(child(module("bench.listeners")))
        body = {"message": MESSAGE, "llm": LLM}
        order = {"kind": "arrivals", **house.place, "body": body, "patience": TURN_SECONDS}
        # Loads the integration and fills the connection pools; counted by nobody.
        warm = await listeners.ask({**order, "turns": WARM_TURNS, "per_second": per_second})
        if warm["errors"]:
            raise RuntimeError(warm["errors"][0])
        count, before = round(per_second * seconds), len(github.created)
        cpu, store = cpu_seconds(house.pid), server_cpu(url)
        async with asyncio.TaskGroup() as group:
            limit = seconds + TURN_SECONDS + SETTLE_SECONDS
            telling = group.create_task(listeners.ask({**order, "turns": count, "per_second": per_second}, limit))
            memory = await _watch(house.pid, telling, seconds)
        said = telling.result()
        ends = await _ends(url, WARM_TURNS + said["started"])
        return Told(
            asked=count,
            started=said["started"],
            done=said["characters"].count(MODEL_CALLS * chunks * CHARACTERS),
            completed=ends.get("completed", 0) - WARM_TURNS,
            failed=ends.get("failed", 0) + ends.get("cancelled", 0),
            effects=len(github.created) - before,
            errors=said["errors"],
            walls=said["walls"],
            first_texts=said["first_texts"],
            arrived=said["seconds"],
            late=said["late"],
            cpu=cpu_seconds(house.pid) - cpu,
            store_cpu=spent(store, server_cpu(url)),
            complaints=_complaints(house.output),
            memory=memory,
        )


def _complaints(output: Sequence[str]) -> list[str]:
    """What the server logged as an error, in its own words, without the facts of each."""
    records = [msgspec.json.decode(line, type=Logged) for line in output if line.startswith("{")]
    return [f"{record.logger}: {VARIES.sub('…', record.message)}" for record in records if record.level == "ERROR"]


async def _furnish(house: House, model: ScriptedModel, github: FakeGitHub, chunks: int) -> None:
    """Give the organization its model and its GitHub."""
    key = f"sk-load-{uuid4().hex}"
    await house.connect_model(model, key)
    await model.script(key, *replies(EVENT_SECONDS, ACTION, chunks), by_step=True)
    body = {"integration_name": "github", "auth_type": "bearer_token", "auth_data": {"token": github.token}}
    await house.call("POST", "/credentials", body)


async def _watch(pid: int, telling: asyncio.Task[Order], seconds: float) -> Memory:
    """Sample the server's memory for as long as turns begin, and say now and then how it is."""
    samples: list[int] = []
    began = told = time.perf_counter()
    while not telling.done() and (now := time.perf_counter()) - began < seconds:
        samples.append(resident_bytes(pid))
        if now - told >= 30:
            told = now
            print(f"    after {now - began:.0f} s: {samples[-1] / 1e6:.1f} MB, load {load():.1f}", flush=True)
        await asyncio.wait([telling], timeout=min(SAMPLE_SECONDS, seconds / 8))
    return Memory(samples)


async def _ends(url: str, count: int) -> dict[str, int]:
    """How many runs ended how, once ``count`` have, or after a time in which they should have."""
    rows = await asyncpg.connect(url)
    try:
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            found = await rows.fetch("SELECT status, count(*) AS runs FROM runs GROUP BY status")
            ends = {str(row["status"]): int(row["runs"]) for row in found}
            settled = sum(ends.get(status, 0) for status in ("completed", "failed", "cancelled")) >= count
            if settled or time.monotonic() > deadline:
                return ends
            await asyncio.sleep(0.2)
    finally:
        await rows.close()


def tell(report: Report, told: Told) -> None:
    """The findings, for people and for machines."""
    asked, done = float(told.asked), max(1, told.done)
    report.add("turns that were to begin", f"{told.asked}, {told.asked / max(told.arrived, 1e-9):.1f} a second")
    report.add("the latest of their starts came late by", f"{1e3 * told.late:.0f} ms")
    report.least("started", told.started, asked, "{:.0f}")
    report.least("followed to done, all text heard", told.done, asked, "{:.0f}")
    report.most("failed", told.failed, 0, "{:.0f}")
    report.most("lost", told.lost, 0, "{:.0f}")
    report.least("actions done at the provider", told.effects, asked, "{:.0f}")
    report.most("of these beyond one a turn", max(0, told.effects - told.asked), 0, "{:.0f}")
    report.add("errors in the server's log", str(len(told.complaints)))
    if told.walls:
        report.add("to done, p50 / p99", f"{quantile(told.walls, 0.5):.2f} / {quantile(told.walls, 0.99):.2f} s")
        firsts = [1e3 * first for first in told.first_texts]
        report.add("to the first text, p50 / p99", f"{quantile(firsts, 0.5):.0f} / {quantile(firsts, 0.99):.0f} ms")
    report.add("CPU a turn, the server's / PostgreSQL's", f"{_ms(told.cpu, done)} / {_ms(told.store_cpu, done)}")
    quarters = ", ".join(f"{told.memory.quarter(number) / 1e6:.1f}" for number in range(4))
    report.add("the server's memory, medians of the quarters", f"{quarters} MB")
    report.add("memory gained a turn between the two medians", f"{_gained(told) / 1e3:+.2f} KB")
    report.most("memory is flat: last quarter to second", told.memory.growth, FLAT, "{:.3f} x")
    report.figures["load"] = {
        "asked": told.asked,
        "started": told.started,
        "done": told.done,
        "completed": told.completed,
        "failed": told.failed,
        "lost": told.lost,
        "effects": told.effects,
        "errors": Counter(told.errors),
        "complaints": Counter(told.complaints),
        "arrived_seconds": told.arrived,
        "late_seconds": told.late,
        "wall_p50": quantile(told.walls, 0.5) if told.walls else None,
        "wall_p99": quantile(told.walls, 0.99) if told.walls else None,
        "cpu_seconds": told.cpu,
        "store_cpu_seconds": told.store_cpu,
        "resident_bytes": list(told.memory.samples),
    }


def _ms(seconds: float, turns: int) -> str:
    return f"{1e3 * seconds / turns:.1f} ms"


def _gained(told: Told) -> float:
    """Bytes. Half of the turns begin between the middles of the two quarters."""
    return (told.memory.quarter(3) - told.memory.quarter(1)) / max(1.0, told.asked / 2)


def main() -> int:
    """Run it; 1 where a turn failed, was lost, or did its work twice, or where memory grew."""
    arguments = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    arguments.add_argument("--rate", type=float, default=PER_SECOND, help="turns a second")
    arguments.add_argument("--seconds", type=float, default=SECONDS, help="for how long turns begin")
    arguments.add_argument("--chunks", type=int, default=CHUNKS, help="pieces of text in each of a turn's two replies")
    chosen = arguments.parse_args()
    if not asyncio.run(required("bench.load")):
        return 1
    report = Report()
    report.begin()
    told = asyncio.run(play(chosen.rate, chosen.seconds, chosen.chunks))
    report.add_load()
    tell(report, told)
    report.show("load")
    for complaint, count in [*Counter(told.errors).most_common(5), *Counter(told.complaints).most_common(5)]:
        print(f"  {count} x {complaint}", file=sys.stderr)
    return 0 if told.is_whole and told.memory.is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
