"""Questions in the thread: every card, answered by mouse and by keyboard, restored after a reload."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.async_api import Page, expect

from parley.billing.plans import MICRO
from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedReply
from tests.billing.office import put_on
from tests.stage import calls, executes, says
from tests.web.visitor import Visitor

OPTIONS: list[dict[str, str]] = [
    {"value": "a", "label": "Alpha", "description": "The first", "badge": "New"},
    {"value": "b", "label": "Beta"},
    {"value": "c", "label": "Gamma"},
]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, how a person answers it with the keyboard alone, and what is left of it."""

    reply: ScriptedReply
    keys: tuple[str, ...]
    receipt: str


CARDS = {
    "single_choice": Asked(
        calls("ask_user_choice", {"message": "Which **one**?", "options": OPTIONS}),
        ("Tab", "ArrowDown", "Tab", "Enter"),
        "Beta",
    ),
    "free_choice": Asked(
        calls("ask_user_choice", {"message": "Which one?", "options": OPTIONS, "allow_free_text": True}),
        ("Tab", "Space", "ArrowUp", "Tab", "text:Delta", "Tab", "Enter"),
        "Delta",
    ),
    "multi_choice": Asked(
        calls(
            "ask_user_multi_choice",
            {"message": "Which ones?", "options": OPTIONS, "min_selections": 1, "max_selections": 2},
        ),
        ("Tab", "Space", "Tab", "Tab", "Space", "Tab", "Enter"),
        "Alpha, Gamma",
    ),
    "yes_no": Asked(
        calls("ask_user_yes_no", {"message": "Go on?", "yes_label": "Go on", "no_label": "Not now"}),
        ("Tab", "Tab", "Enter"),
        "Not now",
    ),
    "free_text": Asked(
        calls("ask_user_free_text", {"message": "Your name?", "min_length": 2, "max_length": 5}),
        ("Tab", "text:Ada", "Tab", "Enter"),
        "Ada",
    ),
    "skipped": Asked(
        calls("ask_user_free_text", {"message": "A nickname?", "required": False}),
        ("Tab", "Tab", "Tab", "Enter"),
        "Skipped",
    ),
}


async def press(page: Page, keys: tuple[str, ...]) -> None:
    for key in keys:
        if key.startswith("text:"):
            await page.keyboard.type(key.removeprefix("text:"))
        else:
            await page.keyboard.press(key)


@pytest.mark.parametrize("kind", CARDS)
async def test_a_question_is_answered_with_the_keyboard_alone_and_shrinks_to_a_receipt(
    visitor: Visitor, kind: str
) -> None:
    asked = CARDS[kind]
    await visitor.stage.script(asked.reply, says("Thank you."))
    await visitor.go("/")
    await visitor.say("Ask me")
    await expect(visitor.card.get_by_role("heading").first).to_be_focused()
    await expect(visitor.page.get_by_test_id("announcer")).to_have_text("The assistant needs your input.")
    await press(visitor.page, asked.keys)
    await visitor.finished()
    await expect(visitor.card).to_have_count(0)
    await expect(visitor.reply.locator(".receipt-answer")).to_contain_text(asked.receipt)
    await expect(visitor.reply).to_contain_text("Thank you.")
    await visitor.page.reload()
    await expect(visitor.reply.locator(".receipt-answer")).to_contain_text(asked.receipt)


async def test_an_open_question_survives_a_reload_and_sending_waits_for_it(visitor: Visitor) -> None:
    await visitor.stage.script(CARDS["yes_no"].reply, says("Good."))
    await visitor.go("/")
    await visitor.say("Ask me")
    await expect(visitor.card).to_be_visible()
    await visitor.page.reload()
    await expect(visitor.card).to_be_visible()
    await expect(visitor.page.get_by_text("Answer the question above")).to_be_visible()
    await expect(visitor.page.get_by_role("img", name="A question is waiting")).to_be_visible()
    await visitor.box.fill("Another thing")
    await visitor.box.press("Enter")
    await expect(visitor.box).to_have_value("Another thing")
    await visitor.card.get_by_role("button", name="Go on").click()
    await visitor.finished()
    await expect(visitor.box).to_have_value("Another thing")


