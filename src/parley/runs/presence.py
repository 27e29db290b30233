"""Which processes serve this store: a row in ``workers`` for each, for as long as it lives.

Only what people are told depends on these rows (``parley doctor`` lists them): runs move by their
own leases. A row is alive while it was beaten within one lease; the others' beats remove it after that.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, insert, select, update

from parley.base.clock import SECOND
from parley.base.ids import new_id
from parley.base.settings import Role, Settings
from parley.runs.run_store import now_parameters, server_now
from parley.runs.worker import Worker
from parley.storage import STORE_TROUBLE, ReadTx, Store, WriteTx
from parley.storage.tables.chats import runs, workers

LEAVE_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Process:
    """A live process. ``running`` is how many turns it holds a lease on."""

    id: str
    role: str
    version: str
    host: str | None
    pid: int | None
    draining: bool
    running: int


class Presence:
    """The row of the process it lives in. ``worker`` is None where it only answers requests."""

    def __init__(self, store: Store, settings: Settings, role: Role, version: str, worker: Worker | None) -> None:
        self.id = worker.id if worker is not None else new_id()
        self._store = store
        self._worker = worker
        self._beat_seconds = settings.heartbeat_seconds
        self._silence = int(settings.lease_seconds * SECOND)
        self._facts = {
            "role": role,
            "version": version[:20],
            "host": socket.gethostname()[:255],
            "pid": os.getpid(),
        }

    async def keep(self) -> None:
        """Be listed until cancelled, then no longer."""
        try:
            while True:
                try:
                    await self._store.write(self._beat)
                except STORE_TROUBLE as error:
                    log.warning("could not tell that this process lives (%s)", type(error).__name__)
                await asyncio.sleep(self._beat_seconds)
        finally:
            await self._leave()

    def _beat(self, tx: WriteTx) -> None:
        now = server_now(tx.dialect.name)
        draining = self._worker is not None and self._worker.draining
        beat = update(workers).where(workers.c.id == self.id).values(beat_at=now, draining=draining)
        if not tx.execute(beat, now_parameters(tx)).rowcount:
            first = insert(workers).values(id=self.id, started_at=now, beat_at=now, draining=draining, **self._facts)
            tx.execute(first, now_parameters(tx))
        # On SQLite the lock says it at once: whoever else is listed is dead.
        silent = workers.c.beat_at < now - self._silence if tx.dialect.name == "postgresql" else workers.c.id != self.id
        tx.execute(delete(workers).where(silent), now_parameters(tx))

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._store.write(lambda tx: tx.execute(delete(workers).where(workers.c.id == self.id)))
        except STORE_TROUBLE as error:
            log.warning("could not tell that this process ends (%s); it is forgotten soon", type(error).__name__)


def living(tx: ReadTx, lease_seconds: float) -> Sequence[Process]:
    """The processes that were heard of within one lease, the oldest first."""
    now = server_now(tx.dialect.name)
    held = (
        select(func.count())
        .where(runs.c.owner == workers.c.id, runs.c.status == "running", runs.c.lease_until >= now)
        .scalar_subquery()
    )
    query = (
        select(
            workers.c.id,
            workers.c.role,
            workers.c.version,
            workers.c.host,
            workers.c.pid,
            workers.c.draining,
            held,
        )
        .where(workers.c.beat_at >= now - int(lease_seconds * SECOND))
        .order_by(workers.c.started_at)
    )
    return [Process(*row) for row in tx.execute(query, now_parameters(tx))]
