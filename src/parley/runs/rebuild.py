"""A run's state from its rows: the same for a fresh run, a resumed one and one whose process died."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select

from parley.runs import chat_store, run_store
from parley.runs.run_store import Lease
from parley.runs.transcript import open_calls
from parley.storage import ReadTx
from parley.storage.prepared import PreparedQuery
from parley.storage.tables.chats import chats, questions, runs
from parley.turn.model import Answer, AssistantEntry, Entry, OpenCall, Receipt, Rescue, ToolCall, UserEntry
from parley.turn.pace import Turn


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What the worker needs to go on with a run."""

    turn: Turn
    kind: str
    tainted: bool
    seq: int
    settled_seq: int


def rebuild(tx: ReadTx, lease: Lease, systems: Mapping[str, str]) -> Rebuilt:
    """The state of a run. ``systems`` is the system prompt of each kind of chat.

    The kind comes from the chat's row on every call, so a resumed run never gains tools.
    """
    ((kind, tainted),) = _CHAT.rows(tx, {"of_chat": lease.chat_id})
    (run,) = _RUN.records(tx, {"of_run": lease.run_id})
    from_seq, compaction = chat_store.latest_compaction(tx, lease.chat_id)
    entries = chat_store.list_entries(tx, lease.chat_id, from_seq)
    call = chat_store.unfinished_call(tx, lease.run_id)
    turn = Turn(
        systems[kind],
        entries,
        step=run.step,
        model_calls=run.model_calls,
        failures_in_row=run.failures_in_row,
        thinking=_thinking(entries),
        compaction=compaction,
        from_seq=from_seq,
        context_tokens=run_store.last_context_tokens(tx, lease.chat_id),
    )
    if call is not None:
        wish = next((wish for wish in open_calls(entries) if wish.id == call.tool_call_id), None)
        if wish is None:
            wish = ToolCall(call.tool_call_id, call.tool, "{}")
        turn.open_call = OpenCall(wish, call.step, _answer(tx, run, call) or Rescue(_receipt(call)))
    return Rebuilt(
        turn,
        kind,
        tainted,
        run_store.last_seq(tx, lease.run_id),
        run_store.last_settled_seq(tx, lease.run_id),
    )


def _thinking(entries: Sequence[Entry]) -> list[str]:
    """What the model thought in the present turn so far, in whichever run."""
    thoughts: list[str] = []
    for entry in reversed(entries):
        if isinstance(entry, UserEntry):
            break
        if isinstance(entry, AssistantEntry) and entry.thinking:
            thoughts.append(entry.thinking)
    return thoughts[::-1]


_CHAT = PreparedQuery(select(chats.c.kind, chats.c.tainted).where(chats.c.id == bindparam("of_chat")))
_RUN = PreparedQuery(select(runs).where(runs.c.id == bindparam("of_run")))


def _answer(tx: ReadTx, run: Any, call: Any) -> Answer | None:
    """The answer the run was resumed with, as long as nothing has been done with it."""
    if run.resumed_from is None or call.step != 0 or call.effect is not None:
        return None
    question = tx.execute(
        select(questions.c.answer, questions.c.binding).where(
            questions.c.run_id == run.resumed_from, questions.c.answer.is_not(None)
        )
    ).first()
    return Answer(question.answer, question.binding) if question else None


def _receipt(call: Any) -> Receipt | None:
    """The intent that was written before anything left; None when nothing had."""
    if call.effect is None:
        return None
    return Receipt(
        call.integration_name,
        call.action_name,
        call.effect,
        call.credential_id,
        call.managed,
        call.arguments_digest or "",
        call.idempotency_key,
    )
