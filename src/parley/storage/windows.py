"""Counting calls in windows of time, one count for all processes.

A window is a row. A process takes a few calls out of it at a time and spends them from memory, so that
a busy subject costs a write every few calls; the sum over all processes never passes the limit. Calls
that come at once share one taking: what a process takes is lost with it. Once a window is used up every
process refuses from memory, so a flood costs the store nothing.
"""

import asyncio
from dataclasses import dataclass

from sqlalchemy import delete, text

from parley.base.clock import SECOND, Clock
from parley.storage.engine import Store, WriteTx
from parley.storage.tables.billing import rate_windows

MOST_SUBJECTS = 50_000
# A process takes this part of what is left at a time, and of a wide limit no more than so many calls.
SHARE = 16
MOST_AT_ONCE = 1_000

# A window that is over begins anew; so does one of a clock that was set back.
_TAKE = text(
    "INSERT INTO rate_windows (subject, rate_class, window_at, taken) VALUES (:subject, :rate_class, :now, :n) "
    "ON CONFLICT (subject, rate_class) DO UPDATE SET "
    "taken = :n + CASE WHEN rate_windows.window_at > :over AND rate_windows.window_at <= :now "
    "THEN rate_windows.taken ELSE 0 END, "
    "window_at = CASE WHEN rate_windows.window_at > :over AND rate_windows.window_at <= :now "
    "THEN rate_windows.window_at ELSE :now END "
    "RETURNING window_at, taken"
)


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of one try: how many are left until ``reset_at``, a time. Over when ``remaining`` is negative."""

    limit: int
    remaining: int
    reset_at: int
    now: int


@dataclass(slots=True)
class _Block:
    """What this process holds of a subject's window, and the window's count when it last looked.

    ``waiting`` calls have found none held; ``asked`` is there while one of them takes more for all.
    """

    window_at: int
    held: int = 0
    seen: int = 0
    waiting: int = 0
    asked: asyncio.Future[None] | None = None


class Windows:
    """Windows of ``seconds``, each beginning with its subject's first call; ``rate_class`` keeps kinds apart."""

    def __init__(self, store: Store, clock: Clock, rate_class: str, *, seconds: int) -> None:
        self._store = store
        self._clock = clock
        self._rate_class = rate_class
        self._length = seconds * SECOND
        self._blocks: dict[str, _Block] = {}

    async def take(self, subject: str, limit: int) -> Taken:
        """Count one try of the subject against the limit."""
        now = self._clock.now()
        block = self._block(subject, now)
        if block.held == 0 and block.seen < limit:
            block.waiting += 1
            try:
                while block.held == 0 and block.seen < limit:
                    await self._refill(subject, limit, block, now)
            finally:
                block.waiting -= 1
        reset_at = block.window_at + self._length
        if block.held == 0:
            return Taken(limit, -1, reset_at, now)
        block.held -= 1
        return Taken(limit, max(0, limit - block.seen) + block.held, reset_at, now)

    async def look(self, subject: str, limit: int) -> Taken:
        """How one more try would end, without counting it, as far as this process knows."""
        now = self._clock.now()
        block = self._block(subject, now)
        return Taken(limit, limit - block.seen + block.held - 1, block.window_at + self._length, now)

    async def forget(self, subject: str) -> None:
        """Begin anew for the subject."""
        columns = rate_windows.c
        statement = delete(rate_windows).where(columns.subject == subject, columns.rate_class == self._rate_class)
        await self._store.write(lambda tx: tx.execute(statement))
        self._blocks.pop(subject, None)

    async def _refill(self, subject: str, limit: int, block: _Block, now: int) -> None:
        """One taking for all who wait; where the store refuses it, it has refused all of them."""
        if block.asked is not None:
            await asyncio.shield(block.asked)
            return
        block.asked = asked = asyncio.get_running_loop().create_future()
        try:
            await self._fetch(subject, limit, block, now)
        except Exception as error:
            asked.set_exception(error)
            # Nobody else may be waiting; then this is nothing to complain about.
            asked.exception()
            raise
        finally:
            block.asked = None
            if not asked.done():
                asked.set_result(None)

    async def _fetch(self, subject: str, limit: int, block: _Block, now: int) -> None:
        left = limit - block.seen
        wanted = max(1, min(left, max(block.waiting, min(left // SHARE, MOST_AT_ONCE))))
        window_at, count = await self._store.write(
            lambda tx: take(tx, subject, self._rate_class, now=now, length=self._length, count=wanted)
        )
        if window_at != block.window_at:
            block.window_at, block.held, block.seen = window_at, 0, 0
        block.held += max(0, min(wanted, limit - (count - wanted)))
        block.seen = max(block.seen, count)

    def _block(self, subject: str, now: int) -> _Block:
        block = self._blocks.get(subject)
        if block is None or not block.window_at <= now < block.window_at + self._length:
            self._make_room(now)
            block = self._blocks[subject] = _Block(now)
        return block

    def _make_room(self, now: int) -> None:
        if len(self._blocks) < MOST_SUBJECTS:
            return
        running = now - self._length
        self._blocks = {subject: block for subject, block in self._blocks.items() if block.window_at > running}
        # Everyone is within their window: the rows remember what is forgotten here.
        if len(self._blocks) >= MOST_SUBJECTS:
            self._blocks.clear()


def seconds_left(reset_at: int, now: int) -> int:
    """Whole seconds until a window is over, at least 1: what ``Retry-After`` says (contract §0.2)."""
    return max(1, -((now - reset_at) // SECOND))


def take(tx: WriteTx, subject: str, rate_class: str, *, now: int, length: int, count: int = 1) -> tuple[int, int]:
    """Count calls of a subject; when its window began, and the window's count after them."""
    parameters = {"subject": subject, "rate_class": rate_class, "now": now, "over": now - length, "n": count}
    row = tx.execute(_TAKE, parameters).one()
    return row.window_at, row.taken


def forget_windows(tx: WriteTx, *, before: int) -> int:
    """Delete windows that began before a time; how many there were."""
    return tx.execute(delete(rate_windows).where(rate_windows.c.window_at < before)).rowcount
