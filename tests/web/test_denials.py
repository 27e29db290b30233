"""Refused turns, by the real server: the text is never lost, and the page says what to do next."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from playwright.async_api import Browser, Locator, expect

from parley.testing.provider_proxy import ProviderProxy
from tests.billing.office import PLAN_FILE, put_on
from tests.contract.conftest import House
from tests.stage import says
from tests.web.conftest import open_web_house
from tests.web.test_questions import CARDS
from tests.web.visitor import Visitor, visiting

MINUTE = 60
MORE_PLANS = """
[[plans]]
slug = "one"
name = "One credit"
overage = true
monthly_credits = 1
prices = { month = 20 }

[[plans]]
slug = "single"
name = "One at a time"
quotas = { concurrent_turns = 1 }

[[plans]]
slug = "slow"
name = "One a minute"
rates = { sync_exec = 1 }
"""


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory, proxy: ProviderProxy) -> AsyncIterator[House]:
    """A server with small plans."""
    folder = tmp_path_factory.mktemp("denials")
    plans = folder / "plans.toml"
    plans.write_text(PLAN_FILE + MORE_PLANS, encoding="utf-8")
    async with AsyncExitStack() as stack:
        yield await open_web_house(stack, folder, proxy, {"PARLEY_PLANS_FILE": str(plans)})


async def on_plan(visitor: Visitor, slug: str, *, overage: bool = False) -> None:
    stage = visitor.stage
    await stage.parley.store.write(put_on(stage.client.organization_id, slug, overage=overage))


async def one_turn(visitor: Visitor) -> None:
    """A turn that is accepted."""
    await visitor.go("/")
    await visitor.say("First")
    await visitor.finished()


async def refused(visitor: Visitor, sentence: str) -> Locator:
    """Send a message that is refused with this sentence; the banner."""
    turns = await visitor.page.get_by_role("article", name="You").count()
    await visitor.say("Please do it")
    banner = visitor.page.get_by_role("alert")
    await expect(banner).to_contain_text(sentence)
    await expect(visitor.box).to_have_value("Please do it")
    await expect(visitor.page.get_by_role("article", name="You")).to_have_count(turns)
    return banner


@pytest.mark.parametrize(
    ("overage", "sentence"), [(False, "Out of credits for this period."), (True, "The wallet cannot cover this.")]
)
async def test_without_credits_the_banner_leads_to_the_usage_and_the_text_waits(
    visitor: Visitor, overage: bool, sentence: str
) -> None:
    await visitor.stage.script(says("First."))
    await on_plan(visitor, "one", overage=overage)
    await one_turn(visitor)
    chat = visitor.page.url
    banner = await refused(visitor, sentence)
    await banner.get_by_role("link", name="See usage").click()
    await expect(visitor.page.get_by_role("region", name="Credits this month")).to_contain_text("1 used of 1")
    await visitor.page.goto(chat)
    await expect(visitor.box).to_have_value("Please do it")


async def test_a_full_quota_is_named_with_its_figures_and_the_text_is_sent_once_there_is_room(
    visitor: Visitor,
) -> None:
    barrier = f"room-{visitor.stage.model_key}"
    slow = says("Slow ", "answer.")
    slow.barrier, slow.barrier_after = barrier, 1
    await visitor.stage.script(slow, says("Now it works."))
    await on_plan(visitor, "single")
    running = await visitor.stage.start("From elsewhere")
    await visitor.go("/")
    banner = await refused(visitor, "Plan limit reached: concurrent turns 1/1")
    await expect(banner.get_by_role("link", name="See usage")).to_be_visible()
    await visitor.stage.model.release(barrier)
    await visitor.stage.settled(running["chat_id"])
    await visitor.box.press("Enter")
    await visitor.finished()
    await expect(visitor.reply).to_contain_text("Now it works.")
    await expect(banner).to_have_count(0)


async def test_a_rate_limit_counts_down_and_then_lets_the_text_be_sent_again(visitor: Visitor) -> None:
    await visitor.page.clock.install()
    await visitor.stage.script(says("First."), says("Now it works."))
    await on_plan(visitor, "slow")
    await one_turn(visitor)
    banner = await refused(visitor, "Too many requests just now.")
    await expect(banner.get_by_role("button", name="Retry in")).to_be_disabled()
    visitor.stage.clock.advance(seconds=MINUTE)
    await visitor.page.clock.fast_forward(MINUTE * 1_000)
    await banner.get_by_role("button", name="Retry", exact=True).click()
    await expect(visitor.reply).to_contain_text("Now it works.")
    await expect(visitor.box).to_have_value("")


async def test_a_question_that_was_asked_on_another_device_takes_the_focus_from_what_is_refused(
    visitor: Visitor, browser: Browser
) -> None:
    await visitor.stage.script(says("First."), CARDS["yes_no"].reply, says("Went on."))
    await one_turn(visitor)
    async with visiting(browser, visitor.stage) as other:
        await other.go(f"/c/{visitor.chat_id}")
        await other.say("Ask me")
        await expect(other.card).to_be_visible()
        await expect(visitor.card).to_have_count(0)
        await visitor.say("Two")
        await expect(visitor.page.get_by_role("alert")).to_be_visible()
        await expect(visitor.card.get_by_role("heading").first).to_be_focused()
        await expect(visitor.box).to_have_value("Two")
        await visitor.card.get_by_role("button", name="Go on").click()
        await expect(visitor.reply).to_contain_text("Went on.")
        await expect(other.reply).to_contain_text("Went on.")


async def test_a_turn_that_runs_in_another_window_is_joined_and_not_doubled(visitor: Visitor) -> None:
    barrier = f"busy-{visitor.stage.model_key}"
    first, slow = says("First."), says("Slow ", "answer.")
    slow.barrier, slow.barrier_after = barrier, 1
    await visitor.stage.script(first, slow)
    await one_turn(visitor)
    await visitor.stage.start("From elsewhere", visitor.chat_id)
    await visitor.say("Two")
    await expect(visitor.page.get_by_role("alert")).to_be_visible()
    await expect(visitor.box).to_have_value("Two")
    await expect(visitor.page.get_by_role("article", name="You").last).to_contain_text("From elsewhere")
    await visitor.stage.model.release(barrier)
    await expect(visitor.reply).to_contain_text("Slow answer.")


async def test_a_chat_of_nobody_says_so(visitor: Visitor) -> None:
    await visitor.go("/c/00000000-0000-4000-8000-000000000000")
    await expect(visitor.page.get_by_text("This chat does not exist here")).to_be_visible()
