"""SQL of chats, messages and transcripts. Every query names the organization and the kind.

Statements that every turn needs are prepared (``storage/prepared.py``).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    and_,
    bindparam,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    update,
)

from parley.base.ids import new_id
from parley.runs.transcript import from_row, to_row
from parley.storage import ReadTx, WriteTx
from parley.storage.prepared import PreparedChange, PreparedQuery
from parley.storage.tables.chats import (
    chats,
    messages,
    questions,
    run_events,
    runs,
    tool_calls,
    tool_results,
    transcript,
)
from parley.turn.compaction import Compaction
from parley.turn.model import Entry, Whole


@dataclass(frozen=True, slots=True)
class Chat:
    """One row of ``chats``."""

    id: str
    organization_id: str
    user_id: str
    kind: str
    title: str
    running_id: str | None
    tainted: bool
    created_at: int
    updated_at: int


CHAT_COLUMNS = (
    chats.c.id,
    chats.c.organization_id,
    chats.c.user_id,
    chats.c.kind,
    chats.c.title,
    chats.c.running_id,
    chats.c.tainted,
    chats.c.created_at,
    chats.c.updated_at,
)


def _mine(organization_id: str, kind: str) -> ColumnElement[bool]:
    return and_(chats.c.organization_id == organization_id, chats.c.kind == kind, chats.c.deleted_at.is_(None))


def find_chat(tx: ReadTx, organization_id: str, kind: str, chat_id: str) -> Chat | None:
    """The chat, if it is this organization's, of this kind and not deleted."""
    row = _FIND_CHAT.first(tx, {"of_chat": chat_id, "of_organization": organization_id, "of_kind": kind})
    return Chat(*row) if row else None


_THE_CHAT = select(*CHAT_COLUMNS).where(
    chats.c.id == bindparam("of_chat"),
    chats.c.organization_id == bindparam("of_organization"),
    chats.c.kind == bindparam("of_kind"),
    chats.c.deleted_at.is_(None),
)
_FIND_CHAT = PreparedQuery(_THE_CHAT)


def lock_chat(tx: WriteTx, organization_id: str, kind: str, chat_id: str) -> Chat | None:
    """``find_chat``, the row locked until commit."""
    row = _LOCK_CHAT.first(tx, {"of_chat": chat_id, "of_organization": organization_id, "of_kind": kind})
    return Chat(*row) if row else None


_LOCK_CHAT = PreparedQuery(_THE_CHAT.with_for_update())


def insert_chat(tx: WriteTx, chat: Chat) -> None:
    """A new chat."""
    _INSERT_CHAT.run(tx, {**asdict(chat), "tainted": False, "next_seq": 1})


_INSERT_CHAT = PreparedChange(insert(chats))


def set_running(tx: WriteTx, chat_id: str, run_id: str | None, now: int) -> None:
    """Bind the chat to its live run, or to none."""
    _CHANGE_CHAT.run(tx, {"of_chat": chat_id, "running_id": run_id, "updated_at": now})


_CHANGE_CHAT = PreparedChange(update(chats).where(chats.c.id == bindparam("of_chat")))


def set_title(tx: WriteTx, chat_id: str, title: str) -> None:
    """Rename a chat; its place in the list stays."""
    _CHANGE_CHAT.run(tx, {"of_chat": chat_id, "title": title})


def taint(tx: WriteTx, chat_id: str) -> None:
    """The chat has read text that somebody outside the organization may have written."""
    tx.execute(update(chats).where(chats.c.id == chat_id, chats.c.tainted.is_(False)).values(tainted=True))


def soft_delete(tx: WriteTx, chat_id: str, now: int) -> None:
    """Hide the chat from every route."""
    _CHANGE_CHAT.run(tx, {"of_chat": chat_id, "deleted_at": now, "running_id": None})


def lock_to_erase(tx: WriteTx, organization_id: str, kind: str, chat_id: str) -> Chat | None:
    """``lock_chat``, of a hidden chat too."""
    query = select(*CHAT_COLUMNS).where(
        chats.c.id == chat_id, chats.c.organization_id == organization_id, chats.c.kind == kind
    )
    row = tx.execute(query.with_for_update()).first()
    return Chat(*row) if row else None


def list_chats(
    tx: ReadTx,
    organization_id: str,
    user_id: str,
    kind: str,
    *,
    limit: int,
    before: tuple[int, str] | None,
    search: str | None,
) -> list[Chat]:
    """The person's own chats, newest first, beyond ``before`` = (updated_at, id)."""
    query = select(*CHAT_COLUMNS).where(_mine(organization_id, kind), chats.c.user_id == user_id)
    if before is not None:
        moment, last = before
        query = query.where(or_(chats.c.updated_at < moment, and_(chats.c.updated_at == moment, chats.c.id < last)))
    if search:
        query = query.where(func.lower(chats.c.title).contains(search.lower(), autoescape=True))
    rows = tx.execute(query.order_by(chats.c.updated_at.desc(), chats.c.id.desc()).limit(limit))
    return [Chat(*row) for row in rows]


