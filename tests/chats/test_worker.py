"""Runs that change hands or end while a process begins them: no lease that is over takes anything from another."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from uuid import uuid4

from sqlalchemy import select

from parley.runs import run_store
from parley.runs.run_store import Lease
from parley.runs.worker import Worker
from parley.storage import ReadTx, Store, WriteTx, open_store
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
