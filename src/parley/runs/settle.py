"""How a run ends: the only writer of an ending, and of a pause (contract §3, §5.1).

Each function runs inside one transaction that already holds the fence or the chat's lock, writes
the whole ending, and returns the events that tell it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from sqlalchemy import Row

from parley.base.clock import DAY, iso
from parley.billing import release
from parley.runs import chat_store, question_store, run_store
from parley.runs.run_store import Lease
from parley.runs.transcript import CLOSED_BEFORE_EFFECT, CLOSED_BY_STOP, CLOSED_UNANSWERED, open_calls
from parley.storage import ReadTx, WriteTx
from parley.turn.events import (
    Cancelled,
    Done,
    DoneWithError,
    Error,
    Event,
    Interrupted,
    ResponseChunk,
    Tokens,
    ToolReturned,
    ToolSummary,
    UserInputRequested,
)
from parley.turn.model import (
    Answered,
    AssistantEntry,
    Declined,
    Entry,
    Failed,
    Outcome,
    Paused,
    Reply,
    Stopped,
    ToolCall,
    ToolEntry,
)
from parley.turn.pace import NOT_RUN, Turn, assistant_entry
from parley.turn.text import as_text

QUESTION_DAYS = 7


@dataclass(frozen=True, slots=True)
class Ended:
    """What a settlement needs to know of the run."""

    run_id: str
    chat_id: str
    organization_id: str
    user_id: str
    turn_id: str


def ended_lease(lease: Lease) -> Ended:
    """The run of a lease."""
    return Ended(lease.run_id, lease.chat_id, lease.organization_id, lease.user_id, lease.turn_id)


def ended_row(run: Row[Any]) -> Ended:
    """The run of a row."""
    return Ended(run.id, run.chat_id, run.organization_id, run.user_id, run.turn_id)


def settle(tx: WriteTx, run: Ended, turn: Turn, outcome: Outcome, now: int) -> Sequence[Event]:
    """Write an outcome of the loop. What the run still held of its organization's credits is given back."""
    release(tx, run.organization_id, run_id=run.run_id, now=now)
    match outcome:
        case Answered(reply):
            return _answered(tx, run, turn, reply, now)
        case Paused(call, question):
            question_store.insert_question(
                tx,
                {
                    "organization_id": run.organization_id,
                    "chat_id": run.chat_id,
                    "run_id": run.run_id,
                    "user_id": run.user_id,
                },
                question,
                now=now,
                expires_at=now + QUESTION_DAYS * DAY,
            )
            run_store.finish_tool_call(tx, run.run_id, turn.step, {"status": "asked", "tool_call_id": call.id})
            chat_store.end_run(tx, run.run_id, {"status": "interrupted", "updated_at": now})
            return [UserInputRequested(question.payload), Interrupted(question.request_id, question.kind)]
        case Stopped(call, declined):
            return _declined(tx, run, turn, call, declined, now)
        case Failed(public, reason):
            return fail(tx, run, public, reason, now)
        case _:
            assert_never(outcome)


def fail(tx: WriteTx, run: Ended, public: str, reason: str, now: int) -> Sequence[Event]:
    """End a run with an error; what it had streamed stays readable."""
    _keep_partial(tx, run, "failed", now, instead=public)
    chat_store.end_run(tx, run.run_id, {"status": "failed", "reason": reason, "error": public, **_times(now)})
    chat_store.set_running(tx, run.chat_id, None, now)
    return [Error(public), DoneWithError("", _tokens(tx, run), _summaries(tx, run))]


def cancel(tx: WriteTx, run: Ended, reason: str, now: int) -> Sequence[Event]:
    """Stop a run in whatever state it is; its chat goes on (contract §2.8)."""
    _keep_partial(tx, run, "cancelled", now, instead="")
    chat_store.end_run(tx, run.run_id, {"status": "cancelled", "reason": reason, **_times(now)})
    chat_store.set_running(tx, run.chat_id, None, now)
    return [Cancelled(reason)]


