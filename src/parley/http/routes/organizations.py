"""``/organizations``: making them, inviting people, roles, and model preferences (contract §1.3)."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from parley.accounts import Accounts, Caller, Invited, LlmChoice, OrganizationSettings, User
from parley.base.clock import iso
from parley.base.errors import BadRequest, NotFound
from parley.base.settings import ApprovalPolicy
from parley.http.identity import Identity
from parley.http.routes.auth import DoneOut, InvitationsOut, invitation_out
from parley.http.schemas import described
from parley.turn.model import JsonObject

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")

type Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", min_length=2, max_length=50)]
type Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=2, max_length=40)]
type Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class NoSuchMember(NotFound):
    """Member not found"""


class NoSuchCredential(BadRequest):
    """The organization has no such credential. Choose one of its own, or leave credential_id out."""


@dataclass(frozen=True, slots=True)
class LlmProvider:
    """A model provider with its catalogue entries. ``ready`` without a credential, as managed and local ones are."""

    name: str
    display_name: str
    models: Sequence[JsonObject]
    ready: bool = False


@dataclass(frozen=True, slots=True)
class LlmCredential:
    """An organization's credential for a model provider."""

    credential_id: str
    integration_name: str
    display_name: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class Llms:
    """Where the model list comes from: every provider there is, and what an organization has for them.

    ``check`` refuses a model that an organization cannot use, with a sentence that says what to do.
    """

    providers: Callable[[], Awaitable[Sequence[LlmProvider]]]
    credentials: Callable[[Caller], Awaitable[Sequence[LlmCredential]]]
    check: Callable[[str, LlmChoice], Awaitable[None]]


def _email(text: str) -> str:
    if not _EMAIL.fullmatch(text):
        raise ValueError("write an e-mail address, such as ada@example.com")
    return text


class OrganizationIn(BaseModel):
    name: Name
    slug: Slug | None = None


class OrganizationOut(BaseModel):
    id: str
    name: str
    slug: str
    domain: str | None
    is_active: bool
    created_at: str


class MadeOrganizationOut(BaseModel):
    success: Literal[True] = True
    message: str
    organization: OrganizationOut


class InviteIn(BaseModel):
    """``role`` can only be ``admin``: the role ``member`` is retired."""

    invited_email: Annotated[
        str, StringConstraints(strip_whitespace=True, to_lower=True, max_length=320), AfterValidator(_email)
    ]
    role: Literal["admin"] = "admin"
    invitation_message: Annotated[str, StringConstraints(max_length=1000)] | None = None


class InvitedOut(BaseModel):
    """A new invitation. ``link`` is what to pass on to the person; it is shown this once."""

    id: str
    email: str
    role: str
    status: str
    token: str
    link: str
    expires_at: str
    requires_acceptance: Literal[True] = True


class InviteOut(BaseModel):
    success: Literal[True] = True
    message: str
    invitation: InvitedOut
    error: None = None
    code: None = None


class PreviewOut(BaseModel):
    """What one more seat would cost."""

    preview_available: Literal[False] = False
    reason: str


class RoleIn(BaseModel):
    role: Literal["admin"]


class RoleOut(BaseModel):
    success: Literal[True] = True
    message: str
    user_id: str
    organization_id: str
    new_role: str


class VisibleModelBody(BaseModel):
    id: Word
    display_name: Annotated[str, StringConstraints(max_length=200)] | None = None


class VisibilityIn(BaseModel):
    """The whole list of shown models; an empty one shows every model again."""

    integration_name: Word
    models: Annotated[list[VisibleModelBody], Field(max_length=500)]


class VisibilityOut(BaseModel):
    llm_model_visibility: dict[str, list[VisibleModelBody]]


class LlmBody(BaseModel):
    """A model, and the credential to reach it with."""

    integration_name: Word
    provider_id: Word
    model_id: Word
    credential_id: Word | None = None


class ComposerLlmOut(BaseModel):
    composer_llm: LlmBody | None


class FallbackLlmBody(BaseModel):
    """The model that takes a turn over when the provider of its own is down or limits requests; null for none."""

    fallback_llm: LlmBody | None


class PolicyBody(BaseModel):
    """Which actions ask first: the operator's choice when null, and wherever the operator's is stricter."""

    approval_policy: ApprovalPolicy | None


class RetentionBody(BaseModel):
    """How many days a chat is kept after its last word; for ever when null."""

    chat_retention_days: Annotated[int, Field(ge=1, le=36_500)] | None


class SettingsOut(BaseModel):
    """``operator_approval_policy`` is the operator's choice, the least strict that counts."""

    llm_model_visibility: dict[str, list[VisibleModelBody]]
    composer_llm: LlmBody | None
    approval_policy: ApprovalPolicy | None
    operator_approval_policy: ApprovalPolicy
    fallback_llm: LlmBody | None
    chat_retention_days: int | None


