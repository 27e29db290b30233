"""Turns as people have them: the whole server beside the floor and beside LangChain."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from bench.child import Child, child, module
from bench.contestants import Contestant, House, floor, parley, parley_house
from bench.machine import cores, on_core
from bench.peers import peer
from bench.report import Report
from bench.rounds import Series, measure, rounds
from bench.scenario import EVENT_SECONDS, MODEL_CALLS, Shape, replies
from parley.testing.scripted_model import ScriptedModel, scripted_model

PARLEY, FLOOR, LANGCHAIN = "Parley", "floor", peer.LANGCHAIN.title
SLACK = 1.05
"""A turn keeps its time when it takes no more than this much of the floor's."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where everything runs: the measured core, and on the other one the model and the listeners."""

    folder: Path
    measured_core: int | None
    other_core: int | None
    model: ScriptedModel
    key: str
    listeners: Child

    async def house(self, stack: AsyncExitStack, name: str, database_url: str = "") -> House:
        """A fresh server that has the scripted model."""
        house = await stack.enter_async_context(
            parley_house(self.folder / name, self.measured_core, database_url=database_url)
        )
        await house.connect_model(self.model, self.key)
        return house

    async def pace(self, seconds: float) -> None:
        """How fast the model speaks from now on."""
        await self.model.script(self.key, *replies(seconds), by_step=True)


async def lay_ground(stack: AsyncExitStack, folder: Path) -> Ground:
    """Start the model and the listeners."""
    mine = cores()
    measured, other = (mine[-1], mine[0]) if len(mine) > 1 else (None, None)
    with on_core(other):
        model = await stack.enter_async_context(scripted_model())
        listeners = await stack.enter_async_context(child(module("bench.listeners")))
    return Ground(folder, measured, other, model, f"sk-bench-{uuid4().hex}", listeners)


async def _contestants(ground: Ground, stack: AsyncExitStack, name: str) -> list[Contestant]:
    """Everybody, each in a fresh process."""
    house = await ground.house(stack, name)
    await ground.pace(0)
    entrant = parley(house, ground.listeners)
    await measure(entrant, Shape(4, 2, 0))
    store = str(ground.folder / name / "langchain.db")
    return [
        entrant,
        await stack.enter_async_context(floor(ground.model, ground.key, ground.measured_core)),
        await stack.enter_async_context(
            peer.contestant(peer.LANGCHAIN, store, ground.model, ground.key, ground.listeners, ground.measured_core)
        ),
    ]


async def measure_turns(report: Report, ground: Ground, *, count: int, crowd: int) -> None:
    """At 20 turns at once, paced and in bursts, then with ``crowd`` at once in fresh processes."""
    async with AsyncExitStack() as stack:
        entrants = await _contestants(ground, stack, "few")
        bursts = await rounds(entrants, _all(entrants, Shape(40, 8, 0.0)), count, warm=True)
        await ground.pace(EVENT_SECONDS)
        few = await rounds(entrants, _all(entrants, Shape(40, 20, 1.0)), count, warm=False)
    async with AsyncExitStack() as stack:
        entrants = await _contestants(ground, stack, "many")
        await ground.pace(EVENT_SECONDS)
        ideal = 2.1 * MODEL_CALLS
        shapes = {
            PARLEY: Shape(2 * crowd, crowd, ideal),
            FLOOR: Shape(2 * crowd, crowd, ideal),
            LANGCHAIN: Shape(crowd, crowd, ideal),
        }
        many = await rounds(entrants, shapes, max(1, count // 2), warm=True)
        together = await measure(entrants[0], Shape(crowd, crowd, 0.0))
    _tell(report, few, "20 at once")
    _tell(report, many, f"{crowd} at once")
    report.add(f"turns, {crowd} at once: started in one instant, p50", f"{sorted(together.walls)[crowd // 2]:.2f} s")
    for name in (PARLEY, FLOOR, LANGCHAIN):
        report.add(f"turns in bursts, 8 at once: {name}, CPU a turn", f"{bursts.cpu_ms(name):.1f} ms")
    report.figures["turns"] = {
        "paced_20": few.as_json(),
        f"paced_{crowd}": many.as_json(),
        "bursts": bursts.as_json(),
        "langchain_versions": peer.LANGCHAIN.versions(),
    }


def _all(entrants: list[Contestant], shape: Shape) -> dict[str, Shape]:
    return {entrant.name: shape for entrant in entrants}


def _tell(report: Report, series: Series, title: str) -> None:
    for name in (PARLEY, FLOOR, LANGCHAIN):
        report.add(
            f"turns, {title}: {name}, CPU a turn (a chunk)",
            f"{series.cpu_ms(name):.1f} ms ({series.cpu_us_per_chunk(name):.0f} µs)",
        )
    report.most(f"turns, {title}: CPU, Parley to the floor", series.ratio(PARLEY, FLOOR), 3, "{:.2f} x")
    report.least(f"turns, {title}: CPU, LangChain to Parley", series.ratio(LANGCHAIN, PARLEY), 5, "{:.2f} x")
    report.most(f"turns, {title}: Parley, memory each in flight", series.memory_kb(PARLEY), 60, "{:.0f} KB")
    report.add(f"turns, {title}: LangChain, memory each in flight", f"{series.memory_kb(LANGCHAIN):.0f} KB")
    # What the floor takes is the model's own time: 4.2 s.
    ideal = SLACK * series.wall(FLOOR, 0.5)
    report.most(f"turns, {title}: Parley, p50", series.wall(PARLEY, 0.5), ideal, "{:.2f} s")
    for name in (PARLEY, FLOOR, LANGCHAIN):
        report.add(
            f"turns, {title}: {name}, p50 / p99",
            f"{series.wall(name, 0.5):.2f} / {series.wall(name, 0.99):.2f} s",
        )
    report.add(
        f"turns, {title}: Parley, first text p50 / p99",
        f"{1e3 * series.first_text(PARLEY, 0.5):.0f} / {1e3 * series.first_text(PARLEY, 0.99):.0f} ms",
    )
