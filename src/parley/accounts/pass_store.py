"""The SQL of what lets people in: API keys, sessions, sign-in links, and the secret that keys are hashed with."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, bindparam, delete, func, insert, or_, select, update

from parley.accounts.model import ApiKey, Pass, Role, User
from parley.base.clock import SECOND
from parley.storage import ReadTx, WriteTx
from parley.storage.tables.accounts import (
    api_keys,
    instance_secrets,
    memberships,
    organizations,
    sessions,
    sign_in_links,
    users,
)

IDLE = 12 * 3600 * SECOND
NOTE_USE_EVERY = 60 * SECOND

_KEY = (
    api_keys.c.id,
    api_keys.c.user_id,
    api_keys.c.name,
    api_keys.c.masked_key,
    api_keys.c.organization_id,
    api_keys.c.rate_limit_per_minute,
    api_keys.c.expires_at,
    api_keys.c.last_used_at,
    api_keys.c.created_at,
    api_keys.c.revoked_at,
)


# ── who a key or a session stands for ───────────────────────────────────────────────────────────


def pass_of_key(tx: ReadTx, key_hash: bytes) -> Pass | None:
    """What an unrevoked API key stands for; its end may have passed."""
    found = tx.execute(
        select(api_keys, *_person())
        .join(users, users.c.id == api_keys.c.user_id)
        .where(api_keys.c.key_hash == key_hash, api_keys.c.revoked_at.is_(None))
    ).first()
    if found is None:
        return None
    return Pass(
        user=_user(tx, found, api_key_id=found.id, locked_to=found.organization_id),
        id=found.id,
        rate_limit=found.rate_limit_per_minute,
        good_until=found.expires_at,
        used_at=found.last_used_at,
    )


def pass_of_session(tx: ReadTx, token_hash: bytes) -> Pass | None:
    """What a session stands for; its end may have passed. A session of a revoked key is gone."""
    found = tx.execute(
        select(sessions, api_keys.c.organization_id, api_keys.c.expires_at.label("key_expires_at"), *_person())
        .join(users, users.c.id == sessions.c.user_id)
        .outerjoin(api_keys, api_keys.c.id == sessions.c.api_key_id)
        .where(sessions.c.token_hash == token_hash, api_keys.c.revoked_at.is_(None))
    ).first()
    if found is None:
        return None
    ends = [found.expires_at, found.seen_at + IDLE]
    if found.key_expires_at is not None:
        ends.append(found.key_expires_at)
    return Pass(
        user=_user(tx, found, api_key_id=found.api_key_id, locked_to=found.organization_id),
        id=token_hash,
        rate_limit=None,
        good_until=min(ends),
        used_at=found.seen_at,
    )


def user_by_id(tx: ReadTx, user_id: str) -> User | None:
    """A person with all their organizations."""
    found = tx.execute(select(*_person()).where(users.c.id == user_id)).first()
    return None if found is None else _user(tx, found, api_key_id=None, locked_to=None)


def note_key_uses(tx: WriteTx, uses: Mapping[str, int]) -> None:
    """Write when keys were last used, unless a time within the last minute is there already."""
    if uses:
        tx.execute(
            update(api_keys)
            .where(
                api_keys.c.id == bindparam("key"),
                or_(api_keys.c.last_used_at.is_(None), api_keys.c.last_used_at <= bindparam("before")),
            )
            .values(last_used_at=bindparam("used")),
            [{"key": key, "used": used, "before": used - NOTE_USE_EVERY} for key, used in uses.items()],
        )


def note_session_uses(tx: WriteTx, uses: Mapping[bytes, int]) -> None:
    """Write when sessions were last seen; time never runs backwards."""
    if uses:
        tx.execute(
            update(sessions)
            .where(sessions.c.token_hash == bindparam("token"), sessions.c.seen_at < bindparam("seen"))
            .values(seen_at=bindparam("seen")),
            [{"token": token, "seen": seen} for token, seen in uses.items()],
        )


def _person() -> tuple[ColumnElement[Any], ...]:
    return (
        users.c.id.label("person"),
        users.c.email,
        users.c.username,
        users.c.platform_role,
        users.c.is_active,
        users.c.primary_organization_id,
    )


def _user(tx: ReadTx, row: Row[*tuple[Any, ...]], *, api_key_id: str | None, locked_to: str | None) -> User:
    joined = tx.execute(
        select(memberships.c.organization_id, memberships.c.role)
        .join(organizations, organizations.c.id == memberships.c.organization_id)
        .where(memberships.c.user_id == row.person, organizations.c.is_active)
        .order_by(memberships.c.joined_at, memberships.c.organization_id)
    )
    roles: dict[str, Role] = {
        organization_id: role for organization_id, role in joined if locked_to in (None, organization_id)
    }
    primary = row.primary_organization_id
    return User(
        id=row.person,
        email=row.email,
        username=row.username,
        platform_role=row.platform_role,
        is_active=row.is_active,
        primary_organization_id=primary if primary in roles else next(iter(roles), None),
        roles=roles,
        api_key_id=api_key_id,
        locked_to=locked_to,
    )


# ── API keys ────────────────────────────────────────────────────────────────────────────────────


def add_key(tx: WriteTx, key: ApiKey, *, key_hash: bytes, opaque: bool) -> None:
    """Store a key by its hash. Raises IntegrityError when it is known already."""
    tx.execute(
        insert(api_keys).values(
            id=key.id,
            user_id=key.user_id,
            name=key.name,
            key_hash=key_hash,
            masked_key=key.masked_key,
            opaque=opaque,
            organization_id=key.organization_id,
            rate_limit_per_minute=key.rate_limit_per_minute,
            expires_at=key.expires_at,
            last_used_at=key.last_used_at,
            created_at=key.created_at,
            revoked_at=key.revoked_at,
        )
    )


def opaque_hashes(tx: ReadTx) -> list[bytes]:
    """The hashes of the keys that have no checksum."""
    return list(tx.execute(select(api_keys.c.key_hash).where(api_keys.c.opaque)).scalars())


def count_keys(tx: ReadTx, user_id: str) -> int:
    """How many unrevoked keys a person has."""
    return tx.execute(
        select(func.count()).select_from(api_keys).where(api_keys.c.user_id == user_id, api_keys.c.revoked_at.is_(None))
    ).scalar_one()


def keys_of(tx: ReadTx, user_id: str) -> list[ApiKey]:
    """A person's keys, revoked ones too, newest first."""
    found = tx.execute(
        select(*_KEY).where(api_keys.c.user_id == user_id).order_by(api_keys.c.created_at.desc(), api_keys.c.id)
    )
    return [ApiKey(*row) for row in found]


