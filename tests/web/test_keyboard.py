"""Everything by keyboard alone, from the first page on."""

from playwright.async_api import Browser, Page, expect

from tests.stage import Stage, calls, says
from tests.web.visitor import Visitor, visiting

MOST_TABS = 40


async def tab_to(page: Page, name: str, *, back: bool = False) -> None:
    """Press Tab until the focus is on what has this name."""
    named = "(e) => e && (e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent || '').trim()"
    for _ in range(MOST_TABS):
        await page.keyboard.press("Shift+Tab" if back else "Tab")
        found = await page.evaluate(f"({named})(document.activeElement)")
        if found and name in found:
            outline = "(({ outlineStyle, boxShadow }) => outlineStyle !== 'none' || boxShadow !== 'none')"
            assert await page.evaluate(f"{outline}(getComputedStyle(document.activeElement))"), f"{name}: no focus ring"
            return
    raise AssertionError(f"no way to {name} by Tab")


async def test_a_newcomer_signs_in_asks_answers_and_finds_the_chat_again_by_keyboard(
    browser: Browser, stage: Stage
) -> None:
    await stage.script(calls("ask_user_yes_no", {"message": "Shall I go on?"}), says("Went on."))
    async with visiting(browser, stage, signed_in=False) as person:
        page = person.page
        await person.go("/")
        await tab_to(page, "Password")
        await page.keyboard.press("ArrowRight")
        await tab_to(page, "API key")
        await page.keyboard.type(stage.client.key)
        await page.keyboard.press("Enter")
        await expect(person.box).to_be_focused()
        await page.keyboard.type("Do it")
        await page.keyboard.press("Enter")
        await expect(person.card.get_by_role("heading").first).to_be_focused()
        await tab_to(page, "Yes")
        await page.keyboard.press("Enter")
        await person.finished()
        await expect(person.reply).to_contain_text("Went on.")
        where = page.url
        await page.keyboard.press("Control+Shift+O")
        await expect(page).to_have_url(f"{person.base_url}/app/")
        await page.keyboard.press("Control+k")
        await expect(page.get_by_label("Search chats by title")).to_be_focused()
        await page.keyboard.type("Do it")
        await expect(page.get_by_role("dialog").get_by_role("button", name="Do it")).to_be_visible()
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(where)
        await expect(person.reply).to_contain_text("Went on.")
        assert (person.foreign, person.complaints) == ([], [])


async def test_the_keys_of_the_list_do_what_it_says(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/")
    await page.keyboard.press("Control+/")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(visitor.box).to_be_focused()
    await page.keyboard.press("Control+Shift+S")
    await expect(page.get_by_role("navigation")).to_have_count(0)
    await page.keyboard.press("Control+Shift+S")
    await expect(page.get_by_role("navigation")).to_be_visible()
    await page.get_by_role("link", name="New chat").focus()
    await page.keyboard.press("Shift+Escape")
    await expect(visitor.box).to_be_focused()


async def test_the_first_tab_skips_to_the_content(visitor: Visitor) -> None:
    await visitor.go("/usage")
    await visitor.page.keyboard.press("Tab")
    await expect(visitor.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await visitor.page.keyboard.press("Enter")
    await expect(visitor.page.get_by_role("main")).to_be_focused()


async def test_a_menu_is_walked_with_arrows_and_gives_the_focus_back(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.go("/")
    opener = page.get_by_role("button", name="account menu")
    await opener.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("menu")).to_be_visible()
    await page.keyboard.press("End")
    await expect(page.get_by_role("menuitem", name="Sign out")).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await expect(page.get_by_role("menuitem", name="Settings")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("menu")).to_have_count(0)
    await expect(opener).to_be_focused()