def waiting_chats(tx: ReadTx, chat_ids: Sequence[str], now: int) -> set[str]:
    """Which of these chats wait for a person's answer."""
    rows = tx.execute(
        select(questions.c.chat_id).where(
            questions.c.chat_id.in_(chat_ids), questions.c.outcome == "pending", questions.c.expires_at > now
        )
    )
    return set(rows.scalars())


# ── messages and transcript ─────────────────────────────────────────────────────────────────────


def _take_seq(tx: WriteTx, chat_id: str, count: int) -> int:
    """Reserve ``count`` consecutive numbers in the chat; the first of them."""
    return _TAKE_SEQ.rows(tx, {"of_chat": chat_id, "count": count})[0][0] - count


_TAKE_SEQ = PreparedQuery(
    update(chats)
    .where(chats.c.id == bindparam("of_chat"))
    .values(next_seq=chats.c.next_seq + bindparam("count"))
    .returning(chats.c.next_seq)
)


def append_message(
    tx: WriteTx,
    chat_id: str,
    *,
    role: str,
    content: str,
    run_id: str | None,
    now: int,
    thinking: str | None = None,
    running_status: str | None = None,
) -> str:
    """Add what people see; the message's id."""
    message_id = new_id()
    _INSERT_MESSAGE.run(
        tx,
        {
            "id": message_id,
            "chat_id": chat_id,
            "seq": _take_seq(tx, chat_id, 1),
            "role": role,
            "content": content,
            "thinking": thinking,
            "run_id": run_id,
            "running_status": running_status,
            "created_at": now,
        },
    )
    return message_id


_INSERT_MESSAGE = PreparedChange(insert(messages))


def list_messages(tx: ReadTx, chat_id: str) -> Sequence[Row[Any]]:
    """The chat's messages, oldest first."""
    return tx.execute(select(messages).where(messages.c.chat_id == chat_id).order_by(messages.c.seq)).all()


def append_entries(tx: WriteTx, chat_id: str, run_id: str, step: int, entries: Sequence[Entry], now: int) -> None:
    """Add what the model is sent."""
    if not entries:
        return
    first = _take_seq(tx, chat_id, len(entries))
    rows = [to_row(entry) for entry in entries]
    _INSERT_ENTRIES.run_many(
        tx,
        [
            {
                "chat_id": chat_id,
                "seq": first + number,
                "run_id": run_id,
                "step": step,
                "role": role,
                "body": body,
                "created_at": now,
            }
            for number, (role, body) in enumerate(rows)
        ],
    )


_INSERT_ENTRIES = PreparedChange(insert(transcript))


def list_entries(tx: ReadTx, chat_id: str, from_seq: int) -> list[Entry]:
    """The conversation from a number on; what is sent of it is ``latest_compaction``'s matter."""
    return [from_row(role, body) for role, body in _ENTRIES.rows(tx, {"of_chat": chat_id, "first": from_seq})]


_IS_ENTRY = (
    transcript.c.chat_id == bindparam("of_chat"),
    transcript.c.seq >= bindparam("first"),
    transcript.c.role != "summary",
)
_ENTRIES = PreparedQuery(select(transcript.c.role, transcript.c.body).where(*_IS_ENTRY).order_by(transcript.c.seq))


def turn_entries(tx: ReadTx, chat_id: str) -> list[Entry]:
    """The conversation since the newest message of a person."""
    return list_entries(tx, chat_id, _NEWEST_MESSAGE.scalar(tx, {"of_chat": chat_id}) or 0)


_NEWEST_MESSAGE = PreparedQuery(
    select(transcript.c.seq)
    .where(transcript.c.chat_id == bindparam("of_chat"), transcript.c.role == "user")
    .order_by(transcript.c.seq.desc())
    .limit(1)
)


def latest_compaction(tx: ReadTx, chat_id: str) -> tuple[int, Compaction]:
    """The number of the first entry to read, and what the conversation leaves out when it is sent."""
    body = _LATEST_COMPACTION.scalar(tx, {"of_chat": chat_id})
    if not body:
        return 0, Compaction()
    return body.get("from_seq", 0), Compaction(body["covered"], body["trimmed"], body["summary"])


_LATEST_COMPACTION = PreparedQuery(
    select(transcript.c.body)
    # Written out, not bound: SQLite uses a partial index only where it can read its condition.
    .where(transcript.c.chat_id == bindparam("of_chat"), transcript.c.role == literal_column("'summary'"))
    .order_by(transcript.c.seq.desc())
    .limit(1)
)


