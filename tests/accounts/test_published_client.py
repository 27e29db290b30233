"""The published Python client, unchanged, against every route of accounts."""

from collections.abc import AsyncIterator

import httpx
import pytest
from modulex import Modulex
from modulex._exceptions import (
    AuthenticationError,
    ConflictError,
    ModulexError,
    NotFoundError,
    RateLimitError,
    ValidationError,
)
from modulex._exceptions import PermissionError as Forbidden

from parley.http.routes.organizations import LlmProvider
from parley.storage import Store
from tests.accounts.desk import Desk, Models, Person, open_desk


@pytest.fixture
async def shop(store: Store) -> AsyncIterator[Desk]:
    """A server with one model to list."""
    async with open_desk(store, Models((LlmProvider("openai", "OpenAI", [{"id": "m", "name": "m"}]),))) as desk:
        yield desk


def client(desk: Desk, person: Person) -> Modulex:
    return Modulex(person.key, organization_id=person.organization_id, base_url=desk.url, max_retries=0, timeout=20)


async def test_identity(shop: Desk) -> None:
    bea = await shop.newcomer("bea")
    home = shop.owner.organization_id
    async with client(shop, shop.owner) as owner, client(shop, bea) as hers:
        me = await owner.auth.me()
        assert (me.id, me.role, me.organization_ids) == (
            shop.owner.user_id,
            "SUPER_ADMIN",
            [shop.owner.organization_id],
        )
        invited = await owner.organizations.invite(bea.email, invitation_message="Come!")
        assert invited.invitation is not None
        assert invited.invitation.token
        (waiting,) = (await hers.auth.invitations()).invitations
        assert waiting.invited_by is not None
        assert waiting.invited_by.email == shop.owner.email
        joined = await hers.auth.accept_invitation(waiting.id)
        assert joined.organization is not None
        assert joined.organization.id == home
        mine = await hers.auth.organizations()
        assert [(each.role, each.is_default) for each in mine.organizations] == [("owner", True), ("admin", False)]
        assert (await hers.auth.organizations(role="admin")).total == 1
        left = await hers.auth.leave_organization(organization_id=home)
        assert left.total_remaining == 1
        with pytest.raises(Forbidden):
            await owner.auth.leave_organization()


async def test_keys(shop: Desk) -> None:
    async with client(shop, shop.owner) as owner:
        made = await owner.api_keys.create("ci", organization_id=shop.owner.organization_id, rate_limit_per_minute=1)
        assert made.key is not None
        listed = await owner.api_keys.list()
        assert (listed.total, listed.max_keys) == (2, 25)
        assert (await owner.api_keys.get(made.id)).masked_key == made.masked_key
        async with Modulex(made.key, base_url=shop.url, max_retries=0) as limited:
            await limited.auth.me()
            with pytest.raises(RateLimitError) as over:
                await limited.auth.me()
        assert (over.value.limit, over.value.remaining) == (1, 0)
        assert over.value.retry_after is not None
        assert 0 < over.value.retry_after <= 60
        assert (await owner.api_keys.revoke(made.id)).success
        assert len((await owner.api_keys.list(include_revoked=True)).keys) == 2
        with pytest.raises(NotFoundError):
            await owner.api_keys.revoke(made.id)
        async with Modulex(made.key, base_url=shop.url, max_retries=0) as revoked:
            with pytest.raises(AuthenticationError, match="Invalid API key"):
                await revoked.auth.me()


async def test_organizations(shop: Desk) -> None:
    bea = await shop.colleague("bea", of=shop.owner)
    home = shop.owner.organization_id
    async with client(shop, shop.owner) as owner:
        made = await owner.organizations.create("Second", slug="second")
        assert made.organization is not None
        assert made.organization.slug == "second"
        with pytest.raises(ConflictError):
            await owner.organizations.create("Third", slug="second")
        listed = await owner.organizations.llms()
        assert (listed.total, listed.inactive_llms[0].id) == (1, "m")
        preview = await owner.organizations.preview_invite()
        assert (preview.preview_available, preview.reason) == (False, "no_active_subscription")
        shown = await owner.organizations.set_llm_model_visibility("openai", [{"id": "m"}])
        assert shown.llm_model_visibility["openai"][0].id == "m"
        chosen = await owner.organizations.set_composer_llm("openai", "openai", "m")
        assert chosen.composer_llm is not None
        settings = await owner.organizations.get_settings()
        assert settings.composer_llm is not None
        assert settings.composer_llm.model_id == "m"
        invited = await owner.organizations.invite("cyd@example.com")
        assert invited.invitation is not None
        again = await owner.organizations.reinvite(invited.invitation.id)
        assert again.invitation is not None
        assert again.invitation.token != invited.invitation.token
        assert (await owner.organizations.cancel_invitation(invited.invitation.id)).success
        assert (await owner.organizations.update_user_role(home, bea.user_id, "admin")).new_role == "admin"
        assert (await owner.organizations.remove_user(home, bea.user_id)).success
        with pytest.raises(NotFoundError):
            await owner.organizations.remove_user(home, bea.user_id)
        with pytest.raises(ValidationError):
            await owner.organizations.update_user_role(home, bea.user_id, "member")  # pyright: ignore[reportArgumentType]


async def test_a_foreign_organization_is_a_permission_error_and_never_a_billing_one(shop: Desk) -> None:
    bea = await shop.newcomer("bea")
    async with client(shop, bea) as hers:
        with pytest.raises(ModulexError) as refused:
            await hers.organizations.get_settings(organization_id=shop.owner.organization_id)
    assert type(refused.value) is Forbidden


async def test_a_rejected_invitation_is_gone(shop: Desk) -> None:
    bea = await shop.newcomer("bea")
    invitation = (await shop.invite(shop.owner, bea.email)).json()["invitation"]
    async with client(shop, bea) as hers:
        assert (await hers.auth.reject_invitation(invitation["id"])).success
        with pytest.raises(ModulexError) as refused:
            await hers.auth.accept_invitation(invitation["id"])
    assert refused.value.status_code == 410
    async with httpx.AsyncClient(base_url=shop.url) as plain:
        assert (await plain.get("/auth/me")).status_code == 401
