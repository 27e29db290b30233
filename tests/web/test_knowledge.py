"""A base is made, a document dropped into it, searched, and quoted with its source (web §5)."""

import re

from playwright.async_api import expect

from tests.knowledge.hostile import pdf
from tests.stage import calls, says
from tests.web.visitor import Visitor


async def test_a_document_is_uploaded_searched_and_cited(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/knowledge")
    await page.get_by_role("button", name="New base").click()
    await page.get_by_label("Name").fill("House rules")
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="House rules")).to_be_visible()

    files = page.locator("input[type=file]")
    document = {
        "name": "rules.pdf",
        "mimeType": "application/pdf",
        "buffer": pdf("Welcome", "The boiler hums at night"),
    }
    await files.set_input_files([document])  # pyright: ignore[reportArgumentType]
    row = page.get_by_role("list", name="Documents").get_by_role("listitem").filter(has_text="rules.pdf")
    await expect(row).to_contain_text("Ready")
    await files.set_input_files([{"name": "empty.txt", "mimeType": "text/plain", "buffer": b" "}])
    failed = page.get_by_role("list", name="Documents").get_by_role("listitem").filter(has_text="empty.txt")
    await expect(failed).to_contain_text("The file is empty.")
    await expect(failed.get_by_role("button", name="Retry")).to_be_visible()

    await page.get_by_role("tab", name="Search").click()
    await page.get_by_role("searchbox", name="Search").fill("What noise does the boiler make?")
    await page.get_by_role("button", name="Search", exact=True).click()
    await expect(page.get_by_role("list", name="Found passages")).to_contain_text("The boiler hums at night")

    await visitor.stage.script(calls("search_knowledge", {"query": "boiler"}), says("It hums at night."))
    await visitor.go("/")
    await visitor.say("What does the boiler do?")
    chip = page.get_by_role("button", name=re.compile("rules.pdf"))
    await chip.click()
    dialog = page.get_by_role("dialog", name="rules.pdf")
    await expect(dialog).to_contain_text("The boiler hums at night")
    await expect(dialog).to_contain_text("Page")
