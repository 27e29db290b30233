"""Writing down one run: text at once to watchers and in batches to the store, facts in fenced transactions.

Every write begins with the fence (durability §4.4), so a process that lost its lease can add nothing.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError

from parley.base.clock import Clock, iso
from parley.billing import ModelCall, Plans, settle_model
from parley.runs import chat_store, run_store
from parley.runs.hub import Hub, Piece, Row, event_row
from parley.runs.large import fitted
from parley.runs.run_store import Lease, LeaseLost
from parley.storage import STORE_TROUBLE, Store, StoreAway, WriteTx
from parley.turn.events import Event, Guided, ResponseChunk, ToolCalled, ToolReturned
from parley.turn.model import Entry, NoteEntry, Observed, Receipt, Reply, ToolCall, ToolEntry, Usage
from parley.turn.pace import NOT_RUN, Guidance, Turn, assistant_entry
from parley.turn.text import as_text, parsed_arguments

FLUSH_SECONDS = 0.05
# Even when each character is escaped this stays below the 256 KB of an event (contract §4.1).
ROW_CHARACTERS = 32_768
AGAIN_SECONDS = 0.1
# What the store refuses once it refuses for ever; text that has no bytes is refused before it gets there.
REFUSED = (DataError, IntegrityError, ProgrammingError, OverflowError, UnicodeError)
MANY = 100
SUMMARY_NOTE = "The conversation has grown long. The assistant goes on from this summary of its beginning:"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Spent:
    """What one model call used, not stored yet."""

    call: ModelCall
    usage: Usage
    started_at: int
    succeeded: bool


def settle_spent(tx: WriteTx, plans: Plans, spent: Sequence[Spent], now: int) -> None:
    """Record and charge model calls. Not fenced: tokens count even when the run was lost (durability §4.6)."""
    for each in spent:
        settle_model(tx, plans, each.call, each.usage, started_at=each.started_at, succeeded=each.succeeded, now=now)


class RunJournal:
    """The writer of one run in this process; fulfils ``turn.loop.Journal``."""

    def __init__(
        self, store_: Store, flusher: "Flusher", clock: Clock, lease: Lease, seq: int, patience_seconds: float = 0.0
    ) -> None:
        self.lease = lease
        # For how long a fact waits for a store that is away; the lease is lost first where that is longer.
        self._patience = patience_seconds
        self.lock = asyncio.Lock()
        self.usage: list[Spent] = []
        self.lost = False
        self.effect_in_flight = False
        self._store = store_
        self._flusher = flusher
        self._hub = flusher.hub
        self._plans = flusher.plans
        self._clock = clock
        self._seq = seq
        self._open: list[str] = []
        self._length = 0
        self._unstored: list[Row] = []
        self._acting_since = 0

    # ── text ────────────────────────────────────────────────────────────────────────────────────

    def chunk(self, text: str) -> None:
        """Show a piece of the answer now; the store has it within about 50 ms. No event grows beyond a row."""
        for start in range(0, len(text), ROW_CHARACTERS):
            piece = text[start : start + ROW_CHARACTERS]
            if self._length + len(piece) > ROW_CHARACTERS:
                self._end_row()
            if not self._open:
                self._seq += 1
                self._length = 0
            self._hub.stream(self.lease.run_id, Piece(self._seq, self._length, piece, self.lease.epoch))
            self._open.append(piece)
            self._length += len(piece)
            self._flusher.add(self)

    def take_rows(self) -> list[Row]:
        """Text rows that are not stored yet; the open one ends here. Call with ``lock`` held."""
        self._end_row()
        return self._unstored

    def _end_row(self) -> None:
        if self._open:
            self._unstored.append(event_row(ResponseChunk("".join(self._open)), self._seq, self.lease.epoch))
            self._open = []

    def forget_text(self) -> None:
        """Give up the text that is not stored, which the store refuses; its numbers stay taken."""
        last = self._seq if self._open else 0
        self._open = []
        taken = [row.seq for row in self._unstored] + ([last] if last else [])
        self._unstored = [Row(seq, seq, self.lease.epoch, "superseded", "{}") for seq in taken]

    def rows_stored(self, last: int) -> None:
        """Text rows up to ``last`` are stored."""
        self._unstored = [row for row in self._unstored if row.seq > last]
        self._hub.stored(self.lease.run_id, last)

    # ── facts ───────────────────────────────────────────────────────────────────────────────────

    async def acting(self, turn: Turn, reply: Reply, call: ToolCall) -> None:
        """The reply, the results of the calls that will not run, and the intent of the one that will."""
        lease = self.lease
        arguments = parsed_arguments(call.arguments)
        entries: list[Entry] = [assistant_entry(reply)]
        entries.extend(ToolEntry(other.id, other.tool, NOT_RUN) for other in reply.calls[1:])

        def work(tx: WriteTx, now: int) -> Sequence[Event]:
            self._acting_since = now
            chat_store.append_entries(tx, lease.chat_id, lease.run_id, turn.step, entries, now)
            run_store.insert_tool_call(
                tx,
                {
                    "run_id": lease.run_id,
                    "step": turn.step,
                    "chat_id": lease.chat_id,
                    "organization_id": lease.organization_id,
                    "tool_call_id": call.id,
                    "tool": call.tool,
                    "input": arguments,
                    "status": "started",
                    "epoch": lease.epoch,
                    "managed": False,
                    "started_at": now,
                },
            )
            return [ToolCalled(call.tool, arguments, call.id, iso(now))]

        await self.write(work, turn)

    async def intend(self, step: int, receipt: Receipt) -> None:
        """The fence and the intent right before a side effect leaves. Raises LeaseLost when it must not."""
        run_id = self.lease.run_id

        def work(tx: WriteTx, _now: int) -> Sequence[Event]:
            run_store.record_intent(tx, run_id, step, receipt)
            return ()

        await self.write(work)
        self.effect_in_flight = receipt.effect != "read"

    async def observed(self, turn: Turn, call: ToolCall, result: Observed) -> None:
        """The receipt of a call, its result for the model and for the watchers."""
        lease = self.lease
        output = as_text(result.output)

        def work(tx: WriteTx, now: int) -> Sequence[Event]:
            chat_store.append_entries(
                tx, lease.chat_id, lease.run_id, turn.step, [ToolEntry(call.id, call.tool, output)], now
            )
            receipt = run_store.receipt_values(result.receipt) if result.receipt else {}
            run_store.finish_tool_call(
                tx,
                lease.run_id,
                turn.step,
                {
                    **receipt,
                    "status": "unknown" if result.unknown else "done",
                    "output": result.output,
                    "succeeded": not result.failed,
                    "ended_at": now,
                },
            )
            if result.tainted:
                chat_store.taint(tx, lease.chat_id)
            if result.whole is not None:
                chat_store.keep_result(tx, lease.chat_id, lease.run_id, result.whole, now)
            took = (now - self._acting_since) // 1_000 if self._acting_since else 0
            return [ToolReturned(call.tool, call.id, result.output, iso(now), took, result.tainted)]

        await self.write(work, turn)
        self.effect_in_flight = False

    async def guided(self, turn: Turn, guidance: Guidance) -> None:
        """A nudge."""
        lease = self.lease
        event = Guided(guidance.text, guidance.consecutive_failures, guidance.total_model_calls)

        def work(tx: WriteTx, now: int) -> Sequence[Event]:
            chat_store.append_entries(tx, lease.chat_id, lease.run_id, turn.step, [NoteEntry(guidance.text)], now)
            return [event]

        await self.write(work)

    async def fell_back(self, message: str, model_calls: int) -> None:
        """Another model goes on with the run: told to the people, and of no use to the model."""
        event = Guided(message, total_llm_calls=model_calls)
        await self.write(lambda _tx, _now: [event])

    async def compacted(self, turn: Turn) -> None:
        """The conversation is sent shorter from now on; a new summary is shown in the chat as a note."""
        lease, compaction = self.lease, turn.compaction

        def work(tx: WriteTx, now: int) -> Sequence[Event]:
            _, before = chat_store.latest_compaction(tx, lease.chat_id)
            chat_store.append_compaction(tx, lease.chat_id, lease.run_id, turn.from_seq, compaction, now)
            if compaction.summary != before.summary:
                note = f"{SUMMARY_NOTE}\n\n{compaction.summary}"
                chat_store.append_message(tx, lease.chat_id, role="system", content=note, run_id=lease.run_id, now=now)
            return ()

        await self.write(work, turn)

    async def write(self, work: Callable[[WriteTx, int], Sequence[Event]], turn: Turn | None = None) -> None:
        """One fenced transaction: waiting text, the work, the events it returns; shown once it is committed.

        A store that is away for a moment is asked again, and what an unheard commit has written is not
        written twice. Raises LeaseLost, with nothing written, when the run is no longer this process's.
        """
        async with self.lock:
            texts = list(self.take_rows())
            spent = list(self.usage)
            try:
                rows = await self._commit(work, turn, texts, spent)
            except LeaseLost:
                self.lost = True
                raise
            self._seq += len(rows)
            del self.usage[: len(spent)]
            if texts:
                self.rows_stored(texts[-1].seq)
            self._hub.publish(self.lease.run_id, rows)

    async def _commit(
        self,
        work: Callable[[WriteTx, int], Sequence[Event]],
        turn: Turn | None,
        texts: list[Row],
        spent: list[Spent],
    ) -> list[Row]:
        """The rows of the events, once they are stored."""
        lease, now, tries = self.lease, self._clock.now(), 0

        def unit(tx: WriteTx) -> list[Row]:
            run_store.fence(tx, lease.run_id, lease.epoch, now, turn)
            settle_spent(tx, self._plans, spent, now)
            run_store.append_texts(tx, [(lease.run_id, row) for row in texts], now)
            if tries > 1 and (known := run_store.events_after(tx, lease.run_id, self._seq, MANY)):
                return known
            events = enumerate([fitted(tx, lease, event, now) for event in work(tx, now)], self._seq + 1)
            rows = [event_row(event, seq, lease.epoch) for seq, event in events]
            run_store.append_events(tx, [(lease.run_id, row) for row in rows], now)
            return rows

        until = time.monotonic() + self._patience
        while True:
            tries += 1
            try:
                return await self._store.write(unit)
            except StoreAway as error:
                if time.monotonic() > until:
                    raise
                log.warning("run %s waits for the store (%s)", lease.run_id, error)
                await asyncio.sleep(AGAIN_SECONDS)


class Flusher:
    """Stores the streamed text of every run of this process in one transaction each 50 ms."""

    def __init__(self, store_: Store, hub: Hub, clock: Clock, plans: Plans) -> None:
        self.hub = hub
        self.plans = plans
        self._store = store_
        self._clock = clock
        self._dirty: set[RunJournal] = set()
        self._news = asyncio.Event()

    def add(self, journal: RunJournal) -> None:
        """The journal has text to store."""
        self._dirty.add(journal)
        self._news.set()

    async def run(self) -> None:
        """Flush for ever."""
        while True:
            await self._news.wait()
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Store what is waiting now. Text of a journal that is writing anyway goes along with that write."""
        self._news.clear()
        journals = [journal for journal in self._dirty if not journal.lock.locked()]
        if self._dirty.difference(journals):
            self._news.set()
        self._dirty.difference_update(journals)
        for journal in journals:
            await journal.lock.acquire()  # free: nothing else ran since the look above
        try:
            await self._store_texts(journals)
        except STORE_TROUBLE as error:
            log.warning("streamed text could not be stored (%s); trying again", type(error).__name__)
            self._dirty.update(journals)
            self._news.set()
        finally:
            for journal in journals:
                journal.lock.release()

    async def _store_texts(self, journals: list[RunJournal]) -> None:
        """The text of all together; where the store refuses that, of each alone, so that one cannot stop the others."""
        try:
            await self._store_rows(journals)
        except REFUSED:
            for journal in journals:
                try:
                    await self._store_rows([journal])
                except REFUSED:
                    log.exception("text of run %s cannot be stored and is left out", journal.lease.run_id)
                    journal.forget_text()
                    await self._store_rows([journal])

    async def _store_rows(self, journals: list[RunJournal]) -> None:
        taken = [(journal, rows) for journal in journals if (rows := list(journal.take_rows()))]
        if not taken:
            return
        now = self._clock.now()

        def unit(tx: WriteTx) -> set[tuple[str, int]]:
            owned = run_store.owned_pairs(tx, [journal.lease.pair for journal, _ in taken])
            pairs = [(j.lease.run_id, row) for j, rows in taken if j.lease.pair in owned for row in rows]
            run_store.append_texts(tx, pairs, now)
            return owned

        owned = await self._store.write(unit)
        for journal, rows in taken:
            if journal.lease.pair in owned:
                journal.rows_stored(rows[-1].seq)
            else:
                journal.lost = True
