"""The loop's rules as seen on the wire: one tool a step, arguments, limits, guidance, cancel (contract §4, §8)."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest

from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedCall, ScriptedReply
from tests.stage import Stage, calls, executes, says

DETAILS = ("get_integration_details", {"integration_name": "nowhere"})


async def test_of_several_calls_at_once_the_first_runs_and_the_rest_are_told_so(stage: Stage) -> None:
    three = ScriptedReply(
        calls=[
            ScriptedCall("get_available_integrations", '{"query": "github"}', "c1"),
            ScriptedCall("get_integration_details", '{"integration_name": "github"}', "c2"),
            ScriptedCall("get_organization_credentials", "{}", "c3"),
        ]
    )
    turn = await stage.turn(three, says("Done."))
    assert [data["tool"] for data in turn.every("tool_call")] == ["get_available_integrations"]
    sent = (await stage.sent())[-1]
    results = {m["tool_call_id"]: m["content"] for m in sent["messages"] if m["role"] == "tool"}
    assert set(results) == {"c1", "c2", "c3"}
    assert "not_run" in results["c2"]
    assert "not_run" in results["c3"]
    assert "github" in results["c1"]


@pytest.mark.parametrize("arguments", ["", "  "])
async def test_blank_arguments_are_an_empty_object(stage: Stage, arguments: str) -> None:
    turn = await stage.turn(calls("get_organization_credentials", arguments), says("Ok."))
    assert turn.data("tool_call")["input"] == {}
    assert isinstance(turn.data("tool_result")["output"], list)


@pytest.mark.parametrize("arguments", ['{"integration_name": ', "[1]", '"github"', '{"integration_name": 3}', "nul"])
async def test_malformed_arguments_are_never_run_and_come_back_with_the_schema(stage: Stage, arguments: str) -> None:
    turn = await stage.turn(calls("get_integration_details", arguments), says("I see."))
    output = turn.data("tool_result")["output"]
    assert output["error"] == "invalid_arguments"
    assert output["success"] is False
    assert output["schema"]["properties"]["integration_name"]
    assert turn.types[-1] == "done"


async def test_an_unknown_tool_comes_back_as_a_value(stage: Stage) -> None:
    turn = await stage.turn(calls("delete_everything", {}), says("No such tool."))
    assert turn.data("tool_result")["output"]["error"] == "unknown_tool"


async def test_three_failures_in_a_row_bring_one_guidance_to_stream_and_model(stage: Stage) -> None:
    turn = await stage.turn(*[calls(*DETAILS, id=f"c{number}") for number in range(3)], says("I give up."))
    guidance = turn.every("guidance")
    assert [data["consecutive_failures"] for data in guidance] == [3]
    assert turn.types[turn.types.index("guidance") - 1] == "tool_result"
    assert guidance[0]["message"] in json.dumps((await stage.sent())[-1])


async def test_a_success_resets_the_count(stage: Stage) -> None:
    fine = calls("get_available_integrations", {"query": "github"})
    turn = await stage.turn(calls(*DETAILS), calls(*DETAILS), fine, calls(*DETAILS), calls(*DETAILS), says("."))
    assert turn.every("guidance") == []


async def test_the_twentieth_model_call_brings_guidance_and_the_hundredth_step_is_the_last(stage: Stage) -> None:
    fine = [calls("get_available_integrations", {"query": "zzz"}, id=f"c{number}") for number in range(101)]
    turn = await stage.turn(*fine)
    assert [data["total_llm_calls"] for data in turn.every("guidance")] == [20, 40, 60, 80, 100]
    assert len(turn.every("tool_call")) == 100
    assert turn.types[-2:] == ["error", "done"]
    assert turn.data("done")["error"] is True
    assert turn.data("done")["usage"]["llm_calls"] == 100
    status = (await stage.client.get(f"/assistant/chat/{turn.chat_id}/status")).body["run_status"]
    assert (status["status"], status["reason"]) == ("failed", "step_limit")
    after = await stage.turn(says("Going on."), chat_id=turn.chat_id)
    assert after.types[-1] == "done"


async def test_cancel_in_mid_stream_stops_the_model_and_keeps_the_text(stage: Stage) -> None:
    await stage.script(says("Part", "ial", " never", barrier=uuid4().hex, barrier_after=3))
    started = await stage.start()
    events: list[dict[str, Any]] = []
    seen = asyncio.Event()

    async def watch() -> None:
        async for event in stage.client.stream(started["chat_id"], started["run_id"]):
            events.append(event)
            if "ial" in "".join(e["data"]["chunk"] for e in events if e["type"] == "response_chunk"):
                seen.set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(watch())
        await seen.wait()
        answer = await stage.client.post(f"/assistant/chat/{started['chat_id']}/cancel")
        assert answer.status == 200
    assert events[-1]["type"] == "cancelled"
    assert events[-1]["data"] == {"reason": "user_cancelled"}
    await stage.model.dropped(stage.model_key)
    last = (await stage.client.get(f"/assistant/chat/{started['chat_id']}")).body["messages"][-1]
    assert (last["role"], last["content"], last["running_status"]) == ("ai", "Partial", "cancelled")
    after = await stage.turn(says("Next."), chat_id=started["chat_id"])
    assert after.data("done")["response"] == "Next."


async def test_cancel_while_a_tool_runs_closes_its_call_and_the_chat_goes_on(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    github.hold()
    await stage.script(executes("create_issue", {"owner": "octocat", "repo": "hello-world", "title": "Bug"}))
    started = await stage.start()
    async with asyncio.timeout(60):
        await github.held.wait()
    await stage.client.post(f"/assistant/chat/{started['chat_id']}/cancel")
    events = await stage.client.listen(started["chat_id"], started["run_id"])
    assert events[-1]["type"] == "cancelled"
    github.let_go()
    after = await stage.turn(says("Fine."), chat_id=started["chat_id"])
    assert after.types[-1] == "done"
    sent = (await stage.sent())[-1]
    results = [m["content"] for m in sent["messages"] if m["role"] == "tool"]
    assert len(results) == 1
    assert "not known" in results[0]


async def test_tokens_are_recorded_for_good_and_failed_runs(stage: Stage) -> None:
    good = await stage.turn(calls("get_organization_credentials", {}), says("Ok."))
    usage = good.data("done")["usage"]
    assert usage == {
        "input_tokens": 20,
        "output_tokens": 10,
        "total_tokens": 30,
        "llm_calls": 2,
        "cached_tokens": 0,
    }
    broken = await stage.turn(calls("get_organization_credentials", {}), ScriptedReply(status=400, raw=b"{}"))
    assert broken.data("done")["usage"]["input_tokens"] == 10
    assert broken.data("done")["usage"]["llm_calls"] == 2


async def test_long_results_are_cut_to_8000_characters_and_say_so(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    github.repositories = [f"repository-{number:04}" for number in range(400)]
    turn = await stage.turn(executes("list_repositories"), says("Many."))
    output = turn.data("tool_result")["output"]
    assert output["truncated"] is True
    assert len(json.dumps(output["result"], separators=(",", ":"), ensure_ascii=False)) <= 8_000
    assert output["result"]["repositories"][0]["name"] == "repository-0000"
    assert output["result"]["repositories"][-1]["name"] == "repository-0399"
    assert "more items left out" in str(output["result"])
    path = f"/assistant/chat/{turn.chat_id}/tool-results/"
    whole = (await stage.client.get(path + output["result_id"])).body
    assert len(whole["result"]["repositories"]) == 400
    assert (await stage.client.get(path + turn.run_id)).status == 404
    sent = (await stage.sent())[-1]
    assert json.loads(sent["messages"][-1]["content"]) == output


async def test_without_a_credential_the_model_is_told_how_to_ask_for_one(stage: Stage, github: FakeGitHub) -> None:
    turn = await stage.turn(executes("list_repositories"), says("Not connected."))
    output = turn.data("tool_result")["output"]
    assert output["status"] == "needs_credential"
    assert "request_credential" in output["message"]
    assert github.created == []
    assert turn.every("guidance") == []
