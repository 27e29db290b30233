"""Runs that change hands or end while a process begins them: no lease that is over takes anything from another."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from sqlalchemy import select

from parley.runs import run_store
from parley.runs.run_store import Lease
from parley.runs.worker import LEAST_ROOM, POLL_SECONDS, SHRINK_SECONDS, Room, Worker
from parley.storage import ReadTx, Store, StoreAway, StoreBusy, WriteTx, open_store
from parley.storage.tables.chats import runs
from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from tests.contract.conftest import ORGANIZATION, furnish, model, model_port, open_house, proxy
from tests.stage import Stage, caller, faults, says, shown_text

__all__ = ["model", "model_port", "proxy"]

PATIENCE = 30.0


@dataclass(slots=True)
class Gate:
    """Where runs wait to be handed back."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    passed: asyncio.Event = field(default_factory=asyncio.Event)

    async def hold(self, work: str) -> None:
        if work.startswith("Worker._let_go"):
            self.reached.set()
            await self.opened.wait()

    def tell(self, work: str, _result: object) -> None:
        if work.startswith("Worker._let_go"):
            self.passed.set()


type Before = Callable[[str], Awaitable[None]]
"""Called with the name of a piece of work, before the store does it."""
type After = Callable[[str, object], None]
"""Called with the name of a piece of work and its result, after the store did it."""


async def at_once(_work: str) -> None:
    """Nothing comes before."""


def silently(_work: str, _result: object) -> None:
    """Nothing comes after."""


class WatchedStore:
    """A store where something happens around pieces of work."""

    def __init__(self, store: Store, before: Before = at_once, after: After = silently) -> None:
        self._store = store
        self._before = before
        self._after = after
        self.dialect = store.dialect

    @property
    def across(self) -> Store:
        return WatchedStore(self._store.across, self._before, self._after)

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        await self._before(work.__qualname__)
        result = await self._store.write(work)
        self._after(work.__qualname__, result)
        return result

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        await self._before(work.__qualname__)
        return await self._store.read(work)

    async def close(self) -> None:
        await self._store.close()


@dataclass(slots=True)
class Haste:
    """Whoever ends the next run in the very moment in which its worker has claimed it."""

    worker: Worker | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def follow(self, work: str, result: object) -> None:
        if work.startswith("Worker._claim.") and isinstance(result, tuple):
            for lease in cast("list[Lease]", result[0]):
                # After the worker has made the run's task, and before that task takes its first step.
                asyncio.get_running_loop().call_soon(self.end, lease.run_id)

    def end(self, run_id: str) -> None:
        assert self.worker is not None
        self.worker.stop(run_id)
        self.ended.set()


@dataclass(slots=True)
class Strain:
    """While it is on, no run gets to see its own rows."""

    error: StoreAway
    on: bool = True
    refused: int = 0

    async def refuse(self, work: str) -> None:
        if self.on and work.startswith("Worker._perform."):
            self.refused += 1
            raise self.error


async def column(stage: Stage, run_id: str, name: str) -> int:
    """A number of the run's row."""
    query = select(runs.c[name]).where(runs.c.id == run_id)
    return await stage.parley.store.read(lambda tx: tx.execute(query).scalar_one()) or 0


async def until_more(stage: Stage, run_id: str, name: str, than: int) -> int:
    """That number once it has grown."""
    async with asyncio.timeout(PATIENCE):
        while (now := await column(stage, run_id, name)) <= than:
            await asyncio.sleep(0.02)
    return now


