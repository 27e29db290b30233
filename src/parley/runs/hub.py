"""Live events inside one process: who publishes, who listens, and what is not yet in the store.

Text reaches subscribers of the same process at once, before it is stored. A piece of text not yet
stored is addressed as ``seq.offset.epoch`` (that many characters of row ``seq`` as that owner wrote
it), so that a cursor stays exact even when the owner dies before the row is written. Everything in
the store is addressed as ``seq``.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from parley.turn.events import TERMINAL, Event

QUEUE_ITEMS = 256
QUEUE_CHARACTERS = 1_048_576
HEARTBEAT = b'data: {"type":"heartbeat"}\n\n'
# JSON may hold these as they are, but line readers that follow Unicode end a line there.
LINE_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Text from ``start`` on of the chunk row ``seq``, as owner ``epoch`` streams it."""

    seq: int
    start: int
    text: str
    epoch: int

    @property
    def end(self) -> int:
        """Where the text ends within its row, in characters."""
        return self.start + len(self.text)


class Row(msgspec.Struct, frozen=True, gc=False):
    """A stored event. ``body`` is the JSON text of its ``data``; ``parts`` as in ``run_events``."""

    seq: int
    last_seq: int
    epoch: int
    type: str
    body: str
    parts: list[int] | None = None


type Item = Piece | Row


def row_frame(row: Row) -> bytes:
    """The SSE frame of a stored event (contract §4.1, with the additive ``id:`` line)."""
    return _one_line(f'id: {row.last_seq}\ndata: {{"type":"{row.type}","data":{row.body}}}\n\n'.encode())


def text_frame(cursor: str, text: str) -> bytes:
    """The SSE frame of a piece of text."""
    encoded = _one_line(msgspec.json.encode(text))
    return b'id: %s\ndata: {"type":"response_chunk","data":{"chunk":%s}}\n\n' % (cursor.encode(), encoded)


def _one_line(frame: bytes) -> bytes:
    """The same JSON without a character that some reader takes for the end of a line (contract §4.1)."""
    for character, escaped in LINE_BREAKS:
        frame = frame.replace(character, escaped)
    return frame


def event_row(event: Event, seq: int, epoch: int) -> Row:
    """An event as the row it will be."""
    return Row(seq, seq, epoch, event.type, event.body())


