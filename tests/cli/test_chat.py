"""``parley chat`` at a terminal: what stands on the screen, and what reaches the server (issue 1, sentence 10)."""

import re
from typing import Any
from uuid import uuid4

import pytest

from parley.testing.fake_github import FakeGitHub
from parley.testing.fault_proxy import fault_proxy
from tests.cli.conftest import Sit
from tests.contract.test_credentials_oauth import SignInServer, sign_ins
from tests.stage import Stage, Turn, calls, executes, says

__all__ = ["sign_ins"]

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b1m"
OPTIONS = [{"value": "a", "label": "Alpha"}, {"value": "b", "label": "Beta", "description": "the second"}]


async def newest_chat(stage: Stage) -> str:
    return (await stage.client.get("/assistant/chats")).body["items"][0]["id"]


async def said_to_model(stage: Stage) -> str:
    """The last request that the model got."""
    return str((await stage.model.requests(stage.model_key))[-1].body)


# ── streaming ───────────────────────────────────────────────────────────────────────────────────


async def test_text_is_on_the_screen_before_the_turn_ends_and_stands_there_once(stage: Stage, sit: Sit) -> None:
    barrier = f"half-{uuid4().hex}"
    # The role comes first, then one event a piece.
    await stage.script(says("The first ", "half. ", "The **second**", " half.", barrier=barrier, barrier_after=3))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Tell me")
        await terminal.shows("The first half.")
        assert "second" not in terminal.text
        await stage.model.release(barrier)
        await terminal.shows("The first half. The second half.", "tokens")
        await terminal.ends_with("\n> "[1:])
        assert terminal.text.count("The first half.") == 1
        assert "**" not in terminal.text
        assert "Working" not in terminal.text


async def test_markdown_is_rendered_block_by_block_and_code_is_kept_as_it_is(stage: Stage, sit: Sit) -> None:
    pieces = re.findall(r"(?s).{1,7}", "# Plan\n\n- one\n- two\n\n```python\nx = {'a': 1}\n\ny = 2\n```\n\nThe end.")
    await stage.script(says(*pieces))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Plan it")
        await terminal.shows("The end.", "tokens")
        lines = [line.strip() for line in terminal.text.splitlines()]
        assert [line for line in lines if line in {"• one", "• two", "x = {'a': 1}", "y = 2", "The end."}] == [
            "• one",
            "• two",
            "x = {'a': 1}",
            "y = 2",
            "The end.",
        ]
        assert "```" not in terminal.text


async def test_a_long_answer_leaves_every_line_once(stage: Stage, sit: Sit) -> None:
    lines = [f"- line number {number} of the answer" for number in range(120)]
    await stage.script(says(*(f"{line}\n" for line in lines)))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Count")
        await terminal.shows("line number 119 of", "tokens")
        shown = re.findall(r"line number (\d+) of", terminal.text)
        assert shown == [str(number) for number in range(120)]


