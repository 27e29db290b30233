"""Every event's exact payload, and the order in which they may come (contract §4.2, §4.3; seed how-it-works).

Fields that are ours and not the contract's are named here one by one, so that no other slips in.
"""

import asyncio
import re
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select

from parley.storage.tables.billing import model_usage
from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedReply
from tests.contract.test_billing import add_admin
from tests.stage import Json, Stage, caller, calls, executes, says

METADATA = {"run_id", "thread_id", "workflow_id", "workflow_type", "timestamp"} | {"surface"}
TOOL_CALL = {"tool", "input", "tool_call_id", "timestamp"}
TOOL_RESULT = {"tool", "tool_call_id", "output", "timestamp"} | {"duration_ms", "tainted"}
DONE = {"response", "has_workflow_changes", "tool_calls", "workflow_tool", "usage"}
USAGE = {"input_tokens", "output_tokens", "total_tokens", "llm_calls"} | {"cached_tokens"}
BASE_QUESTION = {"kind", "request_id", "message", "required", "allow_free_text", "context", "timeout_hint_seconds"}
FAILS = ("get_integration_details", {"integration_name": "nowhere"})
OPTIONS = [
    {"value": "a", "label": "Alpha", "description": "first", "icon": "star", "badge": "new"},
    {"value": "b", "label": "Beta"},
]
ERROR_CODES = (
    "oauth_denied",
    "oauth_provider_error",
    "invalid_credentials",
    "network_error",
    "popup_closed",
    "timeout",
    "unknown",
)
YES_NO = calls("ask_user_yes_no", {"message": "Go on?"})
TURN = re.compile(
    r"metadata( response_chunk)*( guidance)?(( tool_call tool_result)( guidance)*( response_chunk)*)* done"
)


def is_moment(text: str) -> bool:
    return datetime.fromisoformat(text).utcoffset() == timedelta(0)


async def test_metadata_comes_first_and_says_composer_without_a_workflow(stage: Stage) -> None:
    turn = await stage.turn(says("Hi."))
    first = turn.events[0]
    assert first["type"] == "metadata"
    assert set(first["data"]) == METADATA
    assert (first["data"]["run_id"], first["data"]["thread_id"]) == (turn.run_id, turn.chat_id)
    assert (first["data"]["workflow_id"], first["data"]["workflow_type"]) == (None, "composer")
    assert first["data"]["surface"] == "assistant"
    assert is_moment(first["data"]["timestamp"])


async def test_the_answer_to_a_start_names_everything_needed_to_listen(stage: Stage) -> None:
    await stage.script(says("Hi."))
    started = await stage.start()
    assert set(started) == {"status", "chat_id", "run_id", "thread_id", "stream_url"}
    assert started["status"] == "running"
    assert started["thread_id"] == started["chat_id"]
    assert started["stream_url"] == f"/assistant/chat/{started['chat_id']}/listen/{started['run_id']}"
    assert str(UUID(started["chat_id"])) == started["chat_id"]
    assert str(UUID(started["run_id"])) == started["run_id"]
    await stage.follow(started)


async def test_a_turn_with_tools_keeps_the_order_of_the_contract(stage: Stage) -> None:
    turn = await stage.turn(
        calls("get_available_integrations", {"query": "github"}, text="Look.", id="a"),
        calls("get_organization_credentials", {}, id="b"),
        calls(*FAILS, text="And this.", id="c"),
        says("That ", "is all."),
    )
    assert TURN.fullmatch(" ".join(turn.types)), turn.types
    assert [data["tool_call_id"] for data in turn.every("tool_call")] == ["a", "b", "c"]
    assert [data["tool_call_id"] for data in turn.every("tool_result")] == ["a", "b", "c"]
    for name, keys in (("response_chunk", {"chunk"}), ("tool_call", TOOL_CALL), ("tool_result", TOOL_RESULT)):
        assert all(set(data) == keys for data in turn.every(name)), name
    assert all(is_moment(data["timestamp"]) for data in turn.every("tool_call") + turn.every("tool_result"))
    assert turn.text == "Look.And this.That is all."


