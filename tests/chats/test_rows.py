"""Streamed text is cut into events of a bounded size, whatever a model sends at once."""

import msgspec

from parley.base.clock import Clock
from parley.billing import load_plans
from parley.runs.hub import Hub
from parley.runs.journal import ROW_CHARACTERS, Flusher, RunJournal
from parley.runs.listen import Cursor, Tail
from parley.runs.run_store import events_after
from parley.storage import Store
from tests.chats.test_tail import a_run


async def test_a_huge_piece_becomes_many_events_and_reads_as_one_text(store: Store) -> None:
    lease = await a_run(store)
    flusher = Flusher(store, Hub(), Clock(), load_plans(""))
    flusher.hub.own(lease.run_id, lease.epoch)
    journal = RunJournal(store, flusher, Clock(), lease, 0)
    text = "".join(f"{number:06d}\x01" for number in range(40_000))
    live = Tail(store, flusher.hub, lease.run_id, Cursor(), 5.0)
    journal.chunk("Small. ")
    journal.chunk(text)
    await flusher.flush()
    rows = await store.read(lambda tx: events_after(tx, lease.run_id, 0, 1_000))
    assert "".join(msgspec.json.decode(row.body)["chunk"] for row in rows) == "Small. " + text
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) > len(text) // ROW_CHARACTERS
    assert all(len(row.body) < 256 * 1024 for row in rows)
    frames = b""
    while frames.count(b"id: ") < len(rows):
        frames += await live.next()
    live.close()
    assert max(map(len, frames.split(b"\n\n"))) < 256 * 1024