async def test_a_card_holds_its_limits_before_anything_is_sent(visitor: Visitor) -> None:
    await visitor.stage.script(CARDS["multi_choice"].reply, CARDS["free_text"].reply, says("Thank you."))
    await visitor.go("/")
    await visitor.say("Ask me")
    card = visitor.card
    proceed = card.get_by_role("button", name="Continue")
    await expect(card).to_contain_text("Pick 1–2, 0 selected")
    await expect(proceed).to_be_disabled()
    await card.get_by_label("Alpha").check()
    await card.get_by_label("Beta").check()
    await expect(card).to_contain_text("2 selected")
    await expect(card.get_by_label("Gamma")).to_be_disabled()
    await proceed.click()
    answer = card.get_by_label("Your answer")
    await answer.fill("A")
    await card.get_by_role("button", name="Send answer").click()
    await expect(card).to_contain_text("Write at least 2 characters (1 more).")
    await expect(answer).to_have_attribute("aria-invalid", "true")
    await answer.fill("Grace")
    await expect(card).to_contain_text("5 of 5 characters")
    await card.get_by_role("button", name="Send answer").click()
    await visitor.finished()
    await expect(visitor.reply.locator(".receipt-answer")).to_have_text(
        ["Your answer: Alpha, Beta", "Your answer: Grace"]
    )


async def test_an_answer_that_does_not_arrive_is_kept_in_the_card(visitor: Visitor) -> None:
    await visitor.stage.script(CARDS["free_text"].reply, says("Thank you."))
    await visitor.go("/")
    await visitor.say("Ask me")
    await visitor.card.get_by_label("Your answer").fill("Ada")
    await visitor.context.set_offline(True)
    await visitor.card.get_by_role("button", name="Send answer").click()
    await expect(visitor.page.get_by_role("alert")).to_contain_text("could not be reached")
    await expect(visitor.card.get_by_label("Your answer")).to_have_value("Ada")
    await visitor.context.set_offline(False)
    await visitor.card.get_by_role("button", name="Send answer").click()
    await visitor.finished()
    await expect(visitor.reply.locator(".receipt-answer")).to_have_text("Your answer: Ada")


async def test_a_question_does_not_take_the_focus_from_someone_who_types(visitor: Visitor) -> None:
    held = calls("ask_user_yes_no", {"message": "Go on?"}, text="Wait")
    held.barrier, held.barrier_after = "typing", 1
    await visitor.stage.script(held)
    await visitor.go("/")
    await visitor.say("Ask me")
    await expect(visitor.page.get_by_role("button", name="Stop")).to_be_visible()
    await visitor.box.fill("half a sentence")
    await visitor.stage.model.release("typing")
    await expect(visitor.card).to_be_visible()
    await expect(visitor.box).to_be_focused()


async def test_stopping_at_a_question_gives_it_up(visitor: Visitor) -> None:
    await visitor.stage.script(CARDS["free_text"].reply)
    await visitor.go("/")
    await visitor.say("Ask me")
    await visitor.card.get_by_role("button", name="Stop the turn").click()
    await expect(visitor.card).to_have_count(0)
    await expect(visitor.reply).to_contain_text("Not answered")
    await expect(visitor.reply).to_contain_text("Stopped")
    await expect(visitor.page.get_by_role("button", name="Send")).to_be_visible()


async def approval(visitor: Visitor, github: FakeGitHub, *after: ScriptedReply) -> None:
    await visitor.stage.connect_github(github.token)
    await visitor.stage.script(
        executes("delete_repository", {"owner": github.owner, "repo": github.repositories[0]}), *after
    )
    await visitor.go("/")
    await visitor.say("Delete it")
    await expect(visitor.card).to_be_visible()


