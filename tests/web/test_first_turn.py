"""The first minute: the link the server printed, a first turn, and finding it all again."""

import re

from playwright.async_api import Browser, expect
from sqlalchemy import func, select

from parley.storage.tables.chats import messages
from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedReply
from tests.contract.conftest import House
from tests.stage import Stage, calls, executes, says
from tests.web.visitor import Visitor, visiting


async def test_a_newcomer_opens_the_printed_link_and_has_a_first_turn(
    browser: Browser, stage: Stage, house: House
) -> None:
    assert house.parley.first_start is not None
    token = house.parley.first_start.sign_in_link.partition("#sign-in=")[2]
    await stage.script(says("Hello ", "**there**."))
    async with visiting(browser, stage, signed_in=False) as person:
        await person.page.goto(f"{person.base_url}/")
        await expect(person.page.get_by_role("heading", name="Sign in to Parley")).to_be_visible()
        await person.page.goto(f"{person.base_url}/app/#sign-in={token}")
        await person.page.reload()
        await expect(person.box).to_be_visible()
        assert token not in person.page.url
        await person.say("Hi")
        await expect(person.page.get_by_role("article", name="You")).to_contain_text("Hi")
        await person.finished()
        await expect(person.page.get_by_test_id("announcer")).to_have_text("Reply complete. Hello **there**.")
        await expect(person.reply.locator("strong")).to_have_text("there")
        await expect(person.reply).to_contain_text("15 tokens")
        assert "/c/" in person.page.url
        assert (person.foreign, person.complaints) == ([], [])


async def test_an_api_key_signs_in_and_signing_out_ends_it(browser: Browser, stage: Stage) -> None:
    async with visiting(browser, stage, signed_in=False) as person:
        await person.go("/")
        await person.page.get_by_role("tab", name="API key").click()
        field = person.page.get_by_role("textbox", name="API key")
        await field.fill("mx_live_0000")
        await person.page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(person.page.get_by_role("alert")).to_contain_text("did not match")
        await field.fill(stage.client.key)
        await person.page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(person.box).to_be_visible()
        await person.page.get_by_role("button", name="account menu").click()
        await person.page.get_by_role("menuitem", name="Sign out").click()
        await expect(person.page.get_by_role("heading", name="Sign in to Parley")).to_be_visible()
        await person.page.reload()
        await expect(person.page.get_by_role("heading", name="Sign in to Parley")).to_be_visible()


async def test_a_password_is_set_and_signs_in(visitor: Visitor, browser: Browser) -> None:
    made = await visitor.stage.client.post("/organizations/invite", {"invited_email": email_of(visitor)})
    password = f"pass-{visitor.stage.model_key}"
    async with visiting(browser, visitor.stage, signed_in=False) as person:
        page = person.page
        await page.goto(made.body["invitation"]["link"])
        await page.get_by_label("Your name").fill("Ada")
        await page.get_by_role("textbox", name="Password").fill("the first of two passwords")
        await page.get_by_role("button", name="Join", exact=True).click()
        await page.get_by_role("link", name="Settings").click()
        await page.get_by_label("Present password").fill("the first of two passwords")
        await page.get_by_label("New password").fill(password)
        await page.get_by_role("button", name="Set password").click()
        await expect(page.get_by_text("The password is set.")).to_be_visible()
        await page.get_by_role("button", name="account menu").click()
        await page.get_by_role("menuitem", name="Sign out").click()
        await page.get_by_label("E-mail").fill(email_of(visitor))
        field = page.get_by_role("textbox", name="Password")
        await field.fill("the first of two passwords")
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("did not match")
        await field.fill(password)
        await page.get_by_role("button", name="Sign in", exact=True).click()
        # Back on the page that was left.
        await expect(page.get_by_role("heading", name="Settings", exact=True)).to_be_visible()
        assert (person.foreign, person.complaints) == ([], [])


def email_of(visitor: Visitor) -> str:
    return f"ada-{visitor.stage.client.organization_id[:8]}@example.com"


async def test_the_organization_is_switched_in_the_account_menu(visitor: Visitor) -> None:
    made = await visitor.stage.client.post("/organizations", {"name": "Side Project"})
    await visitor.go("/")
    await visitor.page.get_by_role("button", name="account menu").click()
    await visitor.page.get_by_role("menuitemradio", name="Side Project").first.click()
    await expect(visitor.page.get_by_role("button", name="Side Project")).to_be_visible()
    chosen = await visitor.page.evaluate("localStorage.getItem('parley.organization')")
    listed = await visitor.stage.client.get("/auth/me/organizations")
    names = {each["id"]: each["name"] for each in listed.body["organizations"]}
    assert names[chosen] == made.body["organization"]["name"]


