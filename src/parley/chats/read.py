"""Looking at chats: one with its messages, a page of them, the state of one (contract §2.3, §2.4, §2.7)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from parley.accounts import Caller
from parley.base.clock import from_iso, iso
from parley.base.errors import BadRequest, NotFound
from parley.base.ids import is_id
from parley.billing import Breakdown, turn_receipt
from parley.chats.context import Change, Chats
from parley.chats.expire import expire_due
from parley.chats.start import ChatNotFound
from parley.runs import chat_store, question_store
from parley.runs.chat_store import Chat
from parley.storage import ReadTx
from parley.turn.model import JsonObject, JsonValue

TITLE_LIMIT = 200
# Internal states that the wire knows by another name.
WIRE_STATUS = {"queued": "running", "resumed": "interrupted"}


class BadCursor(BadRequest):
    """The cursor is not one that this list gave out. Start again without it."""


class BadTitle(BadRequest):
    """A title has 1 to 200 characters."""


class ResultNotFound(NotFound):
    """Result not found"""


class RunNotFound(NotFound):
    """Run not found"""


@dataclass(frozen=True, slots=True)
class Opened:
    """A chat with everything needed to show it again."""

    chat: Chat
    messages: list[Row[Any]]
    question: JsonObject | None
    running_id: str | None


@dataclass(frozen=True, slots=True)
class State:
    """Whether a chat is busy."""

    running_id: str | None
    request_id: str | None
    latest: Row[Any] | None


@dataclass(frozen=True, slots=True)
class TurnReceipt:
    """A run, all runs of its turn in order, and what they used together."""

    run: Row[Any]
    runs: Sequence[Row[Any]]
    breakdown: Breakdown


@dataclass(frozen=True, slots=True)
class Page:
    """Some chats, newest first, which of them wait for a person, and where the next page begins."""

    chats: list[Chat]
    waiting: set[str]
    next_cursor: str | None


async def open_chat(chats: Chats, caller: Caller, kind: str, chat_id: str) -> Opened:
    """The chat, its messages and its open question. Raises ChatNotFound."""
    now = chats.clock.now()

    def work(tx: ReadTx) -> tuple[Opened, bool]:
        chat = require_chat(tx, caller, kind, chat_id)
        question = question_store.open_question(tx, chat.id, now)
        opened = Opened(
            chat,
            list(chat_store.list_messages(tx, chat.id)),
            question.payload if question else None,
            chat.running_id,
        )
        return opened, question is None and _overdue(tx, chat)

    return await _read_settled(chats, work)


async def chat_state(chats: Chats, caller: Caller, kind: str, chat_id: str) -> State:
    """Whether the chat runs, waits or rests. Raises ChatNotFound."""
    now = chats.clock.now()

    def work(tx: ReadTx) -> tuple[State, bool]:
        chat = require_chat(tx, caller, kind, chat_id)
        question = question_store.open_question(tx, chat.id, now)
        state = State(chat.running_id, question.id if question else None, chat_store.latest_run(tx, chat.id))
        return state, question is None and _overdue(tx, chat)

    return await _read_settled(chats, work)


async def list_chats(
    chats: Chats, caller: Caller, kind: str, *, limit: int, cursor: str | None, search: str | None
) -> Page:
    """The caller's own chats. ``cursor`` is what the page before gave out. Raises BadCursor."""
    before = _parse_cursor(cursor) if cursor is not None else None

    now = chats.clock.now()

    def work(tx: ReadTx) -> tuple[tuple[list[Chat], set[str]], bool]:
        found = chat_store.list_chats(
            tx, caller.organization_id, caller.user_id, kind, limit=limit + 1, before=before, search=search
        )
        waiting = chat_store.waiting_chats(tx, [chat.id for chat in found], now)
        return (found, waiting), any(_overdue(tx, chat) for chat in found if chat.id not in waiting)

    found, waiting = await _read_settled(chats, work)
    page = found[:limit]
    more = len(found) > limit
    return Page(page, waiting, f"{iso(page[-1].updated_at)}~{page[-1].id}" if more else None)


async def rename_chat(chats: Chats, caller: Caller, kind: str, chat_id: str, title: str) -> Chat:
    """Give a chat another title. Raises ChatNotFound or BadTitle."""
    title = title.strip()
    if not 0 < len(title) <= TITLE_LIMIT:
        raise BadTitle

    def work(change: Change) -> Chat:
        chat = require_chat(change.tx, caller, kind, chat_id)
        chat_store.set_title(change.tx, chat.id, title)
        return require_chat(change.tx, caller, kind, chat_id)

    return await chats.commit(work)


async def check_run(chats: Chats, caller: Caller, kind: str, chat_id: str, run_id: str) -> None:
    """The run is one of the chat's, and its history is kept. Raises ChatNotFound or RunNotFound."""

    def work(tx: ReadTx) -> None:
        chat = require_chat(tx, caller, kind, chat_id)
        known = is_id(run_id) and chat_store.find_run(tx, chat.id, run_id) is not None
        if not known or not chat_store.has_events(tx, run_id):
            raise RunNotFound

    await chats.store.read(work)


async def run_receipt(chats: Chats, caller: Caller, kind: str, chat_id: str, run_id: str) -> TurnReceipt:
    """The turn that the run belongs to, with what it used so far. Raises ChatNotFound or RunNotFound."""

    def work(tx: ReadTx) -> TurnReceipt:
        chat = require_chat(tx, caller, kind, chat_id)
        run = chat_store.find_run(tx, chat.id, run_id) if is_id(run_id) else None
        if run is None:
            raise RunNotFound
        return TurnReceipt(
            run, chat_store.runs_of_turn(tx, run.turn_id), turn_receipt(tx, chat.organization_id, run.turn_id)
        )

    return await chats.store.read(work)


async def whole_result(chats: Chats, caller: Caller, kind: str, chat_id: str, result_id: str) -> JsonValue:
    """A tool's result as it was, before it was cut for the conversation. Raises ChatNotFound or ResultNotFound."""

    def work(tx: ReadTx) -> JsonValue:
        chat = require_chat(tx, caller, kind, chat_id)
        row = chat_store.find_result(tx, chat.id, result_id) if is_id(result_id) else None
        if row is None:
            raise ResultNotFound
        return row.value

    return await chats.store.read(work)


def require_chat(tx: ReadTx, caller: Caller, kind: str, chat_id: str) -> Chat:
    """The chat. Raises ChatNotFound, the same for a missing, a foreign and a deleted one."""
    chat = chat_store.find_chat(tx, caller.organization_id, kind, chat_id) if is_id(chat_id) else None
    if chat is None:
        raise ChatNotFound
    return chat


def wire_status(status: str) -> str:
    """A run's status by its wire name."""
    return WIRE_STATUS.get(status, status)


async def _read_settled[T](chats: Chats, work: Callable[[ReadTx], tuple[T, bool]]) -> T:
    """What the work reads. Where it finds a turn past its time, that one is ended first: nobody sees it half over."""
    found, overdue = await chats.store.read(work)
    if overdue:
        await expire_due(chats)
        found, _ = await chats.store.read(work)
    return found


def _overdue(tx: ReadTx, chat: Chat) -> bool:
    """Whether a chat without an open question is still paused: its question is past its time."""
    run = chat_store.find_run(tx, chat.id, chat.running_id) if chat.running_id is not None else None
    return run is not None and run.status == "interrupted"


def _parse_cursor(text: str) -> tuple[int, str]:
    moment, _, chat_id = text.partition("~")
    try:
        return from_iso(moment.replace(" ", "+")), chat_id
    except ValueError:
        raise BadCursor from None