def append_compaction(tx: WriteTx, chat_id: str, run_id: str, from_seq: int, compaction: Compaction, now: int) -> None:
    """Send the conversation shorter from now on; ``compaction`` counts the entries from ``from_seq`` on.

    What a summary covers is never read again for a run, so a turn costs what is sent and not what was said.
    """
    covered = compaction.covered
    if covered:
        nth = select(transcript.c.seq).where(*_IS_ENTRY).order_by(transcript.c.seq).offset(covered).limit(1)
        from_seq = tx.execute(nth, {"of_chat": chat_id, "first": from_seq}).scalar_one()
    tx.execute(
        insert(transcript).values(
            chat_id=chat_id,
            seq=_take_seq(tx, chat_id, 1),
            run_id=run_id,
            step=0,
            role="summary",
            body={
                "from_seq": from_seq,
                "covered": 0,
                "trimmed": max(compaction.trimmed - covered, 0),
                "summary": compaction.summary,
            },
            created_at=now,
        )
    )


def keep_result(tx: WriteTx, chat_id: str, run_id: str, whole: Whole, now: int) -> None:
    """Keep a result that was too large for the conversation."""
    tx.execute(
        insert(tool_results).values(id=whole.id, chat_id=chat_id, run_id=run_id, value=whole.value, created_at=now)
    )


def find_result(tx: ReadTx, chat_id: str, result_id: str) -> Row[Any] | None:
    """A result of the chat that was too large for the conversation."""
    return tx.execute(
        select(tool_results).where(tool_results.c.id == result_id, tool_results.c.chat_id == chat_id)
    ).first()


# ── runs, as seen from their chat ───────────────────────────────────────────────────────────────


def insert_run(tx: WriteTx, values: dict[str, Any]) -> None:
    """A new run, waiting for a worker."""
    _INSERT_RUN.run(tx, {**_FRESH_RUN, **values})


_INSERT_RUN = PreparedChange(insert(runs))
_FRESH_RUN = {
    "status": "queued",
    "epoch": 0,
    "attempts": 0,
    "step": 0,
    "model_calls": 0,
    "failures_in_row": 0,
    "context_tokens": 0,
}


def find_run(tx: ReadTx, chat_id: str, run_id: str) -> Any:
    """A run of the chat; None where it has no such run."""
    return _FIND_RUN.record(tx, {"of_run": run_id, "of_chat": chat_id})


_FIND_RUN = PreparedQuery(select(runs).where(runs.c.id == bindparam("of_run"), runs.c.chat_id == bindparam("of_chat")))


def runs_of_turn(tx: ReadTx, turn_id: str) -> Sequence[Row[Any]]:
    """Every run of a turn, the first one first."""
    return tx.execute(select(runs).where(runs.c.turn_id == turn_id).order_by(runs.c.created_at, runs.c.id)).all()


def latest_run(tx: ReadTx, chat_id: str) -> Row[Any] | None:
    """The chat's newest run."""
    return tx.execute(
        select(runs).where(runs.c.chat_id == chat_id).order_by(runs.c.created_at.desc(), runs.c.id).limit(1)
    ).first()


def live_run(tx: ReadTx, chat_id: str) -> Any:
    """The chat's queued, running or paused run, None without one; a paused one counts as live."""
    return _LIVE_RUN.record(tx, {"of_chat": chat_id})


# Written out, not bound: SQLite uses a partial index only where it can read its condition.
_LIVE = select(runs).where(
    runs.c.chat_id == bindparam("of_chat"), text("runs.status IN ('queued', 'running', 'interrupted')")
)
_LIVE_RUN = PreparedQuery(_LIVE)


def lock_live_run(tx: WriteTx, chat_id: str) -> Any:
    """``live_run``, the row locked until commit: nothing is streamed into it meanwhile."""
    return _LOCK_LIVE_RUN.record(tx, {"of_chat": chat_id})


_LOCK_LIVE_RUN = PreparedQuery(_LIVE.with_for_update())


def end_run(tx: WriteTx, run_id: str, values: dict[str, Any]) -> None:
    """Write a run's ending, or its pause; whoever owned it can write no more."""
    _END_RUN.run(tx, {"of_run": run_id, "owner": None, "lease_until": None, **values})


_END_RUN = PreparedChange(update(runs).where(runs.c.id == bindparam("of_run")).values(epoch=runs.c.epoch + 1))


def has_events(tx: ReadTx, run_id: str) -> bool:
    """Whether the run's history is still kept."""
    return _HAS_EVENTS.first(tx, {"of_run": run_id}) is not None


_HAS_EVENTS = PreparedQuery(select(run_events.c.seq).where(run_events.c.run_id == bindparam("of_run")).limit(1))


def unfinished_call(tx: ReadTx, run_id: str) -> Any:
    """The run's call that has no result yet; None where all have theirs."""
    return _UNFINISHED_CALL.record(tx, {"of_run": run_id})


_UNFINISHED_CALL = PreparedQuery(
    select(tool_calls).where(tool_calls.c.run_id == bindparam("of_run"), tool_calls.c.status.in_(("started", "asked")))
)


def run_resumed_from(tx: ReadTx, run_id: str) -> Row[Any] | None:
    """The run that goes on with a paused one."""
    return tx.execute(select(runs).where(runs.c.resumed_from == run_id)).first()
