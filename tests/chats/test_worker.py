"""Runs that change hands or end while a process begins them: no lease that is over takes anything from another."""

import asyncio
import time
from collections.abc import Callable
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
from parley.storage import ReadTx, Store, StoreAway, WriteTx, open_store
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


class GatedStore:
    """A store that is slow to take runs back, and quick with everything else."""

    def __init__(self, store: Store, gate: Gate) -> None:
        self._store = store
        self._gate = gate
        self.dialect = store.dialect

    @property
    def across(self) -> Store:
        return GatedStore(self._store.across, self._gate)

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        if not work.__qualname__.startswith("Worker._let_go"):
            return await self._store.write(work)
        self._gate.reached.set()
        await self._gate.opened.wait()
        try:
            return await self._store.write(work)
        finally:
            self._gate.passed.set()

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None:
        await self._store.close()


@dataclass(slots=True)
class Haste:
    """Whoever ends the next run in the very moment in which its worker has claimed it."""

    worker: Worker | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, run_id: str) -> None:
        assert self.worker is not None
        self.worker.stop(run_id)
        self.ended.set()


class HastyStore:
    """A store whose answer to a claim is followed at once by word that the run is over."""

    def __init__(self, store: Store, haste: Haste) -> None:
        self._store = store
        self._haste = haste
        self.dialect = store.dialect

    @property
    def across(self) -> Store:
        return HastyStore(self._store.across, self._haste)

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        result = await self._store.write(work)
        if work.__qualname__.startswith("Worker._claim.") and isinstance(result, tuple):
            for lease in cast("list[Lease]", result[0]):
                # After the worker has made the run's task, and before that task takes its first step.
                asyncio.get_running_loop().call_soon(self._haste.end, lease.run_id)
        return result

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None:
        await self._store.close()


@dataclass(slots=True)
class Strain:
    """While it is on, no run gets to see its own rows."""

    on: bool = True
    refused: int = 0


class StrainedStore:
    """A store that has no connection for those who want to begin a run."""

    def __init__(self, store: Store, strain: Strain) -> None:
        self._store = store
        self._strain = strain
        self.dialect = store.dialect

    @property
    def across(self) -> Store:
        return StrainedStore(self._store.across, self._strain)

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        return await self._store.write(work)

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        if self._strain.on and work.__qualname__.startswith("Worker._perform."):
            self._strain.refused += 1
            raise StoreAway("no connection is free")
        return await self._store.read(work)

    async def close(self) -> None:
        await self._store.close()


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
            stack, store_url, tmp_path, proxy, eager, lambda url: GatedStore(open_store(url), gate)
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
        house = await open_house(stack, store_url, tmp_path, proxy, {}, lambda url: HastyStore(open_store(url), haste))
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


def test_room_halves_once_for_those_that_gave_up_together_and_grows_by_what_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    room = Room(40)
    for _ in range(30):
        room.shrink(40)
    assert room.places == 20
    now += SHRINK_SECONDS
    room.shrink(30)
    assert room.places == 10
    for _ in range(5):
        now += SHRINK_SECONDS
        room.shrink(room.places)
    assert room.places == LEAST_ROOM
    for _ in range(100):
        room.grow()
    assert room.places == 40
    small = Room(3)
    small.shrink(3)
    assert small.places == 3


async def test_no_more_runs_are_begun_at_once_than_the_store_keeps_up_with(
    store_url: str, tmp_path: Path, proxy: ProviderProxy, model: ScriptedModel
) -> None:
    strain, turns = Strain(), 24
    async with AsyncExitStack() as stack:
        limits = {"PARLEY_TURNS_PER_PROCESS": str(turns), "PARLEY_TURNS_PER_ORGANIZATION": str(turns)}
        house = await open_house(
            stack, store_url, tmp_path, proxy, limits, lambda url: StrainedStore(open_store(url), strain)
        )
        client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
        stage = await furnish(house, client, model)
        barrier = uuid4().hex
        await stage.script(*[says("Through.", barrier=barrier)] * turns)
        started = [await stage.start() for _ in range(turns)]
        async with asyncio.timeout(PATIENCE):
            while strain.refused < 2 * turns:
                await asyncio.sleep(0.02)
        strain.on = False
        worker = stage.parley.chats.worker
        assert worker is not None
        await asked(stage, 2)
        # Whoever could be claimed has been by the second look from here on.
        await asyncio.sleep(2 * POLL_SECONDS)
        assert 0 < worker.running <= turns // 2
        assert len(await stage.sent()) <= turns // 2
        await model.release(barrier)
        assert [(await stage.follow(each)).text for each in started] == ["Through."] * turns
        assert await faults(stage.parley) == []
