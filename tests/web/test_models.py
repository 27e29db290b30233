"""The model a message goes out with, while what decides it is still on its way."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Page, Request, Route, expect

from parley.testing.fake_github import FakeGitHub
from tests.stage import Json, calls, says
from tests.web.test_integrations import fill_own_app
from tests.web.test_questions import CARDS
from tests.web.visitor import Visitor

PATIENCE_SECONDS = 60
BY_SIGNING_IN: Json = {
    "integration_display_name": "GitHub",
    "auth_options": [
        {"auth_type": "oauth2", "display_name": "OAuth", "oauth_initiate_endpoint": "from the manifest"},
        {"auth_type": "bearer_token", "display_name": "Token"},
    ],
}


@asynccontextmanager
async def held_back(page: Page, path: str) -> AsyncGenerator[asyncio.Event]:
    """The server's answers to ``path`` come once the event is set."""
    let_go = asyncio.Event()

    async def wait(route: Route) -> None:
        await let_go.wait()
        await route.continue_()

    await page.route(f"**{path}", wait)
    try:
        yield let_go
    finally:
        let_go.set()
        await page.unroute_all(behavior="wait")


@pytest.mark.parametrize("path", ["/organizations/llms", "/organizations/settings"])
async def test_a_message_sent_before_the_models_are_known_waits_for_its_model(visitor: Visitor, path: str) -> None:
    await visitor.stage.script(says("Ours says hello."), says("And again."))
    async with held_back(visitor.page, path) as let_go:
        await visitor.go("/")
        await expect(visitor.page.get_by_text("Loading models…")).to_be_visible()
        await visitor.say("Hi")
        bubble = visitor.page.get_by_role("article", name="You")
        await expect(bubble).to_contain_text("Hi")
        await expect(bubble.get_by_role("img", name="Sending")).to_be_visible()
        await expect(visitor.box).to_have_value("")
        let_go.set()
        await expect(visitor.reply).to_contain_text("Ours says hello.")
        await expect(visitor.page.get_by_role("button", name="Model:")).to_have_accessible_name("Model: GPT-4o")
    await visitor.say("More")
    await expect(visitor.reply).to_contain_text("And again.")


async def test_an_answer_given_before_the_models_are_known_waits_for_its_model(visitor: Visitor) -> None:
    asked = CARDS["yes_no"]
    await visitor.stage.script(asked.reply, says("As you say."))
    await visitor.go("/")
    await visitor.say("Ask me")
    await expect(visitor.card).to_be_visible()
    async with held_back(visitor.page, "/organizations/llms") as let_go:
        await visitor.page.reload()
        await visitor.card.get_by_role("button").first.click()
        await expect(visitor.card.get_by_role("button", disabled=False)).to_have_count(0)
        let_go.set()
        await expect(visitor.reply).to_contain_text("As you say.")


async def test_where_the_list_of_models_fails_the_default_answers_and_the_picker_says_so(visitor: Visitor) -> None:
    await visitor.stage.script(says("Ours says hello."))
    failing = "**/organizations/llms"
    await visitor.page.route(failing, lambda route: route.fulfill(status=403, json={"detail": "Not now"}))
    await visitor.go("/")
    await visitor.say("Hi")
    await expect(visitor.reply).to_contain_text("Ours says hello.")
    again = visitor.page.get_by_role("button", name="Models could not be read")
    await expect(again).to_be_visible()
    await visitor.page.unroute(failing)
    await again.click()
    await expect(visitor.page.get_by_role("button", name="Model:")).to_have_accessible_name("Model: GPT-4o")


async def go_elsewhere(page: Page) -> None:
    """Go on to another organization; opening a page anew leads back."""
    await page.get_by_role("button", name="account menu").click()
    await page.get_by_role("menuitemradio", name="Elsewhere").first.click()
    await expect(page.get_by_role("button", name="Elsewhere")).to_be_visible()


def sent_to(page: Page, ending: str) -> list[str]:
    """The addresses that end like this and to which the page posts from now on."""
    sent: list[str] = []

    def note(request: Request) -> None:
        if request.method == "POST" and request.url.endswith(ending):
            sent.append(request.url)

    page.on("request", note)
    return sent