class LlmsOut(BaseModel):
    """Every model: those the organization can use now, and those that need a credential first."""

    success: Literal[True] = True
    total: int
    active_llm_total: int
    inactive_llm_total: int
    active_llms: list[JsonObject]
    inactive_llms: list[JsonObject]


def routes(
    identity: Identity, accounts: Accounts, llms: Llms, base_url: str, operator: ApprovalPolicy = "catalog"
) -> APIRouter:
    """The routes under ``/organizations``. ``base_url`` is where browsers reach Parley; ``operator`` their policy."""
    router = APIRouter(prefix="/organizations", tags=["organizations"], responses=described())

    @router.post("", responses=described(409))
    async def create(user: Annotated[User, Depends(identity.user)], wish: OrganizationIn) -> MadeOrganizationOut:
        made = await accounts.organizations.create(user, wish.name, wish.slug)
        organization = OrganizationOut(
            id=made.id,
            name=made.name,
            slug=made.slug,
            domain=made.domain,
            is_active=made.is_active,
            created_at=iso(made.created_at),
        )
        return MadeOrganizationOut(message=f"{made.name} is ready. You are its owner.", organization=organization)

    router.include_router(_invitations(identity, accounts, base_url))
    router.include_router(_members(identity, accounts))
    router.include_router(_preferences(identity, accounts, llms, operator))
    return router


def _members(identity: Identity, accounts: Accounts) -> APIRouter:
    router = APIRouter()
    admin, owner = Depends(identity.admin), Depends(identity.owner)

    @router.put("/{organization_id}/users/{user_id}/role", responses=described(404, 409))
    async def set_role(caller: Annotated[Caller, admin], organization_id: str, user_id: str, change: RoleIn) -> RoleOut:
        _need_same(caller, organization_id)
        await accounts.organizations.make_admin(caller, user_id)
        return RoleOut(
            message="The member is an admin.",
            user_id=user_id,
            organization_id=caller.organization_id,
            new_role=change.role,
        )

    @router.delete("/{organization_id}/users/{user_id}", responses=described(404, 409))
    async def remove(caller: Annotated[Caller, owner], organization_id: str, user_id: str) -> DoneOut:
        _need_same(caller, organization_id)
        await accounts.organizations.remove(caller, user_id)
        return DoneOut(message="The member is removed.")

    return router


def _invitations(identity: Identity, accounts: Accounts, base_url: str) -> APIRouter:
    router = APIRouter()
    admin = Depends(identity.admin)

    @router.post("/invite", responses=described(409))
    async def invite(caller: Annotated[Caller, admin], wish: InviteIn) -> InviteOut:
        invited = await accounts.invitations.invite(caller, wish.invited_email, wish.invitation_message)
        return _invite_out(invited, base_url)

    @router.post("/invite/preview")
    async def preview(_caller: Annotated[Caller, admin]) -> PreviewOut:
        return PreviewOut(reason="no_active_subscription")

    @router.get("/invitations")
    async def invitations(caller: Annotated[Caller, admin]) -> InvitationsOut:
        found = await accounts.invitations.of_organization(caller)
        now = accounts.clock.now()
        return InvitationsOut(invitations=[invitation_out(each, now) for each in found], total_count=len(found))

    @router.post("/invitations/{invitation_id}/cancel", responses=described(404, 409))
    async def cancel(caller: Annotated[Caller, admin], invitation_id: str) -> DoneOut:
        await accounts.invitations.cancel(caller, invitation_id)
        return DoneOut(message="The invitation is cancelled. Its link no longer works.")

    @router.post("/invitations/{invitation_id}/reinvite", responses=described(404, 409))
    async def reinvite(caller: Annotated[Caller, admin], invitation_id: str) -> InviteOut:
        return _invite_out(await accounts.invitations.invite_again(caller, invitation_id), base_url)

    return router


