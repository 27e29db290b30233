"""Doing a thing once for one ``Idempotency-Key``: the answer is stored with the thing itself.

The key's row is written in the transaction of the effect, so a crash leaves both or neither, and a
retry finds the first answer (durability §4.3). Keys are kept for a day.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec
from sqlalchemy import Text, and_, cast, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from parley.base.clock import DAY
from parley.base.errors import Conflict, Refusal
from parley.storage.engine import ReadTx, Store, WriteTx
from parley.storage.tables.chats import idempotency_keys as keys

# No digest is this.
ERASED = "erased"


class KeyReused(Conflict):
    """The Idempotency-Key was already used with another request. Use a new key for a new request."""


@dataclass(frozen=True, slots=True)
class OnceKey:
    """One retryable request: whose, on which route, and a fingerprint of its body."""

    organization_id: str
    route: str
    key: str
    fingerprint: str


def once_key(organization_id: str, route: str, key: str | None, body: object) -> OnceKey | None:
    """The key of a request; None where the caller sent none. ``body`` is a JSON value."""
    if not key:
        return None
    digest = hashlib.sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()
    return OnceKey(organization_id, route, key, digest)


async def run_once(
    store: Store, key: OnceKey | None, first: Callable[[], Awaitable[dict[str, object]]]
) -> dict[str, object]:
    """The answer of the first request with this key; ``first`` runs, and remembers, where there is none yet.

    Raises KeyReused when the key was used with another body.
    """
    if key is None:
        return await first()
    known = await store.read(lambda tx: remembered(tx, key))
    if known is not None:
        return known
    try:
        return await first()
    except (IntegrityError, Refusal):
        # A twin that came at the same time may have won: what it did is what this one is refused for.
        known = await store.read(lambda tx: remembered(tx, key))
        if known is None:
            raise
        return known


def remembered(tx: ReadTx, key: OnceKey) -> dict[str, object] | None:
    """The stored answer. Raises KeyReused."""
    row = tx.execute(
        select(keys.c.fingerprint, keys.c.response).where(
            keys.c.organization_id == key.organization_id, keys.c.route == key.route, keys.c.key == key.key
        )
    ).first()
    if row is None:
        return None
    if row.fingerprint != key.fingerprint:
        raise KeyReused
    return row.response


def remember(tx: WriteTx, key: OnceKey | None, response: dict[str, object], now: int) -> None:
    """Store the answer beside its effect. A twin's row makes the whole transaction fail."""
    if key is None:
        return
    tx.execute(
        insert(keys).values(
            organization_id=key.organization_id,
            route=key.route,
            key=key.key,
            fingerprint=key.fingerprint,
            status=200,
            response=response,
            created_at=now,
        )
    )


def forget_key(tx: WriteTx, organization_id: str, route: str, key: str) -> None:
    """Drop one key, so that it can be remembered anew."""
    tx.execute(delete(keys).where(keys.c.organization_id == organization_id, keys.c.route == route, keys.c.key == key))


def forget_old_keys(tx: WriteTx, now: int) -> None:
    """Drop keys older than a day."""
    tx.execute(delete(keys).where(keys.c.created_at < now - DAY))


def forget_chats(tx: WriteTx, organization_id: str, chat_ids: Sequence[str]) -> None:
    """Of keys whose answer names one of these chats, keep that they were used and nothing that was said.

    A retry of such a request is refused from now on: the thing was done, and what it did is gone.
    """
    names = or_(*(cast(keys.c.response, Text).contains(chat_id, autoescape=True) for chat_id in chat_ids))
    used = and_(keys.c.organization_id == organization_id, names)
    # A row without a fingerprint guards nothing: its key itself is made of what was said.
    tx.execute(delete(keys).where(used, keys.c.fingerprint == ""))
    tx.execute(update(keys).where(used).values(fingerprint=ERASED))
