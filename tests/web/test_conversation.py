"""What people do with messages: copy, edit, ask again, unfold, look back, choose who answers."""

from playwright.async_api import Locator, Page, expect

from parley.testing.scripted_wire import ScriptedReply
from tests.stage import executes, says
from tests.web.visitor import Visitor

CODE = "def greet(name):\n    return f'Hello {name}'\n"
CLIPBOARD = "navigator.clipboard.readText()"


async def test_messages_replies_and_code_are_copied_as_they_were_written(visitor: Visitor) -> None:
    await visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    text = f"Some **code**:\n\n```python\n{CODE}```\n"
    await visitor.stage.script(says(text))
    await visitor.go("/")
    await visitor.say("Show me <code>")
    await visitor.finished()
    await visitor.reply.get_by_label("Copy code").click()
    assert await visitor.page.evaluate(CLIPBOARD) == CODE.rstrip("\n")
    await visitor.reply.get_by_label("Copy reply").click()
    assert (await visitor.page.evaluate(CLIPBOARD)).strip() == text.strip()
    await visitor.page.get_by_label("Copy message").click()
    assert await visitor.page.evaluate(CLIPBOARD) == "Show me <code>"


async def test_code_is_coloured_once_it_is_whole_and_a_very_long_block_is_left_plain(visitor: Visitor) -> None:
    barrier = f"code-{visitor.stage.model_key}"
    long = "x = 1\n" * 4_000
    pieces = ["```python\n", CODE, "```\n\n", f"```python\n{long}```\n"]
    await visitor.stage.script(ScriptedReply(text=pieces, barrier=barrier, barrier_after=3))
    await visitor.go("/")
    await visitor.say("Code, please")
    await expect(visitor.reply.locator("pre").first).to_contain_text("Hello")
    await visitor.stage.model.release(barrier)
    await visitor.finished()
    await expect(visitor.reply.locator("pre").first.locator(".hljs-keyword").first).to_have_text("def")
    await expect(visitor.reply.locator("pre").last.locator(".hljs-keyword, .hljs-number")).to_have_count(0)
    assert await visitor.reply.locator("pre").last.inner_text() == long.rstrip("\n")


async def test_asking_again_is_a_new_turn_and_says_what_it_costs(visitor: Visitor) -> None:
    await visitor.stage.script(says("First."), says("Second."))
    await visitor.go("/")
    await visitor.say("Tell me")
    await visitor.finished()
    again = visitor.reply.get_by_role("button", name="Ask again")
    await expect(again).to_have_attribute("title", "Ask the same again. It is a new turn and costs 1 credit.")
    await again.click()
    await expect(visitor.reply).to_contain_text("Second.")
    await expect(visitor.page.get_by_role("article", name="You")).to_contain_text(["Tell me", "Tell me"])


async def test_editing_puts_the_text_back_into_the_composer_and_sends_nothing(visitor: Visitor) -> None:
    await visitor.stage.script(says("First."))
    await visitor.go("/")
    await visitor.say("Tell me mroe")
    await visitor.finished()
    await visitor.page.get_by_role("button", name="Edit as a new message").click()
    await expect(visitor.box).to_have_value("Tell me mroe")
    await expect(visitor.box).to_be_focused()
    assert len(await visitor.stage.sent()) == 1


async def test_a_long_message_is_folded_and_unfolds(visitor: Visitor) -> None:
    await visitor.stage.script(says("Long."))
    await visitor.go("/")
    await visitor.say("word " * 1_000 + "end")
    mine = visitor.page.get_by_role("article", name="You")
    await expect(mine).not_to_contain_text("end")
    await mine.get_by_role("button", name="Show all 5,003 characters").click()
    await expect(mine).to_contain_text("end")
    await mine.get_by_role("button", name="Show less").click()
    await expect(mine).not_to_contain_text("end")


async def test_earlier_messages_come_on_request_and_do_not_move_what_is_read(visitor: Visitor) -> None:
    turns = 34
    await visitor.stage.script(*[says(f"Answer {number}.") for number in range(turns)])
    chat_id = None
    for number in range(turns):
        started = await visitor.stage.start(f"Question {number}", chat_id)
        chat_id = started["chat_id"]
        await visitor.stage.settled(started["chat_id"])
    await visitor.go(f"/c/{chat_id}")
    await expect(visitor.page.get_by_role("article", name="Assistant")).to_have_count(30)
    earlier = visitor.page.get_by_role("button", name="Show earlier messages (4)")
    await earlier.scroll_into_view_if_needed()
    first = visitor.page.get_by_role("article", name="You").filter(has_text="Question 4")
    before = await top_of(first)
    await earlier.click()
    await expect(visitor.page.get_by_role("article", name="Assistant")).to_have_count(turns)
    await expect(earlier).to_have_count(0)
    assert abs(await top_of(first) - before) <= 2


async def top_of(element: Locator) -> float:
    return float(await element.first.evaluate("(element) => element.getBoundingClientRect().top"))


async def choose(page: Page, model: str) -> None:
    await page.get_by_role("button", name="Model:").click()
    await page.get_by_role("menuitemradio", name=model, exact=False).first.click()


async def test_each_chat_keeps_the_model_chosen_in_it(visitor: Visitor) -> None:
    await visitor.stage.script(says("One."), says("Two."), says("Three."))
    page, picker = visitor.page, visitor.page.get_by_role("button", name="Model:")
    await visitor.go("/")
    await choose(page, "GPT-4o mini")
    await visitor.say("One")
    await visitor.finished()
    first = page.url
    await visitor.go("/")
    await choose(page, "GPT-4.1")
    await visitor.say("Two")
    await visitor.finished()
    await page.goto(first)
    await expect(picker).to_have_accessible_name("Model: GPT-4o mini")
    await visitor.say("Three")
    await expect(visitor.reply).to_contain_text("Three.")
    assert [each["model"] for each in await visitor.stage.sent()] == ["gpt-4o-mini", "gpt-4.1", "gpt-4o-mini"]


async def test_the_picker_says_whose_key_pays_and_leads_to_more_providers(visitor: Visitor) -> None:
    await visitor.go("/")
    await visitor.page.get_by_role("button", name="Model:").click()
    menu = visitor.page.get_by_role("menu")
    await expect(menu.get_by_role("menuitemradio", name="GPT-4o mini")).to_contain_text("Scripted, up to")
    await visitor.page.locator(".menu").get_by_role("link", name="Add a model provider").click()
    await expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Integrations")


async def test_guidance_is_a_note_in_the_thread(visitor: Visitor) -> None:
    await visitor.stage.script(
        *[executes("no_such_action", id=f"call_{step}") for step in range(3)], says("I gave up.")
    )
    await visitor.go("/")
    await visitor.say("Try")
    await visitor.finished()
    await expect(visitor.reply.locator(".guidance").first).to_contain_text("Note to the assistant:")