async def test_a_tool_call_is_one_line_with_its_state_and_its_time(stage: Stage, sit: Sit, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    await stage.script(
        executes("list_repositories", text="I look."), executes("no_such_action", id="call_2"), says("One repository.")
    )
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Which repositories?")
        await terminal.shows("One repository.", "tokens")
        assert re.search(r"✓ github · list repositories .*\d m?s", terminal.text)
        assert re.search(r"✗ github · no such action .*not found", terminal.text)
        order = [terminal.text.index(word) for word in ("I look.", "✓ github", "✗ github", "One repository.")]
        assert order == sorted(order)


async def test_guidance_is_a_note(stage: Stage, sit: Sit) -> None:
    failing = [executes("no_such_action", id=f"call_{number}") for number in range(3)]
    await stage.script(*failing, says("I stop."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Try")
        await terminal.shows("I stop.", "tokens")
        assert "3 " in next(
            line for line in terminal.text.splitlines() if "in a row" in line or "failed" in line.lower()
        )


async def test_nothing_from_a_model_or_a_service_reaches_the_terminal_as_a_command(stage: Stage, sit: Sit) -> None:
    await stage.script(
        calls(
            "ask_user_choice",
            {"message": f"Q{HOSTILE}", "options": [{"value": "a", "label": f"A{HOSTILE}"}, *OPTIONS[1:]]},
        ),
        executes(f"x{HOSTILE}", id="call_2"),
        says(f"before{HOSTILE}after"),
    )
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Go")
        await terminal.ends_with("1-2> ")
        terminal.type("1")
        await terminal.shows("before", "after", "tokens")
        for command in ("\x1b]", "\x1b[2J", "\x9b", "\x07"):
            assert command not in terminal.raw


# ── questions ───────────────────────────────────────────────────────────────────────────────────


QUESTIONS: dict[str, tuple[str, dict[str, Any], str, str, str]] = {
    "single_choice": ("ask_user_choice", {"options": OPTIONS}, "7", "Type a number from 1 to 2.", "2"),
    "multi_choice": (
        "ask_user_multi_choice",
        {"options": OPTIONS, "min_selections": 1, "max_selections": 2},
        "",
        "Choose 1 to 2",
        "1, 2",
    ),
    "yes_no": ("ask_user_yes_no", {"yes_label": "Do it"}, "maybe", "Type y or n.", "y"),
    "free_text": ("ask_user_free_text", {"min_length": 3}, "a", "Write at least 3 characters.", "Ada"),
}
ANSWERS: dict[str, dict[str, Any]] = {
    "single_choice": {"selected_value": "b"},
    "multi_choice": {"selected_values": ["a", "b"]},
    "yes_no": {"answer": True},
    "free_text": {"text": "Ada"},
}


@pytest.mark.parametrize("kind", QUESTIONS)
async def test_a_question_is_answered_on_the_spot_and_a_wrong_answer_is_explained(
    stage: Stage, sit: Sit, kind: str
) -> None:
    tool, extra, wrong, complaint, right = QUESTIONS[kind]
    await stage.script(calls(tool, {"message": "Which **one**?", **extra}), says("Thank you."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Ask me")
        await terminal.shows("Which one?")
        await terminal.ends_with("> ")
        terminal.type(wrong)
        await terminal.shows(complaint)
        terminal.type(right)
        await terminal.shows("Thank you.", "tokens")
    turn = Turn("", "", await stage.client.listen(*await newest_run(stage)))
    output = turn.data("tool_result")["output"]
    assert output["kind"] == kind
    assert {key: output[key] for key in ANSWERS[kind]} == ANSWERS[kind]


async def newest_run(stage: Stage) -> tuple[str, str]:
    chat_id = await newest_chat(stage)
    messages = (await stage.client.get(f"/assistant/chat/{chat_id}")).body["messages"]
    return chat_id, messages[-1]["run_id"]


async def test_an_optional_question_can_be_skipped_and_other_words_are_taken_where_allowed(
    stage: Stage, sit: Sit
) -> None:
    free = {"message": "One?", "options": OPTIONS, "allow_free_text": True}
    await stage.script(
        calls("ask_user_choice", free),
        calls("ask_user_free_text", {"message": "Two?", "required": False}, id="call_2"),
        says("Done."),
    )
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Ask me")
        await terminal.ends_with("in your own words> ")
        terminal.type("neither of them")
        await terminal.ends_with("or /skip> ")
        terminal.type("/skip")
        await terminal.shows("Done.", "tokens")
    said = await said_to_model(stage)
    assert "neither of them" in said
    assert "skipped" in said


async def test_a_text_of_several_lines_ends_with_an_empty_one(stage: Stage, sit: Sit) -> None:
    await stage.script(calls("ask_user_free_text", {"message": "Write.", "multiline": True}), says("Read."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Ask me")
        await terminal.shows("Finish with an empty line.")
        for line in ("first", "second", ""):
            terminal.type(line)
        await terminal.shows("Read.", "tokens")
    assert r"first\\nsecond" in await said_to_model(stage)


async def test_an_approval_shows_every_parameter_with_secrets_masked_and_no_runs_nothing(
    stage: Stage, sit: Sit, github: FakeGitHub
) -> None:
    await stage.connect_github(github.token)
    given = {"owner": github.owner, "repo": github.repositories[0]}
    await stage.script(executes("delete_repository", given), says("Left alone."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Delete it")
        await terminal.shows("Asks first", "delete_repository", "owner", github.owner, "hello-world", "GitHub")
        await terminal.ends_with("> ")
        terminal.type("")
        await terminal.shows("Type y or n.")
        terminal.type("n")
        await terminal.shows("– github · delete repository", "declined", "Left alone.")
    assert github.deleted == []


async def test_yes_to_an_approval_runs_the_action_once(stage: Stage, sit: Sit, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    given = {"owner": github.owner, "repo": github.repositories[0]}
    await stage.script(executes("delete_repository", given), says("Gone."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Delete it")
        await terminal.shows("Asks first")
        await terminal.ends_with("> ")
        terminal.type("y")
        await terminal.shows("✓ github · delete repository", "Gone.", "tokens")
    assert github.deleted == ["hello-world"]


async def test_a_question_answered_elsewhere_lets_the_terminal_follow_on(stage: Stage, sit: Sit) -> None:
    await stage.script(calls("ask_user_yes_no", {"message": "Go on?"}), says("Going on."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Ask me")
        await terminal.shows("Go on?")
        await terminal.ends_with("> ")
        chat_id = await newest_chat(stage)
        pending = (await stage.client.get(f"/assistant/chat/{chat_id}")).body["pending_user_input_request"]
        body = {"request_id": pending["request_id"], "response": {"kind": "yes_no", "answer": True}, "llm": stage.llm}
        assert (await stage.client.post(f"/assistant/chat/{chat_id}/resume", body)).status == 200
        terminal.type("n")
        await terminal.shows("answered elsewhere", "Going on.", "tokens")
        assert terminal.text.count("Going on.") == 1


# ── connecting ──────────────────────────────────────────────────────────────────────────────────


def request_github(*auth_types: str) -> Any:
    options: list[dict[str, Any]] = [
        {"auth_type": name, "display_name": name, "oauth_initiate_endpoint": "x"} for name in auth_types
    ]
    wish = {"integration_name": "github", "integration_display_name": "GitHub", "auth_options": options}
    return calls("request_credential", wish)


async def test_a_secret_is_typed_unseen_and_goes_to_the_credential_store_alone(
    stage: Stage, sit: Sit, github: FakeGitHub
) -> None:
    await stage.script(request_github("bearer_token"), executes("list_repositories", id="call_2"), says("Connected."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Connect GitHub")
        await terminal.ends_with("How? 1-1, or /skip> ")
        terminal.type("1")
        await terminal.ends_with("Token> ")
        terminal.type("ghp_" + "0" * 32)
        await terminal.shows("That did not work")
        await terminal.ends_with("or /stop> ")
        terminal.type("")
        await terminal.ends_with("Token> ")
        terminal.type(github.token)
        await terminal.shows("✓ github · list repositories", "Connected.", "tokens")
        assert github.token not in terminal.raw
    held = (await stage.client.get("/credentials?integration_name=github")).body["credentials"]
    assert [row["auth_type"] for row in held] == ["bearer_token"]
    assert github.token not in await said_to_model(stage)


async def test_giving_up_tells_the_assistant_what_went_wrong(stage: Stage, sit: Sit, github: FakeGitHub) -> None:
    await stage.script(request_github("bearer_token"), says("Another time."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Connect GitHub")
        await terminal.ends_with("/skip> ")
        terminal.type("1")
        await terminal.ends_with("Token> ")
        terminal.type("ghp_" + "0" * 32)
        await terminal.ends_with("or /stop> ")
        terminal.type("/stop")
        await terminal.shows("Another time.")
    assert "credential_failed" in await said_to_model(stage)
    assert github.deleted == []


async def test_a_sign_in_prints_its_address_and_the_turn_goes_on_by_itself(
    stage: Stage,
    sit: Sit,
    sign_ins: SignInServer,
) -> None:
    await stage.script(request_github("oauth2"), executes("list_repositories", id="call_2"), says("Signed in."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Connect GitHub")
        await terminal.ends_with("/skip> ")
        terminal.type("1")
        await terminal.ends_with("Client ID (or /stop)> ")
        terminal.type(sign_ins.client_id)
        await terminal.ends_with("Client secret> ")
        terminal.type(sign_ins.client_secret)
        await terminal.shows("https://github.com/login/oauth/authorize", "Waiting for the sign-in")
        assert sign_ins.client_secret not in terminal.raw
        found = re.search(r"https://github\.com/login/\S+", terminal.raw)
        assert found is not None
        query = sign_ins.consent(found.group())
        async with stage.client.session.get(f"{stage.client.base_url}/credentials/oauth2/callback?{query}") as page:
            assert page.status == 200
        await terminal.shows("✓ github · list repositories", "Signed in.", "tokens")


async def test_waiting_for_a_sign_in_can_be_left_for_another_way(
    stage: Stage,
    sit: Sit,
    sign_ins: SignInServer,
) -> None:
    await stage.script(request_github("oauth2"), says("Not connected."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Connect GitHub")
        await terminal.ends_with("/skip> ")
        terminal.type("1")
        await terminal.ends_with("Client ID (or /stop)> ")
        terminal.type(sign_ins.client_id)
        await terminal.ends_with("Client secret> ")
        terminal.type(sign_ins.client_secret)
        await terminal.shows("Waiting for the sign-in")
        await terminal.shows("Working")
        terminal.press("\x03")
        await terminal.ends_with("/skip> ")
        terminal.type("/skip")
        await terminal.shows("Not connected.", "tokens")


# ── stopping, leaving, coming back ──────────────────────────────────────────────────────────────


async def test_ctrl_c_stops_the_turn_and_the_chat_goes_on(stage: Stage, sit: Sit) -> None:
    await stage.script(
        says("Beginning ", "never said", barrier=f"never-{uuid4().hex}", barrier_after=2), says("Hello again.")
    )
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Talk for ever")
        await terminal.shows("Beginning")
        terminal.press("\x03")
        await terminal.shows("Stopping", "Stopped.")
        await terminal.ends_with("> ")
        terminal.type("Hello")
        await terminal.shows("Hello again.", "tokens")
    chat = (await stage.client.get(f"/assistant/chat/{await newest_chat(stage)}")).body
    assert [message["running_status"] for message in chat["messages"] if message["role"] == "ai"] == [
        "cancelled",
        "completed",
    ]


async def test_ctrl_c_at_a_question_stops_the_turn(stage: Stage, sit: Sit) -> None:
    await stage.script(calls("ask_user_yes_no", {"message": "Go on?"}))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Ask me")
        await terminal.ends_with("No> ")
        await terminal.interrupt("Stopped.")
        await terminal.ends_with("> ")
        terminal.type("/quit")
        assert await terminal.ended() == 0
    state = (await stage.client.get(f"/assistant/chat/{await newest_chat(stage)}/status")).body
    assert state["run_status"]["status"] == "cancelled"


async def test_a_second_ctrl_c_leaves_although_the_server_does_not_answer(stage: Stage, sit: Sit) -> None:
    await stage.script(says("Beginning ", "never said", barrier=f"never-{uuid4().hex}", barrier_after=2))
    port = int(stage.client.base_url.rpartition(":")[2])
    async with fault_proxy("127.0.0.1", port) as between, sit(url=f"http://127.0.0.1:{between.port}") as terminal:
        await terminal.ends_with("> ")
        terminal.type("Talk for ever")
        await terminal.shows("Beginning")
        between.freeze()
        terminal.press("\x03")
        await terminal.shows("Stopping")
        terminal.press("\x03")
        assert await terminal.ended() == 0
        assert "Go on later with: parley chat --chat" in terminal.text
        between.heal()
    await stage.client.post(f"/assistant/chat/{await newest_chat(stage)}/cancel")


@pytest.mark.parametrize("keys", ["\x04", "/quit\r"])
async def test_ctrl_d_and_quit_leave_from_the_prompt(sit: Sit, keys: str) -> None:
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.press(keys)
        assert await terminal.ended() == 0


async def test_ctrl_c_at_the_prompt_leaves_when_it_is_pressed_twice(sit: Sit) -> None:
    async with sit() as terminal:
        await terminal.ends_with("> ")
        await terminal.interrupt("Ctrl-C again, Ctrl-D or /quit leaves.")
        await terminal.ends_with("> ")
        await terminal.interrupt("Goodbye.")
        assert await terminal.ended() == 0


async def test_a_chat_is_taken_up_again_with_its_open_question(stage: Stage, sit: Sit) -> None:
    first = await stage.turn(says("I am listening."), message="Good morning")
    await stage.turn(
        calls("ask_user_yes_no", {"message": "Shall I?"}, text="One thing."), chat_id=first.chat_id, message="Begin"
    )
    await stage.script(says("Then I do."))
    async with sit("--chat", first.chat_id) as terminal:
        await terminal.shows("Good morning", "I am listening.", "> Begin", "One thing.", "Shall I?")
        await terminal.ends_with("No> ")
        terminal.type("y")
        await terminal.shows("Then I do.", "tokens")
        await terminal.ends_with("> ")


async def test_leaving_at_a_question_keeps_it_open(stage: Stage, sit: Sit) -> None:
    await stage.script(calls("ask_user_yes_no", {"message": "Go on?"}))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("Ask me")
        await terminal.ends_with("No> ")
        terminal.press("\x04")
        chat_id = await newest_chat(stage)
        assert await terminal.ended() == 0
        assert f"parley chat --chat {chat_id}" in terminal.text
    assert (await stage.client.get(f"/assistant/chat/{chat_id}/status")).body["awaiting_input"] is True


async def test_a_message_to_a_busy_chat_is_not_sent_and_what_runs_is_shown(stage: Stage, sit: Sit) -> None:
    first = await stage.turn(says("Ready."))
    async with sit("--chat", first.chat_id) as terminal:
        await terminal.ends_with("> ")
        await stage.turn(calls("ask_user_yes_no", {"message": "From elsewhere?"}), chat_id=first.chat_id)
        await stage.script(says("Settled."))
        terminal.type("Me too")
        await terminal.shows("Your message was not sent.", "From elsewhere?")
        await terminal.ends_with("No> ")
        terminal.type("y")
        await terminal.shows("Settled.", "tokens")
        await terminal.ends_with("> ")


async def test_one_turn_at_a_terminal_asks_too_and_ends_with_its_code(stage: Stage, sit: Sit) -> None:
    await stage.script(calls("ask_user_yes_no", {"message": "Shall I?"}), says("Done so."))
    async with sit("Do it") as terminal:
        await terminal.ends_with("No> ")
        terminal.type("y")
        assert await terminal.ended() == 0
        await terminal.shows("Done so.", "tokens")
        assert "/help" not in terminal.text


# ── cut connections ─────────────────────────────────────────────────────────────────────────────


async def test_a_cut_stream_goes_on_where_it_was(stage: Stage, sit: Sit) -> None:
    barriers = [f"cut-{uuid4().hex}", f"cut-{uuid4().hex}"]
    await stage.script(
        calls("ask_user_yes_no", {"message": "Ready?"}),
        says("One, ", "two, ", "three.", barrier=barriers[0], barrier_after=3),
        says("Again."),
    )
    port = int(stage.client.base_url.rpartition(":")[2])
    async with fault_proxy("127.0.0.1", port) as between, sit(url=f"http://127.0.0.1:{between.port}") as terminal:
        await terminal.ends_with("> ")
        terminal.type("Count")
        await terminal.ends_with("No> ")
        between.reset()
        terminal.type("y")
        await terminal.shows("One, two,")
        between.refuse()
        await terminal.shows("Reconnecting")
        await stage.model.release(barriers[0])
        between.heal()
        await terminal.shows("One, two, three.", "tokens")
        assert terminal.text.count("One, two") == 1
        await terminal.ends_with("> ")
        between.refuse()
        terminal.type("Are you there?")
        await terminal.shows("was cut")
        between.heal()
        terminal.type("Are you there?")
        await terminal.shows("Again.")


# ── models ──────────────────────────────────────────────────────────────────────────────────────


async def test_models_are_listed_and_chosen_by_name_and_credential(stage: Stage, sit: Sit) -> None:
    await stage.script(says("From the named one."))
    async with sit("--llm", "openai/gpt-4o@Scripted") as terminal:
        await terminal.shows("openai/gpt-4o")
        await terminal.ends_with("> ")
        terminal.type("/models")
        await terminal.shows("→  openai/gpt-4o ", "openai/gpt-4o-mini")
        terminal.type("/model nonsense")
        await terminal.shows("Write provider/model")
        terminal.type("/model openai/gpt-4o@Nobody")
        await terminal.shows("There is no credential 'Nobody' for openai. There is: Scripted.")
        terminal.type("/model demo/demo")
        await terminal.shows("From now on: demo/demo")
        terminal.type("/model openai/gpt-4o")
        await terminal.shows("From now on: openai/gpt-4o")
        terminal.type("Hello")
        await terminal.shows("From the named one.", "tokens")


async def test_new_begins_another_chat(stage: Stage, sit: Sit) -> None:
    await stage.script(says("First."), says("Second."))
    async with sit() as terminal:
        await terminal.ends_with("> ")
        terminal.type("One")
        await terminal.shows("First.", "tokens")
        terminal.type("/new")
        await terminal.shows("A new chat begins")
        terminal.type("Two")
        await terminal.shows("Second.")
        await terminal.ends_with("> ")
    titles = [chat["title"] for chat in (await stage.client.get("/assistant/chats")).body["items"]]
    assert titles[:2] == ["Two", "One"]