def _answered(tx: WriteTx, run: Ended, turn: Turn, reply: Reply, now: int) -> Sequence[Event]:
    chat_store.append_entries(tx, run.chat_id, run.run_id, turn.step, [assistant_entry(reply)], now)
    chat_store.append_message(
        tx,
        run.chat_id,
        role="ai",
        content=reply.text,
        thinking="\n\n".join(turn.thinking) or None,
        run_id=run.run_id,
        running_status="completed",
        now=now,
    )
    ending = {"status": "completed", "model_calls": turn.model_calls, "context_tokens": turn.context_tokens}
    chat_store.end_run(tx, run.run_id, {**ending, **_times(now)})
    chat_store.set_running(tx, run.chat_id, None, now)
    return [Done(reply.text, _tokens(tx, run), _summaries(tx, run))]


def _declined(tx: WriteTx, run: Ended, turn: Turn, call: ToolCall, declined: Declined, now: int) -> Sequence[Event]:
    """The call's result and our last word at once: a crash between them would ask the model after all."""
    chat_store.append_entries(
        tx, run.chat_id, run.run_id, turn.step, [ToolEntry(call.id, call.tool, as_text(declined.output))], now
    )
    ended = {"status": "not_run", "output": declined.output, "succeeded": True, "ended_at": now}
    run_store.finish_tool_call(tx, run.run_id, turn.step, ended)
    said = [ToolReturned(call.tool, call.id, declined.output, iso(now)), ResponseChunk(declined.text)]
    return [*said, *_answered(tx, run, turn, Reply(declined.text), now)]


def _keep_partial(tx: WriteTx, run: Ended, status: str, now: int, *, instead: str) -> None:
    """Keep the streamed text for people and for the model, and give the open call its result."""
    texts = run_store.streamed_text(tx, run.run_id)
    entries = close_calls(tx, run, now)
    if texts[-1]:
        entries.append(AssistantEntry(texts[-1]))
    chat_store.append_entries(tx, run.chat_id, run.run_id, 0, entries, now)
    chat_store.append_message(
        tx,
        run.chat_id,
        role="ai",
        content="\n\n".join(text for text in texts if text) or instead,
        run_id=run.run_id,
        running_status=status,
        now=now,
    )


def close_calls(tx: WriteTx, run: Ended, now: int) -> list[Entry]:
    """Results for the calls of the last reply that have none, so that the conversation stays sendable."""
    unfinished = chat_store.unfinished_call(tx, run.run_id)
    why = NOT_RUN
    if unfinished is not None:
        why = _why_closed(unfinished)
        status = "unknown" if why is CLOSED_BY_STOP else "not_run"
        run_store.finish_tool_call(
            tx, run.run_id, unfinished.step, {"status": status, "succeeded": False, "ended_at": now}
        )
    return [
        ToolEntry(call.id, call.tool, why if unfinished and call.id == unfinished.tool_call_id else NOT_RUN)
        for call in open_calls(chat_store.turn_entries(tx, run.chat_id))
    ]


def _why_closed(call: Row[Any]) -> str:
    """What the model is told of a call that was cut short."""
    if call.status == "asked":
        return CLOSED_UNANSWERED
    return CLOSED_BEFORE_EFFECT if call.effect in (None, "read") else CLOSED_BY_STOP


def _times(now: int) -> dict[str, int]:
    return {"ended_at": now, "updated_at": now}


def _tokens(tx: ReadTx, run: Ended) -> Tokens:
    usage, calls = run_store.turn_usage(tx, run.turn_id)
    return Tokens(usage.input, usage.output, usage.input + usage.output, calls, usage.cached)


def _summaries(tx: ReadTx, run: Ended) -> tuple[ToolSummary, ...]:
    rows = run_store.tool_call_rows(tx, run.turn_id)
    return tuple(ToolSummary(row.tool, row.input, row.output) for row in rows)
