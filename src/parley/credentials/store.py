"""The SQL of credentials, their audit and the states of OAuth flows."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, case, delete, func, insert, or_, select, update

from parley.credentials.model import (
    MANAGED,
    OAUTH,
    AuditEntry,
    Box,
    Credential,
    Flow,
    SealedFlow,
    Source,
    Stored,
    Usage,
)
from parley.storage import ReadTx, WriteTx
from parley.storage.prepared import PreparedQuery
from parley.storage.tables.accounts import memberships, organizations, users
from parley.storage.tables.chats import tool_calls
from parley.storage.tables.credentials import credential_audit, credentials, oauth_states

table = credentials.c

# In the order of the fields of Credential, then those of its box, then ``refresh_until``.
_COLUMNS = (
    table.id,
    table.organization_id,
    table.integration_name,
    table.integration_type,
    table.display_name,
    table.auth_type,
    table.masked,
    table.is_default,
    table.is_valid,
    table.metadata,
    table.version,
    table.created_by,
    table.created_at,
    table.updated_at,
    table.last_used_at,
    table.expires_at,
    table.sealed,
    table.key_id,
    table.refresh_until,
)
_OF_ORGANIZATION = table.organization_id == bindparam("of_organization")
_FIND = PreparedQuery(select(*_COLUMNS).where(_OF_ORGANIZATION, table.id == bindparam("of_credential")))
_USABLE = and_(
    table.is_valid, or_(table.auth_type == OAUTH, table.expires_at.is_(None), table.expires_at > bindparam("now"))
)
_BEST = PreparedQuery(
    select(*_COLUMNS)
    .where(_OF_ORGANIZATION, table.integration_name == bindparam("of_integration"), or_(table.is_default, _USABLE))
    .order_by(
        case((table.auth_type == MANAGED, 1), else_=0),
        case((table.is_default, 0), else_=1),
        table.created_at.desc(),
        table.id,
    )
    .limit(1)
)


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def find(tx: ReadTx, organization_id: str, credential_id: str) -> Stored | None:
    """One row of this organization."""
    row = _FIND.first(tx, {"of_organization": organization_id, "of_credential": credential_id})
    return None if row is None else _stored(row)


def own(tx: ReadTx, organization_id: str) -> Sequence[Stored]:
    """The organization's credentials that hold something, oldest first."""
    statement = select(*_COLUMNS).where(table.organization_id == organization_id, table.auth_type != MANAGED)
    return [_stored(row) for row in tx.execute(statement.order_by(table.created_at))]


def creator_email(tx: ReadTx, user_id: str) -> str | None:
    """The e-mail address of whoever made a credential."""
    return tx.execute(select(users.c.email).where(users.c.id == user_id)).scalar()


def page(
    tx: ReadTx, organization_id: str, filters: Mapping[str, str], *, limit: int, offset: int
) -> Sequence[Credential]:
    """The newest first; ``filters`` are column values such as ``integration_name``."""
    key = {**_wanted(organization_id, filters), "most": limit, "skipped": offset}
    return [_stored(row).credential for row in _page(tuple(filters)).rows(tx, key)]


@cache
def _page(names: tuple[str, ...]) -> PreparedQuery[*tuple[Any, ...]]:
    return PreparedQuery(
        select(*_COLUMNS)
        .where(*_matching(names))
        .order_by(table.created_at.desc(), table.id)
        .limit(bindparam("most"))
        .offset(bindparam("skipped"))
    )


def totals(tx: ReadTx, organization_id: str, filters: Mapping[str, str]) -> Sequence[tuple[str, str, str, int]]:
    """``(integration name, integration type, auth type, rows)`` of all that match, by name."""
    return _totals(tuple(filters)).rows(tx, _wanted(organization_id, filters))


@cache
def _totals(names: tuple[str, ...]) -> PreparedQuery[str, str, str, int]:
    return PreparedQuery(
        select(table.integration_name, table.integration_type, table.auth_type, func.count())
        .where(*_matching(names))
        .group_by(table.integration_name, table.integration_type, table.auth_type)
        .order_by(table.integration_name, table.auth_type)
    )


def best(tx: ReadTx, organization_id: str, integration_name: str, now: int) -> Stored | None:
    """The credential to use when none was named (contract §6.1).

    Own ones before managed ones; of each the default, else the newest that is valid and not expired.
    An OAuth grant outlives its access token, so its expiry does not count.
    """
    row = _BEST.first(tx, {"of_organization": organization_id, "of_integration": integration_name, "now": now})
    return None if row is None else _stored(row)


def default_of(tx: ReadTx, organization_id: str, integration_name: str) -> Credential | None:
    """The integration's default credential."""
    statement = select(*_COLUMNS).where(
        table.organization_id == organization_id, table.integration_name == integration_name, table.is_default
    )
    row = tx.execute(statement).first()
    return None if row is None else _stored(row).credential


def count(tx: ReadTx, organization_id: str) -> int:
    """How many credentials the organization has."""
    held = select(func.count()).select_from(credentials).where(credentials.c.organization_id == organization_id)
    return tx.execute(held).scalar_one()