async def test_a_message_that_waits_does_not_follow_into_another_organization(visitor: Visitor) -> None:
    await visitor.stage.client.post("/organizations", {"name": "Elsewhere"})
    sent = sent_to(visitor.page, "/assistant/chat")
    async with held_back(visitor.page, "/organizations/llms") as let_go:
        await visitor.go("/")
        await visitor.say("Between us")
        await expect(visitor.page.get_by_role("article", name="You")).to_contain_text("Between us")
        await go_elsewhere(visitor.page)
        let_go.set()
        await expect(visitor.page.get_by_text("Loading models…")).to_have_count(0)
        await expect(visitor.box).to_have_value("")
    # What was typed is still where it was typed, and nowhere else.
    await visitor.go("/")
    await expect(visitor.box).to_have_value("Between us")
    assert sent == []


async def test_an_answer_that_waits_does_not_follow_into_another_organization(visitor: Visitor) -> None:
    asked = CARDS["yes_no"]
    await visitor.stage.client.post("/organizations", {"name": "Elsewhere"})
    await visitor.stage.script(asked.reply, says("As you say."))
    await visitor.go("/")
    await visitor.say("Ask me")
    await expect(visitor.card).to_be_visible()
    sent = sent_to(visitor.page, "/resume")
    address = visitor.page.url
    async with held_back(visitor.page, "/organizations/llms") as let_go:
        await visitor.page.reload()
        await visitor.card.get_by_role("button").first.click()
        await expect(visitor.card.get_by_role("button", disabled=False)).to_have_count(0)
        await go_elsewhere(visitor.page)
        let_go.set()
        await expect(visitor.page.get_by_text("Loading models…")).to_have_count(0)
    await visitor.page.goto(address)
    await expect(visitor.card.get_by_role("button", disabled=False).first).to_be_visible()
    assert sent == []


@pytest.mark.parametrize("awaited", ["/credentials?integration_name=github", "/organizations/llms"])
async def test_a_sign_in_that_waits_does_not_follow_into_another_organization(visitor: Visitor, awaited: str) -> None:
    page = visitor.page
    await visitor.stage.client.post("/organizations", {"name": "Elsewhere"})
    address = "/integrations/github"
    if awaited == "/organizations/llms":
        # In a chat it is the model that a sign-in waits for.
        await visitor.stage.script(calls("request_credential", {"integration_name": "github", **BY_SIGNING_IN}))
        await visitor.go("/")
        await visitor.say("Connect it")
        await expect(visitor.card).to_be_visible()
        address = f"/c/{visitor.chat_id}"
    sent = sent_to(page, "/credentials/oauth2/initiate")
    async with held_back(page, awaited) as let_go:
        await visitor.go(address)
        await fill_own_app(visitor)
        async with page.expect_popup() as opened:
            await page.get_by_role("button", name="Sign in at GitHub").click()
        popup = await opened.value
        await go_elsewhere(page)
        let_go.set()
        # The window that was to lead to the provider is closed again.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not popup.is_closed():
                await asyncio.sleep(0.05)
    assert sent == []


async def test_a_key_whose_test_is_going_on_does_not_follow_into_another_organization(
    visitor: Visitor, github: FakeGitHub
) -> None:
    page = visitor.page
    await visitor.stage.client.post("/organizations", {"name": "Elsewhere"})
    await visitor.go("/integrations/github")
    await page.locator("input[type=password]").first.fill(github.token)
    sent = sent_to(page, "/credentials")
    async with held_back(page, "/credentials/test-temporary") as let_go:
        await page.get_by_role("button", name="Connect GitHub").click()
        await expect(page.get_by_role("button", name="Testing…")).to_be_visible()
        await go_elsewhere(page)
        async with page.expect_response("**/credentials/test-temporary"):
            let_go.set()
    await page.get_by_role("link", name="Integrations").click()
    await visitor.settled()
    assert sent == []


async def test_nothing_of_one_organization_is_shown_for_another(visitor: Visitor, github: FakeGitHub) -> None:
    page = visitor.page
    held = await visitor.stage.connect_github(github.token)
    await visitor.stage.client.call("PUT", f"/credentials/{held}", {"display_name": "Only ours"})
    await visitor.stage.client.post("/organizations", {"name": "Elsewhere"})
    await visitor.go("/integrations?tab=connections")
    await expect(page.get_by_text("Only ours")).to_be_visible()
    await go_elsewhere(page)
    await page.get_by_role("link", name="Integrations").click()
    await page.get_by_role("tab", name="Connections").click()
    await visitor.settled()
    await expect(page.get_by_text("Only ours")).to_have_count(0)
