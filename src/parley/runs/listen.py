"""Following a run: replay from a cursor, then live, without a gap or a doubled character."""

import json
from dataclasses import dataclass

from parley.runs import run_store
from parley.runs.hub import HEARTBEAT, Hub, Item, Piece, Row, row_frame, text_frame
from parley.storage import ReadTx, Store
from parley.turn.events import CLOSING

# Rows that wait for a reader at once, each of at most 256 KB and hardly ever more than 64 KB.
PAGE = 64


@dataclass(slots=True)
class Cursor:
    """How far a reader is: rows up to ``seq`` whole, and ``offset`` characters of the next, as ``epoch`` wrote it."""

    seq: int = 0
    offset: int = 0
    epoch: int = 0

    def have(self, epoch: int) -> int:
        """Characters already shown of the next row, if that owner writes it."""
        return self.offset if epoch == self.epoch else 0

    def past(self, seq: int) -> None:
        """Everything up to row ``seq`` is shown."""
        self.seq, self.offset, self.epoch = seq, 0, 0


def parse_cursor(text: str | None) -> Cursor:
    """The cursor of a ``Last-Event-ID`` header or an ``after`` parameter: ``seq`` or ``seq.offset.epoch``.

    Anything else starts from the first event: a reader with a broken cursor gets the whole run.
    """
    numbers = (text or "").split(".")
    if not all(number.isdecimal() and len(number) < 10 for number in numbers):
        return Cursor()
    match [int(number) for number in numbers]:
        case [seq]:
            return Cursor(seq)
        case [seq, offset, epoch] if seq > 0:
            return Cursor(seq - 1, offset, epoch)
        case _:
            return Cursor()


class Tail:
    """One reader of one run. ``next`` gives the frames to send; ``ended`` says when to close."""

    __slots__ = (
        "_behind",
        "_checked",
        "_cursor",
        "_heartbeat",
        "_hub",
        "_replaying",
        "_run_id",
        "_store",
        "ended",
        "subscriber",
    )

    def __init__(self, store: Store, hub: Hub, run_id: str, cursor: Cursor, heartbeat_seconds: float) -> None:
        self._store = store
        self._hub = hub
        self._run_id = run_id
        self._cursor = cursor
        self._heartbeat = heartbeat_seconds
        self._behind = True
        self._checked = False
        self._replaying = True
        self.ended = False
        self.subscriber = hub.subscribe(run_id)

    def close(self) -> None:
        """Stop listening."""
        self._hub.unsubscribe(self._run_id, self.subscriber)

    async def next(self) -> bytes:
        """The next frames, or a heartbeat after a silence; nothing more once ``ended``."""
        while True:
            if self._behind:
                frames = await self._read()
            elif await self.subscriber.wait(self._heartbeat):
                frames = self._take()
            else:
                return HEARTBEAT
            if frames or self.ended:
                return b"".join(frames)
            if self.subscriber.closed:
                self.ended = True
                return b""

    async def _read(self) -> list[bytes]:
        """A page from the store."""
        rows = await self._store.read(self._look)
        frames: list[bytes] = []
        for row in rows:
            if self.ended:
                break
            # Rows are stored in order: one that is missing before this one will never come.
            self._show_row(row, frames)
        if len(rows) < PAGE:
            self._behind = False
            self._replaying = False
        return frames

    def _look(self, tx: ReadTx) -> list[Row]:
        """The rows of a page. Where a replay finds none and the run is over, nothing will come any more."""
        rows = run_store.events_after(tx, self._run_id, self._cursor.seq, PAGE)
        if self._replaying and not rows:
            self.ended = run_store.has_ended(tx, self._run_id)
        return rows

    def _take(self) -> list[bytes]:
        """What was published since."""
        if self.subscriber.stale:
            self._hub.refresh(self._run_id, self.subscriber)
            self._behind = True
            return []
        frames: list[bytes] = []
        items = self.subscriber.take()
        for number, item in enumerate(items):
            if self.ended:
                break
            if self._leaves_gap(item):
                self._look_again(items[number:])
                break
            if isinstance(item, Piece):
                self._show_piece(item, frames)
            elif item.last_seq > self._cursor.seq:
                self._show_row(item, frames)
        self._checked = self._checked and self._behind
        return frames

    def _look_again(self, items: list[Item]) -> None:
        """Something between is missing here: read the store once more, then give up resumably."""
        if self._checked:
            self.subscriber.close()
            return
        self.subscriber.items[:0] = items
        self._behind = True
        self._checked = True

    def _leaves_gap(self, item: Item) -> bool:
        """Whether something that is not shown yet comes before the item."""
        cursor = self._cursor
        if item.seq == cursor.seq + 2 and cursor.offset:
            cursor.past(cursor.seq + 1)  # pieces come in order: the row before this one is whole
        if item.seq > cursor.seq + 1:
            return True
        return isinstance(item, Piece) and item.seq == cursor.seq + 1 and item.start > cursor.have(item.epoch)

    def _show_piece(self, piece: Piece, frames: list[bytes]) -> None:
        cursor = self._cursor
        have = cursor.have(piece.epoch)
        if piece.seq == cursor.seq + 1 and piece.end > have:
            cursor.offset, cursor.epoch = piece.end, piece.epoch
            name = f"{piece.seq}.{piece.end}.{piece.epoch}"
            frames.append(text_frame(name, piece.text[have - piece.start :]))

    def _show_row(self, row: Row, frames: list[bytes]) -> None:
        cursor = self._cursor
        if row.type == "response_chunk":
            self._show_chunk(row, frames)
        elif row.type != "superseded" and not (row.type == "interrupted" and not self._replaying):
            # `interrupted` ends a replay; who was there live keeps the stream (contract §4.4).
            frames.append(row_frame(row))
            self.ended = row.type in CLOSING
        cursor.past(row.last_seq)

    def _show_chunk(self, row: Row, frames: list[bytes]) -> None:
        cursor = self._cursor
        shown = cursor.have(row.epoch)
        if row.parts and row.seq <= cursor.seq:
            shown += sum(row.parts[: cursor.seq - row.seq + 1])
        if not shown:
            frames.append(row_frame(row))
            return
        rest = json.loads(row.body)["chunk"][shown:]
        if rest:
            frames.append(text_frame(str(row.last_seq), rest))
