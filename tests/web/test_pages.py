"""Every page in both themes and both widths: nothing for axe to find, nothing cut off, a picture kept of each."""

from collections.abc import AsyncIterator, Sequence

import pytest
from playwright.async_api import Browser, expect

from parley.testing.fake_github import FakeGitHub
from parley.testing.mcp_server import mcp_server
from tests.contract.test_openapi import bring
from tests.stage import Stage, calls, executes, says
from tests.web.test_questions import CARDS, connect
from tests.web.visitor import HEIGHTS, NARROW, NARROWEST, ROOT, WIDE, Theme, Visitor, visiting

type Look = tuple[Theme, int]
LOOKS: list[Look] = [("light", WIDE), ("light", NARROW), ("dark", NARROW), ("dark", WIDE)]
# Enough for a dialog, whose parts are on other pages too.
OPPOSITES = LOOKS[0::2]
# WCAG 2.2's narrowest window, and this screen at 200 percent.
REFLOWS = {"320": {"width": 320, "height": 640}, "zoomed": {"width": WIDE // 2, "height": HEIGHTS[WIDE] // 2}}
PAGES = {
    "integrations": "/integrations",
    "models": "/integrations?tab=llm",
    "servers": "/integrations?tab=servers",
    "apis": "/integrations?tab=apis",
    "connections": "/integrations?tab=connections",
    "integration": "/integrations/github",
    "reconnect": "/integrations/github?reconnect={github}",
    "provider": "/integrations/openai?type=llm_provider",
    "server": "/integrations/mcp/{server}",
    "api": "/integrations/api/{api}",
    "bases": "/knowledge",
    "base": "/knowledge/{base}",
    "usage": "/usage",
    "settings": "/settings",
    "keys": "/settings/keys",
    "members": "/settings/members",
    "audit": "/settings/audit",
    "missing": "/no-such-page",
}
LONG_NAME = "The organization's one and only connection for everything that has to do with repositories"
REPORT = (
    "# Report\n\nAll **well**, see [this](https://example.com) and `code`.\n\n"
    "| Repository | Stars | Last change | Language | Open issues |\n|---|--:|---|---|--:|\n"
    "| hello-world | 1,204 | yesterday | Python | 3 |\n| spoon-knife | 88 | in March | TypeScript | 0 |\n\n"
    "1. Ship it\n2. Tell people\n   - by mail\n\n> Nothing is urgent.\n\n"
    "```python\ndef greet(name: str) -> str:\n    return f'Hello {name}, and welcome to a line that is long'\n```\n"
)

pytestmark = pytest.mark.usefixtures("axe")


@pytest.fixture
async def person(browser: Browser, stage: Stage) -> AsyncIterator[Visitor]:
    """Somebody whose page axe may be let into."""
    async with visiting(browser, stage, may_inject=True) as visitor:
        yield visitor
        assert visitor.complaints == []


async def furnished(stage: Stage, github: FakeGitHub) -> dict[str, str]:
    """Something to show on every page; the ids in the addresses of PAGES."""
    async with mcp_server() as server:
        wish = {"server_url": server.url, "display_name": "Box"}
        connected = await stage.client.post("/credentials/mcp-server", wish)
    imported = await bring(stage)
    base = await stage.client.post("/knowledge-bases", {"name": "House rules"})
    held = await stage.connect_github(github.token)
    await stage.client.call("PUT", f"/credentials/{held}", {"display_name": LONG_NAME})
    await stage.client.post("/organizations/invite", {"invited_email": "grace@example.com"})
    server_id, api = connected.body["credential_id"], imported["integration_name"]
    return {"github": held, "server": server_id, "api": api, "base": base.body["id"]}


async def faults_in_every_look(person: Visitor, name: str, looks: Sequence[Look] = LOOKS) -> dict[str, list[str]]:
    """What axe finds in each theme and width, and where the page does not fit; a picture is kept of each."""
    faults: dict[str, list[str]] = {}
    for theme, width in looks:
        look = f"{name}-{theme}-{width}"
        await person.look(theme, width)
        await person.picture(look)
        faults[look] = await person.faults()
    for reflow, size in REFLOWS.items():
        await person.page.set_viewport_size(size)  # pyright: ignore[reportArgumentType]
        await person.settled()
        await person.picture(f"{name}-{reflow}")
        faults[f"{name}-{reflow}"] = ["it scrolls sideways"] if await person.sideways() else []
    await person.look(*LOOKS[0])
    return {look: found for look, found in faults.items() if found}


async def test_every_page_is_accessible_and_fits_in_every_look(
    person: Visitor, stage: Stage, github: FakeGitHub
) -> None:
    places = await furnished(stage, github)
    faults: dict[str, list[str]] = {}
    for name, path in PAGES.items():
        await person.go(path.format(**places))
        await person.settled()
        faults |= await faults_in_every_look(person, name)
    assert faults == {}


async def test_the_dialogs_that_ask_much_are_accessible_and_fit_in_every_look(person: Visitor) -> None:
    page = person.page
    await person.go("/integrations?tab=apis")
    await page.get_by_role("button", name="Import an API").click()
    dialog = page.get_by_role("dialog", name="Import an API")
    faults = await faults_in_every_look(person, "import", OPPOSITES)
    await dialog.get_by_role("tab", name="In a file").click()
    await dialog.get_by_label("Document", exact=True).set_input_files(ROOT / "docs" / "samples" / "tasks.yaml")
    await dialog.get_by_role("button", name="Look at it").click()
    await dialog.locator("details.action summary").first.click()
    faults |= await faults_in_every_look(person, "import-seen")
    await person.go("/settings")
    await page.locator("details.action").filter(has_text="OpenAI").locator("summary").click()
    await page.get_by_role("button", name="Tick none").click()
    await page.route("**/organizations/settings/*", lambda route: route.abort())
    await page.get_by_role("radio", name="By what they do and what was read").check()
    for panel in (page.get_by_role("region", name="Which actions ask first"), page.locator("details.action[open]")):
        await panel.get_by_role("button", name="Save").click()
        await expect(panel.get_by_role("alert")).to_be_visible()
    faults |= await faults_in_every_look(person, "choices")
    await page.get_by_label("Erase old chats").check()
    faults |= await faults_in_every_look(person, "retention")
    await page.get_by_role("region", name="How long chats are kept").get_by_role("button", name="Save").click()
    faults |= await faults_in_every_look(person, "retention-asked", OPPOSITES)
    assert faults == {}


async def test_the_chat_is_accessible_and_fits_in_every_look(person: Visitor) -> None:
    await person.stage.script(
        executes("list_repositories", {"visibility": "all"}, text="Let me look."),
        executes("no_such_action", id="call_2"),
        says(REPORT),
    )
    await person.go("/")
    faults = await faults_in_every_look(person, "welcome")
    await person.say("Show me my repositories")
    await person.finished()
    await person.reply.locator("details.usage summary").click()
    faults |= await faults_in_every_look(person, "chat")
    await person.page.keyboard.press("Control+/")
    await expect(person.page.get_by_role("dialog")).to_be_visible()
    faults |= await faults_in_every_look(person, "shortcuts", OPPOSITES)
    await person.page.keyboard.press("Escape")
    await person.page.keyboard.press("Control+k")
    await expect(person.page.get_by_role("dialog").get_by_role("button", name="Show me")).to_be_visible()
    faults |= await faults_in_every_look(person, "search", OPPOSITES)
    assert faults == {}


DELETION = executes("delete_repository", {"owner": "octocat", "repo": "hello-world"})
QUESTIONS = {
    **{kind: asked.reply for kind, asked in CARDS.items() if kind != "skipped"},
    "approval": DELETION,
    "connection": connect(),
}


@pytest.mark.parametrize("kind", QUESTIONS)
async def test_every_card_is_accessible_and_fits_in_every_look(person: Visitor, github: FakeGitHub, kind: str) -> None:
    if kind == "approval":
        await person.stage.connect_github(github.token)
    await person.stage.script(QUESTIONS[kind])
    await person.go("/")
    await person.say("Ask me")
    await expect(person.card).to_be_visible()
    await expect(person.card.get_by_role("button", disabled=False).first).to_be_enabled()
    assert await faults_in_every_look(person, f"card-{kind}") == {}


async def test_sign_in_is_accessible_and_fits_in_every_look(browser: Browser, stage: Stage) -> None:
    async with visiting(browser, stage, may_inject=True, signed_in=False) as person:
        await person.go("/")
        assert await faults_in_every_look(person, "sign-in") == {}


@pytest.mark.parametrize(("width", "zoom"), [(NARROWEST, 1), (WIDE, 2)], ids=["320-pixels", "200-percent"])
async def test_a_turn_with_a_question_fits_a_small_window(
    browser: Browser, stage: Stage, github: FakeGitHub, width: int, zoom: int
) -> None:
    await stage.connect_github(github.token)
    await stage.script(says(REPORT), DELETION, says("Left alone."))
    async with visiting(browser, stage, width=width, zoom=zoom) as person:
        await person.go("/")
        await person.say("Show me my repositories")
        await person.finished()
        assert not await person.sideways()
        await expect(person.page.get_by_role("button", name="Send")).to_be_in_viewport(ratio=1)
        await person.say("Delete it")
        decline = person.card.get_by_role("button", name="Do not run")
        await expect(decline).to_be_enabled()
        assert not await person.sideways()
        await decline.click()
        await expect(person.reply).to_contain_text("Left alone.")
        await person.page.get_by_role("button", name="Open the sidebar").click()
        await expect(person.page.get_by_role("dialog", name="Sidebar")).to_be_visible()
        assert not await person.sideways()
        assert (person.foreign, person.complaints) == ([], [])


MOVING = """
document.getAnimations().filter((each) => each.playState === 'running' && each.effect.getTiming().duration > 1).length
"""


@pytest.mark.parametrize("moving", [False, True])
async def test_nothing_moves_for_who_asked_the_system_for_that(browser: Browser, stage: Stage, moving: bool) -> None:
    held = says("Slow ", "answer.")
    held.barrier, held.barrier_after = f"still-{stage.model_key}", 0
    await stage.script(held)
    async with visiting(browser, stage, moving=moving) as person:
        await person.go("/")
        await person.say("Go")
        await expect(person.reply.locator(".dots")).to_be_visible()
        assert (await person.page.evaluate(MOVING) > 0) is moving
        await stage.model.release(held.barrier)
        await person.finished()


EDGELESS = """
(all) => all.filter((each) => {
  const style = getComputedStyle(each);
  return style.borderStyle === 'none' || parseFloat(style.borderWidth) === 0;
}).map((each) => each.outerHTML.slice(0, 120))
"""


async def test_forced_colours_leave_edges_focus_and_states_to_be_seen(
    browser: Browser, stage: Stage, github: FakeGitHub
) -> None:
    await stage.connect_github(github.token)
    await stage.script(says(REPORT), DELETION)
    async with visiting(browser, stage, forced_colors=True) as person:
        await person.go("/integrations")
        assert await person.page.locator(".tile, .button, .toolbar input").evaluate_all(EDGELESS) == []
        await expect(person.page.locator(".tile").filter(has_text="GitHub").first).to_contain_text("Connected")
        chosen, other = (person.page.locator(f"[role=tab][aria-selected={which}]").first for which in ("true", "false"))
        edge = "(e) => getComputedStyle(e).borderBottomColor"
        assert await chosen.evaluate(edge) != await other.evaluate(edge)
        await person.picture("forced-integrations")
        await person.go("/")
        await person.say("Show me")
        await person.finished()
        await person.picture("forced-chat")
        await person.say("Delete it")
        await expect(person.card.get_by_role("button", name="Do not run")).to_be_enabled()
        assert await person.page.locator(".card, .card .button, .composer").evaluate_all(EDGELESS) == []
        await person.page.keyboard.press("Tab")
        assert await person.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        await person.picture("forced-approval")


async def test_the_drawer_holds_the_focus_and_gives_it_back(browser: Browser, stage: Stage) -> None:
    async with visiting(browser, stage, width=NARROW, may_inject=True) as person:
        await person.go("/usage")
        await expect(person.page.get_by_role("heading", level=1)).to_have_text("Usage")
        opener = person.page.get_by_role("button", name="Open the sidebar")
        await opener.click()
        drawer = person.page.get_by_role("dialog", name="Sidebar")
        await expect(drawer).to_be_visible()
        assert await person.faults() == []
        await person.picture("drawer")
        await person.page.keyboard.press("Escape")
        await expect(drawer).to_have_count(0)
        await expect(opener).to_be_focused()
        await opener.click()
        await drawer.get_by_role("link", name="Integrations").click()
        await expect(person.page.get_by_role("heading", level=1)).to_have_text("Integrations")
        await expect(drawer).to_have_count(0)


async def test_the_theme_is_chosen_in_settings_and_kept(visitor: Visitor) -> None:
    root = visitor.page.locator("html")
    await visitor.go("/settings")
    await expect(root).to_have_attribute("data-theme", "light")
    await visitor.page.get_by_label("Theme").select_option("dark")
    await expect(root).to_have_attribute("data-theme", "dark")
    await visitor.page.reload()
    await expect(root).to_have_attribute("data-theme", "dark")


async def test_an_unknown_question_kind_is_no_crash(visitor: Visitor) -> None:
    await visitor.stage.script(calls("ask_user_yes_no", {"message": "Go on?"}))

    await visitor.go("/")
    await visitor.say("Ask me")
    await expect(visitor.card).to_be_visible()
    chat = (await visitor.stage.client.get(f"/assistant/chat/{visitor.chat_id}")).body
    chat["pending_user_input_request"]["kind"] = "hologram"
    await visitor.context.route(f"**/assistant/chat/{visitor.chat_id}", lambda route: route.fulfill(json=chat))
    await visitor.context.route("**/listen/**", lambda route: route.fulfill(status=404, body='{"detail":"gone"}'))
    await visitor.page.reload()
    await expect(visitor.card).to_contain_text("too old to show this kind of question")
    await expect(visitor.card.get_by_role("button", name="Stop the turn")).to_be_visible()
