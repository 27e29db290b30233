"""Starting a turn: refuse before anything is written, or write everything at once (contract §2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from parley.accounts import Caller
from parley.base.clock import iso
from parley.base.errors import BadRequest, Conflict, NotFound
from parley.base.ids import is_id, new_id
from parley.billing import closed_on_outage, reserve
from parley.chats.context import Change, Chats
from parley.chats.expire import expire_if_due
from parley.equipment.llms import LlmChoice
from parley.runs import chat_store, question_store, run_store
from parley.runs.chat_store import Chat
from parley.storage import ReadTx
from parley.storage.once import OnceKey, remember
from parley.storage.tables.chats import turn_slots
from parley.turn.events import Metadata
from parley.turn.model import Entry, UserEntry

TITLE_CHARACTERS = 50
MESSAGE_CHARACTERS = 100_000


class ChatNotFound(NotFound):
    """Chat not found"""


class EmptyMessage(BadRequest):
    """The message is empty. Write what you want done."""


class MessageTooLong(BadRequest):
    """The message is longer than 100,000 characters. Send it in parts, or as a document."""


class QuestionOpen(Conflict):
    """A question is open in this chat."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"Question {request_id} is waiting for an answer in this chat. Answer it, or cancel the turn.")


class RunInFlight(Conflict):
    """A turn is already running in this chat. Wait for it, or cancel it."""


@dataclass(frozen=True, slots=True)
class Started:
    """A turn that has begun."""

    chat_id: str
    run_id: str

    def as_json(self) -> dict[str, object]:
        """The ids, as stored with an Idempotency-Key."""
        return {"chat_id": self.chat_id, "run_id": self.run_id}


async def start_turn(
    chats: Chats,
    caller: Caller,
    kind: str,
    message: str,
    *,
    chat_id: str | None,
    llm: LlmChoice | None,
    once: OnceKey | None = None,
    before: Sequence[Entry] = (),
) -> Started:
    """Admit, charge and queue one turn; a new chat unless one is named.

    ``before`` is what was said elsewhere, for the model of a new chat.

    Raises EmptyMessage, MessageTooLong, ChatNotFound, QuestionOpen, RunInFlight, the refusals of
    ``Llms.check`` and billing's Denial; in each case nothing is written and nothing charged.
    """
    if not message.strip():
        raise EmptyMessage
    if len(message) > MESSAGE_CHARACTERS:
        raise MessageTooLong
    if chat_id is not None:
        await chats.store.read(lambda tx: check_idle(tx, caller, kind, chat_id, chats.clock.now()))
    choice = await chats.llms.check(caller.organization_id, llm)

    def work(change: Change) -> Started:
        if chat_id is None:
            chat = _new_chat(change, caller, kind, message)
            chat_store.append_entries(change.tx, chat.id, "", 0, before, change.now)
        else:
            chat = chat_store.lock_chat(change.tx, caller.organization_id, kind, chat_id)
            if chat is None:
                raise ChatNotFound
            expire_if_due(change, chat)
            check_idle(change.tx, caller, kind, chat.id, change.now)
        run_id = new_id()
        reserve(
            change.tx,
            chats.plans,
            caller.organization_id,
            charge_key=f"{chat.id}:{run_id}",
            run_id=run_id,
            now=change.now,
        )
        _write_turn(change, chats, caller, chat, run_id, message, choice)
        started = Started(chat.id, run_id)
        remember(change.tx, once, started.as_json(), change.now)
        return started

    with closed_on_outage():
        return await chats.commit(work)


def check_idle(tx: ReadTx, caller: Caller, kind: str, chat_id: str, now: int) -> None:
    """The chat exists and waits for a message. Raises ChatNotFound, QuestionOpen or RunInFlight."""
    chat = chat_store.find_chat(tx, caller.organization_id, kind, chat_id) if is_id(chat_id) else None
    if chat is None:
        raise ChatNotFound
    question = question_store.open_question(tx, chat.id, now)
    if question is not None:
        raise QuestionOpen(question.id)
    run = chat_store.live_run(tx, chat.id)
    if run is not None and run.status != "interrupted":
        raise RunInFlight


def _new_chat(change: Change, caller: Caller, kind: str, message: str) -> Chat:
    chat = Chat(
        id=new_id(),
        organization_id=caller.organization_id,
        user_id=caller.user_id,
        kind=kind,
        title=message.strip()[:TITLE_CHARACTERS],
        running_id=None,
        tainted=False,
        created_at=change.now,
        updated_at=change.now,
    )
    chat_store.insert_chat(change.tx, chat)
    return chat


def _write_turn(
    change: Change, chats: Chats, caller: Caller, chat: Chat, run_id: str, message: str, choice: LlmChoice
) -> None:
    tx, now = change.tx, change.now
    chat_store.append_message(tx, chat.id, role="human", content=message, run_id=run_id, now=now)
    chat_store.append_entries(tx, chat.id, run_id, 0, [UserEntry(message)], now)
    queue_run(
        change,
        chats,
        chat,
        {
            "id": run_id,
            "user_id": caller.user_id,
            "turn_id": run_id,
            "resumed_from": None,
            "llm": choice.as_json(),
        },
    )


def queue_run(change: Change, chats: Chats, chat: Chat, values: dict[str, object]) -> None:
    """Write a run that waits for a worker, bound to its chat, with its first event."""
    tx, now = change.tx, change.now
    run_id = str(values["id"])
    chat_store.insert_run(
        tx,
        {**values, "organization_id": chat.organization_id, "chat_id": chat.id, "created_at": now, "updated_at": now},
    )
    chat_store.set_running(tx, chat.id, run_id, now)
    run_store.insert_ignore(
        tx,
        turn_slots,
        {"organization_id": chat.organization_id, "cap": chats.settings.turns_per_organization, "claimed_at": 0},
    )
    change.show(run_id, [Metadata(run_id, chat.id, iso(now))], epoch=0)
    change.queue()