class Subscriber:
    """One open stream's queue. Bounded: a reader that falls behind re-reads from the store instead."""

    __slots__ = ("_alarm", "_characters", "_due", "_over", "_waiter", "closed", "items", "stale")

    def __init__(self, items: Iterable[Item]) -> None:
        self.items: list[Item] = list(items)
        self.stale = False
        self.closed = False
        self._over = False
        self._characters = 0
        self._waiter: asyncio.Future[bool] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._due = 0.0

    def push(self, item: Item) -> None:
        """Queue an item, or let the reader know it has fallen behind."""
        self._characters += len(item.text if isinstance(item, Piece) else item.body)
        if len(self.items) >= QUEUE_ITEMS or self._characters > QUEUE_CHARACTERS:
            self.stale = True
            self.items.clear()
        if not self.stale:
            self.items.append(item)
            self._over = isinstance(item, Row) and item.type in TERMINAL
        self._wake()

    def poke(self) -> None:
        """There is news in the store; there is none for whoever has the run's end."""
        if not self._over:
            self.stale = True
            self._wake()

    def close(self) -> None:
        """The stream ends here; its reader may come back with its cursor."""
        self.closed = True
        self._wake()

    def take(self) -> list[Item]:
        """What is queued; empties the queue."""
        items, self.items, self._characters = self.items, [], 0
        return items

    def wait(self, seconds: float) -> asyncio.Future[bool]:
        """Whether there is something to do, once there is; False when nothing came in that time.

        A future and no coroutine: an open stream is one of thousands that wait here.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        if self.items or self.stale or self.closed:
            waiter.set_result(True)
            return waiter
        self._waiter = waiter
        self._due = loop.time() + seconds
        # One alarm outlasts many waits: one for each piece of text would cost as much as the wait.
        if self._alarm is None:
            self._alarm = loop.call_at(self._due, self._ring)
        return waiter

    def leave(self) -> None:
        """Nobody waits here any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._alarm = None
        if self._waiter is None:
            return
        loop = self._waiter.get_loop()
        if loop.time() < self._due:
            self._alarm = loop.call_at(self._due, self._ring)
        else:
            self._settle(news=False)

    def _wake(self) -> None:
        if self._waiter is not None:
            self._settle(news=True)

    def _settle(self, *, news: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(news)
        self._waiter = None


class Channel:
    """The live side of one run in this process."""

    __slots__ = ("owner", "subscribers", "unstored")

    def __init__(self) -> None:
        self.subscribers: set[Subscriber] = set()
        self.unstored: list[Piece] = []
        # The epoch of the lease under which this process executes the run; None where it does not.
        self.owner: int | None = None


class Hub:
    """Every channel of this process."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}
        self.closing = False

    def subscribe(self, run_id: str) -> Subscriber:
        """Listen to a run from now on; begins with the text that is not stored yet."""
        channel = self._channels.setdefault(run_id, Channel())
        subscriber = Subscriber(channel.unstored)
        channel.subscribers.add(subscriber)
        if self.closing:
            subscriber.close()
        return subscriber

    def refresh(self, run_id: str, subscriber: Subscriber) -> None:
        """Let a reader that fell behind start over from the store and the text not stored yet."""
        subscriber.take()
        subscriber.stale = False
        subscriber.items.extend(self._channels[run_id].unstored)

    def unsubscribe(self, run_id: str, subscriber: Subscriber) -> None:
        """Stop listening."""
        channel = self._channels[run_id]
        channel.subscribers.discard(subscriber)
        subscriber.leave()
        self._forget(run_id, channel)

    def own(self, run_id: str, epoch: int) -> None:
        """Execute the run in this process: its events arrive here without asking the store.

        Where an earlier lease of this process is still being let go, its text is shown no more.
        """
        channel = self._channels.setdefault(run_id, Channel())
        channel.owner = epoch
        if channel.unstored:
            channel.unstored.clear()
            for subscriber in channel.subscribers:
                subscriber.poke()

    def disown(self, run_id: str, epoch: int) -> None:
        """The run is executed here no longer; its readers look into the store from now on.

        Nothing where this process has taken the run over from itself since.
        """
        channel = self._channels.get(run_id)
        if channel is None or channel.owner != epoch:
            return
        channel.owner = None
        channel.unstored.clear()
        for subscriber in channel.subscribers:
            subscriber.poke()
        self._forget(run_id, channel)

    def stream(self, run_id: str, piece: Piece) -> None:
        """Show a piece of text that is not stored yet; nothing of a lease that is over."""
        channel = self._channels.get(run_id)
        if channel is None or channel.owner != piece.epoch:
            return
        channel.unstored.append(piece)
        for subscriber in channel.subscribers:
            subscriber.push(piece)

    def stored(self, run_id: str, seq: int) -> None:
        """Text up to row ``seq`` is in the store now."""
        channel = self._channels.get(run_id)
        if channel is not None:
            channel.unstored = [piece for piece in channel.unstored if piece.seq > seq]

    def publish(self, run_id: str, rows: Iterable[Row]) -> None:
        """Show events that have just been stored."""
        channel = self._channels.get(run_id)
        if channel is None:
            return
        for row in rows:
            for subscriber in channel.subscribers:
                subscriber.push(row)

    def poke(self, run_ids: Iterable[str]) -> None:
        """Another process has stored events of these runs."""
        for run_id in run_ids:
            channel = self._channels.get(run_id)
            if channel is not None and channel.owner is None:
                for subscriber in channel.subscribers:
                    subscriber.poke()

    def watched_elsewhere(self) -> list[str]:
        """The runs listened to here that this process does not execute."""
        return [run_id for run_id, channel in self._channels.items() if channel.subscribers and channel.owner is None]

    def close(self) -> None:
        """End every stream resumably."""
        self.closing = True
        for channel in self._channels.values():
            for subscriber in channel.subscribers:
                subscriber.close()

    def _forget(self, run_id: str, channel: Channel) -> None:
        if not channel.subscribers and channel.owner is None:
            self._channels.pop(run_id, None)
