"""Settings, keys, members and audit: what is chosen there holds, and what may not be seen says so."""

import asyncio
import json

import pytest
from playwright.async_api import Route, expect

from tests.stage import says
from tests.web.test_streams import held
from tests.web.visitor import Visitor

GAP = "(element) => element.scrollHeight - element.scrollTop - element.clientHeight"


async def disconnect(visitor: Visitor) -> None:
    """Delete the organization's only credential."""
    client = visitor.stage.client
    [credential] = (await client.get("/credentials?integration_name=openai")).body["credentials"]
    gone = await client.call("DELETE", f"/credentials/{credential['credential_id']}")
    assert gone.status in (200, 204), gone.body


async def test_the_default_and_the_fall_back_model_are_chosen_and_given_up(visitor: Visitor) -> None:
    page, client = visitor.page, visitor.stage.client
    await visitor.go("/settings")
    await page.get_by_label("New chats begin with").select_option(label="GPT-4o mini (OpenAI)")
    await expect(page.get_by_text("The default model is set.")).to_be_visible()
    fallback = page.get_by_label("When a model's provider is down, go on with")
    await expect(fallback.locator("option:checked")).to_have_text("No other model")
    await fallback.select_option(label="GPT-4o mini (OpenAI)")
    await expect(page.get_by_text("The fall-back model is set.")).to_be_visible()
    settings = (await client.get("/organizations/settings")).body
    assert settings["composer_llm"]["model_id"] == settings["fallback_llm"]["model_id"] == "gpt-4o-mini"
    await page.reload()
    await expect(fallback.locator("option:checked")).to_have_text("GPT-4o mini (OpenAI)")
    await fallback.select_option(label="No other model")
    await expect(fallback.locator("option:checked")).to_have_text("No other model")
    assert (await client.get("/organizations/settings")).body["fallback_llm"] is None
    await visitor.go("/")
    await expect(page.get_by_role("button", name="Model:")).to_have_accessible_name("Model: GPT-4o mini")


async def test_a_fall_back_model_that_cannot_be_used_any_more_is_named(visitor: Visitor) -> None:
    client = visitor.stage.client
    chosen = await client.call("PUT", "/organizations/settings/fallback-llm", {"fallback_llm": visitor.stage.llm})
    assert chosen.status == 200, chosen.body
    await disconnect(visitor)
    await visitor.go("/settings")
    fallback = visitor.page.get_by_label("When a model's provider is down, go on with")
    await expect(fallback.locator("option:checked")).to_have_text("gpt-4o (cannot be used now)")


async def test_enter_makes_a_line_where_that_was_chosen_and_control_enter_sends(visitor: Visitor) -> None:
    await visitor.stage.script(says("Yes."))
    await visitor.go("/settings")
    await visitor.page.get_by_label("Enter sends").uncheck()
    await visitor.go("/")
    await visitor.say("One")
    await expect(visitor.box).to_have_value("One\n")
    await visitor.box.press("Control+Enter")
    await visitor.finished()


async def test_replies_are_not_followed_where_that_was_chosen(visitor: Visitor) -> None:
    barrier = f"follow-{visitor.stage.model_key}"
    await visitor.stage.script(held(barrier, 10, *[f"Line {number}.\n\n" for number in range(100)]))
    await visitor.go("/settings")
    await visitor.page.get_by_label("Follow replies").uncheck()
    await visitor.go("/")
    await visitor.say("Much")
    await expect(visitor.reply).to_contain_text("Line 5.")
    await visitor.stage.model.release(barrier)
    await visitor.finished()
    assert await visitor.page.locator(".scroller").evaluate(GAP) > 1_000
    await expect(visitor.page.get_by_role("button", name="Jump to latest")).to_be_visible()


