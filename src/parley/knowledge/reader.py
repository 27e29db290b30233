"""Reading documents in the background, durable like runs: claim, beat, read, embed, settle (durability §4).

The row is the job. A reader that dies leaves a lease that runs out; whoever takes the document over
drops what the dead one left and begins again. Nothing of a document is found before its last write.
"""

import asyncio
import logging
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import IO

from parley.base.clock import Clock
from parley.base.errors import Refusal
from parley.base.ids import new_id
from parley.base.settings import Settings
from parley.billing import Plans, charge_ingest
from parley.knowledge import store as rows
from parley.knowledge.chunk_store import (
    Reading,
    ReadingLost,
    claim,
    drop_chunks,
    end,
    fence,
    hand_back,
    insert_chunks,
    renew,
    something_waits,
    try_again,
)
from parley.knowledge.embedding.embedder import Embedder
from parley.knowledge.model import Base, Piece
from parley.knowledge.parsing import child
from parley.storage import STORE_TROUBLE, Store, WriteTx
from parley.storage.acting import act_for

AT_ONCE = 2
POLL_SECONDS = 1.0
RETRY_SECONDS = 0.5
MOST_ATTEMPTS = 3
BATCH = 256

BUG = "Something went wrong on our side while the document was read. The details are in the server's log; try again."
CRASH_LOOP = "Reading this document stopped the server's reader three times. Split the file, or save it anew."

log = logging.getLogger(__name__)


class Faulty(Exception):
    """The document cannot be read; the message is for the person who uploaded it."""