async def test_an_approval_shows_what_would_be_done_and_no_key_approves_it(
    visitor: Visitor, github: FakeGitHub
) -> None:
    await approval(visitor, github, says("Left alone."))
    card = visitor.card
    await expect(card.get_by_role("heading", name="Approval needed")).to_be_focused()
    await expect(card).to_contain_text("GitHub")
    await expect(card.locator("dl")).to_contain_text(github.repositories[0])
    client = visitor.stage.client
    [chat] = (await client.get("/assistant/chats")).body["items"]
    question = (await client.get(f"/assistant/chat/{chat['id']}")).body["pending_user_input_request"]
    assert (await card.inner_text()).count(question["context"]["reason"]) == 1
    for key in ("Enter", "Space", "y"):
        await visitor.page.keyboard.press(key)
    await expect(card).to_be_visible()
    await card.get_by_role("button", name="Do not run").click()
    await visitor.finished()
    await expect(visitor.reply.locator(".receipt-answer")).to_contain_text("Declined")
    await expect(visitor.reply.locator("summary", has_text="Delete repository")).to_contain_text("Declined by you")
    assert github.deleted == []


async def test_an_approved_action_runs_once(visitor: Visitor, github: FakeGitHub) -> None:
    await approval(visitor, github, says("Gone."))
    await visitor.card.locator(".approval-buttons .danger").click()
    await visitor.finished()
    await expect(visitor.reply.locator(".receipt-answer")).to_contain_text("Approved")
    assert github.deleted == ["hello-world"]


@pytest.mark.parametrize("yes", [True, False])
async def test_a_turn_at_its_cap_asks_in_the_thread_and_shows_what_became_of_it(
    visitor: Visitor, github: FakeGitHub, yes: bool
) -> None:
    stage = visitor.stage
    await stage.connect_github(github.token)
    # The turn's own credit is all of this cap, so the first call asks.
    await stage.parley.store.write(put_on(stage.client.organization_id, "enterprise", turn_cap_micro=MICRO))
    await stage.script(executes("list_repositories"), says("One repository."))
    await visitor.go("/")
    await visitor.say("Look")
    await expect(visitor.card).to_contain_text("This turn has used 1 of 1 credits. Go on? It may then use up to 2.")
    await visitor.page.reload()
    await visitor.card.get_by_role("button", name="Go on" if yes else "Stop here").click()
    await visitor.finished()
    await expect(visitor.card).to_have_count(0)
    for _ in range(2):
        await expect(visitor.reply.locator(".receipt-answer")).to_contain_text("Go on" if yes else "Stop here")
        await expect(visitor.reply).to_contain_text("One repository." if yes else "I stopped here, as you chose")
        assert await visitor.faults() == []
        await visitor.page.reload()


def connect(required: bool = False) -> ScriptedReply:
    options: list[dict[str, Any]] = [{"auth_type": "bearer_token", "display_name": "Personal Access Token"}]
    return calls(
        "request_credential",
        {
            "integration_name": "github",
            "integration_display_name": "GitHub",
            "auth_options": options,
            "required": required,
        },
    )


async def test_a_missing_connection_is_made_in_the_thread_and_the_secret_stays_out_of_the_chat(
    visitor: Visitor, github: FakeGitHub
) -> None:
    await visitor.stage.script(connect(), executes("list_repositories", id="call_2"), says("One repository."))
    await visitor.go("/")
    await visitor.say("List my repositories")
    field = visitor.card.locator("input[type=password]")
    await expect(field).to_have_attribute("autocomplete", "new-password")
    await field.fill("ghp_wrong")
    await visitor.card.get_by_role("button", name="Connect GitHub").click()
    await expect(visitor.card.get_by_role("alert")).to_be_visible()
    await expect(visitor.card.get_by_role("button", name="Give up and tell the assistant")).to_be_visible()
    await field.fill(github.token)
    await visitor.card.get_by_role("button", name="Connect GitHub").click()
    await visitor.finished()
    await expect(visitor.reply.locator(".receipt-answer")).to_contain_text("Connected")
    await expect(visitor.reply.locator("summary", has_text="List repositories")).to_contain_text("Done")
    assert github.token not in await visitor.page.content()
    chat = await visitor.stage.client.get(f"/assistant/chat/{visitor.chat_id}")
    assert not re.search(github.token, str(chat.body))


async def test_a_connection_that_is_not_required_can_be_skipped(visitor: Visitor) -> None:
    await visitor.stage.script(connect(), says("Without it, then."))
    await visitor.go("/")
    await visitor.say("List my repositories")
    await visitor.card.get_by_role("button", name="Skip for now").click()
    await visitor.finished()
    await expect(visitor.reply.locator(".receipt-answer")).to_contain_text("Skipped")
