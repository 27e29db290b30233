"""Conversations that outgrow their model: compaction on the wire (issue 7, sentence 4)."""

from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedReply, ScriptedUsage
from tests.stage import Stage, executes, says

# GPT-4o takes 128,000 tokens; the trigger is 70 % of it.
FULL = ScriptedUsage(input=100_000, output=10)


async def test_a_chat_near_its_models_window_goes_on_from_a_summary_that_people_see(stage: Stage) -> None:
    turn = await stage.turn(says("First answer."), message="Remember the number 4711.")
    for number in range(11):
        turn = await stage.turn(says(f"Answer {number}."), message=f"Question {number}", chat_id=turn.chat_id)
    await stage.turn(says("Full now.", usage=FULL), message="One more", chat_id=turn.chat_id)
    after = await stage.turn(says("The number was 4711."), says("Here."), message="Go on", chat_id=turn.chat_id)
    assert after.data("done")["response"] == "Here."
    requests = await stage.sent()
    summary_request, request = requests[-2], requests[-1]
    assert "Condense" in str(summary_request["messages"][-1])
    assert "tools" not in summary_request
    assert "Remember the number 4711." in str(summary_request)
    assert "Remember the number 4711." not in str(request)
    assert "The number was 4711." in str(request)
    assert "Go on" in str(request["messages"][-1])
    messages = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body["messages"]
    notes = [message["content"] for message in messages if message["role"] == "system"]
    assert len(notes) == 1
    assert "The number was 4711." in notes[0]
    assert len([message for message in messages if message["role"] == "human"]) == 14
    assert after.data("done")["usage"]["llm_calls"] == 2


async def test_large_old_results_are_shortened_before_anything_is_summarised(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    github.repositories = [f"repository-{number:04}" for number in range(60)]
    turn = await stage.turn(executes("list_repositories"), says("Many."))
    for number in range(10):
        turn = await stage.turn(says("Ok."), message=f"Note {number}", chat_id=turn.chat_id)
    await stage.turn(says("Full.", usage=FULL), message="Another", chat_id=turn.chat_id)
    await stage.turn(says("Done."), message="Go on", chat_id=turn.chat_id)
    sent = (await stage.sent())[-1]
    result = next(message["content"] for message in sent["messages"] if message["role"] == "tool")
    assert "characters left out" in result
    assert len(result) < 1_200


async def test_a_context_overflow_is_answered_by_a_shorter_request(stage: Stage) -> None:
    turn = await stage.turn(says("One."), message="Old")
    for number in range(3):
        turn = await stage.turn(says("Two."), message=f"Old {number}", chat_id=turn.chat_id)
    overflow = ScriptedReply(
        status=400,
        raw=b'{"error":{"message":"maximum context length exceeded","code":"context_length_exceeded"}}',
    )
    after = await stage.turn(overflow, says("Short."), says("It fits."), message="New", chat_id=turn.chat_id)
    assert after.types[-1] == "done"
    assert after.data("done")["response"] == "It fits."


async def test_an_overflow_that_cannot_be_helped_says_so(stage: Stage) -> None:
    overflow = ScriptedReply(status=400, raw=b'{"error":{"code":"context_length_exceeded"}}')
    turn = await stage.turn(overflow, message="x")
    assert turn.types[-2:] == ["error", "done"]
