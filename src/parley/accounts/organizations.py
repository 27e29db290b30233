"""Organizations, the people in them, and what each organization prefers."""

import re
import secrets
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import msgspec
from sqlalchemy.exc import IntegrityError

from parley.accounts import store as rows
from parley.accounts.model import (
    AuditCategory,
    AuditEntry,
    Caller,
    LlmChoice,
    Membership,
    Organization,
    OrganizationSettings,
    User,
    VisibleModel,
)
from parley.base.clock import Clock
from parley.base.errors import Conflict, Forbidden, NotFound
from parley.base.ids import new_id
from parley.base.settings import ApprovalPolicy
from parley.storage import ReadTx, Store, WriteTx
from parley.turn.model import JsonObject

MOST_OWNED = 100
OPERATOR = "SUPER_ADMIN"
LONGEST_SLUG = 50
SLUG_TRIES = 5
VISIBILITY = "llm_model_visibility"
APPROVAL = "approval_policy"
DEFAULT_LLM = "composer_llm"
FALLBACK_LLM = "fallback_llm"
CHAT_RETENTION = "chat_retention_days"


class SlugTaken(Conflict):
    """Another organization has this slug. Choose a different one."""


class TooManyOrganizations(Conflict):
    """You own 100 organizations, which is the most."""


class KeyIsLocked(Forbidden):
    """Your API key is locked to one organization. Sign in, or use a key without a lock."""


class OwnersStay(Forbidden):
    """Owners may not leave their organization."""


class OnlyOwnersDemote(Forbidden):
    """Only an owner may change the role of an owner."""


class LastOwner(Conflict):
    """An organization needs an owner, and this is its only one."""


class MemberNotFound(NotFound):
    """Member not found"""


