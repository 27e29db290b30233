"""Removing chats so that nothing of what was said or done in them is left in the store."""

from collections.abc import Sequence

from sqlalchemy import delete

from parley.storage import WriteTx, leave_no_trace
from parley.storage.once import forget_chats
from parley.storage.tables.chats import chats
from parley.storage.tables.credentials import oauth_states


def erase(tx: WriteTx, organization_id: str, chat_ids: Sequence[str]) -> None:
    """Erase chats of one organization. Rows of money and of the audit log stay: they hold ids and figures only.

    The foreign keys take messages, transcript, runs, events, calls, results and questions along.
    """
    if not chat_ids:
        return
    tx.execute(delete(chats).where(chats.c.id.in_(chat_ids), chats.c.organization_id == organization_id))
    tx.execute(delete(oauth_states).where(oauth_states.c.chat_id.in_(chat_ids)))
    forget_chats(tx, organization_id, chat_ids)
    leave_no_trace(tx)
