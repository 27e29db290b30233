"""The SQL of people, organizations, invitations and the audit log, and nothing else."""

from typing import Any

from sqlalchemy import ColumnElement, Row, bindparam, delete, func, insert, select, text, update

from parley.accounts.model import (
    Account,
    AuditEntry,
    Invitation,
    InvitationStatus,
    Membership,
    NewInvitation,
    Organization,
    Role,
)
from parley.base.ids import new_id
from parley.storage import ReadTx, WriteTx
from parley.storage.prepared import PreparedQuery
from parley.storage.tables.accounts import api_keys, audit_log, invitations, memberships, organizations, users
from parley.turn.model import JsonObject

FIRST_START_LOCK = 7_301_845

_ORGANIZATION = (
    organizations.c.id,
    organizations.c.name,
    organizations.c.slug,
    organizations.c.domain,
    organizations.c.is_active,
    organizations.c.created_at,
)


# ── people ──────────────────────────────────────────────────────────────────────────────────────


def anyone(tx: ReadTx) -> bool:
    """Whether the store has a user at all."""
    return tx.execute(select(users.c.id).limit(1)).first() is not None


def lock_first_start(tx: WriteTx) -> None:
    """Make other processes that start at the same moment wait until this transaction ends."""
    if tx.dialect.name == "postgresql":
        tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": FIRST_START_LOCK})


def add_user(tx: WriteTx, *, email: str, username: str, platform_role: str, at: int) -> str:
    """A new active user without a password; the id. Raises IntegrityError when the e-mail is taken."""
    user_id = new_id()
    tx.execute(
        insert(users).values(
            id=user_id,
            email=email,
            username=username,
            platform_role=platform_role,
            is_active=True,
            password_hash=None,
            primary_organization_id=None,
            created_at=at,
        )
    )
    return user_id


def account(tx: ReadTx, condition: ColumnElement[bool]) -> Account | None:
    """The person that the condition singles out."""
    found = tx.execute(
        select(users.c.id, users.c.email, users.c.username, users.c.is_active, users.c.password_hash).where(condition)
    ).first()
    return None if found is None else Account(*found)


def account_by_email(tx: ReadTx, email: str) -> Account | None:
    """The person with an e-mail address, which is given in lower case."""
    return account(tx, users.c.email == email)


def account_by_id(tx: ReadTx, user_id: str) -> Account | None:
    """The person with an id."""
    return account(tx, users.c.id == user_id)


def emails(tx: ReadTx) -> list[str]:
    """Everyone's e-mail address, in order."""
    return list(tx.execute(select(users.c.email).order_by(users.c.email)).scalars())


def set_password_hash(tx: WriteTx, user_id: str, password_hash: str) -> None:
    """Store a new password hash."""
    tx.execute(update(users).where(users.c.id == user_id).values(password_hash=password_hash))


def lock_user(tx: WriteTx, user_id: str) -> None:
    """Make other transactions that count what this person has wait."""
    tx.execute(select(users.c.id).where(users.c.id == user_id).with_for_update())


# ── organizations and memberships ───────────────────────────────────────────────────────────────


def add_organization(tx: WriteTx, organization: Organization) -> None:
    """Raises IntegrityError when the slug or id is taken."""
    tx.execute(
        insert(organizations).values(
            id=organization.id,
            name=organization.name,
            slug=organization.slug,
            domain=organization.domain,
            is_active=organization.is_active,
            settings={},
            created_at=organization.created_at,
        )
    )


def all_organizations(tx: ReadTx) -> list[Organization]:
    """Every organization, by its name."""
    found = tx.execute(select(*_ORGANIZATION).order_by(organizations.c.name, organizations.c.id))
    return [Organization(*row) for row in found]


def slug_taken(tx: ReadTx, slug: str) -> bool:
    """Whether an organization has the slug."""
    return tx.execute(select(organizations.c.id).where(organizations.c.slug == slug)).first() is not None


def lock_organization(tx: WriteTx, organization_id: str) -> None:
    """Make other transactions that change this organization's people or settings wait."""
    tx.execute(select(organizations.c.id).where(organizations.c.id == organization_id).with_for_update())