class Organizations:
    """Making organizations and changing who and what belongs to them."""

    def __init__(self, store: Store, clock: Clock, forget_user: Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._forget_user = forget_user

    async def create(self, user: User, name: str, slug: str | None) -> Organization:
        """A new organization owned by the user; the slug is made from the name unless given.

        Whoever runs the installation may own any number, everyone else a hundred: each has an allowance.

        Raises SlugTaken 409, TooManyOrganizations 409, KeyIsLocked 403.
        """
        if user.locked_to is not None:
            raise KeyIsLocked
        for _ in range(SLUG_TRIES):
            try:
                organization = await self._store.write(lambda tx: self._create(tx, user, name, slug))
            except IntegrityError:  # the slug went to another organization at this very moment
                if slug is not None:
                    raise SlugTaken from None
                continue
            self._forget_user(user.id)
            return organization
        raise SlugTaken

    def _create(self, tx: WriteTx, user: User, name: str, slug: str | None) -> Organization:
        now = self._clock.now()
        rows.lock_user(tx, user.id)
        if user.platform_role != OPERATOR and rows.count_owned(tx, user.id) >= MOST_OWNED:
            raise TooManyOrganizations
        if slug is not None and rows.slug_taken(tx, slug):
            raise SlugTaken
        organization = Organization(
            id=new_id(), name=name, slug=slug or free_slug(tx, name), domain=None, is_active=True, created_at=now
        )
        establish(tx, organization, user.id)
        return organization

    async def of(self, user: User) -> list[Membership]:
        """The organizations the user may act in, oldest membership first."""
        found = await self._store.read(lambda tx: rows.memberships_of(tx, user.id))
        return [membership for membership in found if membership.organization.id in user.roles]

    async def leave(self, caller: Caller) -> tuple[Organization, list[Membership]]:
        """Leave the organization; what was left and what remains. Raises OwnersStay 403."""
        now = self._clock.now()

        def work(tx: WriteTx) -> tuple[Organization, list[Membership]]:
            rows.lock_organization(tx, caller.organization_id)
            role = rows.role_of(tx, caller.organization_id, caller.user_id)
            if role is None:
                raise MemberNotFound
            if role == "owner":
                raise OwnersStay
            everything = rows.memberships_of(tx, caller.user_id)
            rows.remove_member(tx, caller.organization_id, caller.user_id, now)
            _record(tx, caller, "MEMBERSHIP", "member_left", f"{caller.email} left the organization", {}, now)
            left = next(each.organization for each in everything if each.organization.id == caller.organization_id)
            return left, [each for each in everything if each.organization.id != left.id]

        outcome = await self._store.write(work)
        self._forget_user(caller.user_id)
        return outcome

    async def make_admin(self, caller: Caller, user_id: str) -> None:
        """Give a member the role ``admin``.

        Raises MemberNotFound 404, OnlyOwnersDemote 403, LastOwner 409.
        """
        now = self._clock.now()

        def work(tx: WriteTx) -> None:
            rows.lock_organization(tx, caller.organization_id)
            role = rows.role_of(tx, caller.organization_id, user_id)
            if role is None:
                raise MemberNotFound
            if role == "admin":
                return
            if caller.role != "owner":
                raise OnlyOwnersDemote
            _keep_an_owner(tx, caller.organization_id)
            rows.set_role(tx, caller.organization_id, user_id, "admin")
            detail: JsonObject = {"user_id": user_id, "role": "admin"}
            _record(tx, caller, "MEMBERSHIP", "role_changed", "An owner became an admin", detail, now)

        await self._store.write(work)
        self._forget_user(user_id)

    async def remove(self, caller: Caller, user_id: str) -> None:
        """Take a member out, with their keys that are locked to the organization.

        Raises MemberNotFound 404, LastOwner 409. The caller is the owner.
        """
        now = self._clock.now()

        def work(tx: WriteTx) -> None:
            rows.lock_organization(tx, caller.organization_id)
            role = rows.role_of(tx, caller.organization_id, user_id)
            if role is None:
                raise MemberNotFound
            if role == "owner":
                _keep_an_owner(tx, caller.organization_id)
            rows.remove_member(tx, caller.organization_id, user_id, now)
            detail: JsonObject = {"user_id": user_id}
            _record(tx, caller, "MEMBERSHIP", "member_removed", f"{caller.email} removed a member", detail, now)

        await self._store.write(work)
        self._forget_user(user_id)

    async def settings(self, organization_id: str) -> OrganizationSettings:
        """What the organization prefers."""
        return await self._store.read(lambda tx: settings_of(tx, organization_id))

    async def show_models(
        self, caller: Caller, integration_name: str, models: Mapping[str, str | None]
    ) -> OrganizationSettings:
        """Replace the shown models of one integration; none at all shows every model again (contract §1.3).

        ``models`` maps a model's id to the name it is shown by, None for its usual one.
        """

        def change(settings: JsonObject) -> JsonObject:
            held = settings.get(VISIBILITY)
            visible = dict(held) if isinstance(held, dict) else {}
            visible.pop(integration_name, None)
            if models:
                visible[integration_name] = [{"id": model, "display_name": shown} for model, shown in models.items()]
            return {**settings, VISIBILITY: visible}

        return await self._change_settings(caller, "llm_model_visibility_changed", change)

    async def choose_llm(self, caller: Caller, llm: LlmChoice) -> OrganizationSettings:
        """Make a model the default of both the Assistant and the Composer (contract §1.3)."""
        return await self._change_settings(
            caller, "composer_llm_changed", lambda settings: {**settings, DEFAULT_LLM: asdict(llm)}
        )

    async def choose_fallback(self, caller: Caller, llm: LlmChoice | None) -> OrganizationSettings:
        """Which model takes over when a turn's own cannot be reached; None for none."""
        return await self._change_settings(
            caller,
            "fallback_llm_changed",
            lambda settings: {**settings, FALLBACK_LLM: None if llm is None else asdict(llm)},
        )

    async def choose_policy(self, caller: Caller, policy: ApprovalPolicy | None) -> OrganizationSettings:
        """Which actions ask first here; None leaves it to the operator, and so does a looser one than theirs."""
        return await self._change_settings(
            caller, "approval_policy_changed", lambda settings: {**settings, APPROVAL: policy}
        )

    async def keep_chats(self, caller: Caller, days: int | None) -> OrganizationSettings:
        """How many days a chat is kept after its last word; None for ever. The caller is an owner."""
        return await self._change_settings(
            caller,
            "chat_retention_changed",
            lambda settings: {**settings, CHAT_RETENTION: days},
            {CHAT_RETENTION: days},
        )

    async def _change_settings(
        self,
        caller: Caller,
        operation: str,
        change: Callable[[JsonObject], JsonObject],
        detail: JsonObject | None = None,
    ) -> OrganizationSettings:
        now = self._clock.now()

        def work(tx: WriteTx) -> OrganizationSettings:
            rows.lock_organization(tx, caller.organization_id)
            rows.set_settings(tx, caller.organization_id, change(rows.settings_of(tx, caller.organization_id)))
            _record(tx, caller, "ORGANIZATION", operation, f"{caller.email} changed the settings", detail or {}, now)
            return settings_of(tx, caller.organization_id)

        return await self._store.write(work)


def settings_of(tx: ReadTx, organization_id: str) -> OrganizationSettings:
    """What the organization prefers, within a transaction that does more."""
    stored = rows.settings_of(tx, organization_id)
    return OrganizationSettings(
        visible=msgspec.convert(stored.get(VISIBILITY) or {}, Mapping[str, Sequence[VisibleModel]]),
        default_llm=msgspec.convert(stored.get(DEFAULT_LLM), LlmChoice | None),
        approval_policy=msgspec.convert(stored.get(APPROVAL), ApprovalPolicy.__value__ | None),
        fallback_llm=msgspec.convert(stored.get(FALLBACK_LLM), LlmChoice | None),
        chat_retention_days=msgspec.convert(stored.get(CHAT_RETENTION), int | None),
    )


def chat_retentions(tx: ReadTx) -> dict[str, int]:
    """The organizations that do not keep chats for ever, with the days that they keep them."""
    kept = {organization_id: settings.get(CHAT_RETENTION) for organization_id, settings in rows.all_settings(tx)}
    return {organization_id: days for organization_id, days in kept.items() if isinstance(days, int)}


def establish(tx: WriteTx, organization: Organization, owner_id: str) -> None:
    """Store a new organization with its owner. Raises IntegrityError when its slug or id is taken."""
    rows.add_organization(tx, organization)
    rows.add_member(tx, organization.id, owner_id, "owner", organization.created_at)
    entry = AuditEntry(
        organization_id=organization.id,
        user_id=owner_id,
        category="ORGANIZATION",
        operation="organization_created",
        message=f"The organization {organization.name} was made",
        detail={"slug": organization.slug},
        at=organization.created_at,
    )
    rows.record(tx, entry)


def free_slug(tx: ReadTx, name: str) -> str:
    """A slug made from a name that no organization has."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-")
    if len(slug) >= 2 and not rows.slug_taken(tx, slug):
        return slug
    return f"{slug or 'org'}-{secrets.token_hex(4)}"[:LONGEST_SLUG]


def _record(
    tx: WriteTx,
    caller: Caller,
    category: AuditCategory,
    operation: str,
    message: str,
    detail: JsonObject,
    now: int,
) -> None:
    rows.record(
        tx,
        AuditEntry(
            organization_id=caller.organization_id,
            user_id=caller.user_id,
            category=category,
            operation=operation,
            message=message,
            detail=detail,
            at=now,
        ),
    )


def _keep_an_owner(tx: WriteTx, organization_id: str) -> None:
    if rows.count_members(tx, organization_id, role="owner") <= 1:
        raise LastOwner