async def asked(stage: Stage, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(await stage.sent()) < count:
            await asyncio.sleep(0.02)


async def test_a_run_that_a_process_takes_over_from_itself_is_kept_while_the_old_lease_is_let_go(
    store_url: str, tmp_path: Path, proxy: ProviderProxy, model: ScriptedModel
) -> None:
    gate = Gate()
    async with AsyncExitStack() as stack:
        eager = {"PARLEY_HEARTBEAT_SECONDS": "0.2"}
        house = await open_house(
            stack, store_url, tmp_path, proxy, eager, lambda url: WatchedStore(open_store(url), gate.hold, gate.tell)
        )
        client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
        stage = await furnish(house, client, model)
        first, second = uuid4().hex, uuid4().hex
        await stage.script(
            says("Lost", " for ever", barrier=first, barrier_after=2),
            says("Told", " whole", ".", barrier=second, barrier_after=2),
        )
        started = await stage.start()
        run_id = started["run_id"]
        await asked(stage, 1)
        # As if it had been handed back elsewhere: the next heartbeat finds the lease lost.
        await stage.parley.store.write(lambda tx: run_store.release(tx, run_id, 1, house.clock.now(), attempts=0))
        async with asyncio.timeout(PATIENCE):
            await gate.reached.wait()
        await asked(stage, 2)
        gate.opened.set()
        async with asyncio.timeout(PATIENCE):
            await gate.passed.wait()
        # The lease that is over is gone; the one that holds is renewed for as long as it takes.
        for _ in range(3):
            await until_more(stage, run_id, "lease_until", await column(stage, run_id, "lease_until"))
        assert house.parley.chats.worker is not None
        assert house.parley.chats.worker.running == 1
        await stage.model.release(second)
        events = await client.listen(started["chat_id"], run_id)
        assert (events[-1]["type"], events[-1]["data"]["response"]) == ("done", "Told whole.")
        assert events[-1]["data"].get("error") is None
        assert shown_text(events) == "Told whole."
        assert [event["type"] for event in events].count("metadata") == 2
        assert await faults(house.parley) == []


async def test_a_run_that_is_ended_before_its_task_takes_a_step_leaves_its_place_free(
    store_url: str, tmp_path: Path, proxy: ProviderProxy, model: ScriptedModel
) -> None:
    haste = Haste()
    async with AsyncExitStack() as stack:
        house = await open_house(
            stack, store_url, tmp_path, proxy, {}, lambda url: WatchedStore(open_store(url), after=haste.follow)
        )
        haste.worker = house.parley.chats.worker
        assert haste.worker is not None
        client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
        stage = await furnish(house, client, model)
        await stage.script(says("Never asked."))
        started = await stage.start()
        async with asyncio.timeout(PATIENCE):
            await haste.ended.wait()
            while haste.worker.running:
                await asyncio.sleep(0.02)
        assert (await client.post(f"/assistant/chat/{started['chat_id']}/cancel")).status == 200
        assert await stage.sent() == []
        assert await faults(house.parley) == []


def test_room_halves_once_for_those_that_gave_up_together_and_grows_by_what_goes_through() -> None:
    room = Room(40)
    for late in range(30):
        room.shrink(40, 1000 + late / 10)
    assert room.places == 20
    room.shrink(30, 1000 + SHRINK_SECONDS)
    assert room.places == 10
    for times in range(2, 7):
        room.shrink(room.places, 1000 + times * SHRINK_SECONDS)
    assert room.places == LEAST_ROOM
    for _ in range(LEAST_ROOM + LEAST_ROOM + 1):
        room.grow()
    assert room.places == LEAST_ROOM + 2
    for _ in range(40 * 40):
        room.grow()
    assert room.places == 40
    small = Room(3)
    small.shrink(3, 0)
    assert small.places == 3


@pytest.mark.parametrize(
    ("error", "at_once"),
    [(StoreBusy("no connection is free"), 12), (StoreAway("the server is starting"), 24)],
    ids=["busy", "away"],
)
async def test_no_more_runs_are_begun_at_once_than_the_store_keeps_up_with(
    store_url: str, tmp_path: Path, proxy: ProviderProxy, model: ScriptedModel, error: StoreAway, at_once: int
) -> None:
    strain, turns = Strain(error), 24
    async with AsyncExitStack() as stack:
        limits = {"PARLEY_TURNS_PER_PROCESS": str(turns), "PARLEY_TURNS_PER_ORGANIZATION": str(turns)}
        house = await open_house(
            stack, store_url, tmp_path, proxy, limits, lambda url: WatchedStore(open_store(url), strain.refuse)
        )
        client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
        stage = await furnish(house, client, model)
        worker = stage.parley.chats.worker
        assert worker is not None
        barrier = uuid4().hex
        await stage.script(*[says("Through.", barrier=barrier)] * turns)
        started = [await stage.start() for _ in range(turns)]
        async with asyncio.timeout(PATIENCE):
            while strain.refused < 2 * turns:
                await asyncio.sleep(0.02)
        strain.on = False
        # Those with room come to the model and wait there; the others are not begun.
        await asked(stage, min(at_once, LEAST_ROOM))
        if at_once == turns:
            await asked(stage, turns)
        else:
            await asyncio.sleep(2 * POLL_SECONDS)
        assert len(await stage.sent()) <= at_once
        assert 0 < worker.running <= at_once
        await model.release(barrier)
        assert [(await stage.follow(each)).text for each in started] == ["Through."] * turns
        assert await faults(stage.parley) == []
