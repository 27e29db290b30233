"""Rounds in which everybody has the same turns one after the other, in shuffled order, and what they say together."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.contestants import Contestant
from bench.machine import cpu_by_thread, load, resident_bytes
from bench.postgres import server_cpu, spent
from bench.scenario import CHUNKS_OF_TURN, TEXT_CHARACTERS, Shape

SAMPLE_SECONDS = 0.1
SETTLE_SECONDS = 0.5


class BenchFailed(Exception):
    """Something that was measured did not do its work; figures of it would be worthless."""


@dataclass(slots=True)
class Slice:
    """One contestant's share of a round. Times are seconds, memory is bytes.

    ``store_cpu`` is PostgreSQL's, 0 where the contestant has none.
    """

    turns: int
    at_once: int
    cpu: float
    main_thread_cpu: float
    store_cpu: float
    took: float
    walls: list[float]
    first_texts: list[float]
    resident_before: int
    resident_most: int
    load: float

    @property
    def cpu_per_turn(self) -> float:
        return self.cpu / self.turns

    @property
    def memory_per_turn(self) -> float:
        """Bytes more than before, for each turn in flight."""
        return (self.resident_most - self.resident_before) / self.at_once


async def measure(contestant: Contestant, shape: Shape) -> Slice:
    """Have a contestant do these turns. Raises BenchFailed unless every one ended well with all of its text."""
    before, resident = cpu_by_thread(contestant.pid), resident_bytes(contestant.pid)
    store = server_cpu(contestant.store) if contestant.store else {}
    most = resident
    async with asyncio.TaskGroup() as group:
        doing = group.create_task(contestant.turns(shape))
        while not doing.done():
            await asyncio.wait([doing], timeout=SAMPLE_SECONDS)
            most = max(most, resident_bytes(contestant.pid))
    said = doing.result()
    after = cpu_by_thread(contestant.pid)
    wrong = [count for count in said["characters"] if count != TEXT_CHARACTERS]
    if said["errors"] or wrong or len(said["walls"]) != shape.turns:
        raise BenchFailed(
            f"{contestant.name}: {len(said['errors'])} errors {said['errors'][:2]}, odd texts {wrong[:5]}"
        )
    return Slice(
        turns=shape.turns,
        at_once=shape.at_once,
        cpu=sum(after.values()) - sum(before.values()),
        main_thread_cpu=after[contestant.pid] - before[contestant.pid],
        store_cpu=spent(store, server_cpu(contestant.store)) if contestant.store else 0.0,
        took=said["seconds"],
        walls=said["walls"],
        first_texts=said.get("first_texts", []),
        resident_before=resident,
        resident_most=most,
        load=load(),
    )


@dataclass(slots=True)
class Series:
    """Some rounds: the slices of each contestant, round by round."""

    slices: dict[str, list[Slice]] = field(default_factory=dict[str, list[Slice]])

    def cpu_ms(self, name: str) -> float:
        """Median CPU of a turn, in ms."""
        return 1e3 * median(part.cpu_per_turn for part in self.slices[name])

    def store_cpu_ms(self, name: str) -> float:
        """Median CPU of PostgreSQL for a turn, in ms."""
        return 1e3 * median(part.store_cpu / part.turns for part in self.slices[name])

    def cpu_us_per_chunk(self, name: str) -> float:
        return 1e3 * self.cpu_ms(name) / CHUNKS_OF_TURN

    def ratio(self, name: str, to: str) -> float:
        """Median over the rounds of how much more CPU one used than the other in the same round."""
        pairs = zip(self.slices[name], self.slices[to], strict=True)
        return median(one.cpu_per_turn / other.cpu_per_turn for one, other in pairs)

    def wall(self, name: str, share: float) -> float:
        """A quantile of the turns' times, in seconds."""
        return quantile([wall for part in self.slices[name] for wall in part.walls], share)

    def first_text(self, name: str, share: float) -> float:
        return quantile([first for part in self.slices[name] for first in part.first_texts], share)

    def memory_kb(self, name: str) -> float:
        """KB for each turn in flight; the most of all rounds, since memory that was once taken is used again."""
        return max(part.memory_per_turn for part in self.slices[name]) / 1024

    def as_json(self) -> Mapping[str, object]:
        """What is kept of it."""
        return {
            name: [
                {
                    "cpu_ms_per_turn": 1e3 * part.cpu_per_turn,
                    "main_thread_cpu_ms_per_turn": 1e3 * part.main_thread_cpu / part.turns,
                    "store_cpu_ms_per_turn": 1e3 * part.store_cpu / part.turns,
                    "turns": part.turns,
                    "at_once": part.at_once,
                    "took_seconds": part.took,
                    "wall_p50": quantile(part.walls, 0.5),
                    "wall_p99": quantile(part.walls, 0.99),
                    "first_text_p50": quantile(part.first_texts, 0.5) if part.first_texts else None,
                    "first_text_p99": quantile(part.first_texts, 0.99) if part.first_texts else None,
                    "kb_per_turn": part.memory_per_turn / 1024,
                    "load": part.load,
                }
                for part in parts
            ]
            for name, parts in self.slices.items()
        }


async def rounds(contestants: Sequence[Contestant], shapes: Mapping[str, Shape], count: int, *, warm: bool) -> Series:
    """So many rounds; ``shapes`` by contestant. ``warm``: a few turns of each before the first."""
    series = Series()
    chance = random.Random(11)
    if warm:
        for contestant in contestants:
            await measure(contestant, Shape(20, 10, 0.2))
    for number in range(count):
        for contestant in chance.sample(contestants, len(contestants)):
            part = await measure(contestant, shapes[contestant.name])
            series.slices.setdefault(contestant.name, []).append(part)
            print(
                f"    round {number + 1} {contestant.name:<11} {1e3 * part.cpu_per_turn:7.2f} ms CPU a turn,"
                f" p50 {quantile(part.walls, 0.5):.2f} s, load {part.load:.1f}",
                flush=True,
            )
            await asyncio.sleep(SETTLE_SECONDS)
    return series


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