async def test_done_carries_the_answer_the_tools_and_the_sum_of_the_tokens(stage: Stage) -> None:
    turn = await stage.turn(calls("get_organization_credentials", {}, text="Look."), says("One ", "key."))
    done = turn.data("done")
    assert set(done) == DONE
    assert set(done["usage"]) == USAGE
    assert done["response"] == "One key."
    output = turn.data("tool_result")["output"]
    assert done["tool_calls"] == [{"tool": "get_organization_credentials", "input": {}, "output": output}]
    assert (done["has_workflow_changes"], done["workflow_tool"]) == (False, None)
    assert done["usage"] == {
        "input_tokens": 20,
        "output_tokens": 10,
        "total_tokens": 30,
        "llm_calls": 2,
        "cached_tokens": 0,
    }


async def test_both_kinds_of_guidance_have_one_count_each(stage: Stage) -> None:
    failing = [calls(*FAILS, id=f"f{number}") for number in range(3)]
    fine = [calls("get_available_integrations", {"query": "zzz"}, id=f"c{number}") for number in range(17)]
    turn = await stage.turn(*failing, *fine, says("Enough."))
    assert [set(data) for data in turn.every("guidance")] == [
        {"message", "consecutive_failures"},
        {"message", "total_llm_calls"},
    ]
    assert turn.types[-1] == "done", "guidance ends nothing"
    assert TURN.fullmatch(" ".join(turn.types)), turn.types


async def test_an_error_is_a_message_and_then_a_done_that_says_so(stage: Stage) -> None:
    turn = await stage.turn(calls("get_organization_credentials", {}), ScriptedReply(status=400, raw=b"{}"))
    assert turn.types[-2:] == ["error", "done"]
    assert set(turn.data("error")) == {"message"}
    done = turn.data("done")
    assert set(done) == DONE | {"error"}
    assert done["error"] is True
    assert done["usage"]["input_tokens"] == 10
    status = (await stage.client.get(f"/assistant/chat/{turn.chat_id}/status")).body
    assert status["run_status"]["status"] == "failed"
    assert (status["running_id"], status["is_running"]) == (None, False)


