"""``/auth``: the signed-in person, their organizations and their invitations (contract §1.1)."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field, SecretStr

from parley.accounts import Accounts, Caller, Invitation, Membership, Organization, User
from parley.base.clock import DAY, iso
from parley.http.identity import Identity
from parley.http.schemas import described


class Profile(BaseModel):
    """A person, as they see themselves. ``role`` is that on the platform, not in an organization."""

    id: str
    email: str
    username: str
    role: str
    is_active: bool
    organization_ids: list[str]
    primary_organization_id: str | None


class MembershipOut(BaseModel):
    id: str
    name: str
    slug: str
    domain: str | None
    role: str
    joined_at: str
    is_default: bool


class MembershipsOut(BaseModel):
    success: Literal[True] = True
    user_id: str
    organizations: list[MembershipOut]
    total: int


class OrganizationBrief(BaseModel):
    id: str
    name: str
    slug: str
    domain: str | None


class InviterOut(BaseModel):
    id: str
    email: str
    username: str


class InvitationOut(BaseModel):
    id: str
    organization: OrganizationBrief
    invited_by: InviterOut
    role: str
    status: str
    invitation_message: str | None
    days_until_expiry: int
    created_at: str
    expires_at: str


class InvitationsOut(BaseModel):
    success: Literal[True] = True
    invitations: list[InvitationOut]
    total_count: int


class AcceptedOut(BaseModel):
    success: Literal[True] = True
    message: str
    organization: OrganizationBrief
    role: str


class DoneOut(BaseModel):
    success: Literal[True] = True
    message: str


class LeftOut(BaseModel):
    success: Literal[True] = True
    message: str
    left_organization: OrganizationBrief
    remaining_organizations: list[MembershipOut]
    total_remaining: int


class LinkIn(BaseModel):
    """The token of an invitation's link."""

    token: SecretStr = Field(min_length=1, max_length=200)


class OpenedLinkOut(BaseModel):
    """What someone who follows an invitation's link is shown before they decide."""

    success: Literal[True] = True
    email: str
    has_account: bool
    invitation: InvitationOut


def routes(identity: Identity, accounts: Accounts) -> APIRouter:
    """The routes under ``/auth`` that are not about signing in."""
    router = APIRouter(prefix="/auth", tags=["auth"], responses=described())
    signed_in = Depends(identity.user)

    @router.get("/me")
    async def me(user: Annotated[User, signed_in]) -> Profile:
        return profile(user)

    @router.get("/me/organizations")
    async def my_organizations(
        user: Annotated[User, signed_in], role: Literal["owner", "admin", "member"] | None = None
    ) -> MembershipsOut:
        found = memberships_out(user, await accounts.organizations.of(user))
        shown = [each for each in found if role in (None, each.role)]
        return MembershipsOut(user_id=user.id, organizations=shown, total=len(shown))

    @router.get("/invitations/my")
    async def my_invitations(user: Annotated[User, signed_in]) -> InvitationsOut:
        found = await accounts.invitations.of_user(user)
        now = accounts.clock.now()
        return InvitationsOut(
            invitations=[invitation_out(invitation, now) for invitation in found], total_count=len(found)
        )

    @router.post("/invitations/open", responses=described(404, 409, 410))
    async def open_link(link: LinkIn) -> OpenedLinkOut:
        invitation, has_account = await accounts.invitations.by_token(link.token.get_secret_value())
        return OpenedLinkOut(
            email=invitation.email,
            has_account=has_account,
            invitation=invitation_out(invitation, accounts.clock.now()),
        )

    @router.post("/invitations/{invitation_id}/accept", responses=described(404, 409, 410))
    async def accept(user: Annotated[User, signed_in], invitation_id: str) -> AcceptedOut:
        joined = await accounts.invitations.accept(user, invitation_id)
        return AcceptedOut(
            message=f"You are now in {joined.organization.name}.",
            organization=organization_brief(joined.organization),
            role=joined.role,
        )

    @router.post("/invitations/{invitation_id}/reject", responses=described(404, 409, 410))
    async def reject(user: Annotated[User, signed_in], invitation_id: str) -> DoneOut:
        await accounts.invitations.reject(user, invitation_id)
        return DoneOut(message="The invitation is declined.")

    @router.post("/organizations/leave", responses=described(404))
    async def leave(caller: Annotated[Caller, Depends(identity.admin)]) -> LeftOut:
        left, remaining = await accounts.organizations.leave(caller)
        primary = remaining[0].organization.id if remaining else None
        return LeftOut(
            message=f"You left {left.name}.",
            left_organization=organization_brief(left),
            remaining_organizations=[membership_out(each, primary) for each in remaining],
            total_remaining=len(remaining),
        )

    return router


def profile(user: User) -> Profile:
    """A person on the wire."""
    return Profile(
        id=user.id,
        email=user.email,
        username=user.username,
        role=user.platform_role,
        is_active=user.is_active,
        organization_ids=list(user.roles),
        primary_organization_id=user.primary_organization_id,
    )


def memberships_out(user: User, memberships: Sequence[Membership]) -> list[MembershipOut]:
    """A person's organizations on the wire."""
    return [membership_out(each, user.primary_organization_id) for each in memberships]


def membership_out(membership: Membership, primary: str | None) -> MembershipOut:
    """One membership on the wire; the organization with the id ``primary`` is the person's default."""
    organization = membership.organization
    return MembershipOut(
        id=organization.id,
        name=organization.name,
        slug=organization.slug,
        domain=organization.domain,
        role=membership.role,
        joined_at=iso(membership.joined_at),
        is_default=organization.id == primary,
    )


def organization_brief(organization: Organization) -> OrganizationBrief:
    """An organization within another answer."""
    return OrganizationBrief(
        id=organization.id, name=organization.name, slug=organization.slug, domain=organization.domain
    )


def invitation_out(invitation: Invitation, now: int) -> InvitationOut:
    """An invitation as those invited, and those who invited, see it."""
    return InvitationOut(
        id=invitation.id,
        organization=organization_brief(invitation.organization),
        invited_by=InviterOut(
            id=invitation.invited_by_id, email=invitation.invited_by_email, username=invitation.invited_by_username
        ),
        role=invitation.role,
        status=invitation.status,
        invitation_message=invitation.message,
        days_until_expiry=max(0, -(-(invitation.expires_at - now) // DAY)),
        created_at=iso(invitation.created_at),
        expires_at=iso(invitation.expires_at),
    )