def managed_names(tx: ReadTx, organization_id: str) -> set[str]:
    """The integrations for which the organization has a managed credential."""
    statement = select(table.integration_name).where(
        table.organization_id == organization_id, table.auth_type == MANAGED
    )
    return set(tx.execute(statement).scalars())


def usage(tx: ReadTx, organization_id: str, credential_id: str, since: int | None, until: int | None) -> Usage:
    """The actions run with one credential, started in ``[since, until]``."""
    calls = tool_calls.c
    conditions: list[ColumnElement[bool]] = [
        calls.organization_id == organization_id,
        calls.credential_id == credential_id,
        calls.status.in_(("done", "unknown")),
    ]
    if since is not None:
        conditions.append(calls.started_at >= since)
    if until is not None:
        conditions.append(calls.started_at <= until)
    statement = (
        select(calls.action_name, func.count(), func.sum(case((calls.succeeded, 1), else_=0)))
        .where(*conditions)
        .group_by(calls.action_name)
        .order_by(func.count().desc(), calls.action_name)
    )
    rows = [(str(name), int(count), int(succeeded)) for name, count, succeeded in tx.execute(statement)]
    return Usage(
        total_calls=sum(count for _, count, _ in rows),
        successful_calls=sum(succeeded for _, _, succeeded in rows),
        action_breakdown={name: count for name, count, _ in rows},
    )


# ── writing ─────────────────────────────────────────────────────────────────────────────────────


def lock_defaults(tx: WriteTx, organization_id: str) -> None:
    """Make whoever else changes this organization's defaults wait for our transaction."""
    tx.execute(select(organizations.c.id).where(organizations.c.id == organization_id).with_for_update(key_share=True))


def add(tx: WriteTx, stored: Stored) -> None:
    """Insert a row."""
    credential = stored.credential
    tx.execute(
        insert(credentials).values(
            id=credential.credential_id,
            organization_id=credential.organization_id,
            integration_name=credential.integration_name,
            integration_type=credential.integration_type,
            display_name=credential.display_name,
            auth_type=credential.auth_type,
            sealed=stored.box.sealed,
            key_id=stored.box.key_id,
            masked=credential.masked,
            is_default=credential.is_default,
            is_valid=credential.is_valid,
            metadata=credential.metadata,
            version=credential.version,
            created_by=credential.created_by,
            created_at=credential.created_at,
            updated_at=credential.updated_at,
            expires_at=credential.expires_at,
        )
    )


def change(tx: WriteTx, organization_id: str, credential_id: str, values: Mapping[str, object]) -> bool:
    """Set columns of one row; False when it is not there."""
    statement = update(credentials).where(_is(organization_id, credential_id)).values(**values)
    return tx.execute(statement).rowcount == 1


def clear_default(tx: WriteTx, organization_id: str, integration_name: str, now: int) -> None:
    """Leave the integration without a default."""
    tx.execute(
        update(credentials)
        .where(table.organization_id == organization_id, table.integration_name == integration_name, table.is_default)
        .values(is_default=False, updated_at=now)
    )


def remove(tx: WriteTx, organization_id: str, credential_id: str) -> bool:
    """Delete one row for good; False when it is not there."""
    return tx.execute(delete(credentials).where(_is(organization_id, credential_id))).rowcount == 1


def touch(tx: WriteTx, organization_id: str, credential_id: str, now: int) -> None:
    """Note that a credential was used; an older note never replaces a newer one."""
    tx.execute(
        update(credentials)
        .where(_is(organization_id, credential_id), or_(table.last_used_at.is_(None), table.last_used_at < now))
        .values(last_used_at=now)
    )


# ── refreshing ──────────────────────────────────────────────────────────────────────────────────


def claim_refresh(tx: WriteTx, stored: Stored, *, now: int, until: int) -> bool:
    """Take the sole right to refresh this version until a time; False when another has it or was faster."""
    statement = (
        update(credentials)
        .where(_is_still(stored.credential), or_(table.refresh_until.is_(None), table.refresh_until < now))
        .values(refresh_until=until)
    )
    return tx.execute(statement).rowcount == 1


def save_refreshed(tx: WriteTx, stored: Stored, *, box: Box, expires_at: int | None, now: int) -> bool:
    """Replace the grant of this version by its successor; False when the row is gone or has moved on."""
    statement = (
        update(credentials)
        .where(_is_still(stored.credential))
        .values(
            sealed=box.sealed,
            key_id=box.key_id,
            version=table.version + 1,
            expires_at=expires_at,
            is_valid=True,
            refresh_until=None,
            updated_at=now,
        )
    )
    return tx.execute(statement).rowcount == 1


def release_refresh(tx: WriteTx, stored: Stored, *, until: int) -> None:
    """Give back the right taken by ``claim_refresh`` with the same ``until``."""
    tx.execute(
        update(credentials).where(_is_still(stored.credential), table.refresh_until == until).values(refresh_until=None)
    )


