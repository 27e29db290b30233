"""Connecting things: the catalog's search, a key by form, a sign-in by OAuth, and what asks first."""

import json
import secrets
from urllib.parse import parse_qs, urlencode, urlsplit

from playwright.async_api import Page, Route, expect

from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import Answer, Asked, ProviderProxy, json_answer
from tests.stage import calls, executes, says
from tests.web.visitor import Visitor


async def test_an_integration_is_found_by_its_name_and_by_an_actions_name(visitor: Visitor) -> None:
    await visitor.go("/integrations")
    search = visitor.page.get_by_label("Search by name")
    tiles = visitor.page.locator("a.tile")
    await expect(tiles).to_have_count(194)
    await search.fill("github")
    await expect(tiles.first).to_contain_text("GitHub")
    assert await tiles.count() < 20
    await search.fill("list_repositories")
    await expect(tiles.filter(has_text="GitHub")).to_be_visible()
    await search.fill("zzzzzz")
    await expect(visitor.page.get_by_text("Nothing matches")).to_be_visible()


async def test_a_key_is_connected_tested_renamed_and_deleted_by_its_name(visitor: Visitor, github: FakeGitHub) -> None:
    page = visitor.page
    await visitor.go("/integrations/github")
    await page.locator("input[type=password]").first.fill(github.token)
    await page.get_by_role("button", name="Connect GitHub").click()
    await expect(page.get_by_role("heading", name="Connections")).to_be_visible()
    row = page.locator(".rows > li")
    await expect(row).to_contain_text("Token")
    await row.get_by_role("button", name="Test").click()
    await expect(page.get_by_text("The connection works.")).to_be_visible()

    await row.get_by_role("button", name="More for").click()
    await page.get_by_role("menuitem", name="Rename").click()
    await page.get_by_label("Name", exact=True).fill("Work account")
    await page.get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("Work account")

    await visitor.go("/integrations?tab=connections")
    await page.get_by_role("button", name="More for Work account").click()
    await page.get_by_role("menuitem", name="Delete").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    await dialog.get_by_label("Name of the connection").fill("Work account")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("Work account")).to_have_count(0)


async def connection(visitor: Visitor, token: str, name: str) -> str:
    """A stored GitHub token; its id."""
    body = {
        "integration_name": "github",
        "auth_type": "bearer_token",
        "auth_data": {"token": token},
        "display_name": name,
    }
    made = await visitor.stage.client.post("/credentials", body)
    assert made.status == 201, made.body
    return str(made.body["credential_id"])


async def test_another_connection_is_made_the_default(visitor: Visitor, github: FakeGitHub) -> None:
    page = visitor.page
    ids = {name: await connection(visitor, github.token, name) for name in ("Work account", "Own account")}
    await visitor.stage.client.post(f"/credentials/{ids['Work account']}/set-default", {})
    await visitor.go("/integrations?tab=connections")
    rows = {name: page.locator(".rows > li").filter(has_text=name) for name in ids}
    await expect(rows["Work account"].get_by_text("Default", exact=True)).to_be_visible()
    await rows["Own account"].get_by_role("button", name="More for Own account").click()
    await page.get_by_role("menuitem", name="Make default").click()
    await expect(rows["Own account"].get_by_text("Default", exact=True)).to_be_visible()
    await expect(rows["Work account"].get_by_text("Default", exact=True)).to_have_count(0)
    listed = (await visitor.stage.client.get("/credentials?integration_name=github")).body["credentials"]
    assert {each["credential_id"]: each["is_default"] for each in listed} == {
        ids["Work account"]: False,
        ids["Own account"]: True,
    }