async def test_a_key_is_shown_once_works_and_is_revoked(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/settings/keys")
    await page.get_by_role("button", name="New key").click()
    await page.get_by_label("Name", exact=True).fill("nightly report")
    await page.get_by_role("button", name="Create key").click()
    key = await page.get_by_role("dialog").locator("code").inner_text()
    await page.get_by_role("button", name="I have it").click()
    row = page.get_by_role("listitem").filter(has_text="nightly report")
    await expect(row).to_contain_text("Active")
    assert key not in await page.content()
    mine = f"{visitor.base_url}/auth/me"
    bearer = {"Authorization": f"Bearer {key}"}
    assert (await visitor.context.request.get(mine, headers=bearer)).status == 200
    await row.get_by_role("button", name="Revoke").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()
    await expect(row).to_contain_text("Revoked")
    assert (await visitor.context.request.get(mine, headers=bearer)).status == 401


async def test_an_invitation_is_renewed_and_withdrawn(visitor: Visitor) -> None:
    page = visitor.page
    invited = f"ada-{visitor.stage.client.organization_id[:8]}@example.com"
    made = await visitor.stage.client.post("/organizations/invite", {"invited_email": invited})
    await visitor.go("/settings/members")
    row = page.get_by_role("region", name="Invited").get_by_role("listitem")
    await row.get_by_role("button", name="New link").click()
    link = await page.get_by_role("dialog").locator("code").inner_text()
    assert link != made.body["invitation"]["link"]
    await page.get_by_role("button", name="Done").click()
    await row.get_by_role("button", name="Withdraw").click()
    await expect(page.get_by_text("Invitation withdrawn.")).to_be_visible()
    await expect(page.get_by_role("button", name="Withdraw")).to_have_count(0)


async def test_the_audit_log_says_who_did_what_and_is_filtered(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.stage.client.post("/organizations/invite", {"invited_email": "grace@example.com"})
    await visitor.go("/settings/audit")
    table = page.get_by_role("table")
    await expect(table).to_contain_text("Scripted")
    await expect(table).to_contain_text("grace@example.com")
    await page.get_by_label("Category").select_option("MEMBERSHIP")
    await expect(table).not_to_contain_text("Scripted")
    await expect(table).to_contain_text("grace@example.com")
    await expect(page.get_by_role("button", name="Older")).to_be_disabled()


REFUSAL = "Only the owner of the organization may do this."
LISTS = [
    ("/settings/keys", "**/api-keys*"),
    ("/settings/members", "**/dashboard/users*"),
    ("/settings/audit", "**/dashboard/logs*"),
    ("/usage", "**/dashboard/analytics/**"),
    ("/integrations", "**/integrations/**"),
    ("/integrations?tab=connections", "**/credentials*"),
    ("/integrations?tab=servers", "**/credentials*"),
    ("/knowledge", "**/knowledge-bases*"),
    ("/settings", "**/organizations/llms*"),
    ("/settings", "**/organizations/settings*"),
    ("/integrations/github", "**/organizations/settings*"),
]


EMPTY = {
    "/settings/audit": "Nothing here yet",
    "/integrations?tab=connections": "Nothing is connected yet",
    "/integrations?tab=servers": "No MCP server yet",
    "/knowledge": "No knowledge yet",
    "/usage": "No tool was called in this time.",
    "/": "Your chats will be listed here.",
}


async def test_a_list_of_nothing_says_what_it_is_for(visitor: Visitor) -> None:
    await disconnect(visitor)
    for path, sentence in EMPTY.items():
        await visitor.go(path)
        if path == "/settings/audit":
            await visitor.page.get_by_label("Category").select_option("MEMBERSHIP")
        await expect(visitor.page.get_by_text(sentence)).to_be_visible()


@pytest.mark.parametrize(("path", "read"), LISTS)
async def test_a_list_shows_that_it_is_on_its_way(visitor: Visitor, path: str, read: str) -> None:
    arrives = asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.resource_type == "fetch":
            await arrives.wait()
        await route.continue_()

    await visitor.context.route(read, hold)
    await visitor.page.goto(f"{visitor.base_url}/app{path}")
    loading = visitor.page.get_by_role("main").get_by_role("status", name="Loading")
    await expect(loading.first).to_be_visible()
    arrives.set()
    await expect(loading).to_have_count(0)
    await expect(visitor.page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize(("path", "read"), LISTS)
async def test_a_list_that_cannot_be_had_says_so_and_a_role_that_lacks_leaves_the_page_readable(
    visitor: Visitor, path: str, read: str
) -> None:
    heading = visitor.page.get_by_role("heading", level=1)

    async def refuse(route: Route) -> None:
        asks_for_data = route.request.resource_type == "fetch"
        await (route.fulfill(status=403, body=json.dumps({"detail": REFUSAL})) if asks_for_data else route.continue_())

    await visitor.context.route(read, refuse)
    await visitor.go(path)
    role = visitor.page.get_by_role("alert").filter(has_text=REFUSAL)
    await expect(role.first).to_be_visible()
    await expect(heading).to_be_visible()
    await visitor.context.unroute(read)

    async def break_(route: Route) -> None:
        asks_for_data = route.request.resource_type == "fetch"
        await (route.fulfill(status=400, body=json.dumps({"detail": "Odd."})) if asks_for_data else route.continue_())

    await visitor.context.route(read, break_)
    await visitor.page.reload()
    alert = visitor.page.get_by_role("alert").filter(has_text="Odd.")
    await expect(alert.first).to_be_visible()
    await visitor.context.unroute(read)
    await alert.first.get_by_role("button", name="Try again").click()
    await expect(alert).to_have_count(0)


async def test_a_session_that_was_ended_elsewhere_asks_to_sign_in_again(visitor: Visitor) -> None:
    await visitor.go("/")
    await expect(visitor.box).to_be_visible()
    await visitor.context.clear_cookies()
    await visitor.page.get_by_role("link", name="Usage").click()
    await expect(visitor.page.get_by_role("heading", name="Sign in to Parley")).to_be_visible()
