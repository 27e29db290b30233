"""Two organizations on one server: what one notices when the other asks ten times as much as its plan allows."""

import asyncio
import os
import time
from asyncio.subprocess import DEVNULL
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median

import aiohttp

from bench.child import Child, Order, child, module
from bench.contestants import House, new_owner_key, parley, parley_environment, parley_house
from bench.machine import on_core
from bench.report import Report
from bench.rounds import BenchFailed, measure, quantile
from bench.scenario import Shape
from bench.turns import Ground
from parley.billing import load_plans

PLAN = "pro"
TIMES = 10
LOOKS = 100
TURNS = 10
PATH = "/assistant/chats"
USED_UP_SECONDS = 60.0


async def measure_neighbours(report: Report, ground: Ground, *, rounds: int) -> None:
    """The quiet one's requests and turns, with and without the loud one, in turn. Raises BenchFailed."""
    allowed = load_plans("").of(PLAN).rates.api
    if allowed is None:
        raise BenchFailed(f"the plan {PLAN} has no rate")
    per_second = TIMES * allowed / 60
    async with AsyncExitStack() as stack:
        key, folder = new_owner_key(), ground.folder / "neighbours"
        house = await stack.enter_async_context(parley_house(folder, ground.measured_core, owner_key=key))
        loud, quiet = await _organization(house, "Loud"), await _organization(house, "Quiet")
        await _grant(parley_environment(folder, key), loud.headers["X-Organization-ID"])
        await quiet.connect_model(ground.model, ground.key)
        await ground.pace(0)
        await measure(parley(quiet, ground.listeners), Shape(4, 1, 0))
        with on_core(ground.other_core):
            shouter = await stack.enter_async_context(child(module("bench.flood")))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        alone, apart, beside = _Heard(), _Heard(), _Heard()
        said: list[Order] = []
        flood: Order = {**loud.place, "path": PATH, "per_second": per_second}
        for number in range(rounds):
            await alone.hear(quiet, ground, session)
            # The same generator against nobody: what it takes from those who measure.
            async with _flood(shouter, {**flood, "port": 0}, []):
                await apart.hear(quiet, ground, session)
            async with _flood(shouter, flood, said):
                if number == 0:
                    await _refused(loud, session)
                await beside.hear(quiet, ground, session)
    statuses = Counter[str]()
    for order in said:
        statuses.update(order["statuses"])
    if statuses["429"] < statuses.total() / 2:
        raise BenchFailed(f"too few were over the rate: {dict(statuses)}")
    for what, one, control, other in (
        ("request", alone.looks, apart.looks, beside.looks),
        ("turn", alone.turns, apart.turns, beside.turns),
    ):
        name = f"a {what} beside an organization at {TIMES} times its rate"
        report.most(f"{name}, p50 to alone", median(other) / median(one), 1.2, "{:.2f} x")
        report.add(f"{name}, p50 to alone, the flood sent to nobody", f"{median(control) / median(one):.2f} x")
        report.add(f"{name}, p95", f"{1e3 * quantile(other, 0.95):.1f} ms, alone {1e3 * quantile(one, 0.95):.1f} ms")
    heards = {"alone": alone, "flood_to_nobody": apart, "beside": beside}
    cpu, seconds = sum(order["cpu"] for order in said), sum(order["seconds"] for order in said)
    report.add("the flood's own process, of the other core", f"{100 * cpu / seconds:.1f} %")
    report.figures["neighbours"] = {
        "loud_per_second": per_second,
        "statuses": dict(statuses),
        "flood_cpu_share": cpu / seconds,
        "request_ms": {name: 1e3 * median(heard.looks) for name, heard in heards.items()},
        "turn_ms": {name: 1e3 * median(heard.turns) for name, heard in heards.items()},
    }


class _Heard:
    """How long the quiet organization's requests and turns took, in seconds."""

    def __init__(self) -> None:
        self.looks: list[float] = []
        self.turns: list[float] = []

    async def hear(self, house: House, ground: Ground, session: aiohttp.ClientSession) -> None:
        """Some requests one after the other, then some turns."""
        for _ in range(LOOKS):
            begun = time.perf_counter()
            async with session.get(house.base_url + PATH, headers=house.headers) as response:
                await response.read()
                if response.status != 200:
                    raise BenchFailed(f"the quiet organization was refused: {response.status}")
            self.looks.append(time.perf_counter() - begun)
            await asyncio.sleep(0.005)
        self.turns += (await measure(parley(house, ground.listeners), Shape(TURNS, 1, 0))).walls


@asynccontextmanager
async def _flood(shouter: Child, order: Order, said: list[Order]) -> AsyncGenerator[None]:
    """The loud organization's requests while the block runs; what became of them is added to ``said``."""
    await shouter.ask(order)
    try:
        yield
    finally:
        said.append(await shouter.ask({}))


async def _refused(house: House, session: aiohttp.ClientSession) -> None:
    """Wait until the loud one has used up its minute: what is measured is what comes after it."""
    async with asyncio.timeout(USED_UP_SECONDS):
        while True:
            async with session.get(house.base_url + PATH, headers=house.headers) as response:
                if response.status == 429:
                    return
            await asyncio.sleep(0.1)


async def _organization(house: House, name: str) -> House:
    """A new organization of the server, with the owner's key: that one has no rate of its own."""
    made = await house.call("POST", "/organizations", {"name": name})
    return House(house.pid, house.base_url, {**house.headers, "X-Organization-ID": made["organization"]["id"]})


async def _grant(environment: dict[str, str], organization_id: str) -> None:
    """Put the organization on the plan that has a rate."""
    command = [*module("parley"), "billing", "plan", organization_id, PLAN]
    granting = await asyncio.create_subprocess_exec(*command, env={**os.environ, **environment}, stdout=DEVNULL)
    if await granting.wait():
        raise BenchFailed("the plan could not be granted")
