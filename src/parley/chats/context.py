"""What every use case of a chat works with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from parley.base.clock import Clock
from parley.base.settings import Settings
from parley.billing import Plans
from parley.credentials import Credentials
from parley.equipment.llms import Llms
from parley.runs import run_store
from parley.runs.hub import Hub, Row, event_row
from parley.runs.journal import Flusher
from parley.runs.worker import Worker
from parley.storage import RUNS, Store, WriteTx, notify
from parley.turn.events import Event

STOP = "stop:"


@dataclass(frozen=True, slots=True)
class Chats:
    """The chats of this installation. ``worker`` is None where this process only answers requests."""

    store: Store
    clock: Clock
    settings: Settings
    hub: Hub
    flusher: Flusher
    worker: Worker | None
    llms: Llms
    credentials: Credentials
    plans: Plans

    async def commit[T](self, work: Callable[["Change"], T]) -> T:
        """One transaction of a use case; watchers and workers hear of it once it is committed."""
        now = self.clock.now()
        changes: list[Change] = []

        def unit(tx: WriteTx) -> T:
            change = Change(tx, now)
            changes[:] = [change]
            result = work(change)
            change.notify()
            return result

        result = await self.store.write(unit)
        for change in changes:
            self._tell(change)
        return result

    def heard(self, words: Sequence[str]) -> None:
        """News from another process about runs."""
        if self.worker is None:
            return
        for word in words:
            if word.startswith(STOP):
                self.worker.stop(word.removeprefix(STOP))
        self.worker.ring()

    def _tell(self, change: "Change") -> None:
        if self.worker is not None:
            for run_id in change.stopped:
                self.worker.stop(run_id)
            if change.queued:
                self.worker.ring()
        for run_id, rows in change.shown.items():
            self.hub.publish(run_id, rows)


class Change:
    """One transaction, and what others must hear of once it is committed."""

    def __init__(self, tx: WriteTx, now: int) -> None:
        self.tx = tx
        self.now = now
        self.stopped: list[str] = []
        self.queued = False
        self.shown: dict[str, list[Row]] = {}

    def show(self, run_id: str, events: Sequence[Event], *, epoch: int) -> None:
        """Append events to a run that no worker owns, or no longer."""
        first = run_store.last_seq(self.tx, run_id) + 1
        rows = [event_row(event, first + number, epoch) for number, event in enumerate(events)]
        run_store.append_events(self.tx, [(run_id, row) for row in rows], self.now)
        self.shown.setdefault(run_id, []).extend(rows)

    def stop(self, run_id: str) -> None:
        """Whoever executes the run must stop."""
        self.stopped.append(run_id)

    def queue(self) -> None:
        """There is a run to claim."""
        self.queued = True

    def notify(self) -> None:
        """Tell other processes."""
        if self.queued or self.stopped:
            notify(self.tx, RUNS, [f"{STOP}{run_id}" for run_id in self.stopped])
