"""Cancel at every moment of a turn: one ending, what was said is kept, the chat goes on (contract §2.8)."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedCall, ScriptedReply
from tests.stage import Json, Stage, calls, executes, says

ASK = ScriptedCall("ask_user_yes_no", '{"message": "Go on?"}', "call_1", pieces=6)


async def asked(stage: Stage, started: Json) -> None:
    """The model has the request."""
    del started
    async with asyncio.timeout(60):
        while not await stage.sent():
            await asyncio.sleep(0.01)


async def spoken(stage: Stage, started: Json) -> None:
    """Some text is there."""
    async with asyncio.timeout(60):
        async for event in stage.client.stream(started["chat_id"], started["run_id"]):
            if event["type"] == "response_chunk":
                return


async def at_once(stage: Stage, started: Json) -> None:
    """Nothing is waited for."""
    del stage, started


type Moment = Callable[[Stage, Json], Awaitable[None]]
MOMENTS: dict[str, tuple[Callable[[], ScriptedReply], Moment, str]] = {
    "at once": (lambda: says("never", barrier=uuid4().hex), at_once, ""),
    "before the headers": (lambda: ScriptedReply(text=["never"], hang_at=-1), asked, ""),
    "before the first byte": (lambda: ScriptedReply(text=["never"], hang_at=0), asked, ""),
    "in the text": (lambda: says("Half", " never", barrier=uuid4().hex, barrier_after=2), spoken, "Half"),
    "in a tool call": (
        lambda: ScriptedReply(text=["Hm."], calls=[ASK], barrier=uuid4().hex, barrier_after=5),
        spoken,
        "Hm.",
    ),
    "between two tries": (
        lambda: ScriptedReply(status=429, headers={"Retry-After": "20"}, raw=b"{}"),
        asked,
        "",
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancel_ends_the_turn_once_keeps_its_text_and_lets_the_chat_go_on(stage: Stage, moment: str) -> None:
    reply, reached, kept = MOMENTS[moment]
    await stage.script(reply())
    started = await stage.start()
    await reached(stage, started)
    cancel = f"/assistant/chat/{started['chat_id']}/cancel"
    async with asyncio.timeout(60):
        cancelled = await stage.client.post(cancel)
    assert cancelled.body == {"status": "cancelled", "chat_id": started["chat_id"], "run_id": started["run_id"]}
    again = await stage.client.post(cancel)
    assert (again.status, again.detail) == (400, "No active execution to cancel")
    events = await stage.client.listen(started["chat_id"], started["run_id"])
    assert [event["type"] for event in events].count("cancelled") == 1
    assert (events[-1]["type"], events[-1]["data"]) == ("cancelled", {"reason": "user_cancelled"})
    said = (await stage.client.get(f"/assistant/chat/{started['chat_id']}")).body["messages"][-1]
    assert (said["role"], said["content"], said["running_status"]) == ("ai", kept, "cancelled")
    after = await stage.turn(says("Next."), chat_id=started["chat_id"])
    assert after.data("done")["response"] == "Next."


async def test_a_turn_that_still_waits_for_a_place_is_cancelled_without_asking_the_model(stage: Stage) -> None:
    places = stage.parley.settings.turns_per_organization
    barrier = uuid4().hex
    await stage.script(*(says("Held.", barrier=barrier) for _ in range(places)))
    held = [await stage.start() for _ in range(places)]
    async with asyncio.timeout(60):
        while len(await stage.sent()) < places:
            await asyncio.sleep(0.01)
    waiting = await stage.start()
    cancelled = await stage.client.post(f"/assistant/chat/{waiting['chat_id']}/cancel")
    assert (cancelled.status, cancelled.body["run_id"]) == (200, waiting["run_id"])
    events = await stage.client.listen(waiting["chat_id"], waiting["run_id"])
    assert [event["type"] for event in events] == ["metadata", "cancelled"]
    await stage.model.release(barrier)
    for started in held:
        assert (await stage.follow(started)).types[-1] == "done"
    assert len(await stage.sent()) == places


OPTIONS = [{"value": "a", "label": "Alpha"}, {"value": "b", "label": "Beta"}]
TOKEN = [{"auth_type": "bearer_token", "display_name": "Token"}]
# The turn's cap asks too: tests/contract/test_turn_cap.py.
PAUSES: dict[str, tuple[ScriptedReply, Json]] = {
    "single_choice": (
        calls("ask_user_choice", {"message": "Which?", "options": OPTIONS}),
        {"kind": "single_choice", "selected_value": "b"},
    ),
    "multi_choice": (
        calls("ask_user_multi_choice", {"message": "Which ones?", "options": OPTIONS}),
        {"kind": "multi_choice", "selected_values": ["a"]},
    ),
    "yes_no": (calls("ask_user_yes_no", {"message": "Go on?"}), {"kind": "yes_no", "answer": True}),
    "free_text": (calls("ask_user_free_text", {"message": "Your name?"}), {"kind": "free_text", "text": "Ada"}),
    "credential_request": (
        calls(
            "request_credential",
            {"integration_name": "github", "integration_display_name": "GitHub", "auth_options": TOKEN},
        ),
        {"kind": "skipped"},
    ),
    "approval": (
        executes("delete_repository", {"owner": "octocat", "repo": "hello-world"}),
        {"kind": "yes_no", "answer": True},
    ),
}


@pytest.mark.parametrize("pause", PAUSES)
async def test_cancel_closes_a_question_of_each_kind_and_its_answer_is_too_late(
    stage: Stage, github: FakeGitHub, pause: str
) -> None:
    await stage.connect_github(github.token)
    asks, answer = PAUSES[pause]
    turn = await stage.turn(asks)
    assert turn.question["kind"] == ("yes_no" if pause == "approval" else pause)
    cancelled = await stage.client.post(f"/assistant/chat/{turn.chat_id}/cancel")
    assert cancelled.body == {"status": "cancelled", "chat_id": turn.chat_id, "run_id": turn.run_id}
    assert (await stage.resume(turn, answer)).status == 410
    assert github.deleted == []
    events = await stage.client.listen(turn.chat_id, turn.run_id)
    assert events[-1]["type"] == "interrupted"
    rest = await stage.client.listen(turn.chat_id, turn.run_id, events[-1]["_id"])
    assert [event["type"] for event in rest] == ["cancelled"]
    after = await stage.turn(says("Next."), chat_id=turn.chat_id)
    assert after.data("done")["response"] == "Next."


async def test_a_resumed_turn_is_cancelled_and_its_answer_is_not_asked_for_again(stage: Stage) -> None:
    turn = await stage.turn(calls("ask_user_yes_no", {"message": "Go on?"}))
    await stage.script(says("Half", " never", barrier=uuid4().hex, barrier_after=2))
    resumed = (await stage.resume(turn, {"kind": "yes_no", "answer": True})).body
    await spoken(stage, resumed)
    cancelled = await stage.client.post(f"/assistant/chat/{turn.chat_id}/cancel")
    assert cancelled.body["run_id"] == resumed["run_id"]
    events = await stage.client.listen(turn.chat_id, resumed["run_id"])
    assert [event["type"] for event in events] == ["metadata", "tool_result", "response_chunk", "cancelled"]
    assert (await stage.resume(turn, {"kind": "yes_no", "answer": False})).status == 410
    after = await stage.turn(says("Next."), chat_id=turn.chat_id)
    assert after.data("done")["response"] == "Next."
    sent = (await stage.sent())[-1]["messages"]
    assert [message["role"] for message in sent[1:]] == ["user", "assistant", "tool", "assistant", "user"]