async def test_tools_show_what_they_did_and_open_to_their_input_and_result(visitor: Visitor) -> None:
    await visitor.stage.script(
        calls("get_available_integrations", {"query": "git"}, id="a"),
        calls("get_integration_details", {"integration_name": "github"}, id="b"),
        executes("list_repositories", text="Looking.", id="c"),
        says("GitHub is not connected."),
    )
    await visitor.go("/")
    await visitor.say("List my repositories")
    await visitor.finished()
    await expect(visitor.reply.get_by_text("Looked up integrations (2)")).to_be_visible()
    line = visitor.reply.locator("summary", has_text="List repositories")
    await expect(line).to_contain_text("Needs connection")
    await line.click()
    await expect(visitor.reply.get_by_role("region", name="Result")).to_contain_text("needs_credential")
    await expect(visitor.reply.get_by_role("link", name="Connect it")).to_be_visible()


async def test_a_tool_that_runs_says_so_and_is_stopped_with_the_turn(visitor: Visitor, github: FakeGitHub) -> None:
    await visitor.stage.connect_github(github.token)
    await visitor.stage.script(executes("list_repositories"), says("Fresh start."))
    github.hold()
    await visitor.go("/")
    await visitor.say("List my repositories")
    line = visitor.reply.locator("summary", has_text="List repositories")
    await expect(line).to_contain_text("Running")
    await expect(line.locator(".tool-time")).to_contain_text(re.compile(r"\d s"))
    await visitor.page.get_by_role("button", name="Stop").click()
    await expect(line).to_contain_text("Stopped")
    github.let_go()
    await visitor.say("And now?")
    await expect(visitor.reply).to_contain_text("Fresh start.")


async def test_a_failing_tool_opens_by_itself_and_a_failed_turn_says_why(visitor: Visitor) -> None:
    await visitor.stage.script(
        executes("no_such_action", id="a"),
        ScriptedReply(status=400, raw=b'{"error":{"message":"bad"}}'),
    )
    await visitor.go("/")
    await visitor.say("Do something odd")
    await expect(visitor.reply.get_by_role("alert")).to_be_visible()
    await expect(visitor.reply.locator("details[open] .tool-error")).to_be_visible()
    await expect(visitor.reply.get_by_role("button", name="Ask again")).to_be_visible()


async def test_the_list_of_chats_finds_renames_and_deletes(visitor: Visitor) -> None:
    await visitor.stage.script(says("One."), says("Two."))
    for text in ("Plan the offsite", "Quarterly numbers"):
        await visitor.go("/")
        await visitor.say(text)
        await visitor.finished()
    page = visitor.page
    await page.keyboard.press("Control+k")
    await page.get_by_label("Search chats by title").fill("offsite")
    await expect(page.get_by_role("dialog").get_by_role("button", name="Plan the offsite")).to_be_visible()
    await expect(page.get_by_role("dialog").get_by_role("button", name="Quarterly")).to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Plan the offsite")

    row = page.locator(".chat-row.current")
    await row.get_by_role("button", name="More for Plan the offsite").click()
    await page.get_by_role("menuitem", name="Rename").click()
    await page.get_by_label("Title", exact=True).fill("Plan the retreat")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="Plan the retreat")).to_be_visible()

    await page.get_by_role("button", name="More for Plan the retreat").click()
    await page.get_by_role("menuitem", name="Delete", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    await expect(page.get_by_role("link", name="Plan the retreat")).to_have_count(0)
    await expect(page.get_by_role("link", name="Quarterly numbers")).to_be_visible()
    assert page.url.endswith("/app/")


async def test_a_chat_is_erased_for_good_and_its_address_says_so(visitor: Visitor) -> None:
    page, client = visitor.page, visitor.stage.client
    await visitor.stage.script(says("One."))
    await visitor.go("/")
    await visitor.say("Plan the offsite")
    await visitor.finished()
    chat_id, address = visitor.chat_id, page.url
    await page.get_by_role("button", name="More for Plan the offsite").click()
    await page.get_by_role("menuitem", name="Delete permanently").click()
    dialog = page.get_by_role("dialog", name="Delete this chat permanently?")
    await expect(dialog).to_contain_text("are erased and cannot be brought back")
    await dialog.get_by_role("button", name="Keep it").click()
    await expect(page.get_by_role("link", name="Plan the offsite")).to_be_visible()
    await page.get_by_role("button", name="More for Plan the offsite").click()
    await page.get_by_role("menuitem", name="Delete permanently").click()
    await dialog.get_by_role("button", name="Delete permanently").click()
    await expect(page.get_by_role("link", name="Plan the offsite")).to_have_count(0)
    assert page.url.endswith("/app/")
    assert (await client.get(f"/assistant/chat/{chat_id}")).status == 404
    kept = await visitor.stage.parley.store.read(
        lambda tx: tx.execute(select(func.count()).where(messages.c.chat_id == chat_id)).scalar_one()
    )
    assert kept == 0
    await page.goto(address)
    await expect(page.get_by_text("This chat does not exist here")).to_be_visible()