class Reader:
    """Reads the documents this process claims."""

    def __init__(
        self, store: Store, beat_store: Store, clock: Clock, settings: Settings, plans: Plans, embedder: Embedder
    ) -> None:
        self._owner = new_id()
        self._store = store
        self._beat_store = beat_store
        self._clock = clock
        self._settings = settings
        self._plans = plans
        self._embedder = embedder
        self._bell = asyncio.Event()
        self._draining = False
        self._reading: dict[str, tuple[Reading, asyncio.Task[None]]] = {}

    def ring(self) -> None:
        """There is a document to read."""
        self._bell.set()

    async def drain(self) -> None:
        """Claim no more and hand back what is being read, in bounded time."""
        self._draining = True
        self._bell.set()
        tasks = [task for _, task in self._reading.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._settings.lease_seconds)

    async def run(self) -> None:
        """Work until cancelled; what is being read then is handed back."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claim_forever(group), name="claim documents")
            group.create_task(self._beat_forever(), name="beat for documents")

    # ── claiming and keeping ────────────────────────────────────────────────────────────────────

    async def _claim_forever(self, group: asyncio.TaskGroup) -> None:
        while not self._draining:
            self._bell.clear()
            try:
                await self._claim(group)
            except STORE_TROUBLE:
                log.exception("could not look for documents to read; trying again")
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._bell.wait()
            except TimeoutError:
                continue

    async def _claim(self, group: asyncio.TaskGroup) -> None:
        room = AT_ONCE - len(self._reading)
        if room <= 0 or self._draining or not await self._store.read(something_waits):
            return
        now, lease = self._clock.now(), self._settings.lease_seconds
        taken = await self._store.write(lambda tx: claim(tx, self._owner, room=room, lease_seconds=lease, stamp=now))
        for reading in taken:
            task = group.create_task(self._read(reading), name=f"read {reading.document.id}")
            self._reading[reading.document.id] = (reading, task)
            task.add_done_callback(partial(self._leave, reading.document.id))

    def _leave(self, document_id: str, task: asyncio.Task[None]) -> None:
        """A place is free. Called by the task's end, which also comes when it was cancelled before its first step."""
        kept = self._reading.get(document_id)
        if kept is not None and kept[1] is task:
            del self._reading[document_id]
        self._bell.set()

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_seconds)
            try:
                await self._beat()
            except STORE_TROUBLE as error:
                log.warning("a heartbeat for documents failed (%s)", type(error).__name__)

    async def _beat(self) -> None:
        """Renew the leases of what is being read here; stop reading what is not ours any more."""
        held = list(self._reading.values())
        if not held:
            return
        readings, lease = [reading for reading, _ in held], self._settings.lease_seconds
        kept = await self._beat_store.write(lambda tx: renew(tx, readings, lease))
        for reading, task in held:
            if reading.document.id not in kept and not task.done():
                task.cancel()

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    async def _read(self, reading: Reading) -> None:
        """One document from its bytes to its ending. A fault of one document never stops the others."""
        act_for(reading.document.organization_id)
        try:
            await self._perform(reading)
        except ReadingLost:
            log.info("document %s is read elsewhere now, or gone", reading.document.id)
        except asyncio.CancelledError:
            await self._let_go(reading)
            raise
        except STORE_TROUBLE:
            log.exception("document %s could not be read; its lease will run out", reading.document.id)
            await asyncio.sleep(RETRY_SECONDS)

    async def _perform(self, reading: Reading) -> None:
        document = reading.document
        try:
            if reading.attempts > MOST_ATTEMPTS:
                raise Faulty(CRASH_LOOP)
            base = await self._store.read(
                lambda tx: rows.find_base(tx, document.organization_id, document.knowledge_base_id)
            )
            pieces = await self._parse(reading, base)
            await self._pay(reading, base, pieces)
            await self._keep(reading, base, pieces)
        except child.ChildKilled:
            log.warning("document %s: its reader was killed at try %d", document.id, reading.attempts)
            await self._store.write(lambda tx: try_again(tx, reading))
        except Faulty as fault:
            await self._fail(reading, str(fault))
        except Refusal as refusal:
            await self._fail(reading, refusal.detail)
        except (ReadingLost, *STORE_TROUBLE):
            raise
        except Exception:  # a bug must end the document, not the reader
            log.exception("document %s could not be read", document.id)
            await self._fail(reading, BUG)

    async def _parse(self, reading: Reading, base: Base) -> Sequence[Piece]:
        document = reading.document
        with tempfile.TemporaryFile(dir=self._settings.data_dir) as file:
            await self._fetch(document.id, file)
            verdict = await child.read(file, document.file_type, base.chunking)
        if verdict.reason:
            log.warning("document %s: %s", document.id, verdict.reason)
        if verdict.fault:
            raise Faulty(verdict.fault)
        return verdict.pieces

    async def _fetch(self, document_id: str, file: IO[bytes]) -> None:
        seq = 0
        while True:
            body = await self._store.read(lambda tx, n=seq: rows.read_piece(tx, document_id, n))
            if body is None:
                break
            await asyncio.to_thread(file.write, body)
            seq += 1
        await asyncio.to_thread(file.flush)
        file.seek(0)

    async def _pay(self, reading: Reading, base: Base, pieces: Sequence[Piece]) -> None:
        """Charge the reading, once however often it is taken over; and clear what a dead reader left."""
        document, now = reading.document, self._clock.now()
        tokens = sum(piece.tokens for piece in pieces)

        def work(tx: WriteTx) -> str | None:
            fence(tx, reading)
            drop_chunks(tx, document.id)
            if not base.managed:
                return None
            exhausted = charge_ingest(
                tx,
                self._plans,
                document.organization_id,
                document_id=document.id,
                attempt=document.reading,
                tokens=tokens,
                now=now,
            )
            return None if exhausted is None else exhausted.message

        refused = await self._store.write(work)
        if refused is not None:
            raise Faulty(refused)

    async def _keep(self, reading: Reading, base: Base, pieces: Sequence[Piece]) -> None:
        """Embed and store in batches, then end it: only the last write makes it findable."""
        from parley.knowledge.matrix import pack  # noqa: PLC0415 - numpy, on first use

        document = reading.document
        for first in range(0, len(pieces), BATCH):
            batch = pieces[first : first + BATCH]
            vectors = await self._embedder.embed(
                document.organization_id, base.embedding, [piece.embedded for piece in batch]
            )
            body = await asyncio.to_thread(pack, vectors)
            await self._store.write(lambda tx, at=first, some=batch, of=body: self.put(tx, reading, at, some, of))
            await self._progress(reading, min(first + BATCH, len(pieces)), len(pieces))
        now = self._clock.now()
        values = {
            "status": "completed",
            "error": None,
            "chunk_count": len(pieces),
            "token_count": sum(piece.tokens for piece in pieces),
            "completed_at": now,
            "updated_at": now,
        }

        def work(tx: WriteTx) -> None:
            end(tx, reading, values)
            rows.touch_base(tx, document.knowledge_base_id, now)

        await self._store.write(work)

    def put(self, tx: WriteTx, reading: Reading, first: int, pieces: Sequence[Piece], body: bytes) -> None:
        """Store a batch of passages. Raises ReadingLost."""
        fence(tx, reading)
        insert_chunks(tx, reading.document, first, pieces, body, self._clock.now())

    async def _progress(self, reading: Reading, done: int, of: int) -> None:
        sentence = f"Stored {done:,} of {of:,} passages"
        await self._store.write(lambda tx: rows.note_progress(tx, reading.document.id, reading.epoch, sentence))

    async def _fail(self, reading: Reading, sentence: str) -> None:
        now = self._clock.now()
        values = {"status": "failed", "error": sentence, "chunk_count": 0, "completed_at": now, "updated_at": now}

        def work(tx: WriteTx) -> None:
            end(tx, reading, values)
            drop_chunks(tx, reading.document.id)

        await self._store.write(work)

    async def _let_go(self, reading: Reading) -> None:
        """The process stops: let another one begin at once."""
        try:
            async with asyncio.timeout(self._settings.lease_seconds):
                await self._store.write(lambda tx: hand_back(tx, reading))
        except (ReadingLost, *STORE_TROUBLE):
            log.info("document %s was not handed back; its lease will run out", reading.document.id)