async def test_a_connection_that_broke_is_reconnected_and_the_old_secret_is_erased(
    visitor: Visitor, github: FakeGitHub
) -> None:
    page = visitor.page
    old = await connection(visitor, "ghp_revoked", "Work account")
    await visitor.stage.client.post(f"/credentials/{old}/set-default", {})
    await visitor.go("/integrations?tab=connections")
    row = page.locator(".rows > li").filter(has_text="Work account")
    await row.get_by_role("button", name="Test").click()
    await expect(row).to_contain_text("Needs reconnect")
    await row.get_by_role("button", name="Reconnect", exact=True).click()
    await expect(page.get_by_role("heading", name="Reconnect Work account")).to_be_visible()
    await page.locator("input[type=password]").first.fill(github.token)
    await page.get_by_role("button", name="Connect GitHub").click()
    await expect(page.get_by_text("Work account is connected anew.")).to_be_visible()
    await expect(row).to_contain_text("Default")
    await expect(row).not_to_contain_text("Needs reconnect")
    await expect(page.get_by_role("heading", name="Reconnect Work account")).to_have_count(0)
    [held] = (await visitor.stage.client.get("/credentials?integration_name=github")).body["credentials"]
    assert held["credential_id"] != old
    assert (held["display_name"], held["is_default"], held["is_valid"]) == ("Work account", True, True)


KINDS = """
async () => {
  const options = { headers: { 'X-Organization-ID': localStorage.getItem('parley.organization') } };
  const page = await fetch('/integrations/browse?include_details=true&paginate=false', options);
  const kinds = new Map();
  for (const item of (await page.json()).integrations) {
    const ways = (item.auth_schemas ?? []).map((each) => each.auth_type).filter((way) => way !== 'internal');
    const kind = `${item.integration_type} ${ways}`;
    if (!kinds.has(kind)) kinds.set(kind, [item.name, item.integration_type, ways]);
  }
  return [...kinds.values()];
}
"""


async def test_every_kind_of_way_to_connect_in_the_catalog_has_its_form(visitor: Visitor) -> None:
    await visitor.go("/integrations")
    kinds = await visitor.page.evaluate(KINDS)
    assert {way for _, _, ways in kinds for way in ways} >= {
        "oauth2",
        "api_key",
        "bearer_token",
        "custom",
        "modulex_key",
    }
    for name, kind, ways in kinds:
        await visitor.go(f"/integrations/{name}" + ("" if kind == "tool" else f"?type={kind}"))
        panel = visitor.page.locator("section[aria-labelledby=connections]")
        await expect(panel).to_be_visible()
        if len(ways) > 1:
            await expect(panel.get_by_role("tab")).to_have_count(len(ways))
        for way in range(len(ways)):
            if len(ways) > 1:
                await panel.get_by_role("tab").nth(way).click()
            await expect(panel.locator("form button[type=submit]")).to_be_enabled()


async def test_an_integration_says_which_actions_ask_first(visitor: Visitor) -> None:
    await visitor.go("/integrations/github")
    asking = visitor.page.get_by_text("Only those that ask first")
    await asking.click()
    action = visitor.page.locator("details.action", has_text="Delete repository")
    await action.locator("summary").click()
    await expect(action).to_contain_text("Asks first:")
    await expect(action.get_by_role("table")).to_contain_text("owner")
    await expect(visitor.page.locator("details.action", has_text="List repositories")).to_have_count(0)


