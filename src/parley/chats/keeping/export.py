"""A whole chat as one document: what was said, done, asked and answered, without any secret.

It is read and sent in pieces, each in a transaction of its own, so a chat of any length needs little
memory. Where the chat goes in the middle of it, the document breaks off: it never ends as if it were whole.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Row, select

from parley.accounts import Caller
from parley.base.clock import iso, iso_or_none
from parley.chats.context import Chats
from parley.chats.read import require_chat
from parley.integrations import Scrubber
from parley.runs import chat_store
from parley.runs.chat_store import Chat
from parley.storage import ReadTx
from parley.storage.tables.chats import messages, questions, runs, tool_calls
from parley.turn.model import JsonObject, JsonValue

FORMAT = "parley-chat-1"
PAGE = 50
SHOWN_CHARACTERS = 2_000
SPEAKERS = {"human": "Person", "ai": "Assistant", "system": "System"}


@dataclass(frozen=True, slots=True)
class Export:
    """A chat that is about to leave, and what removes the organization's secrets from it."""

    chats: Chats
    caller: Caller
    chat: Chat
    scrubber: Scrubber
    at: int


@dataclass(frozen=True, slots=True)
class Said:
    """One message, and what was done and asked in the turn that it began."""

    row: Row[Any]
    calls: Sequence[Row[Any]]
    questions: Sequence[Row[Any]]


async def open_export(chats: Chats, caller: Caller, kind: str, chat_id: str) -> Export:
    """Everything that can refuse happens here, before the first byte. Raises ChatNotFound."""
    chat = await chats.store.read(lambda tx: require_chat(tx, caller, kind, chat_id))
    scrubber = Scrubber(await chats.credentials.secret_texts(caller.organization_id))
    return Export(chats, caller, chat, scrubber, chats.clock.now())


async def export_json(export: Export) -> AsyncGenerator[bytes]:
    """One JSON object: ``format``, ``exported_at``, ``chat`` and ``messages``, each with ``actions`` and ``questions``.

    Results are whole, also those that the conversation has a cut of. Raises ChatNotFound when the chat goes.
    """
    chat = export.chat
    head: JsonObject = {
        "format": FORMAT,
        "exported_at": iso(export.at),
        "chat": {
            "id": chat.id,
            "title": export.scrubber.text(chat.title),
            "created_at": iso(chat.created_at),
            "updated_at": iso(chat.updated_at),
        },
    }
    yield msgspec.json.encode(head)[:-1] + b',"messages":['
    separator = b""
    async for said in _everything(export):
        message: JsonObject = {
            **_message(said.row),
            "actions": [await _action(export, call) for call in said.calls],
            "questions": [_question(row) for row in said.questions],
        }
        # Whole results are megabytes: to clear them here would hold every stream of the process up.
        yield separator + await asyncio.to_thread(_encoded, export, message)
        separator = b",\n"
    yield b"]}\n"


async def export_markdown(export: Export) -> AsyncGenerator[bytes]:
    """The chat to read: headings for who spoke when, what was done under it, long results cut.

    Raises ChatNotFound when the chat goes.
    """
    yield f"# {export.scrubber.text(_one_line(export.chat.title))}\n\nExported {iso(export.at)}\n".encode()
    async for said in _everything(export):
        speaker = SPEAKERS.get(said.row.role, said.row.role)
        parts = [f"\n## {speaker}, {iso(said.row.created_at)}\n\n{said.row.content}\n"]
        parts += [_shown_call(call) for call in said.calls]
        parts += [_shown_question(row) for row in said.questions]
        yield export.scrubber.text("".join(parts)).encode()


def _encoded(export: Export, message: JsonObject) -> bytes:
    return msgspec.json.encode(export.scrubber.value(message))


async def _everything(export: Export) -> AsyncGenerator[Said]:
    after = 0
    while True:
        page = await export.chats.store.read(lambda tx, after=after: _page(tx, export, after))
        for said in page:
            yield said
        if len(page) < PAGE:
            return
        after = page[-1].row.seq


def _page(tx: ReadTx, export: Export, after: int) -> list[Said]:
    chat_id = require_chat(tx, export.caller, export.chat.kind, export.chat.id).id
    rows = tx.execute(
        select(messages)
        .where(messages.c.chat_id == chat_id, messages.c.seq > after)
        .order_by(messages.c.seq)
        .limit(PAGE)
    ).all()
    # A turn's first run carries the message that began it.
    turns = [row.run_id for row in rows if row.role == "human" and row.run_id is not None]
    calls = tx.execute(
        select(tool_calls, runs.c.turn_id)
        .join(runs, runs.c.id == tool_calls.c.run_id)
        .where(runs.c.turn_id.in_(turns), runs.c.chat_id == chat_id)
        .order_by(runs.c.created_at, tool_calls.c.step)
    ).all()
    asked = tx.execute(
        select(questions, runs.c.turn_id)
        .join(runs, runs.c.id == questions.c.run_id)
        .where(runs.c.turn_id.in_(turns), runs.c.chat_id == chat_id)
        .order_by(questions.c.created_at)
    ).all()
    return [Said(row, _of(row, calls), _of(row, asked)) for row in rows]


def _of(message: Row[Any], rows: Sequence[Row[Any]]) -> list[Row[Any]]:
    return [row for row in rows if message.role == "human" and row.turn_id == message.run_id]


def _message(row: Row[Any]) -> JsonObject:
    return {
        "id": row.id,
        "role": row.role,
        "content": row.content,
        "thinking": row.thinking,
        "run_id": row.run_id,
        "created_at": iso(row.created_at),
    }


async def _action(export: Export, call: Row[Any]) -> JsonObject:
    output: JsonValue = call.output
    if isinstance(output, dict) and isinstance(output.get("result_id"), str):
        result_id = str(output["result_id"])
        whole = await export.chats.store.read(lambda tx: chat_store.find_result(tx, export.chat.id, result_id))
        output = output if whole is None else whole.value
    return {
        "run_id": call.run_id,
        "step": call.step,
        "tool": call.tool,
        "integration_name": call.integration_name,
        "action_name": call.action_name,
        "status": call.status,
        "input": call.input,
        "output": output,
        "started_at": iso(call.started_at),
        "ended_at": iso_or_none(call.ended_at),
    }


def _question(row: Row[Any]) -> JsonObject:
    return {
        "request_id": row.id,
        "kind": row.kind,
        "asked": row.payload,
        "answer": row.answer,
        "outcome": row.outcome,
        "created_at": iso(row.created_at),
        "resolved_at": iso_or_none(row.resolved_at),
    }


def _shown_call(call: Row[Any]) -> str:
    what = f"{call.integration_name} · {call.action_name}" if call.action_name else call.tool
    return f"\n**{what}** ({call.status})\n\n{_fenced(call.input)}\n{_fenced(call.output)}"


def _shown_question(row: Row[Any]) -> str:
    return f"\n**Asked** ({row.outcome})\n\n{_fenced(row.payload)}\n{_fenced(row.answer)}"


def _fenced(value: JsonValue) -> str:
    """A value as JSON in a fence that nothing in it can close."""
    if value is None:
        return ""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if len(text) > SHOWN_CHARACTERS:
        text = f"{text[:SHOWN_CHARACTERS]}\n… {len(text) - SHOWN_CHARACTERS} characters more; the JSON export has them"
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}json\n{text}\n{fence}\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())
