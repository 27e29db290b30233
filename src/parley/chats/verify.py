"""Whether everything in a store fits together; run by ``parley verify`` and after every durability test.

Each function returns sentences that say what is wrong and where. No sentence: nothing is wrong.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import func, select

from parley.runs.transcript import from_row
from parley.storage import ReadTx
from parley.storage.tables.chats import chats, questions, run_events, runs, tool_calls, transcript
from parley.turn.model import AssistantEntry, ToolEntry

LIVE = ("queued", "running", "interrupted")
# How the history of a run ends, by its status.
ENDINGS = {
    "completed": ("done",),
    "failed": ("error", "done"),
    "cancelled": ("cancelled",),
    "resumed": ("run_resumed",),
    "interrupted": ("user_input_request", "interrupted"),
}
TERMINAL = ("done", "cancelled", "run_resumed")


def chat_faults(tx: ReadTx) -> list[str]:
    """Everything that is wrong with chats, runs, questions, calls and events."""
    return [
        *_running_ids(tx),
        *_questions(tx),
        *_calls(tx),
        *_events(tx),
        *_transcripts(tx),
    ]


def _running_ids(tx: ReadTx) -> Iterator[str]:
    live = {
        row.chat_id: row
        for row in tx.execute(select(runs.c.id, runs.c.chat_id, runs.c.status).where(runs.c.status.in_(LIVE)))
    }
    for chat in tx.execute(select(chats.c.id, chats.c.running_id, chats.c.deleted_at)):
        run = live.pop(chat.id, None)
        if run is None and chat.running_id is not None:
            yield f"chat {chat.id} is bound to run {chat.running_id}, which is over"
        elif run is not None and chat.running_id != run.id:
            yield f"chat {chat.id} has the live run {run.id} but is bound to {chat.running_id}"
        if run is not None and chat.deleted_at is not None:
            yield f"chat {chat.id} is deleted but its run {run.id} is live"


def _questions(tx: ReadTx) -> Iterator[str]:
    pending = {row.run_id for row in tx.execute(select(questions.c.run_id).where(questions.c.outcome == "pending"))}
    paused = set(tx.execute(select(runs.c.id).where(runs.c.status == "interrupted")).scalars())
    for run_id in pending - paused:
        yield f"run {run_id} is not paused but its question is open"
    for run_id in paused - pending:
        yield f"run {run_id} is paused but has no open question"
    many = (
        select(questions.c.chat_id)
        .where(questions.c.outcome == "pending")
        .group_by(questions.c.chat_id)
        .having(func.count() > 1)
    )
    for chat_id in tx.execute(many).scalars():
        yield f"chat {chat_id} has more than one open question"


def _calls(tx: ReadTx) -> Iterator[str]:
    query = select(tool_calls.c.run_id, tool_calls.c.step, tool_calls.c.status, runs.c.status.label("run")).join(
        runs, runs.c.id == tool_calls.c.run_id
    )
    for row in tx.execute(query):
        if row.status == "started" and row.run not in ("queued", "running"):
            yield f"run {row.run_id} is {row.run} but its call in step {row.step} has no result"
        if row.status == "asked" and row.run != "interrupted":
            yield f"run {row.run_id} is {row.run} but its call in step {row.step} waits for a person"


def _events(tx: ReadTx) -> Iterator[str]:
    statuses = {row.id: row.status for row in tx.execute(select(runs.c.id, runs.c.status))}
    rows = tx.execute(
        select(run_events.c.run_id, run_events.c.seq, run_events.c.last_seq, run_events.c.type).order_by(
            run_events.c.run_id, run_events.c.seq
        )
    )
    for run_id, group in groupby(rows, key=attrgetter("run_id")):
        yield from _run_events(run_id, statuses[run_id], list(group))


def _run_events(run_id: str, status: str, rows: list[Any]) -> Iterator[str]:
    expected = 1
    for row in rows:
        if row.seq != expected:
            yield f"run {run_id} has no event {expected}: the next one is {row.seq}"
        expected = row.last_seq + 1
    types = [row.type for row in rows]
    if types[0] != "metadata":
        yield f"run {run_id} begins with {types[0]}, not metadata"
    ending = ENDINGS.get(status)
    if ending is not None and tuple(types[-len(ending) :]) != ending:
        yield f"run {run_id} is {status} but its history ends with {types[-1]}"
    terminals = sum(kind in TERMINAL for kind in types)
    if terminals != (1 if status in ("completed", "failed", "cancelled", "resumed") else 0):
        yield f"run {run_id} is {status} and has {terminals} terminal events"


def _transcripts(tx: ReadTx) -> Iterator[str]:
    busy = set(tx.execute(select(runs.c.chat_id).where(runs.c.status.in_(LIVE))).scalars())
    rows = tx.execute(
        select(transcript.c.chat_id, transcript.c.seq, transcript.c.role, transcript.c.body)
        .where(transcript.c.role != "summary")
        .order_by(transcript.c.chat_id, transcript.c.seq)
    )
    for chat_id, group in groupby(rows, key=attrgetter("chat_id")):
        yield from _transcript(chat_id, group, may_be_open=chat_id in busy)


def _transcript(chat_id: str, rows: Iterable[Any], *, may_be_open: bool) -> Iterator[str]:
    waiting: set[str] = set()
    for row in rows:
        entry = from_row(row.role, row.body)
        if isinstance(entry, ToolEntry):
            if entry.call_id not in waiting:
                yield f"chat {chat_id} has a result without its call at {row.seq}"
            waiting.discard(entry.call_id)
            continue
        if waiting and row.role in ("user", "assistant"):
            yield f"chat {chat_id} goes on at {row.seq} although a call has no result"
            waiting.clear()
        if isinstance(entry, AssistantEntry):
            waiting = {call.id for call in entry.calls}
    if waiting and not may_be_open:
        yield f"chat {chat_id} ends with a call that has no result"