class Provider:
    """GitHub's sign-in: a page with one button in the browser, a token endpoint behind the proxy."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.code = secrets.token_hex(8)

    async def __call__(self, asked: Asked) -> Answer:
        form = parse_qs(asked.body.decode())
        if form.get("code") != [self.code]:
            return json_answer({"error": "bad_verification_code"})
        return json_answer({"access_token": self.token, "token_type": "bearer", "scope": "repo"})

    async def page(self, route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        back = f"{query['redirect_uri'][0]}?{urlencode({'code': self.code, 'state': query['state'][0]})}"
        body = f"<title>Sign in</title><a id=allow href={json.dumps(back)}>Allow</a>"
        await route.fulfill(status=200, content_type="text/html", body=body)


async def signing_in(visitor: Visitor, popup: Page) -> None:
    await popup.locator("#allow").click()
    await expect(visitor.page.get_by_text("Waiting for you to sign in")).to_have_count(0)


async def fill_own_app(visitor: Visitor) -> None:
    page = visitor.page
    await page.get_by_role("tab", name="OAuth").click()
    await page.get_by_label("Client ID").fill("client-1")
    await page.get_by_label("Client secret").fill("not-a-real-secret")


async def test_a_sign_in_by_oauth_resumes_the_chat_by_itself(
    visitor: Visitor, github: FakeGitHub, proxy: ProviderProxy
) -> None:
    provider = Provider(github.token)
    proxy.answer("github.com", provider)
    await visitor.context.route("https://github.com/login/oauth/authorize**", provider.page)
    options = [
        {"auth_type": "oauth2", "display_name": "OAuth", "oauth_initiate_endpoint": "from the manifest"},
        {"auth_type": "bearer_token", "display_name": "Token"},
    ]
    wish = {"integration_name": "github", "integration_display_name": "GitHub", "auth_options": options}
    await visitor.stage.script(
        calls("request_credential", wish), executes("list_repositories", id="call_2"), says("One repository.")
    )
    await visitor.go("/")
    await visitor.say("List my repositories")
    await expect(visitor.card).to_be_visible()
    await fill_own_app(visitor)
    async with visitor.page.expect_popup() as opened:
        await visitor.card.get_by_role("button", name="Sign in at GitHub").click()
    popup = await opened.value
    await signing_in(visitor, popup)
    await visitor.finished()
    await expect(visitor.reply.locator(".receipt-answer")).to_contain_text("Connected")
    await expect(visitor.reply.locator("summary", has_text="List repositories")).to_contain_text("Done")
    await expect(visitor.reply).to_contain_text("One repository.")
    assert {urlsplit(url).hostname for url in visitor.foreign} == {"github.com"}
    visitor.foreign.clear()


async def test_a_closed_sign_in_window_offers_another_try(
    visitor: Visitor, github: FakeGitHub, proxy: ProviderProxy
) -> None:
    provider = Provider(github.token)
    proxy.answer("github.com", provider)
    await visitor.context.route("https://github.com/login/oauth/authorize**", provider.page)
    await visitor.go("/integrations/github")
    await fill_own_app(visitor)
    async with visitor.page.expect_popup() as opened:
        await visitor.page.get_by_role("button", name="Sign in at GitHub").click()
    popup = await opened.value
    await popup.locator("#allow").wait_for()
    await popup.close()
    again = visitor.page.get_by_role("button", name="Try again")
    await expect(again).to_be_visible()
    async with visitor.page.expect_popup() as reopened:
        await again.click()
    await (await reopened.value).locator("#allow").click()
    await expect(visitor.page.get_by_role("heading", name="Connections")).to_be_visible()
    visitor.foreign.clear()


async def test_a_sign_in_window_that_the_browser_blocked_is_opened_by_hand(
    visitor: Visitor, github: FakeGitHub, proxy: ProviderProxy
) -> None:
    provider = Provider(github.token)
    proxy.answer("github.com", provider)
    await visitor.context.route("https://github.com/login/oauth/authorize**", provider.page)
    # What a browser that blocks windows does.
    await visitor.context.add_init_script("window.open = () => null")
    await visitor.go("/integrations/github")
    await fill_own_app(visitor)
    await visitor.page.get_by_role("button", name="Sign in at GitHub").click()
    await expect(visitor.page.get_by_text("Your browser kept the sign-in window from opening")).to_be_visible()
    async with visitor.page.expect_popup() as opened:
        await visitor.page.get_by_role("link", name="Sign in at GitHub").click()
    await (await opened.value).locator("#allow").click()
    await expect(visitor.page.get_by_role("heading", name="Connections")).to_be_visible()
    visitor.foreign.clear()
