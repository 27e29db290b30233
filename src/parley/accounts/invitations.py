"""Invitations into an organization.

There is no mail server: the link is given to whoever invites, to pass on. Its token is stored as a
hash and works for seven days. Someone with an account accepts while signed in; the link itself opens
an account only for an address that has none, so that holding a link never opens another's account.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.exc import IntegrityError

from parley.accounts import store as rows
from parley.accounts.keys import new_token, token_digest
from parley.accounts.model import AuditEntry, Caller, Invitation, NewInvitation, Seats, User
from parley.accounts.organizations import KeyIsLocked
from parley.base.clock import DAY, Clock
from parley.base.errors import Conflict, Forbidden, Gone, NotFound
from parley.base.ids import new_id
from parley.storage import ReadTx, Store, WriteTx

GOOD_FOR = 7 * DAY


class InvitationNotFound(NotFound):
    """Invitation not found"""


class InvitationOver(Gone):
    """The invitation is no longer open. Ask for a new one."""


class AlreadyAccepted(Conflict):
    """The invitation was accepted already."""


class AlreadyMember(Conflict):
    """Someone with this e-mail address is in the organization already."""


class AlreadyInvited(Conflict):
    """Someone with this e-mail address has an open invitation. Send it again instead."""


class NotOpen(Conflict):
    """The invitation is not open, so there is nothing to cancel."""


class HasAccount(Conflict):
    """There is an account with this e-mail address. Sign in to it, then accept the invitation."""


class NoSeatLeft(Forbidden):
    """Every seat of the organization is taken. Remove a member or an invitation, or get more seats."""


@dataclass(frozen=True, slots=True)
class Invited:
    """An open invitation with the token of its link, which is never seen again."""

    invitation: Invitation
    token: str = field(repr=False)


class Invitations:
    """Inviting, and what those invited may do."""

    def __init__(self, store: Store, clock: Clock, seats: Seats, forget_user: Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._seats = seats
        self._forget_user = forget_user

    async def invite(self, caller: Caller, email: str, message: str | None) -> Invited:
        """Invite an address, in lower case, to become an admin.

        Raises AlreadyMember 409, AlreadyInvited 409, NoSeatLeft 403.
        """
        now = self._clock.now()
        token = new_token()
        new = NewInvitation(
            id=new_id(),
            organization_id=caller.organization_id,
            email=email,
            role="admin",
            message=message,
            invited_by=caller.user_id,
            created_at=now,
            expires_at=now + GOOD_FOR,
        )

        def work(tx: WriteTx) -> Invitation:
            rows.lock_organization(tx, caller.organization_id)
            rows.expire_invitations(tx, caller.organization_id, now)
            account = rows.account_by_email(tx, email)
            if account is not None and rows.role_of(tx, caller.organization_id, account.id) is not None:
                raise AlreadyMember
            self._need_seat(tx, caller.organization_id, now)
            rows.add_invitation(tx, new, token_hash=token_digest(token))
            invitation = _existing(rows.invitation_by_id(tx, new.id))
            self._record(tx, invitation, caller.user_id, "invitation_sent", f"{caller.email} invited {email}")
            return invitation

        try:
            return Invited(await self._store.write(work), token)
        except IntegrityError:
            raise AlreadyInvited from None

    async def invite_again(self, caller: Caller, invitation_id: str) -> Invited:
        """A new link and another seven days; the old link is void.

        Raises InvitationNotFound 404, AlreadyAccepted 409, AlreadyMember 409, AlreadyInvited 409, NoSeatLeft 403.
        """
        now = self._clock.now()
        token = new_token()

        def work(tx: WriteTx) -> Invitation:
            rows.lock_organization(tx, caller.organization_id)
            rows.expire_invitations(tx, caller.organization_id, now)
            invitation = self._of(tx, caller, invitation_id)
            if invitation.status == "accepted":
                raise AlreadyAccepted
            account = rows.account_by_email(tx, invitation.email)
            if account is not None and rows.role_of(tx, caller.organization_id, account.id) is not None:
                raise AlreadyMember
            if invitation.status != "pending":
                self._need_seat(tx, caller.organization_id, now)
            rows.open_invitation(tx, invitation.id, token_hash=token_digest(token), expires_at=now + GOOD_FOR)
            message = f"{caller.email} invited {invitation.email} again"
            self._record(tx, invitation, caller.user_id, "invitation_resent", message)
            return _existing(rows.invitation_by_id(tx, invitation.id))

        try:
            return Invited(await self._store.write(work), token)
        except IntegrityError:
            raise AlreadyInvited from None

    async def cancel(self, caller: Caller, invitation_id: str) -> None:
        """Take an open invitation back. Raises InvitationNotFound 404, NotOpen 409."""

        def work(tx: WriteTx) -> None:
            rows.lock_organization(tx, caller.organization_id)
            invitation = self._of(tx, caller, invitation_id)
            if invitation.status != "pending":
                raise NotOpen
            rows.settle_invitation(tx, invitation.id, "cancelled")
            message = f"{caller.email} cancelled the invitation of {invitation.email}"
            self._record(tx, invitation, caller.user_id, "invitation_cancelled", message)

        await self._store.write(work)

    async def of_organization(self, caller: Caller) -> list[Invitation]:
        """The organization's open invitations, newest first."""
        now = self._clock.now()
        return await self._store.read(lambda tx: rows.pending_of(tx, organization_id=caller.organization_id, now=now))

    async def of_user(self, user: User) -> list[Invitation]:
        """The open invitations of the user's address, newest first. Raises KeyIsLocked 403."""
        if user.locked_to is not None:
            raise KeyIsLocked
        now = self._clock.now()
        return await self._store.read(lambda tx: rows.pending_for(tx, email=user.email, now=now))

    async def accept(self, user: User, invitation_id: str) -> Invitation:
        """Join the organization. Only the invited address may (contract §1.1).

        Raises InvitationNotFound 404, InvitationOver 410, AlreadyAccepted 409, AlreadyMember 409,
        NoSeatLeft 403, KeyIsLocked 403.
        """

        def work(tx: WriteTx) -> Invitation:
            invitation = self._addressed_to(tx, user, invitation_id)
            self._join(tx, invitation, user.id)
            return invitation

        joined = await self._store.write(work)
        self._forget_user(user.id)
        return joined

    async def reject(self, user: User, invitation_id: str) -> None:
        """Decline. Raises InvitationNotFound 404, InvitationOver 410, AlreadyAccepted 409, KeyIsLocked 403."""
        now = self._clock.now()

        def work(tx: WriteTx) -> None:
            invitation = self._addressed_to(tx, user, invitation_id)
            _need_open(invitation, now)
            rows.settle_invitation(tx, invitation.id, "rejected")
            self._record(tx, invitation, user.id, "invitation_rejected", f"{user.email} declined the invitation")

        await self._store.write(work)

    async def by_token(self, token: str) -> tuple[Invitation, bool]:
        """The open invitation behind a link, and whether its address has an account.

        Raises InvitationNotFound 404, InvitationOver 410, AlreadyAccepted 409.
        """
        now = self._clock.now()

        def work(tx: ReadTx) -> tuple[Invitation, bool]:
            invitation = _existing(rows.invitation_by_token(tx, token_digest(token)))
            _need_open(invitation, now)
            return invitation, rows.account_by_email(tx, invitation.email) is not None

        return await self._store.read(work)

    def join_new(self, tx: WriteTx, token: str, username: str) -> str:
        """Make an account for the address of an invitation and join; the new user's id.

        Raises InvitationNotFound 404, InvitationOver 410, AlreadyAccepted 409, HasAccount 409, NoSeatLeft 403.
        """
        invitation = _existing(rows.invitation_by_token(tx, token_digest(token)))
        rows.lock_organization(tx, invitation.organization.id)
        invitation = _existing(rows.invitation_by_token(tx, token_digest(token)))
        now = self._clock.now()
        _need_open(invitation, now)
        if rows.account_by_email(tx, invitation.email) is not None:
            raise HasAccount
        user_id = rows.add_user(tx, email=invitation.email, username=username, platform_role="USER", at=now)
        self._join(tx, invitation, user_id)
        return user_id

    def _join(self, tx: WriteTx, invitation: Invitation, user_id: str) -> None:
        now = self._clock.now()
        organization_id = invitation.organization.id
        _need_open(invitation, now)
        if rows.role_of(tx, organization_id, user_id) is not None:
            raise AlreadyMember
        seats = self._seats(tx, organization_id)
        if seats is not None and rows.count_members(tx, organization_id) >= seats:
            raise NoSeatLeft
        rows.add_member(tx, organization_id, user_id, invitation.role, now)
        rows.settle_invitation(tx, invitation.id, "accepted")
        self._record(tx, invitation, user_id, "invitation_accepted", f"{invitation.email} joined the organization")

    def _addressed_to(self, tx: WriteTx, user: User, invitation_id: str) -> Invitation:
        if user.locked_to is not None:
            raise KeyIsLocked
        invitation = _existing(rows.invitation_by_id(tx, invitation_id))
        if invitation.email != user.email:
            raise InvitationNotFound
        rows.lock_organization(tx, invitation.organization.id)
        # Read again: another answer may have come while this one waited for the lock.
        return _existing(rows.invitation_by_id(tx, invitation_id))

    def _of(self, tx: WriteTx, caller: Caller, invitation_id: str) -> Invitation:
        invitation = _existing(rows.invitation_by_id(tx, invitation_id))
        if invitation.organization.id != caller.organization_id:
            raise InvitationNotFound
        return invitation

    def _need_seat(self, tx: WriteTx, organization_id: str, now: int) -> None:
        seats = self._seats(tx, organization_id)
        if seats is None:
            return
        taken = rows.count_members(tx, organization_id)
        taken += len(rows.pending_of(tx, organization_id=organization_id, now=now))
        if taken >= seats:
            raise NoSeatLeft

    def _record(self, tx: WriteTx, invitation: Invitation, user_id: str, operation: str, message: str) -> None:
        rows.record(
            tx,
            AuditEntry(
                organization_id=invitation.organization.id,
                user_id=user_id,
                category="MEMBERSHIP",
                operation=operation,
                message=message,
                detail={"invitation_id": invitation.id, "email": invitation.email},
                at=self._clock.now(),
            ),
        )


def _existing(invitation: Invitation | None) -> Invitation:
    if invitation is None:
        raise InvitationNotFound
    return invitation


def _need_open(invitation: Invitation, now: int) -> None:
    if invitation.status == "accepted":
        raise AlreadyAccepted
    if invitation.status != "pending" or invitation.expires_at <= now or not invitation.organization.is_active:
        raise InvitationOver