def add_member(tx: WriteTx, organization_id: str, user_id: str, role: Role, at: int) -> None:
    """Raises IntegrityError when the person is in the organization already."""
    tx.execute(insert(memberships).values(organization_id=organization_id, user_id=user_id, role=role, joined_at=at))
    # The first organization a person joins becomes their primary one.
    tx.execute(
        update(users)
        .where(users.c.id == user_id, users.c.primary_organization_id.is_(None))
        .values(primary_organization_id=organization_id)
    )


def role_of(tx: ReadTx, organization_id: str, user_id: str) -> Role | None:
    """A person's role in an organization; None when they are not in it."""
    return tx.execute(
        select(memberships.c.role).where(
            memberships.c.organization_id == organization_id, memberships.c.user_id == user_id
        )
    ).scalar()


def set_role(tx: WriteTx, organization_id: str, user_id: str, role: Role) -> None:
    """Change a member's role."""
    tx.execute(
        update(memberships)
        .where(memberships.c.organization_id == organization_id, memberships.c.user_id == user_id)
        .values(role=role)
    )


def remove_member(tx: WriteTx, organization_id: str, user_id: str, at: int) -> None:
    """End a membership, and revoke the person's keys that are locked to the organization."""
    tx.execute(
        delete(memberships).where(memberships.c.organization_id == organization_id, memberships.c.user_id == user_id)
    )
    tx.execute(
        update(api_keys)
        .where(
            api_keys.c.user_id == user_id,
            api_keys.c.organization_id == organization_id,
            api_keys.c.revoked_at.is_(None),
        )
        .values(revoked_at=at)
    )
    tx.execute(
        update(users)
        .where(users.c.id == user_id, users.c.primary_organization_id == organization_id)
        .values(primary_organization_id=None)
    )


def count_members(tx: ReadTx, organization_id: str, *, role: Role | None = None) -> int:
    """How many people an organization has, in one role or in any."""
    counted = select(func.count()).select_from(memberships).where(memberships.c.organization_id == organization_id)
    if role is not None:
        counted = counted.where(memberships.c.role == role)
    return tx.execute(counted).scalar_one()


def count_owned(tx: ReadTx, user_id: str) -> int:
    """How many organizations a person owns."""
    return tx.execute(
        select(func.count())
        .select_from(memberships)
        .where(memberships.c.user_id == user_id, memberships.c.role == "owner")
    ).scalar_one()


def memberships_of(tx: ReadTx, user_id: str) -> list[Membership]:
    """A person's active organizations, oldest membership first."""
    found = tx.execute(
        select(memberships.c.role, memberships.c.joined_at, *_ORGANIZATION)
        .join(organizations, organizations.c.id == memberships.c.organization_id)
        .where(memberships.c.user_id == user_id, organizations.c.is_active)
        .order_by(memberships.c.joined_at, memberships.c.organization_id)
    )
    return [Membership(Organization(*row[2:]), row.role, row.joined_at) for row in found]


def settings_of(tx: ReadTx, organization_id: str) -> JsonObject:
    """Everything an organization has set, by name."""
    ((settings,),) = _SETTINGS.rows(tx, {"of_organization": organization_id})
    return settings


_SETTINGS = PreparedQuery(select(organizations.c.settings).where(organizations.c.id == bindparam("of_organization")))


def all_settings(tx: ReadTx) -> list[tuple[str, JsonObject]]:
    """What each organization has set, by name."""
    return [(row.id, row.settings) for row in tx.execute(select(organizations.c.id, organizations.c.settings))]


def set_settings(tx: WriteTx, organization_id: str, settings: JsonObject) -> None:
    """Replace what an organization has set."""
    tx.execute(update(organizations).where(organizations.c.id == organization_id).values(settings=settings))


# ── invitations ─────────────────────────────────────────────────────────────────────────────────


