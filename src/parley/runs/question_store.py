"""SQL of questions: what a paused run waits for, and what became of it."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, bindparam, insert, select, text, update

from parley.storage import ReadTx, WriteTx
from parley.storage.prepared import PreparedQuery
from parley.storage.tables.chats import questions
from parley.turn.model import JsonObject, Question


def insert_question(tx: WriteTx, values: dict[str, Any], question: Question, *, now: int, expires_at: int) -> None:
    """Open a question; ``values`` names its organization, chat, run and person."""
    tx.execute(
        insert(questions).values(
            id=question.request_id,
            kind=question.kind,
            payload=question.payload,
            binding=question.binding,
            outcome="pending",
            created_at=now,
            expires_at=expires_at,
            **values,
        )
    )


def open_question(tx: ReadTx, chat_id: str, now: int) -> Any:
    """The chat's question that still waits for its answer; None without one."""
    return _OPEN_QUESTION.record(tx, {"of_chat": chat_id, "now": now})


_OPEN_QUESTION = PreparedQuery(
    select(questions).where(
        questions.c.chat_id == bindparam("of_chat"),
        text("questions.outcome = 'pending'"),
        questions.c.expires_at > bindparam("now"),
    )
)


def find_question(tx: ReadTx, chat_id: str, request_id: str) -> Row[Any] | None:
    """A question of the chat, whatever became of it."""
    return tx.execute(select(questions).where(questions.c.id == request_id, questions.c.chat_id == chat_id)).first()


def question_of_run(tx: ReadTx, run_id: str) -> Row[Any] | None:
    """The pending question that paused a run, past its time or not."""
    return tx.execute(select(questions).where(questions.c.run_id == run_id, questions.c.outcome == "pending")).first()


def close_question(
    tx: WriteTx,
    request_id: str,
    *,
    outcome: str,
    now: int,
    answer: JsonObject | None = None,
    answered_by: str | None = None,
) -> bool:
    """Close a pending question; False when somebody else has closed it already."""
    closed = tx.execute(
        update(questions)
        .where(questions.c.id == request_id, questions.c.outcome == "pending")
        .values(outcome=outcome, answer=answer, answered_by=answered_by, resolved_at=now)
    )
    return closed.rowcount == 1


def note_answered_by(tx: WriteTx, request_id: str, user_id: str) -> None:
    """A question that a new connection answered now counts as answered by this person."""
    tx.execute(update(questions).where(questions.c.id == request_id).values(answered_by=user_id))


def expired_questions(tx: ReadTx, now: int, limit: int) -> Sequence[Row[Any]]:
    """Pending questions whose seven days are over."""
    return tx.execute(
        select(questions).where(questions.c.outcome == "pending", questions.c.expires_at <= now).limit(limit)
    ).all()


def waiting_for_integration(tx: ReadTx, organization_id: str, now: int) -> Sequence[Row[Any]]:
    """The organization's open credential questions."""
    return tx.execute(
        select(questions).where(
            questions.c.organization_id == organization_id,
            questions.c.kind == "credential_request",
            questions.c.outcome == "pending",
            questions.c.expires_at > now,
        )
    ).all()
