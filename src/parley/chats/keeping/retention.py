"""Erasing chats that are older than their organization keeps them (issue 9, sentence 6)."""

from sqlalchemy import and_, select

from parley.accounts import AuditEntry, chat_retentions, record
from parley.base.clock import DAY
from parley.chats.context import Chats
from parley.chats.keeping.erase import erase
from parley.storage import WriteTx
from parley.storage.acting import acting_for
from parley.storage.tables.chats import chats as chat_table

# Chats a transaction: a long one has thousands of rows, and a writer must not wait long.
BATCH = 20
BATCHES_A_ROUND = 50


async def erase_outdated(chats: Chats) -> int:
    """Erase what is past its days in every organization, some batches of each; how many chats went.

    A chat with a turn that runs or waits for a person is left until that is over.
    """
    erased = 0
    for organization_id, days in (await chats.store.across.read(chat_retentions)).items():
        before = chats.clock.now() - days * DAY
        with acting_for(organization_id):
            for _ in range(BATCHES_A_ROUND):
                gone = await chats.store.write(
                    lambda tx, key=(organization_id, days, before): _erase_batch(tx, *key, chats.clock.now())
                )
                erased += gone
                if gone < BATCH:
                    break
    return erased


def _erase_batch(tx: WriteTx, organization_id: str, days: int, before: int, now: int) -> int:
    outdated = and_(
        chat_table.c.organization_id == organization_id,
        chat_table.c.updated_at < before,
        chat_table.c.running_id.is_(None),
    )
    # Another process may be at the same ones, and a person may be starting a turn: its lock is waited for by nobody.
    query = select(chat_table.c.id).where(outdated).order_by(chat_table.c.updated_at).limit(BATCH)
    chat_ids = list(tx.execute(query.with_for_update(skip_locked=True)).scalars())
    if not chat_ids:
        return 0
    erase(tx, organization_id, chat_ids)
    entry = AuditEntry(
        organization_id=organization_id,
        user_id=None,
        category="ORGANIZATION",
        operation="chats_outdated",
        message=f"{len(chat_ids)} chats without a word for {days} days were erased",
        detail={"chats": len(chat_ids), "days": days},
        at=now,
    )
    record(tx, entry)
    return len(chat_ids)
