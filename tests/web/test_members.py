"""The people of an organization, as they see it: invited, joined, given another role, taken out."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Locator, expect
from sqlalchemy import select, update

from parley.storage.tables.accounts import memberships, users
from tests.web.visitor import Visitor, visiting


@asynccontextmanager
async def joined(visitor: Visitor, browser: Browser) -> AsyncGenerator[Visitor]:
    """Grace, who was invited on the members page and opened her link in a window of her own."""
    page = visitor.page
    await visitor.go("/settings/members")
    await page.get_by_role("button", name="Invite", exact=True).click()
    await page.get_by_label("E-mail").fill(email_of(visitor))
    await page.get_by_role("dialog").get_by_role("button", name="Invite", exact=True).click()
    link = await page.get_by_role("dialog").locator("code").inner_text()
    await page.get_by_role("button", name="Done").click()
    await expect(page.get_by_role("region", name="Invited")).to_contain_text(email_of(visitor))
    async with visiting(browser, visitor.stage, signed_in=False) as grace:
        await grace.page.goto(link)
        await grace.page.get_by_label("Your name").fill("Grace")
        await grace.page.get_by_role("textbox", name="Password").fill(f"pass-{visitor.stage.model_key}")
        await grace.page.get_by_role("button", name="Join", exact=True).click()
        await expect(grace.box).to_be_visible()
        await expect(grace.page.get_by_role("button", name="account menu")).to_contain_text("Acme Works")
        yield grace
        assert grace.complaints == []


def email_of(visitor: Visitor) -> str:
    return f"grace-{visitor.stage.client.organization_id[:8]}@example.com"


def row_of(visitor: Visitor, name: str) -> Locator:
    return visitor.page.get_by_role("region", name="People").get_by_role("listitem").filter(has_text=name)


async def test_somebody_is_invited_joins_is_removed_and_is_out_at_once(visitor: Visitor, browser: Browser) -> None:
    async with joined(visitor, browser) as grace:
        await grace.page.get_by_role("link", name="Settings").click()
        await grace.page.get_by_role("link", name="Audit").click()
        await expect(grace.page.get_by_role("alert")).to_contain_text("Only the owner of the organization may do this.")
        await expect(grace.page.get_by_role("heading", level=1)).to_have_text("Audit")
        await grace.page.get_by_role("link", name="New chat").click()
        await expect(grace.box).to_be_visible()
        await visitor.page.reload()
        await expect(row_of(visitor, "Grace")).to_contain_text("Admin")
        await row_of(visitor, "Grace").get_by_role("button", name="Remove").click()
        dialog = visitor.page.get_by_role("dialog", name="Remove Grace?")
        await dialog.get_by_role("button", name="Remove", exact=True).click()
        await expect(row_of(visitor, "Grace")).to_have_count(0)
        await grace.say("Am I still here?")
        await expect(grace.page.get_by_role("alert")).to_contain_text("You are not in this organization.")
        await expect(grace.box).to_have_value("Am I still here?")


async def test_one_of_two_owners_is_made_an_admin_and_the_last_one_cannot_be(
    visitor: Visitor, browser: Browser
) -> None:
    page, organization_id = visitor.page, visitor.stage.client.organization_id
    async with joined(visitor, browser):
        person = select(users.c.id).where(users.c.email == email_of(visitor)).scalar_subquery()
        mine = (memberships.c.organization_id == organization_id) & (memberships.c.user_id == person)
        # There is no request that makes a second owner: an installation gets one from its operator.
        await visitor.stage.parley.store.write(
            lambda tx: tx.execute(update(memberships).where(mine).values(role="owner"))
        )
        await page.reload()
        await expect(row_of(visitor, "Grace")).to_contain_text("Owner")
        await expect(page.get_by_role("button", name="Make admin")).to_have_count(2)
        await row_of(visitor, "Grace").get_by_role("button", name="Make admin").click()
        await page.get_by_role("dialog", name="Make Grace an admin?").get_by_role("button", name="Make admin").click()
        await expect(page.get_by_text("Grace is an admin now.")).to_be_visible()
        await expect(row_of(visitor, "Grace")).to_contain_text("Admin")
        await expect(page.get_by_role("button", name="Make admin")).to_have_count(0)
    people = (await visitor.stage.client.get("/dashboard/users")).body["users"]
    assert {each["username"]: each["role"] for each in people}["Grace"] == "admin"