def key_by_id(tx: ReadTx, user_id: str, key_id: str) -> ApiKey | None:
    """One of a person's keys."""
    found = tx.execute(select(*_KEY).where(api_keys.c.id == key_id, api_keys.c.user_id == user_id)).first()
    return None if found is None else ApiKey(*found)


def revoke_key(tx: WriteTx, key_id: str, at: int) -> bool:
    """End a key and the sessions that were opened with it; False when it had ended already."""
    ended = tx.execute(
        update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None)).values(revoked_at=at)
    )
    tx.execute(delete(sessions).where(sessions.c.api_key_id == key_id))
    return ended.rowcount == 1


# ── sessions and sign-in links ──────────────────────────────────────────────────────────────────


def add_session(
    tx: WriteTx, token_hash: bytes, *, user_id: str, api_key_id: str | None, at: int, expires_at: int
) -> None:
    """Open a session, and clear away the person's ended ones."""
    tx.execute(
        delete(sessions).where(
            sessions.c.user_id == user_id, or_(sessions.c.expires_at <= at, sessions.c.seen_at <= at - IDLE)
        )
    )
    tx.execute(
        insert(sessions).values(
            token_hash=token_hash,
            user_id=user_id,
            api_key_id=api_key_id,
            created_at=at,
            seen_at=at,
            expires_at=expires_at,
        )
    )


def remove_session(tx: WriteTx, token_hash: bytes) -> None:
    """End a session."""
    tx.execute(delete(sessions).where(sessions.c.token_hash == token_hash))


def remove_other_sessions(tx: WriteTx, user_id: str, keep: bytes) -> None:
    """End all of a person's sessions but one."""
    tx.execute(delete(sessions).where(sessions.c.user_id == user_id, sessions.c.token_hash != keep))


def add_link(tx: WriteTx, token_hash: bytes, *, user_id: str, at: int, expires_at: int) -> None:
    """Store a sign-in link, and clear away the person's ended ones."""
    tx.execute(delete(sign_in_links).where(sign_in_links.c.user_id == user_id, sign_in_links.c.expires_at <= at))
    tx.execute(
        insert(sign_in_links).values(
            token_hash=token_hash, user_id=user_id, created_at=at, expires_at=expires_at, used_at=None
        )
    )


def use_link(tx: WriteTx, token_hash: bytes, at: int) -> str | None:
    """Use up a sign-in link; the id of its person, None when it was used, is over or never was."""
    return tx.execute(
        update(sign_in_links)
        .where(
            and_(
                sign_in_links.c.token_hash == token_hash,
                sign_in_links.c.used_at.is_(None),
                sign_in_links.c.expires_at > at,
            )
        )
        .values(used_at=at)
        .returning(sign_in_links.c.user_id)
    ).scalar()


# ── instance secrets ────────────────────────────────────────────────────────────────────────────


def instance_secret(tx: ReadTx, name: str) -> tuple[bytes, str] | None:
    """A sealed secret of this installation and the id of the master key that sealed it."""
    found = tx.execute(
        select(instance_secrets.c.sealed, instance_secrets.c.key_id).where(instance_secrets.c.name == name)
    ).first()
    return None if found is None else (found.sealed, found.key_id)


def add_instance_secret(tx: WriteTx, name: str, sealed: bytes, key_id: str, at: int) -> None:
    """Raises IntegrityError when the secret is there already."""
    tx.execute(insert(instance_secrets).values(name=name, sealed=sealed, key_id=key_id, created_at=at))
