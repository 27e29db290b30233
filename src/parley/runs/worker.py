"""Executing runs: claim, beat, watch, drain (durability §4.4, §4.9).

One task a run, all of them children of one task group. A run's lease is renewed only while its task
lives here; past its local deadline the task is stopped before any other process may claim the run.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from parley.base.clock import Clock, iso
from parley.base.ids import new_id
from parley.base.settings import Settings
from parley.billing import release
from parley.runs import run_store, settle
from parley.runs.hub import Hub
from parley.runs.journal import REFUSED, Flusher, RunJournal, settle_spent
from parley.runs.rebuild import Rebuilt, rebuild
from parley.runs.run_store import Lease, LeaseLost
from parley.storage import STORE_TROUBLE, Store, StoreAway, StoreBusy, WriteTx
from parley.storage.acting import act_for
from parley.telemetry import RunFacts
from parley.turn.events import Event, Metadata
from parley.turn.loop import Toolbox, run_turn
from parley.turn.model import Failed, Model, ModelError, Outcome

if TYPE_CHECKING:
    # Loaded only where somebody collects: it brings OpenTelemetry's SDK along.
    from parley.telemetry.watch import RunWatch, Telemetry

POLL_SECONDS = 1.0
WATCH_SECONDS = 0.1
LEASE_SHARE = 0.8
BEAT_SHARE = 0.25
LEAST_BEAT_SECONDS = 2.0
MAX_ATTEMPTS = 3
DRAIN_EFFECT_SECONDS = 10.0
SETTLE_RETRY_SECONDS = 0.2
LET_GO_SECONDS = 5.0
LEAST_ROOM = 8
SHRINK_SECONDS = 10.0

BUG = Failed("Something went wrong on our side. The details are in the server's log; please try again.", "internal")
UNSTORABLE = Failed("The reply could not be stored. Please try again, or ask for it another way.", "unstorable")
CRASH_LOOP = Failed(
    "This turn stopped its worker three times and was given up. Please try it another way.", "crash_loop"
)

log = logging.getLogger(__name__)

type StopReason = Literal["ended_elsewhere", "lost", "drained"]


class Equip(Protocol):
    """Gives a run its model and its tools."""

    @property
    def systems(self) -> dict[str, str]:
        """The system prompt of each kind of chat."""
        ...

    async def __call__(self, lease: Lease, rebuilt: Rebuilt, journal: RunJournal) -> tuple[Model, Toolbox]:
        """The model and tools of a run. Raises ModelError where the chosen model cannot be used."""
        ...


@dataclass(slots=True, eq=False)
class Execution:
    """One run being executed in this process."""

    lease: Lease
    deadline: float
    journal: RunJournal | None = None
    task: asyncio.Task[None] | None = None
    stop: StopReason | None = None
    # A task that is cancelled before its first step never takes one, and would tidy nothing up.
    begun: bool = False
    settling: bool = False


class Room:
    """How many runs this process works on at once: at most ``most``, and no more than the store keeps up with.

    Runs beyond that would wait for the store's connections until each of them gives up, and none would end.
    """

    def __init__(self, most: int) -> None:
        self.places = most
        self._most = most
        self._shrunk_at = -math.inf
        self._went_through = 0

    def shrink(self, running: int, now: float) -> None:
        """One of ``running`` runs waited for the store in vain: half as many from now on, a time in seconds."""
        # Those that waited together give up together.
        if now - self._shrunk_at < SHRINK_SECONDS:
            return
        self._shrunk_at = now
        self.places = max(min(LEAST_ROOM, self._most), min(self.places, running) // 2)
        log.warning("the store does not keep up with %d runs at once; %d from now on", running, self.places)

    def grow(self) -> None:
        """A run went through. Once as many have as there are places, there is room for one more."""
        self._went_through += 1
        if self._went_through >= self.places:
            self._went_through = 0
            self.places = min(self._most, self.places + 1)


class Worker:
    """Executes the runs this process claims."""

    def __init__(
        self,
        store: Store,
        beat_store: Store,
        flusher: Flusher,
        clock: Clock,
        settings: Settings,
        equip: Equip,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.id = new_id()
        self.draining = False
        self._store = store
        self._beat_store = beat_store
        self._flusher = flusher
        self._hub: Hub = flusher.hub
        self._clock = clock
        self._settings = settings
        self._equip = equip
        self._telemetry = telemetry
        # By run and epoch: a run that this process takes over from itself is here twice for a moment.
        self._executions: dict[tuple[str, int], Execution] = {}
        self._room = Room(settings.turns_per_process)
        self._bell = asyncio.Event()
        # Whether runs were left behind at the last look, so that one that ends here makes room for them.
        self._some_wait = False
        self._idle = asyncio.Event()
        self._idle.set()

    # ── from outside ────────────────────────────────────────────────────────────────────────────

    def ring(self) -> None:
        """There is a run to claim."""
        self._bell.set()

    def stop(self, run_id: str) -> None:
        """The run has been ended by somebody else; stop working on it at once."""
        for execution in list(self._executions.values()):
            if execution.lease.run_id == run_id:
                self._stop(execution, "ended_elsewhere")

    @property
    def running(self) -> int:
        """How many runs are being executed here."""
        return len(self._executions)

    async def drain(self) -> None:
        """Claim no more and hand every run back; a side effect in flight gets ten seconds to return."""
        self.draining = True
        self._bell.set()
        for execution in list(self._executions.values()):
            if execution.journal is None or not execution.journal.effect_in_flight:
                self._stop(execution, "drained")
        try:
            async with asyncio.timeout(DRAIN_EFFECT_SECONDS):
                await self._idle.wait()
        except TimeoutError:
            for execution in list(self._executions.values()):
                self._stop(execution, "drained")
            async with asyncio.timeout(DRAIN_EFFECT_SECONDS):
                await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled. Call ``drain`` first for an orderly end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claim_forever(group), name="claim")
            group.create_task(self._beat_forever(), name="beat")
            group.create_task(self._watch_forever(), name="watch")

    # ── claiming ────────────────────────────────────────────────────────────────────────────────

    async def _claim_forever(self, group: asyncio.TaskGroup) -> None:
        rung = True
        while not self.draining:
            self._bell.clear()
            self._stop_overdue()
            try:
                await self._claim(group, look_first=not rung)
            except STORE_TROUBLE:
                log.exception("could not look for runs; trying again")
            rung = await self._wait_for_bell()

    async def _wait_for_bell(self) -> bool:
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._bell.wait()
        except TimeoutError:
            return False
        return True

    async def _claim(self, group: asyncio.TaskGroup, *, look_first: bool) -> None:
        """Take what there is room for."""
        room = self._room.places - len(self._executions)
        if room <= 0 or self.draining:
            self._some_wait = True
            return
        if look_first and not await self._store.across.read(run_store.waiting_organizations):
            return
        asked = time.monotonic()
        leases, self._some_wait = await self._store.across.write(lambda tx: self._claim_rows(tx, room))
        for lease in leases:
            execution = Execution(lease, asked + LEASE_SHARE * self._settings.lease_seconds)
            self._executions[lease.pair] = execution
            self._idle.clear()
            execution.task = group.create_task(self._execute(execution), name=f"run {lease.run_id}")

    def _claim_rows(self, tx: WriteTx, room: int) -> tuple[list[Lease], bool]:
        """The runs taken, and whether others still wait."""
        leases: list[Lease] = []
        for organization_id in run_store.waiting_organizations(tx):
            cap = run_store.lock_slot(tx, organization_id)
            if cap is None:
                continue
            leases += run_store.claim(
                tx,
                organization_id,
                owner=self.id,
                cap=cap,
                room=room - len(leases),
                lease_seconds=self._settings.lease_seconds,
                stamp=self._clock.now(),
            )
            if len(leases) >= room:
                break
        return leases, bool(run_store.waiting_organizations(tx))

    # ── keeping ─────────────────────────────────────────────────────────────────────────────────

    async def _beat_forever(self) -> None:
        pause = self._settings.heartbeat_seconds
        while True:
            await asyncio.sleep(pause)
            pause = self._settings.heartbeat_seconds
            try:
                await self._beat()
            except STORE_TROUBLE as error:
                said = str(error) or type(error).__name__
                log.warning("a heartbeat failed (%s); runs stop by themselves before their lease ends", said)
                pause = min(pause, SETTLE_RETRY_SECONDS)

    async def _beat(self) -> None:
        """Renew exactly the leases whose tasks live here."""
        beating = [execution for execution in self._executions.values() if execution.stop is None]
        if not beating:
            return
        asked = time.monotonic()
        pairs = [execution.lease.pair for execution in beating]
        seconds = self._settings.lease_seconds
        # A connection that has gone silent must not outlast the leases: the next beat takes another one.
        async with asyncio.timeout(max(BEAT_SHARE * seconds, LEAST_BEAT_SECONDS)):
            owned = await self._beat_store.across.write(lambda tx: run_store.renew(tx, pairs, lease_seconds=seconds))
        for execution in beating:
            if execution.lease.pair in owned:
                execution.deadline = asked + LEASE_SHARE * seconds
            elif not execution.settling:
                self._stop(execution, "lost")

    async def _watch_forever(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._stop_overdue()

    def _stop_overdue(self) -> None:
        now = time.monotonic()
        for execution in list(self._executions.values()):
            overdue = now > execution.deadline
            if execution.stop is None and (overdue or (execution.journal is not None and execution.journal.lost)):
                self._stop(execution, "lost")

    def _stop(self, execution: Execution, reason: StopReason) -> None:
        if execution.stop is not None or execution.task is None or execution.settling:
            return
        execution.stop = reason
        if execution.begun:
            execution.task.cancel()

    # ── executing ───────────────────────────────────────────────────────────────────────────────

    async def _execute(self, execution: Execution) -> None:
        lease = execution.lease
        act_for(lease.organization_id, lease.run_id)
        self._hub.own(lease.run_id, lease.epoch)
        execution.begun = True
        try:
            await self._perform(execution)
        except LeaseLost:
            log.info("run %s is executed elsewhere now, or over", lease.run_id)
            await self._let_go(execution)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and execution.stop is not None:
                task.uncancel()
            await self._let_go(execution)
            if execution.stop is None:
                raise
        except StoreAway as error:
            log.exception("run %s waited for the store in vain; it is handed back", lease.run_id)
            if isinstance(error, StoreBusy):
                self._room.shrink(len(self._executions), time.monotonic())
            await self._hand_back(execution, counted=False)
        except Exception:  # a fault of one run must not stop the others
            log.exception("run %s could not be executed; it is handed back", lease.run_id)
            await self._hand_back(execution, counted=True)
        finally:
            self._leave(lease)

    def _leave(self, lease: Lease) -> None:
        self._hub.disown(lease.run_id, lease.epoch)
        self._executions.pop(lease.pair, None)
        if not self._executions:
            self._idle.set()
        if self._some_wait:
            self._bell.set()

    async def _hand_back(self, execution: Execution, *, counted: bool) -> None:
        # Whoever takes it next, and that may be this process, is to find the store a little better.
        await asyncio.sleep(SETTLE_RETRY_SECONDS)
        await self._let_go(execution, counted=counted)

    async def _perform(self, execution: Execution) -> None:
        lease = execution.lease
        if execution.stop is not None:
            await self._let_go(execution)
            return
        rebuilt = await self._store.read(lambda tx: rebuild(tx, lease, self._equip.systems))
        patience = self._settings.lease_seconds
        journal = RunJournal(self._store, self._flusher, self._clock, lease, rebuilt.seq, patience)
        execution.journal = journal
        if lease.attempts > MAX_ATTEMPTS:
            await self._settle(execution, rebuilt, CRASH_LOOP)
            return
        if lease.epoch > 1:
            await self._begin_again(journal, rebuilt)
        outcome = await self._watched_loop(execution, journal, rebuilt)
        if isinstance(outcome, Failed):
            await self._flusher.flush()  # the ending keeps what was streamed, the last words included
        await self._settle(execution, rebuilt, outcome)
        self._room.grow()

    async def _watched_loop(self, execution: Execution, journal: RunJournal, rebuilt: Rebuilt) -> Outcome:
        if self._telemetry is None:
            return await self._run_loop(execution, journal, rebuilt, None)
        watch = self._telemetry.begin(_facts(execution.lease))
        outcome = None
        try:
            outcome = await self._run_loop(execution, journal, rebuilt, watch)
            return outcome
        finally:
            watch.end(outcome)

    async def _run_loop(
        self, execution: Execution, journal: RunJournal, rebuilt: Rebuilt, watch: RunWatch | None
    ) -> Outcome:
        ceiling = self._settings.max_turn_seconds or None
        limit = asyncio.timeout(ceiling)
        try:
            async with limit:
                model, tools = await self._equip(execution.lease, rebuilt, journal)
                if watch is not None:
                    model, tools = await watch.around(model, tools)
                return await run_turn(rebuilt.turn, model, tools, journal)
        except ModelError as error:
            return Failed(error.public, f"model_{error.kind}")
        except (LeaseLost, StoreAway):
            raise
        except TimeoutError:
            if limit.expired():
                return Failed(f"The turn was stopped after {ceiling:g} seconds, the operator's limit.", "time_limit")
            log.exception("run %s failed", execution.lease.run_id)
            return BUG
        except Exception:  # a bug must end the run, not the worker
            log.exception("run %s failed", execution.lease.run_id)
            return BUG

    async def _begin_again(self, journal: RunJournal, rebuilt: Rebuilt) -> None:
        """Another owner streamed part of a reply and died: hide it, and let watchers start over."""
        lease = journal.lease

        def work(tx: WriteTx, now: int) -> Sequence[Event]:
            run_store.supersede_chunks(tx, lease.run_id, rebuilt.settled_seq)
            return [Metadata(lease.run_id, lease.chat_id, iso(now))]

        await journal.write(work)

    async def _settle(self, execution: Execution, rebuilt: Rebuilt, outcome: Outcome) -> None:
        """Write the ending, trying until the lease is over."""
        execution.settling = True
        journal = execution.journal
        if journal is None:
            raise AssertionError("a run is settled only after it was opened")
        run = settle.ended_lease(execution.lease)
        while True:
            try:
                await journal.write(lambda tx, now, end=outcome: settle.settle(tx, run, rebuilt.turn, end, now))
            except REFUSED:
                if outcome is UNSTORABLE:
                    raise
                # What the store refuses once it refuses for ever: end the run without it.
                log.exception("the ending of run %s cannot be stored; it ends as failed", execution.lease.run_id)
                outcome = UNSTORABLE
                journal.forget_text()
            except STORE_TROUBLE:
                if time.monotonic() > execution.deadline:
                    raise LeaseLost(execution.lease.run_id) from None
                log.exception("the ending of run %s could not be stored; trying again", execution.lease.run_id)
                await asyncio.sleep(SETTLE_RETRY_SECONDS)
            else:
                return

    async def _let_go(self, execution: Execution, *, counted: bool = False) -> None:
        """The run was stopped from outside its loop: bill what was used, hand back what is still ours.

        ``counted``: the try counts towards the three after which the run is given up.
        """
        lease, journal = execution.lease, execution.journal
        spent = list(journal.usage) if journal else []
        now = self._clock.now()

        def work(tx: WriteTx) -> None:
            settle_spent(tx, self._flusher.plans, spent, now)
            if execution.stop != "ended_elsewhere":
                run_store.release(tx, lease.run_id, lease.epoch, now, attempts=lease.attempts if counted else 0)
            if not run_store.is_live(tx, lease.run_id):
                release(tx, lease.organization_id, run_id=lease.run_id, now=now)

        try:
            async with asyncio.timeout(min(self._settings.lease_seconds, LET_GO_SECONDS)):
                await self._write_once_there(work)
        except Exception:  # as above: whatever the fault is, it is this run's alone
            log.exception("run %s could not be handed back; its lease will run out", lease.run_id)

    async def _write_once_there(self, work: Callable[[WriteTx], None]) -> None:
        while True:
            try:
                return await self._store.write(work)
            except StoreAway:
                await asyncio.sleep(SETTLE_RETRY_SECONDS)


def _facts(lease: Lease) -> RunFacts:
    return RunFacts(
        run_id=lease.run_id,
        turn_id=lease.turn_id,
        chat_id=lease.chat_id,
        organization_id=lease.organization_id,
        provider=str(lease.llm.get("provider_id", "")),
        model=str(lease.llm.get("model_id", "")),
    )
