"""An event over 256 KB carries a reference, not the payload (issue 3, sentence 5)."""

import json

from parley.testing.fake_github import FakeGitHub
from tests.stage import Json, Stage, executes, says

EVENT_BYTES = 256 * 1024
LONG = "ä" * 150_000


def size(event: Json) -> int:
    return len(json.dumps(event["data"], ensure_ascii=False).encode())


async def test_an_event_over_256_kb_is_cut_and_says_where_the_whole_is(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    parameters = {"owner": "octocat", "repo": "hello-world", "title": "Bug", "body": LONG}
    turn = await stage.turn(executes("create_issue", parameters), says("Made."))
    assert len(github.created) == 1
    assert github.created[0]["body"] == LONG
    assert all(size(event) <= EVENT_BYTES for event in turn.events if event["type"] != "heartbeat")
    called, done = turn.data("tool_call"), turn.data("done")
    assert "characters left out" in called["input"]["parameters"]["body"]
    assert "characters left out" in done["tool_calls"][0]["input"]["parameters"]["body"]
    assert done["response"] == "Made."
    path = f"/assistant/chat/{turn.chat_id}/tool-results"
    whole = (await stage.client.get(f"{path}/{called['whole_id']}")).body["result"]
    assert whole["parameters"] == parameters
    listed = (await stage.client.get(f"{path}/{done['whole_id']}")).body["result"]
    assert [each["input"]["parameters"]["body"] for each in listed] == [LONG]


async def test_an_event_of_the_usual_size_carries_no_reference(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(executes("list_repositories"), says("Here."))
    for kind in ("tool_call", "tool_result", "done"):
        assert "whole_id" not in turn.data(kind)
