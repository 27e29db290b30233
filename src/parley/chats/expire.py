"""Questions nobody answered: after seven days the turn ends and the chat goes on (contract §17 row 5)."""

from parley.chats.context import Change, Chats
from parley.runs import chat_store, question_store, settle
from parley.runs.chat_store import Chat
from parley.storage import ReadTx
from parley.storage.acting import acting_for
from parley.storage.tables.chats import chats as chat_table

BATCH = 100


def expire_if_due(change: Change, chat: Chat) -> None:
    """End the chat's paused turn when its question is past its time. Call with the chat locked."""
    run = chat_store.live_run(change.tx, chat.id)
    if run is None or run.status != "interrupted":
        return
    question = question_store.question_of_run(change.tx, run.id)
    if question is None or question.expires_at > change.now:
        return
    if question_store.close_question(change.tx, question.id, outcome="expired", now=change.now):
        events = settle.cancel(change.tx, settle.ended_row(run), "expired", change.now)
        change.show(run.id, events, epoch=run.epoch + 1)


async def expire_due(chats: Chats) -> int:
    """End every paused turn whose question is past its time; how many there were."""
    ended = 0
    while True:
        due = await chats.store.across.read(lambda tx: _due(tx, chats.clock.now()))
        before = ended
        for organization_id, kind, chat_id in due:
            key = (organization_id, kind, chat_id)
            with acting_for(organization_id):
                ended += await chats.commit(lambda change, key=key: _expire(change, key))
        if len(due) < BATCH or ended == before:
            return ended


def _expire(change: Change, key: tuple[str, str, str]) -> int:
    chat = chat_store.lock_chat(change.tx, *key)
    if chat is None:
        return 0
    expire_if_due(change, chat)
    return 1


def _due(tx: ReadTx, now: int) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for question in question_store.expired_questions(tx, now, BATCH):
        kind = tx.execute(chat_table.select().where(chat_table.c.id == question.chat_id)).one().kind
        found.append((question.organization_id, kind, question.chat_id))
    return found
