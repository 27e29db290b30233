"""What becomes of chats: saved as a document from their menu, kept as long as the organization's owner says."""

import json
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.stage import says
from tests.web.visitor import Visitor, visiting


async def saved(visitor: Visitor, item: str, folder: Path) -> Path:
    """The file that the item of the chat's menu gives."""
    await visitor.page.get_by_role("button", name="More for Plan the offsite").click()
    async with visitor.page.expect_download() as download:
        await visitor.page.get_by_role("menuitem", name=item).click()
    given = await download.value
    kept = folder / given.suggested_filename
    await given.save_as(kept)
    return kept


async def test_a_chat_is_saved_as_markdown_and_as_json(visitor: Visitor, tmp_path: Path) -> None:
    await visitor.stage.script(says("In **May**."))
    await visitor.go("/")
    await visitor.say("Plan the offsite")
    await visitor.finished()
    text = await saved(visitor, "Save as Markdown", tmp_path)
    assert text.name == f"chat-{visitor.chat_id}.md"
    assert "Plan the offsite" in text.read_text()
    assert "In **May**." in text.read_text()
    whole = await saved(visitor, "Save as JSON", tmp_path)
    assert whole.name == f"chat-{visitor.chat_id}.json"
    assert json.loads(whole.read_text())["chat"]["id"] == visitor.chat_id


async def test_a_chat_that_cannot_be_saved_says_why(visitor: Visitor) -> None:
    await visitor.stage.script(says("In May."))
    await visitor.go("/")
    await visitor.say("Plan the offsite")
    await visitor.finished()
    refusal = {"detail": "Chat not found"}
    await visitor.page.route("**/export?*", lambda route: route.fulfill(status=404, json=refusal))
    await visitor.page.get_by_role("button", name="More for Plan the offsite").click()
    await visitor.page.get_by_role("menuitem", name="Save as JSON").click()
    await expect(visitor.page.get_by_text("Not saved. Chat not found")).to_be_visible()


async def days(visitor: Visitor) -> int | None:
    return (await visitor.stage.client.get("/organizations/settings")).body["chat_retention_days"]


async def test_an_owner_chooses_how_long_chats_are_kept(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/settings")
    panel = page.get_by_role("region", name="How long chats are kept")
    save = panel.get_by_role("button", name="Save")
    await expect(save).to_be_disabled()
    await panel.get_by_label("Erase old chats").check()
    number = panel.get_by_label("Days after the last word")
    await number.fill("0")
    await expect(panel.get_by_text("A whole number of days")).to_be_visible()
    await expect(save).to_be_disabled()
    await number.fill("90")
    await save.click()
    asked = page.get_by_role("dialog", name="Erase old chats for good?")
    await expect(asked).to_contain_text("without a word for 90 days")
    await asked.get_by_role("button", name="Keep them").click()
    assert await days(visitor) is None
    await save.click()
    await asked.get_by_role("button", name="Erase old chats").click()
    await expect(page.get_by_text("A chat is erased for good 90 days after its last word.")).to_be_visible()
    assert await days(visitor) == 90
    await page.reload()
    await expect(number).to_have_value("90")
    # Longer than before erases nothing, so nothing is asked.
    await number.fill("120")
    await save.click()
    await expect(page.get_by_text("A chat is erased for good 120 days after its last word.")).to_be_visible()
    await panel.get_by_label("Erase old chats").uncheck()
    await save.click()
    await expect(page.get_by_text("Chats are kept until somebody deletes them.")).to_be_visible()
    assert await days(visitor) is None


async def test_who_is_no_owner_reads_how_long_chats_are_kept(visitor: Visitor, browser: Browser) -> None:
    client = visitor.stage.client
    await client.call("PUT", "/organizations/settings/retention", {"chat_retention_days": 30})
    email = f"grace-{client.organization_id[:8]}@example.com"
    made = await client.post("/organizations/invite", {"invited_email": email})
    async with visiting(browser, visitor.stage, signed_in=False) as person:
        page = person.page
        await page.goto(made.body["invitation"]["link"])
        await page.get_by_label("Your name").fill("Grace")
        await page.get_by_role("textbox", name="Password").fill("a password of some length")
        await page.get_by_role("button", name="Join", exact=True).click()
        await page.get_by_role("link", name="Settings").click()
        panel = page.get_by_role("region", name="How long chats are kept")
        await expect(panel).to_contain_text("30 days after its last word. An owner can change that.")
        await expect(panel.get_by_role("button")).to_have_count(0)