def set_valid(tx: WriteTx, credential: Credential, *, is_valid: bool, now: int) -> bool:
    """Mark this version valid or not; False when it was so already or a newer one took its place."""
    statement = (
        update(credentials)
        .where(_is_still(credential), table.is_valid != is_valid)
        .values(is_valid=is_valid, updated_at=now)
    )
    return tx.execute(statement).rowcount == 1


# ── the audit ───────────────────────────────────────────────────────────────────────────────────


def add_audit(tx: WriteTx, organization_id: str, entry: AuditEntry) -> None:
    """Append one line."""
    tx.execute(
        insert(credential_audit).values(
            id=entry.entry_id,
            organization_id=organization_id,
            credential_id=entry.credential_id,
            event_type=entry.event_type,
            user_id=entry.user_id,
            changes=entry.changes,
            ip_address=entry.source.ip_address,
            user_agent=entry.source.user_agent,
            created_at=entry.created_at,
        )
    )


def audit_page(
    tx: ReadTx, organization_id: str, credential_id: str, *, limit: int, offset: int
) -> Sequence[AuditEntry]:
    """The newest lines first, also of a deleted credential."""
    entry = credential_audit.c
    statement = (
        select(credential_audit)
        .where(entry.organization_id == organization_id, entry.credential_id == credential_id)
        .order_by(entry.created_at.desc(), entry.id)
        .limit(limit)
        .offset(offset)
    )
    return [
        AuditEntry(
            entry_id=row.id,
            credential_id=row.credential_id,
            event_type=row.event_type,
            user_id=row.user_id,
            changes=row.changes,
            source=Source(row.ip_address, row.user_agent),
            created_at=row.created_at,
        )
        for row in tx.execute(statement)
    ]


# ── OAuth flows ─────────────────────────────────────────────────────────────────────────────────


def add_flow(tx: WriteTx, sealed: SealedFlow) -> None:
    """Remember a flow under the hash of its state."""
    flow = sealed.flow
    tx.execute(
        insert(oauth_states).values(
            state_hash=sealed.state_hash,
            organization_id=flow.organization_id,
            user_id=flow.user_id,
            integration_name=flow.integration_name,
            sealed=sealed.box.sealed,
            key_id=sealed.box.key_id,
            redirect_uri=flow.redirect_uri,
            chat_id=flow.chat_id,
            request_id=flow.request_id,
            created_at=sealed.created_at,
            expires_at=sealed.expires_at,
        )
    )


def take_flow(tx: WriteTx, state_hash: bytes) -> SealedFlow | None:
    """The flow of this state, which nobody gets a second time."""
    row = tx.execute(
        delete(oauth_states).where(oauth_states.c.state_hash == state_hash).returning(*oauth_states.c)
    ).first()
    if row is None:
        return None
    flow = Flow(
        organization_id=row.organization_id,
        user_id=row.user_id,
        integration_name=row.integration_name,
        redirect_uri=row.redirect_uri,
        chat_id=row.chat_id,
        request_id=row.request_id,
    )
    return SealedFlow(flow, row.state_hash, Box(row.sealed, row.key_id), row.created_at, row.expires_at)


def forget_flows(tx: WriteTx, before: int) -> None:
    """Delete flows that ended before a time."""
    tx.execute(delete(oauth_states).where(oauth_states.c.expires_at < before))


def may_connect(tx: ReadTx, organization_id: str, user_id: str) -> bool:
    """Whether the person is still an active owner or admin of an active organization."""
    statement = (
        select(memberships.c.role)
        .join(users, users.c.id == memberships.c.user_id)
        .join(organizations, organizations.c.id == memberships.c.organization_id)
        .where(
            memberships.c.organization_id == organization_id,
            memberships.c.user_id == user_id,
            memberships.c.role.in_(("owner", "admin")),
            users.c.is_active,
            organizations.c.is_active,
        )
    )
    return tx.execute(statement).first() is not None


# ── rows ────────────────────────────────────────────────────────────────────────────────────────


def _is(organization_id: str, credential_id: str) -> ColumnElement[bool]:
    return and_(table.organization_id == organization_id, table.id == credential_id)


def _is_still(credential: Credential) -> ColumnElement[bool]:
    """That the row holds the same secret as it did when this was read."""
    return and_(_is(credential.organization_id, credential.credential_id), table.version == credential.version)


def _matching(names: tuple[str, ...]) -> list[ColumnElement[bool]]:
    return [_OF_ORGANIZATION, *(table[name] == bindparam(f"of_{name}") for name in names)]


def _wanted(organization_id: str, filters: Mapping[str, str]) -> dict[str, str | int]:
    """The values of ``_matching``."""
    return {"of_organization": organization_id, **{f"of_{name}": value for name, value in filters.items()}}


def _stored(row: Sequence[Any]) -> Stored:
    *shown, sealed, key_id, refresh_until = row
    return Stored(Credential(*shown), Box(sealed, key_id), refresh_until)