_INVITATIONS = (
    select(
        invitations.c.id.label("invitation"),
        invitations.c.email,
        invitations.c.role,
        invitations.c.status,
        invitations.c.message,
        invitations.c.created_at.label("invited_at"),
        invitations.c.expires_at,
        users.c.id.label("by_id"),
        users.c.email.label("by_email"),
        users.c.username.label("by_username"),
        *_ORGANIZATION,
    )
    .join(organizations, organizations.c.id == invitations.c.organization_id)
    .join(users, users.c.id == invitations.c.invited_by)
)


def _invitation(row: Row[*tuple[Any, ...]]) -> Invitation:
    return Invitation(
        id=row.invitation,
        organization=Organization(*row[10:]),
        email=row.email,
        role=row.role,
        status=row.status,
        message=row.message,
        invited_by_id=row.by_id,
        invited_by_email=row.by_email,
        invited_by_username=row.by_username,
        created_at=row.invited_at,
        expires_at=row.expires_at,
    )


def add_invitation(tx: WriteTx, invitation: NewInvitation, *, token_hash: bytes) -> None:
    """Store a pending invitation. Raises IntegrityError when one for the same e-mail is pending."""
    tx.execute(
        insert(invitations).values(
            id=invitation.id,
            organization_id=invitation.organization_id,
            email=invitation.email,
            role=invitation.role,
            status="pending",
            message=invitation.message,
            token_hash=token_hash,
            invited_by=invitation.invited_by,
            created_at=invitation.created_at,
            expires_at=invitation.expires_at,
        )
    )


def open_invitation(tx: WriteTx, invitation_id: str, *, token_hash: bytes, expires_at: int) -> None:
    """Make the invitation pending under a new token; earlier tokens are void."""
    tx.execute(
        update(invitations)
        .where(invitations.c.id == invitation_id)
        .values(status="pending", token_hash=token_hash, expires_at=expires_at)
    )


def settle_invitation(tx: WriteTx, invitation_id: str, status: InvitationStatus) -> None:
    """Write how an invitation ended."""
    tx.execute(update(invitations).where(invitations.c.id == invitation_id).values(status=status))


def expire_invitations(tx: WriteTx, organization_id: str, now: int) -> None:
    """Mark the organization's pending invitations whose time is over."""
    tx.execute(
        update(invitations)
        .where(
            invitations.c.organization_id == organization_id,
            invitations.c.status == "pending",
            invitations.c.expires_at <= now,
        )
        .values(status="expired")
    )


def invitation_by_id(tx: ReadTx, invitation_id: str) -> Invitation | None:
    """One invitation, whatever its state."""
    found = tx.execute(_INVITATIONS.where(invitations.c.id == invitation_id)).first()
    return None if found is None else _invitation(found)


def invitation_by_token(tx: ReadTx, token_hash: bytes) -> Invitation | None:
    """The invitation a link's token belongs to, whatever its state."""
    found = tx.execute(_INVITATIONS.where(invitations.c.token_hash == token_hash)).first()
    return None if found is None else _invitation(found)


def pending_of(tx: ReadTx, *, organization_id: str, now: int) -> list[Invitation]:
    """An organization's open invitations, newest first."""
    return _pending(tx, invitations.c.organization_id == organization_id, now)


def pending_for(tx: ReadTx, *, email: str, now: int) -> list[Invitation]:
    """The open invitations of an e-mail address, newest first."""
    return _pending(tx, invitations.c.email == email, now)


def _pending(tx: ReadTx, condition: ColumnElement[bool], now: int) -> list[Invitation]:
    found = tx.execute(
        _INVITATIONS.where(
            condition, invitations.c.status == "pending", invitations.c.expires_at > now, organizations.c.is_active
        ).order_by(invitations.c.created_at.desc(), invitations.c.id)
    )
    return [_invitation(row) for row in found]


# ── audit ──────────────────────────────────────────────────────────────────────────────────────


def record(tx: WriteTx, entry: AuditEntry) -> None:
    """Write one line of an organization's audit log, in the transaction of what it tells of."""
    tx.execute(
        insert(audit_log).values(
            id=new_id(),
            organization_id=entry.organization_id,
            user_id=entry.user_id,
            category=entry.category,
            operation=entry.operation,
            message=entry.message,
            detail=entry.detail,
            created_at=entry.at,
        )
    )
