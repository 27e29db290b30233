"""People in the loop: questions, answers, expiry (contract §5, §2.6, §17 row 5)."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import select

from parley.storage.tables.chats import questions
from tests.stage import Answer, Stage, Turn, calls, says

OPTIONS = [{"value": "a", "label": "Alpha"}, {"value": "b", "label": "Beta"}, {"value": "c", "label": "Gamma"}]
CHOICE = calls("ask_user_choice", {"message": "Which?", "options": OPTIONS, "allow_free_text": True})
MULTI = calls(
    "ask_user_multi_choice",
    {"message": "Which ones?", "options": OPTIONS, "min_selections": 1, "max_selections": 2, "required": False},
)
YES_NO = calls("ask_user_yes_no", {"message": "Go on?"})
TEXT = calls("ask_user_free_text", {"message": "Your name?", "min_length": 2, "max_length": 5})

QUESTIONS = {"single_choice": CHOICE, "multi_choice": MULTI, "yes_no": YES_NO, "free_text": TEXT}
GOOD: dict[str, dict[str, Any]] = {
    "single_choice": {"kind": "single_choice", "selected_value": "b"},
    "multi_choice": {"kind": "multi_choice", "selected_values": ["a", "c"]},
    "yes_no": {"kind": "yes_no", "answer": True},
    "free_text": {"kind": "free_text", "text": "Ada"},
}
BAD: list[tuple[str, dict[str, Any], int]] = [
    ("single_choice", {"kind": "single_choice", "selected_value": "z"}, 400),
    ("single_choice", {"kind": "single_choice"}, 400),
    ("single_choice", {"kind": "single_choice", "selected_value": "a", "free_text": "x"}, 400),
    ("single_choice", {"kind": "single_choice", "free_text": "  "}, 400),
    ("single_choice", {"kind": "yes_no", "answer": True}, 400),
    ("single_choice", {"kind": "skipped"}, 400),
    ("single_choice", {"kind": "nonsense"}, 422),
    ("single_choice", {}, 422),
    ("multi_choice", {"kind": "multi_choice", "selected_values": []}, 400),
    ("multi_choice", {"kind": "multi_choice", "selected_values": ["a", "b", "c"]}, 400),
    ("multi_choice", {"kind": "multi_choice", "selected_values": ["a", "a"]}, 400),
    ("multi_choice", {"kind": "multi_choice", "selected_values": ["z"]}, 400),
    ("multi_choice", {"kind": "multi_choice", "selected_values": "a"}, 422),
    ("yes_no", {"kind": "free_text", "text": "yes"}, 400),
    ("yes_no", {"kind": "yes_no", "answer": "yes"}, 422),
    ("yes_no", {"kind": "skipped"}, 400),
    ("free_text", {"kind": "free_text", "text": "A"}, 400),
    ("free_text", {"kind": "free_text", "text": "Adalbert"}, 400),
    ("free_text", {"kind": "free_text", "text": None}, 422),
    ("free_text", {"kind": "free_text", "text": ["Ada"]}, 422),
    ("free_text", {"kind": "free_text"}, 422),
    ("free_text", {"kind": "free_text", "text": "A\0da"}, 400),
    ("single_choice", {"kind": "single_choice", "selected_value": ["b"]}, 422),
    ("single_choice", {"kind": "single_choice", "selected_value": "B"}, 400),
    ("single_choice", {"kind": "single_choice", "selected_value": " b"}, 400),
    ("single_choice", {"kind": "single_choice", "free_text": "x" * 200_000}, 400),
    ("single_choice", {"kind": ["single_choice"]}, 422),
    ("single_choice", {"kind": None}, 422),
    ("multi_choice", {"kind": "multi_choice", "selected_values": ["a", None]}, 422),
    ("multi_choice", {"kind": "multi_choice", "selected_values": {"a": "b"}}, 422),
    ("multi_choice", {"kind": "multi_choice"}, 422),
    ("multi_choice", {"kind": "skipped", "reason": "x" * 200_000}, 400),
    ("multi_choice", {"kind": "skipped", "reason": 5}, 422),
    ("yes_no", {"kind": "yes_no", "answer": 1}, 422),
    ("yes_no", {"kind": "yes_no", "answer": None}, 422),
    ("yes_no", {"kind": "yes_no", "answer": "true"}, 422),
    ("free_text", {"kind": "credential_added", "credential_id": "x", "integration_name": "y", "auth_type": "z"}, 400),
]


@pytest.mark.parametrize("kind", QUESTIONS)
async def test_a_question_pauses_and_its_answer_becomes_the_tool_result(stage: Stage, kind: str) -> None:
    turn = await stage.turn(QUESTIONS[kind])
    assert turn.types[-1] == "user_input_request"
    assert turn.question["kind"] == kind
    assert {"required", "allow_free_text", "context", "timeout_hint_seconds", "message"} <= set(turn.question)
    detail = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body
    assert detail["pending_user_input_request"] == turn.question
    assert detail["running_id"] == turn.run_id
    credits_before = await stage.credits()

    await stage.script(says("Thanks."))
    resumed = await stage.resume(turn, GOOD[kind])
    assert resumed.status == 200
    assert resumed.body["status"] == "resuming"
    assert resumed.body["run_id"] != turn.run_id
    assert resumed.body["thread_id"] == turn.chat_id
    after = await stage.follow(resumed.body)
    assert after.types[:2] == ["metadata", "tool_result"]
    assert "tool_call" not in after.types
    assert after.data("tool_result")["tool_call_id"] == turn.data("tool_call")["tool_call_id"]
    output = after.data("tool_result")["output"]
    assert {key: output[key] for key in GOOD[kind]} == GOOD[kind]
    assert after.data("done")["response"] == "Thanks."
    assert await stage.credits() == credits_before
    assert (await stage.resume(turn, GOOD[kind])).status == 410


@pytest.mark.parametrize(("kind", "response", "status"), BAD)
async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(
    stage: Stage, kind: str, response: dict[str, Any], status: int
) -> None:
    turn = await stage.turn(QUESTIONS[kind])
    refused = await stage.resume(turn, response)
    assert refused.status == status, refused.body
    assert (await stage.settled(turn.chat_id))["pending_request_id"] == turn.question["request_id"]
    await stage.script(says("Good."))
    assert (await stage.resume(turn, GOOD[kind])).status == 200


async def test_an_optional_question_can_be_skipped(stage: Stage) -> None:
    turn = await stage.turn(MULTI)
    await stage.script(says("Fine."))
    resumed = await stage.resume(turn, {"kind": "skipped", "reason": "later"})
    after = await stage.follow(resumed.body)
    assert after.data("tool_result")["output"] == {"kind": "skipped", "reason": "later"}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ask_user_choice", {"message": "?", "options": []}),
        ("ask_user_choice", {"message": "?", "options": [OPTIONS[0], OPTIONS[0]]}),
        ("ask_user_choice", {"options": OPTIONS}),
        ("ask_user_multi_choice", {"message": "?", "options": OPTIONS, "min_selections": 3, "max_selections": 2}),
        ("ask_user_multi_choice", {"message": "?", "options": OPTIONS, "min_selections": 9}),
        ("ask_user_free_text", {"message": "?", "min_length": 9, "max_length": 2}),
        ("ask_user_free_text", {"message": "?", "min_length": 10**12}),
        ("ask_user_yes_no", {}),
        ("ask_user_yes_no", {"message": "?", "context": {"type": "approval", "action_name": "list_repositories"}}),
        ("request_credential", {"integration_name": "github", "integration_display_name": "G", "auth_options": []}),
        (
            "request_credential",
            {
                "integration_name": "github",
                "integration_display_name": "G",
                "auth_options": [{"auth_type": "oauth2", "display_name": "Sign in"}],
            },
        ),
        (
            "request_credential",
            {
                "integration_name": "nowhere",
                "integration_display_name": "N",
                "auth_options": [{"auth_type": "api_key", "display_name": "Key"}],
            },
        ),
    ],
)
async def test_bad_arguments_of_a_question_are_a_tool_error_and_do_not_pause(
    stage: Stage, tool: str, arguments: dict[str, Any]
) -> None:
    turn = await stage.turn(calls(tool, arguments), says("Sorry."))
    assert turn.types[-1] == "done"
    assert turn.data("tool_result")["output"]["success"] is False


async def test_of_a_hundred_answers_at_once_exactly_one_wins(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    await stage.script(says("Once."))
    answers: list[Answer] = []

    async def answer() -> None:
        answers.append(await stage.resume(turn, GOOD["yes_no"]))

    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(answer())
    assert sorted(answer.status for answer in answers) == [200] + [410] * 99


async def test_the_old_stream_hears_of_the_resume_and_closes(stage: Stage) -> None:
    await stage.script(YES_NO, says("On."))
    started = await stage.start()
    asked = asyncio.Event()
    events: list[dict[str, Any]] = []

    async def watch() -> None:
        async for event in stage.client.stream(started["chat_id"], started["run_id"]):
            events.append(event)
            if event["type"] == "user_input_request":
                asked.set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(watch())
        await asked.wait()
        await stage.settled(started["chat_id"])
        resumed = await stage.resume(Turn(started["chat_id"], started["run_id"], events), GOOD["yes_no"])
    assert events[-1]["type"] == "run_resumed"
    assert events[-1]["data"] == {"new_run_id": resumed.body["run_id"]}
    assert "interrupted" not in [event["type"] for event in events]


async def test_a_late_reader_of_a_paused_run_gets_interrupted_and_the_end(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    late = await stage.client.listen(turn.chat_id, turn.run_id)
    assert [event["type"] for event in late][-2:] == ["user_input_request", "interrupted"]
    assert late[-1]["data"] == {"request_id": turn.question["request_id"], "kind": "yes_no"}


async def test_a_new_message_while_a_question_is_open_is_409_and_names_it(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    refused = await stage.client.post(
        "/assistant/chat", {"message": "Never mind", "chat_id": turn.chat_id, "llm": stage.llm}
    )
    assert refused.status == 409
    assert turn.question["request_id"] in refused.detail


async def test_cancelling_a_paused_turn_clears_the_question_and_the_chat_goes_on(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    cancelled = await stage.client.post(f"/assistant/chat/{turn.chat_id}/cancel")
    assert cancelled.body == {"status": "cancelled", "chat_id": turn.chat_id, "run_id": turn.run_id}
    detail = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body
    assert detail["pending_user_input_request"] is None
    assert detail["running_id"] is None
    assert (await stage.resume(turn, GOOD["yes_no"])).status == 410
    again = await stage.client.post(f"/assistant/chat/{turn.chat_id}/cancel")
    assert (again.status, again.detail) == (400, "No active execution to cancel")
    after = await stage.turn(says("Still here."), chat_id=turn.chat_id)
    assert after.data("done")["response"] == "Still here."
    sent = (await stage.sent())[-1]
    assert "not answered" in str(sent)


async def test_after_seven_days_the_question_expires_and_the_chat_goes_on(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    stage.clock.advance(days=7, seconds=1)
    [listed] = (await stage.client.get("/assistant/chats")).body["items"]
    assert (listed["is_running"], listed["awaiting_input"]) == (False, False)
    status = (await stage.client.get(f"/assistant/chat/{turn.chat_id}/status")).body
    assert (status["is_running"], status["awaiting_input"], status["running_id"]) == (False, False, None)
    assert (status["run_status"]["status"], status["run_status"]["reason"]) == ("cancelled", "expired")
    outcome = select(questions.c.outcome).where(questions.c.id == turn.question["request_id"])
    assert await stage.parley.store.read(lambda tx: tx.execute(outcome).scalar_one()) == "expired"
    assert (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body["pending_user_input_request"] is None
    assert (await stage.resume(turn, GOOD["yes_no"])).status == 410
    after = await stage.turn(says("Welcome back."), chat_id=turn.chat_id)
    assert after.data("done")["response"] == "Welcome back."
    sent = (await stage.sent())[-1]["messages"]
    assert [message["role"] for message in sent[1:]] == ["user", "assistant", "tool", "user"]
    paused = await stage.client.listen(turn.chat_id, turn.run_id)
    assert paused[-1]["type"] == "interrupted"
    [ending] = await stage.client.listen(turn.chat_id, turn.run_id, after=paused[-1]["_id"])
    assert (ending["type"], ending["data"]) == ("cancelled", {"reason": "expired"})


async def test_an_answer_a_second_before_the_week_is_over_still_counts(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    stage.clock.advance(days=7, seconds=-30)
    await stage.script(says("In time."))
    assert (await stage.resume(turn, GOOD["yes_no"])).status == 200


async def test_a_resume_without_a_model_is_400(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    body = {"request_id": turn.question["request_id"], "response": GOOD["yes_no"]}
    assert (await stage.client.post(f"/assistant/chat/{turn.chat_id}/resume", body)).status == 400


async def test_a_retried_answer_with_one_key_gets_the_first_answer(stage: Stage) -> None:
    turn = await stage.turn(calls("ask_user_yes_no", {"message": "Go on?"}), says("On."))
    yes, no = {"kind": "yes_no", "answer": True}, {"kind": "yes_no", "answer": False}
    answers: list[Answer] = []

    async def send() -> None:
        answers.append(await stage.resume(turn, yes, Idempotency_Key="r1"))

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(send())
    answers.append(await stage.resume(turn, yes, Idempotency_Key="r1"))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body["run_id"] for answer in answers}) == 1
    assert (await stage.resume(turn, no, Idempotency_Key="r1")).status == 409
    assert (await stage.follow(answers[0].body)).text == "On."


async def test_a_message_sent_twice_at_once_to_a_chat_with_one_key_is_one_turn(stage: Stage) -> None:
    first = await stage.turn(says("Before."))
    await stage.script(says("Once."))
    body = {"message": "Again", "llm": stage.llm, "chat_id": first.chat_id}
    answers: list[Answer] = []

    async def send() -> None:
        answers.append(await stage.client.post("/assistant/chat", body, Idempotency_Key="k3"))

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(send())
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body["run_id"] for answer in answers}) == 1
    await stage.settled(first.chat_id)
