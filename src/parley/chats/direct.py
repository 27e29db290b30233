"""One action run without a model: a turn whose only step its caller has written (docs/decisions/0024).

It is a run like any other: admitted and charged as a turn, claimed by a worker, through the same choke
point with the same policy, intent and receipt, and with the same question to a person in the web app.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Row, select

from parley.accounts import Caller
from parley.base.clock import iso
from parley.base.errors import NotFound
from parley.base.ids import is_id, new_id
from parley.billing import closed_on_outage, reserve
from parley.chats.cancel import delete_chat
from parley.chats.context import Change, Chats
from parley.chats.start import TITLE_CHARACTERS, Started, queue_run
from parley.equipment.finishing import DIRECT, DIRECT_LLM, is_direct
from parley.runs import chat_store, run_store
from parley.runs.chat_store import Chat
from parley.storage import ReadTx
from parley.storage.once import OnceKey, remember
from parley.storage.tables.chats import questions, runs, tool_calls, tool_results
from parley.turn.events import ToolCalled
from parley.turn.model import (
    AssistantEntry,
    JsonObject,
    JsonValue,
    ToolCall,
    UserEntry,
)

ASSISTANT = "assistant"
EXECUTE = "execute_integration_tool"
FIRST_LOOK_SECONDS, LOOK_SECONDS = 0.02, 0.25
LIVE = ("queued", "running")


class RunNotFound(NotFound):
    """Run not found"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a direct run stands.

    ``status`` is ``running``, ``needs_approval``, ``finished``, ``failed`` or ``cancelled``. ``question``
    is what a person is asked, ``output`` what the action gave, ``error`` why the run failed.
    """

    run_id: str
    chat_id: str
    status: str
    output: JsonValue = None
    question: str = ""
    error: str = ""


async def start_direct(chats: Chats, caller: Caller, arguments: JsonObject, *, once: OnceKey | None = None) -> Started:
    """Admit, charge and queue one action; ``arguments`` are those of ``execute_integration_tool``.

    Raises billing's Denial; nothing is written then.
    """
    named = f"{arguments.get('integration_name')} · {arguments.get('tool_name')}"[:TITLE_CHARACTERS]
    message = f"Run {named}"
    call = ToolCall(f"direct_{new_id()}", EXECUTE, msgspec.json.encode(arguments).decode())

    def work(change: Change) -> Started:
        tx, now = change.tx, change.now
        chat = Chat(
            id=new_id(),
            organization_id=caller.organization_id,
            user_id=caller.user_id,
            kind=ASSISTANT,
            title=named,
            running_id=None,
            tainted=False,
            created_at=now,
            updated_at=now,
        )
        chat_store.insert_chat(tx, chat)
        run_id = new_id()
        key = f"{chat.id}:{run_id}"
        reserve(tx, chats.plans, caller.organization_id, charge_key=key, run_id=run_id, now=now)
        chat_store.append_message(tx, chat.id, role="human", content=message, run_id=run_id, now=now)
        entries = [UserEntry(message), AssistantEntry("", [call], provider=DIRECT)]
        chat_store.append_entries(tx, chat.id, run_id, 0, entries, now)
        values: dict[str, object] = {
            "id": run_id,
            "user_id": caller.user_id,
            "turn_id": run_id,
            "resumed_from": None,
            "llm": DIRECT_LLM,
        }
        queue_run(change, chats, chat, values)
        _open_call(change, chat, run_id, call, arguments)
        started = Started(chat.id, run_id)
        remember(tx, once, started.as_json(), now)
        return started

    with closed_on_outage():
        return await chats.commit(work)


def _open_call(change: Change, chat: Chat, run_id: str, call: ToolCall, arguments: JsonObject) -> None:
    """The call as a reply of a model would have left it; the worker takes it up from here."""
    run_store.insert_tool_call(
        change.tx,
        {
            "run_id": run_id,
            "step": 0,
            "chat_id": chat.id,
            "organization_id": chat.organization_id,
            "tool_call_id": call.id,
            "tool": call.tool,
            "input": arguments,
            "status": "started",
            "epoch": 0,
            "managed": False,
            "started_at": change.now,
        },
    )
    change.show(run_id, [ToolCalled(call.tool, arguments, call.id, iso(change.now))], epoch=0)


async def wait_direct(chats: Chats, caller: Caller, run_id: str, *, seconds: float) -> Outcome:
    """How a direct run of the caller's organization stands, once it is not running any more or after a while.

    A run that ended without asking anybody leaves no chat in the list. Raises RunNotFound.
    """
    pause = FIRST_LOOK_SECONDS
    try:
        async with asyncio.timeout(seconds):
            while True:
                outcome = await chats.store.read(lambda tx: _outcome(tx, caller, run_id))
                if outcome.status != "running":
                    break
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, LOOK_SECONDS)
    except TimeoutError:
        return await chats.store.read(lambda tx: _outcome(tx, caller, run_id))
    if outcome.status in ("finished", "failed"):
        await _put_away(chats, caller, outcome.chat_id)
    return outcome


def _outcome(tx: ReadTx, caller: Caller, run_id: str) -> Outcome:
    run = _latest(tx, caller, run_id) if is_id(run_id) else None
    if run is None:
        raise RunNotFound
    status = _told(run.status)
    if status == "needs_approval":
        asked = tx.execute(
            select(questions.c.payload).where(questions.c.run_id == run.id, questions.c.outcome == "pending")
        ).scalar()
        return Outcome(run_id, run.chat_id, status, question=str(asked["message"]) if asked else "")
    output = _whole(tx, run) if status != "running" else None
    return Outcome(run_id, run.chat_id, status, output, error=run.error or "")


def _latest(tx: ReadTx, caller: Caller, run_id: str) -> Row[Any] | None:
    """The run that the turn is in by now; only the caller's own, and only a direct one."""
    rows = tx.execute(
        select(runs)
        .where(
            runs.c.turn_id == run_id,
            runs.c.organization_id == caller.organization_id,
            runs.c.user_id == caller.user_id,
        )
        .order_by(runs.c.created_at.desc(), runs.c.status == "resumed")
    ).all()
    first = next((row for row in rows if row.id == run_id), None)
    direct = first is not None and is_direct(first.llm)
    return next((row for row in rows if row.status != "resumed"), None) if direct else None


def _told(status: str) -> str:
    if status in LIVE:
        return "running"
    return {"interrupted": "needs_approval", "completed": "finished"}.get(status, status)


def _whole(tx: ReadTx, run: Row[Any]) -> JsonValue:
    """What the action gave, whole where the conversation has a cut of it."""
    output = tx.execute(
        select(tool_calls.c.output).where(tool_calls.c.run_id == run.id, tool_calls.c.tool == EXECUTE)
    ).scalar()
    if not isinstance(output, dict) or "result_id" not in output:
        return output
    whole = tx.execute(
        select(tool_results.c.value).where(
            tool_results.c.id == output["result_id"], tool_results.c.chat_id == run.chat_id
        )
    ).scalar()
    kept = {key: value for key, value in output.items() if key not in ("truncated", "result_id")}
    return {**kept, "result": whole}


async def _put_away(chats: Chats, caller: Caller, chat_id: str) -> None:
    def wanted(tx: ReadTx) -> bool:
        asked = tx.execute(select(questions.c.id).where(questions.c.chat_id == chat_id)).first()
        return asked is None and chat_store.find_chat(tx, caller.organization_id, ASSISTANT, chat_id) is not None

    if await chats.store.read(wanted):
        await delete_chat(chats, caller, ASSISTANT, chat_id)
