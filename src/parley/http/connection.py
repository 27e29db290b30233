"""A connection whose reader has stopped reading is dropped; it may come back with its cursor (issue 3, sentence 5).

uvicorn lets a response wait for its reader for ever. What was written and not taken yet stays small meanwhile, but
the connection would keep its seat among the streams. Only the transport can end it: a farewell is written behind
what the reader does not take, and would wait just as long.
"""

import asyncio
import logging

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger(__name__)


class Connection(HttpToolsProtocol):
    """uvicorn's connection, that ends when its reader takes nothing for ``stalled_seconds``."""

    stalled_seconds: float = 30.0
    _alarm: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """The reader is behind by more than the transport likes to keep."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The reader has caught up."""
        super().resume_writing()
        self._unwatch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is down."""
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self, left: int) -> None:
        self._alarm = self.loop.call_later(self.stalled_seconds, self._look, left)

    def _unwatch(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _look(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._watch(left)
            return
        log.info("a reader took nothing for %g s; its connection is dropped", self.stalled_seconds)
        self.transport.abort()


def connections(stalled_seconds: float) -> type[Connection]:
    """The kind of connection that a uvicorn server is to make; it is given the kind and no settings."""

    class Limited(Connection):
        pass

    Limited.stalled_seconds = stalled_seconds
    return Limited