def _preferences(identity: Identity, accounts: Accounts, llms: Llms, operator: ApprovalPolicy) -> APIRouter:
    router = APIRouter()
    admin = Depends(identity.admin)

    @router.get("/llms")
    async def all_llms(caller: Annotated[Caller, admin]) -> LlmsOut:
        return _llms_out(await llms.providers(), await llms.credentials(caller))

    @router.get("/settings")
    async def settings(caller: Annotated[Caller, admin]) -> SettingsOut:
        return _settings_out(await accounts.organizations.settings(caller.organization_id), operator)

    @router.put("/settings/llm-model-visibility")
    async def show_models(caller: Annotated[Caller, admin], wish: VisibilityIn) -> VisibilityOut:
        models = {model.id: model.display_name for model in wish.models}
        changed = await accounts.organizations.show_models(caller, wish.integration_name, models)
        return VisibilityOut(llm_model_visibility=_visible(changed))

    @router.put("/settings/approval-policy")
    async def choose_policy(caller: Annotated[Caller, admin], wish: PolicyBody) -> PolicyBody:
        changed = await accounts.organizations.choose_policy(caller, wish.approval_policy)
        return PolicyBody(approval_policy=changed.approval_policy)

    @router.put("/settings/retention")
    async def keep_chats(caller: Annotated[Caller, Depends(identity.owner)], wish: RetentionBody) -> RetentionBody:
        """Owners only: chats past their days are erased for good within minutes, soft-deleted ones too."""
        changed = await accounts.organizations.keep_chats(caller, wish.chat_retention_days)
        return RetentionBody(chat_retention_days=changed.chat_retention_days)

    router.include_router(_model_choices(identity, accounts, llms))
    return router


def _model_choices(identity: Identity, accounts: Accounts, llms: Llms) -> APIRouter:
    router = APIRouter()
    admin = Depends(identity.admin)

    @router.put("/settings/composer-llm")
    async def choose_llm(caller: Annotated[Caller, admin], llm: LlmBody) -> ComposerLlmOut:
        if llm.credential_id is not None:
            held = await llms.credentials(caller)
            if not any(
                each.credential_id == llm.credential_id and each.integration_name == llm.integration_name
                for each in held
            ):
                raise NoSuchCredential
        changed = await accounts.organizations.choose_llm(caller, LlmChoice(**llm.model_dump()))
        return ComposerLlmOut(composer_llm=_llm_body(changed.default_llm))

    @router.put("/settings/fallback-llm")
    async def choose_fallback(caller: Annotated[Caller, admin], wish: FallbackLlmBody) -> FallbackLlmBody:
        llm = None if wish.fallback_llm is None else LlmChoice(**wish.fallback_llm.model_dump())
        if llm is not None:
            await llms.check(caller.organization_id, llm)
        changed = await accounts.organizations.choose_fallback(caller, llm)
        return FallbackLlmBody(fallback_llm=_llm_body(changed.fallback_llm))

    return router


def _need_same(caller: Caller, organization_id: str) -> None:
    # The context comes from the header alone; a path that names another organization finds nothing.
    if organization_id.lower() != caller.organization_id:
        raise NoSuchMember


def _invite_out(invited: Invited, base_url: str) -> InviteOut:
    invitation = invited.invitation
    return InviteOut(
        message=f"Pass the link on to {invitation.email}. It works for seven days.",
        invitation=InvitedOut(
            id=invitation.id,
            email=invitation.email,
            role=invitation.role,
            status=invitation.status,
            token=invited.token,
            link=f"{base_url}/app/#invitation={invited.token}",
            expires_at=iso(invitation.expires_at),
        ),
    )


def _settings_out(settings: OrganizationSettings, operator: ApprovalPolicy) -> SettingsOut:
    return SettingsOut(
        llm_model_visibility=_visible(settings),
        composer_llm=_llm_body(settings.default_llm),
        approval_policy=settings.approval_policy,
        operator_approval_policy=operator,
        fallback_llm=_llm_body(settings.fallback_llm),
        chat_retention_days=settings.chat_retention_days,
    )


def _visible(settings: OrganizationSettings) -> dict[str, list[VisibleModelBody]]:
    return {
        name: [VisibleModelBody(id=model.id, display_name=model.display_name) for model in models]
        for name, models in settings.visible.items()
    }


def _llm_body(llm: LlmChoice | None) -> LlmBody | None:
    if llm is None:
        return None
    return LlmBody(
        integration_name=llm.integration_name,
        provider_id=llm.provider_id,
        model_id=llm.model_id,
        credential_id=llm.credential_id,
    )


def _llms_out(providers: Sequence[LlmProvider], credentials: Sequence[LlmCredential]) -> LlmsOut:
    active: list[JsonObject] = []
    inactive: list[JsonObject] = []
    for provider in providers:
        held = [each for each in credentials if each.integration_name == provider.name]
        default = next((each for each in held if each.is_default), held[0] if held else None)
        into = active if held or provider.ready else inactive
        for model in provider.models:
            into.append(
                {
                    **model,
                    "integration_name": provider.name,
                    "integration_display_name": provider.display_name,
                    "default_credential_display_name": None if default is None else default.display_name,
                }
            )
    return LlmsOut(
        total=len(active) + len(inactive),
        active_llm_total=len(active),
        inactive_llm_total=len(inactive),
        active_llms=active,
        inactive_llms=inactive,
    )
