"""Telling other processes that there is news: PostgreSQL NOTIFY, nothing on SQLite.

A lost notice costs at most one second: everything that listens also polls.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from sqlalchemy import make_url, text

from parley.storage.engine import WriteTx

RUNS = "parley_runs"
EVENTS = "parley_events"
PAYLOAD_BYTES = 7_000
RETRY_SECONDS = 1.0
CHECK_SECONDS = 10.0

log = logging.getLogger(__name__)


def notify(tx: WriteTx, channel: str, words: Iterable[str] = ()) -> None:
    """Send words to every process once the transaction commits."""
    if tx.dialect.name != "postgresql":
        return
    payload = ""
    for word in words:
        if len(payload) + len(word) + 1 > PAYLOAD_BYTES:
            tx.execute(text("SELECT pg_notify(:channel, :payload)"), {"channel": channel, "payload": payload})
            payload = ""
        payload = f"{payload} {word}" if payload else word
    tx.execute(text("SELECT pg_notify(:channel, :payload)"), {"channel": channel, "payload": payload})


async def listen_for_notices(url: str, heard: Callable[[str, list[str]], None]) -> None:
    """Call ``heard(channel, words)`` for every notice, for ever; reconnects by itself.

    ``url`` is a ``postgresql://`` URL that reaches the server directly (not through a transaction pooler).
    """
    # Loaded before, with the store itself; not at all on SQLite.
    from asyncpg import InterfaceError, PostgresError  # noqa: PLC0415

    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    while True:
        try:
            await _listen(plain, heard)
        except (OSError, PostgresError, InterfaceError, TimeoutError) as error:
            log.warning("lost the notice connection to PostgreSQL (%s); polling until it is back", type(error).__name__)
        await asyncio.sleep(RETRY_SECONDS)


async def _listen(url: str, heard: Callable[[str, list[str]], None]) -> None:
    # The driver's own ``connect``, not the guarded one: see PostgresStore.
    from parley.storage.postgres import connect  # noqa: PLC0415

    connection = await connect(url, timeout=5, command_timeout=5)
    try:

        def on_notice(_connection: object, _pid: int, channel: str, payload: object) -> None:
            heard(channel, str(payload).split())

        await connection.add_listener(RUNS, on_notice)
        await connection.add_listener(EVENTS, on_notice)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await connection.execute("SELECT 1")
    finally:
        connection.terminate()
