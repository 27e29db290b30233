"""One turn over HTTP: the backbone (contract §2.2, §4; seed how-it-works)."""

from parley.testing.fake_github import FakeGitHub
from tests.stage import Stage, executes, says


async def test_a_turn_without_tools_streams_its_text_and_ends_with_done(stage: Stage) -> None:
    turn = await stage.turn(says("Hello", " there", "."), message="Hi")
    assert turn.types[0] == "metadata"
    assert turn.text == "Hello there."
    assert turn.types[-1] == "done"
    done = turn.data("done")
    assert done["response"] == "Hello there."
    assert done["tool_calls"] == []
    assert done["has_workflow_changes"] is False
    assert done["workflow_tool"] is None
    assert done["usage"]["llm_calls"] == 1
    assert done["usage"]["total_tokens"] == done["usage"]["input_tokens"] + done["usage"]["output_tokens"]
    detail = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body
    assert [(m["role"], m["content"]) for m in detail["messages"]] == [("human", "Hi"), ("ai", "Hello there.")]
    assert detail["running_id"] is None


async def test_a_turn_runs_a_real_github_action_and_answers_from_its_result(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(executes("list_repositories", text="Let me check."), says("You have one repository."))
    assert turn.types.index("tool_call") < turn.types.index("tool_result")
    result = turn.data("tool_result")["output"]
    assert result["status"] == "ok"
    assert result["result"]["repositories"][0]["name"] == "hello-world"
    assert turn.data("tool_result")["tool_call_id"] == turn.data("tool_call")["tool_call_id"]
    assert turn.data("done")["response"] == "You have one repository."
    assert turn.data("done")["tool_calls"][0]["output"] == result
