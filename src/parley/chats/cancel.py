"""Stopping a turn and deleting a chat: in any state, with or without a live owner (contract §2.8, §2.9)."""

from parley.accounts import AuditEntry, Caller, record
from parley.base.errors import BadRequest
from parley.base.ids import is_id
from parley.chats.context import Change, Chats
from parley.chats.expire import expire_if_due
from parley.chats.keeping.erase import erase
from parley.chats.start import ChatNotFound
from parley.runs import chat_store, question_store, settle
from parley.runs.chat_store import Chat


class NothingToCancel(BadRequest):
    """No active execution to cancel"""


async def cancel_turn(chats: Chats, caller: Caller, kind: str, chat_id: str) -> str:
    """Stop the chat's turn; the id of the run that was stopped.

    Text already streamed is kept, an open call gets its result, an open question is closed. Raises
    ChatNotFound or NothingToCancel.
    """
    await chats.flusher.flush()

    def work(change: Change) -> str:
        chat = _lock(change, caller, kind, chat_id)
        expire_if_due(change, chat)
        run_id = _stop(change, chat, "user_cancelled")
        if run_id is None:
            raise NothingToCancel
        return run_id

    return await chats.commit(work)


async def delete_chat(chats: Chats, caller: Caller, kind: str, chat_id: str) -> None:
    """Hide a chat from every route; a turn in it is stopped first. Raises ChatNotFound."""
    await chats.flusher.flush()

    def work(change: Change) -> None:
        chat = _lock(change, caller, kind, chat_id)
        _stop(change, chat, "chat_deleted")
        chat_store.soft_delete(change.tx, chat.id, change.now)

    await chats.commit(work)


async def erase_chat(chats: Chats, caller: Caller, kind: str, chat_id: str) -> None:
    """Remove a chat, hidden or not, and everything said and done in it; a turn in it is stopped first.

    What it cost stays, and a line in the audit log that says who erased it. Raises ChatNotFound.
    """
    await chats.flusher.flush()

    def work(change: Change) -> None:
        found = chat_store.lock_to_erase(change.tx, caller.organization_id, kind, chat_id) if is_id(chat_id) else None
        if found is None:
            raise ChatNotFound
        _stop(change, found, "chat_deleted")
        erase(change.tx, found.organization_id, [found.id])
        record(
            change.tx,
            AuditEntry(
                organization_id=found.organization_id,
                user_id=caller.user_id,
                category="ORGANIZATION",
                operation="chat_erased",
                message=f"{caller.email} erased a chat",
                detail={"chat_id": found.id, "owner_id": found.user_id},
                at=change.now,
            ),
        )

    await chats.commit(work)


def _lock(change: Change, caller: Caller, kind: str, chat_id: str) -> Chat:
    chat = chat_store.lock_chat(change.tx, caller.organization_id, kind, chat_id) if is_id(chat_id) else None
    if chat is None:
        raise ChatNotFound
    return chat


def _stop(change: Change, chat: Chat, reason: str) -> str | None:
    """End the chat's live run, if there is one; its id."""
    run = chat_store.lock_live_run(change.tx, chat.id)
    if run is None:
        return None
    question = question_store.question_of_run(change.tx, run.id)
    if question is not None:
        question_store.close_question(change.tx, question.id, outcome="cancelled", now=change.now)
    events = settle.cancel(change.tx, settle.ended_row(run), reason, change.now)
    change.show(run.id, events, epoch=run.epoch + 1)
    change.stop(run.id)
    return run.id
