"""Replies under way: cut connections, reloads, several tabs, stopping, and the place of the reader."""

from playwright.async_api import Route, expect

from parley.testing.scripted_wire import ScriptedReply
from tests.stage import calls, says
from tests.web.visitor import Visitor

WORDS = [f"word{number} " for number in range(60)]
WHOLE = "".join(WORDS).strip()


def held(barrier: str, after: int, *pieces: str) -> ScriptedReply:
    """A reply that stops after so many pieces until the barrier is lifted."""
    return ScriptedReply(text=list(pieces), barrier=barrier, barrier_after=after)


async def test_a_reload_in_mid_reply_loses_and_doubles_nothing(visitor: Visitor) -> None:
    barrier = f"reload-{visitor.stage.model_key}"
    await visitor.stage.script(held(barrier, 30, *WORDS))
    await visitor.go("/")
    await visitor.say("Write")
    await expect(visitor.reply).to_contain_text("word20")
    await expect(visitor.page.get_by_role("navigation").get_by_role("img", name="Running")).to_be_visible()
    await visitor.page.reload()
    await expect(visitor.reply).to_contain_text("word20")
    await visitor.stage.model.release(barrier)
    await visitor.finished()
    await expect(visitor.reply.locator(".markdown")).to_have_text(WHOLE)


async def test_a_lost_connection_comes_back_with_the_whole_reply(visitor: Visitor) -> None:
    barrier = f"cut-{visitor.stage.model_key}"
    await visitor.stage.script(held(barrier, 30, *WORDS))
    cut = 0

    async def cutting(route: Route) -> None:
        nonlocal cut
        cut += 1
        if cut == 1:
            await route.abort("connectionreset")
        else:
            await route.continue_()

    await visitor.context.route("**/listen/**", cutting)
    await visitor.go("/")
    await visitor.say("Write")
    await expect(visitor.reply).to_contain_text("word20")
    await visitor.stage.model.release(barrier)
    await visitor.finished()
    await expect(visitor.reply.locator(".markdown")).to_have_text(WHOLE)
    assert cut >= 2


async def test_going_offline_in_mid_reply_keeps_the_text_and_catches_up(visitor: Visitor) -> None:
    barrier = f"offline-{visitor.stage.model_key}"
    await visitor.stage.script(held(barrier, 30, *WORDS))
    await visitor.go("/")
    await visitor.say("Write")
    await expect(visitor.reply).to_contain_text("word20")
    await visitor.context.set_offline(True)
    await visitor.stage.model.release(barrier)
    await visitor.context.set_offline(False)
    await visitor.finished()
    await expect(visitor.reply.locator(".markdown")).to_have_text(WHOLE)


async def test_a_message_that_could_not_be_sent_stays_and_is_sent_once_on_retry(visitor: Visitor) -> None:
    await visitor.stage.script(says("Here now."))
    await visitor.go("/")
    await visitor.context.set_offline(True)
    await visitor.say("Are you there?")
    await expect(visitor.page.get_by_text("Not sent.")).to_be_visible()
    await expect(visitor.page.get_by_role("article", name="You")).to_contain_text("Are you there?")
    await visitor.context.set_offline(False)
    await visitor.page.get_by_role("button", name="Retry").click()
    await visitor.finished()
    chat = await visitor.stage.client.get(f"/assistant/chat/{visitor.chat_id}")
    assert [each["role"] for each in chat.body["messages"]] == ["human", "ai"]


async def test_two_tabs_show_the_same_turn_and_one_answer_serves_both(visitor: Visitor) -> None:
    await visitor.stage.script(calls("ask_user_yes_no", {"message": "Go on?"}), says("Went on."), says("Again."))
    await visitor.go("/")
    await visitor.say("Ask me")
    await expect(visitor.card).to_be_visible()
    other = await visitor.context.new_page()
    await other.goto(visitor.page.url)
    await expect(other.locator("[data-question]")).to_be_visible()
    await visitor.card.get_by_role("button", name="Yes").click()
    await visitor.finished()
    theirs = other.get_by_role("article", name="Assistant").last
    await expect(theirs).to_contain_text("Went on.")
    await expect(other.locator("[data-question]")).to_have_count(0)
    await visitor.say("Once more")
    await expect(other.get_by_role("article", name="You").last).to_contain_text("Once more")
    await expect(other.get_by_role("article", name="Assistant").last).to_contain_text("Again.")


async def test_escape_stops_a_running_turn_and_the_next_one_works(visitor: Visitor) -> None:
    barrier = f"stop-{visitor.stage.model_key}"
    await visitor.stage.script(held(barrier, 10, *WORDS), says("Fresh start."))
    await visitor.go("/")
    await visitor.say("Write")
    await expect(visitor.reply).to_contain_text("word5")
    await visitor.page.keyboard.press("Escape")
    await expect(visitor.reply).to_contain_text("Stopped")
    await visitor.say("And now?")
    await expect(visitor.reply).to_contain_text("Fresh start.")


async def test_a_reader_who_went_up_is_left_alone_and_can_jump_back(visitor: Visitor) -> None:
    barrier = f"scroll-{visitor.stage.model_key}"
    lines = [f"Line {number}.\n\n" for number in range(120)]
    await visitor.stage.script(held(barrier, 80, *lines))
    await visitor.go("/")
    await visitor.say("Write much")
    await expect(visitor.reply).to_contain_text("Line 70.")
    scroller = visitor.page.locator(".scroller")
    await scroller.hover()
    await visitor.page.mouse.wheel(0, -1200)
    await expect(visitor.page.get_by_role("button", name="Jump to latest")).to_be_visible()
    before = await scroller.evaluate("(element) => element.scrollTop")
    await visitor.stage.model.release(barrier)
    await visitor.finished()
    assert await scroller.evaluate("(element) => element.scrollTop") == before
    await visitor.page.get_by_role("button", name="Jump to latest").click()
    gap = "(element) => element.scrollHeight - element.scrollTop - element.clientHeight"
    await expect(visitor.page.get_by_role("button", name="Jump to latest")).to_have_count(0)
    assert await scroller.evaluate(gap) < 40


async def test_enter_that_confirms_a_word_does_not_send_and_shift_enter_breaks_the_line(visitor: Visitor) -> None:
    await visitor.go("/")
    await visitor.box.fill("ko")
    await visitor.box.dispatch_event(
        "keydown", {"key": "Enter", "isComposing": True, "bubbles": True, "cancelable": True}
    )
    await visitor.box.press("Shift+Enter")
    await expect(visitor.box).to_have_value("ko\n")
    await expect(visitor.page.get_by_role("article", name="You")).to_have_count(0)