async def test_a_question_its_marker_and_its_resume_have_their_payloads(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    assert set(turn.question) == BASE_QUESTION | {"yes_label", "no_label"}
    assert turn.types == ["metadata", "tool_call", "user_input_request"]
    late = await stage.client.listen(turn.chat_id, turn.run_id)
    assert late[-1]["data"] == {"request_id": turn.question["request_id"], "kind": "yes_no"}
    await stage.script(says("On."))
    resumed = await stage.resume(turn, {"kind": "yes_no", "answer": True})
    assert set(resumed.body) == {"status", "chat_id", "run_id", "thread_id", "stream_url"}
    after = await stage.follow(resumed.body)
    assert after.types == ["metadata", "tool_result", "response_chunk", "done"]
    assert after.data("metadata")["run_id"] == resumed.body["run_id"] != turn.run_id
    assert after.data("metadata")["thread_id"] == turn.chat_id


async def test_cancelled_is_the_last_event_and_carries_a_reason(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    await stage.client.post(f"/assistant/chat/{turn.chat_id}/cancel")
    status = (await stage.client.get(f"/assistant/chat/{turn.chat_id}/status")).body
    assert status["run_status"]["status"] == "cancelled"
    assert set(status) == {
        "chat_id",
        "is_running",
        "awaiting_input",
        "pending_request_id",
        "running_id",
        "run_status",
    }


async def test_the_first_user_message_and_every_earlier_turn_reach_the_model_again(stage: Stage) -> None:
    first = await stage.turn(calls("get_organization_credentials", {}), says("None."), message="Which keys?")
    await stage.turn(says("As said."), message="Again?", chat_id=first.chat_id)
    sent = (await stage.sent())[-1]["messages"]
    assert isinstance(sent, list)
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert sent[1]["content"] == "Which keys?"
    assert sent[-1]["content"] == "Again?"


async def test_the_model_is_given_exactly_the_ten_tools_also_after_a_resume(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    await stage.script(says("On."))
    await stage.follow((await stage.resume(turn, {"kind": "yes_no", "answer": False})).body)
    requests = await stage.sent()
    assert len(requests) == 2
    for request in requests:
        tools = request["tools"]
        assert isinstance(tools, list)
        assert [tool["function"]["name"] for tool in tools] == [
            "get_available_integrations",
            "get_integration_details",
            "get_organization_credentials",
            "execute_integration_tool",
            "search_knowledge",
            "request_credential",
            "ask_user_choice",
            "ask_user_multi_choice",
            "ask_user_yes_no",
            "ask_user_free_text",
        ]


async def test_the_assistant_has_no_save_revert_or_focus(stage: Stage) -> None:
    turn = await stage.turn(says("Hi."))
    for verb in ("save", "revert", "focus"):
        assert (await stage.client.post(f"/assistant/chat/{turn.chat_id}/{verb}")).status in (404, 405)


async def test_a_chat_shows_its_messages_with_the_run_they_belong_to(stage: Stage) -> None:
    turn = await stage.turn(ScriptedReply(text=["Hello."], thinking=["Be ", "kind."]), message="Hi")
    detail = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body
    assert set(detail) == {
        "id",
        "title",
        "running_id",
        "pending_user_input_request",
        "created_at",
        "updated_at",
        "messages",
    }
    human, ai = detail["messages"]
    keys = {"id", "role", "content", "thinking", "run_id", "running_status", "created_at"}
    assert set(human) == set(ai) == keys
    assert (human["role"], human["content"], human["thinking"]) == ("human", "Hi", None)
    assert (ai["role"], ai["content"], ai["thinking"]) == ("ai", "Hello.", "Be kind.")
    assert ai["run_id"] == turn.run_id
    assert ai["running_status"] == "completed"


async def test_the_saved_default_model_is_used_when_a_turn_names_none(stage: Stage) -> None:
    saved = await stage.client.call("PUT", "/organizations/settings/composer-llm", stage.llm)
    assert saved.status == 200, saved.body
    await stage.script(says("By default."))
    started = await stage.client.post("/assistant/chat", {"message": "Hi"})
    assert started.status == 200, started.body
    assert (await stage.follow(started.body)).text == "By default."


async def test_a_temperature_reaches_the_model_and_has_bounds(stage: Stage) -> None:
    body = {"message": "Hi", "llm": {**stage.llm, "temperature": 3}}
    assert (await stage.client.post("/assistant/chat", body)).status == 422
    await stage.script(says("Warm."))
    started = await stage.client.post("/assistant/chat", {**body, "llm": {**stage.llm, "temperature": 0.25}})
    await stage.follow(started.body)
    assert (await stage.sent())[-1]["temperature"] == 0.25


async def test_tokens_of_a_cancelled_run_are_recorded(stage: Stage) -> None:
    await stage.script(says("Some words ", "and ", "never", barrier=uuid4().hex, barrier_after=3))
    started = await stage.start()
    async for event in stage.client.stream(started["chat_id"], started["run_id"]):
        if event["type"] == "response_chunk":
            await stage.client.post(f"/assistant/chat/{started['chat_id']}/cancel")
    await stage.model.dropped(stage.model_key)
    work = select(model_usage).where(model_usage.c.run_id == started["run_id"])
    async with asyncio.timeout(20):
        while not (rows := await stage.parley.store.read(lambda tx: tx.execute(work).all())):
            await asyncio.sleep(0.01)
    assert [row.exact for row in rows] == [False]
    assert rows[0].input_tokens > 0
    assert rows[0].output_tokens > 0


async def test_a_failure_in_the_background_keeps_the_credit(stage: Stage) -> None:
    before = await stage.credits()
    await stage.turn(ScriptedReply(status=400, raw=b"{}"))
    assert await stage.credits() == before + 1_000_000


async def test_the_prompt_speaks_of_no_workflow(stage: Stage) -> None:
    await stage.turn(says("Hi."))
    messages = (await stage.sent())[-1]["messages"]
    assert isinstance(messages, list)
    assert not re.search("workflow|focus|node", messages[0]["content"], re.IGNORECASE)


async def test_two_tools_of_one_reply_never_both_run(stage: Stage) -> None:
    double = executes("list_repositories", id="x")
    double.calls.append(executes("list_repositories", id="y").calls[0])
    turn = await stage.turn(double, says("Ok."))
    assert [data["tool_call_id"] for data in turn.every("tool_result")] == ["x"]


# ── questions ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "fields"),
    [
        ("ask_user_choice", {"options": OPTIONS}, "single_choice", {"options": OPTIONS}),
        (
            "ask_user_multi_choice",
            {"options": OPTIONS},
            "multi_choice",
            {"options": OPTIONS, "min_selections": 0, "max_selections": None},
        ),
        ("ask_user_yes_no", {}, "yes_no", {"yes_label": "Yes", "no_label": "No"}),
        (
            "ask_user_free_text",
            {},
            "free_text",
            {"placeholder": None, "multiline": False, "min_length": 0, "max_length": None},
        ),
    ],
)
async def test_each_kind_of_question_has_its_fields_with_their_defaults(
    stage: Stage, tool: str, arguments: Json, kind: str, fields: Json
) -> None:
    turn = await stage.turn(calls(tool, {"message": "**Which?**", **arguments}))
    question = {**turn.question}
    UUID(question.pop("request_id"))
    assert question == {
        "kind": kind,
        "message": "**Which?**",
        "required": True,
        "allow_free_text": False,
        "context": None,
        "timeout_hint_seconds": None,
        **fields,
    }


async def test_a_connection_card_is_made_of_the_manifest(stage: Stage) -> None:
    turn = await stage.turn(ask_for_github(integration_logo="https://evil.test/x.png", pending_node_name="node"))
    question = turn.question
    assert set(question) == BASE_QUESTION | {
        "integration_name",
        "integration_display_name",
        "integration_logo",
        "auth_options",
        "pending_node_name",
    }
    assert (question["required"], question["pending_node_name"]) == (False, None)
    assert (question["integration_name"], question["integration_display_name"]) == ("github", "GitHub")
    assert "evil.test" not in str(question)
    (option,) = question["auth_options"]
    assert set(option) == {"auth_type", "display_name", "setup_instructions", "test_supported", "fields"}
    assert (option["auth_type"], option["test_supported"]) == ("bearer_token", True)
    assert option["fields"]
    assert option["setup_instructions"]


async def test_an_optional_connection_can_be_skipped(stage: Stage) -> None:
    turn = await stage.turn(ask_for_github())
    await stage.script(says("Without, then."))
    after = await stage.follow((await stage.resume(turn, {"kind": "skipped"})).body)
    assert after.data("tool_result")["output"]["kind"] == "skipped"
    assert after.types[-1] == "done"


async def test_a_required_connection_cannot_be_skipped(stage: Stage) -> None:
    turn = await stage.turn(ask_for_github(required=True))
    assert turn.question["required"] is True
    assert (await stage.resume(turn, {"kind": "skipped"})).status == 400


@pytest.mark.parametrize("code", ERROR_CODES)
async def test_a_failed_connection_becomes_the_tools_result(stage: Stage, code: str) -> None:
    turn = await stage.turn(ask_for_github())
    await stage.script(says("I see."))
    failed: Json = {
        "kind": "credential_failed",
        "integration_name": "github",
        "auth_type": "bearer_token",
        "error_code": code,
        "error_message": "It did not work.",
        "retryable": True,
    }
    resumed = await stage.resume(turn, failed)
    assert resumed.status == 200, resumed.body
    output = (await stage.follow(resumed.body)).data("tool_result")["output"]
    assert {key: output[key] for key in failed} == failed


async def test_a_connection_that_does_not_work_becomes_a_failed_one(stage: Stage, github: FakeGitHub) -> None:
    turn = await stage.turn(ask_for_github())
    wrong = await stage.connect_github(f"ghp_{uuid4().hex}")
    assert (await stage.settled(turn.chat_id))["awaiting_input"] is True, "a wrong key wakes nobody"
    await stage.script(says("That key was refused."))
    added = {"kind": "credential_added", "credential_id": wrong, "integration_name": "github"}
    resumed = await stage.resume(turn, {**added, "auth_type": "bearer_token"})
    assert resumed.status == 200, resumed.body
    output = (await stage.follow(resumed.body)).data("tool_result")["output"]
    assert (output["kind"], output["error_code"]) == ("credential_failed", "invalid_credentials")


async def test_a_credential_that_is_not_the_organizations_answers_nothing(stage: Stage) -> None:
    turn = await stage.turn(ask_for_github())
    added = {"kind": "credential_added", "credential_id": str(uuid4()), "integration_name": "github"}
    assert (await stage.resume(turn, {**added, "auth_type": "bearer_token"})).status == 400
    assert (await stage.settled(turn.chat_id))["awaiting_input"] is True


async def test_an_unknown_error_code_is_no_response(stage: Stage) -> None:
    turn = await stage.turn(ask_for_github())
    failed = {"kind": "credential_failed", "integration_name": "github", "auth_type": "bearer_token"}
    refused = await stage.resume(turn, {**failed, "error_code": "bad_luck", "error_message": "?"})
    assert refused.status == 422


async def test_a_request_that_was_never_asked_is_410_and_a_chat_that_is_not_there_404(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    body = {"request_id": turn.run_id, "response": {"kind": "yes_no", "answer": True}, "llm": stage.llm}
    assert (await stage.client.post(f"/assistant/chat/{turn.chat_id}/resume", body)).status == 410
    assert (await stage.client.post(f"/assistant/chat/{turn.run_id}/resume", body)).status == 404


async def test_another_admin_cannot_answer_but_may_read_and_cancel(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    key = await add_admin(stage.parley, stage.client.organization_id)
    async with caller(stage.client.base_url, key, stage.client.organization_id) as other:
        body = {
            "request_id": turn.question["request_id"],
            "response": {"kind": "yes_no", "answer": True},
            "llm": stage.llm,
        }
        assert (await other.post(f"/assistant/chat/{turn.chat_id}/resume", body)).status == 403
        assert (await stage.settled(turn.chat_id))["awaiting_input"] is True
        assert (await other.get(f"/assistant/chat/{turn.chat_id}")).status == 200
        assert (await other.get("/assistant/chats")).body["items"] == [], "the list is the caller's own"
        assert (await other.post(f"/assistant/chat/{turn.chat_id}/cancel")).status == 200


def ask_for_github(**more: object) -> ScriptedReply:
    options = [{"auth_type": "bearer_token", "display_name": "Token"}]
    named = {"integration_name": "github", "integration_display_name": "Git Hub", "auth_options": options}
    return calls("request_credential", {**named, **more})


@pytest.mark.parametrize("field", ["integration_name", "provider_id", "model_id", "credential_id"])
async def test_a_model_named_at_great_length_is_refused_or_used(stage: Stage, field: str) -> None:
    await stage.script(says("Hi."))
    body = {"message": "Hi", "llm": {**stage.llm, field: "x" * 5_000}}
    answer = await stage.client.post("/assistant/chat", body)
    assert answer.status in (200, 400, 422), answer.body
    if answer.status == 200:
        assert (await stage.follow(answer.body)).types[-1] == "done"
