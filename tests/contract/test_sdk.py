"""The published Python client, unchanged, through whole conversations (contract §17.1 rows 1 and 3)."""

from typing import Any
from uuid import uuid4

import pytest
from modulex import BadRequestError, ConflictError, Modulex, ModulexError, NotFoundError, SSEEvent
from modulex.types.assistant import AssistantChatDetails
from modulex.types.realtime import (
    CredentialAddedResponse,
    CredentialRequest,
    FreeTextRequest,
    FreeTextResponse,
    MultiChoiceRequest,
    MultiChoiceResponse,
    SingleChoiceRequest,
    SingleChoiceResponse,
    SkippedResponse,
    YesNoRequest,
    YesNoResponse,
    user_input_request_from_event,
)

from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedReply
from tests.stage import Stage, calls, executes, says

OPTIONS = [{"value": "a", "label": "Alpha", "badge": "new"}, {"value": "b", "label": "Beta", "description": "second"}]
QUESTIONS: dict[str, tuple[ScriptedReply, type, Any]] = {
    "single_choice": (
        calls("ask_user_choice", {"message": "Which?", "options": OPTIONS}),
        SingleChoiceRequest,
        SingleChoiceResponse(selected_value="b"),
    ),
    "multi_choice": (
        calls("ask_user_multi_choice", {"message": "Which ones?", "options": OPTIONS, "min_selections": 1}),
        MultiChoiceRequest,
        MultiChoiceResponse(selected_values=["a", "b"]),
    ),
    "yes_no": (calls("ask_user_yes_no", {"message": "Go on?"}), YesNoRequest, YesNoResponse(answer=False)),
    "free_text": (
        calls("ask_user_free_text", {"message": "Your name?", "placeholder": "Ada", "max_length": 9}),
        FreeTextRequest,
        FreeTextResponse(text="Grace"),
    ),
    "skipped": (
        calls("ask_user_yes_no", {"message": "Go on?", "required": False}),
        YesNoRequest,
        SkippedResponse(reason="later"),
    ),
}


async def heard(sdk: Modulex, chat_id: str | None, run_id: str | None) -> list[SSEEvent]:
    """What the client hears of a run, up to its end or to a question."""
    assert chat_id is not None
    assert run_id is not None
    events: list[SSEEvent] = []
    async with sdk.assistant.listen(chat_id, run_id) as stream:
        async for event in stream:
            events.append(event)
            if event.event == "user_input_request":
                break
    return events


def text_of(events: list[SSEEvent]) -> str:
    return "".join(event.data["data"]["chunk"] for event in events if event.event == "response_chunk")


async def test_chat_listen_done(stage: Stage, sdk: Modulex) -> None:
    awkward = "line\r\nnext\u2028sep\u2029par\x85nel "
    await stage.script(says(awkward, "ünï🎉"))
    started = await sdk.assistant.chat("Hello", llm=stage.llm)
    assert (started.status, started.thread_id) == ("running", started.chat_id)
    events = await heard(sdk, started.chat_id, started.run_id)
    assert [events[0].event, events[-1].event] == ["metadata", "done"]
    assert text_of(events) == awkward + "ünï🎉"
    assert events[-1].is_terminal
    assert events[-1].data["data"]["response"] == awkward + "ünï🎉"
    assert all(event.raw_event in (None, "message") for event in events), "no event: line"


async def test_a_github_action_through_the_client(stage: Stage, sdk: Modulex, github: FakeGitHub) -> None:
    await sdk.credentials.create("github", auth_data={"token": github.token})
    await stage.script(executes("list_repositories", text="Let me check."), says("You have one."))
    started = await sdk.assistant.chat("List my GitHub repositories", llm=stage.llm)
    events = await heard(sdk, started.chat_id, started.run_id)
    names = [event.event for event in events if event.event != "response_chunk"]
    assert names == ["metadata", "tool_call", "tool_result", "done"]
    output = next(event for event in events if event.event == "tool_result").data["data"]["output"]
    assert output["result"]["repositories"][0]["name"] == "hello-world"
    assert events[-1].data["data"]["response"] == "You have one."


async def test_a_failed_turn_ends_on_error_and_raises_nothing(stage: Stage, sdk: Modulex) -> None:
    await stage.script(ScriptedReply(status=400, raw=b"{}"))
    started = await sdk.assistant.chat("Hello", llm=stage.llm)
    events = await heard(sdk, started.chat_id, started.run_id)
    assert events[-1].event == "error"
    assert events[-1].data["data"]["message"]
    assert "done" not in [event.event for event in events]


@pytest.mark.parametrize("case", QUESTIONS)
async def test_each_kind_of_question_is_parsed_and_answered(stage: Stage, sdk: Modulex, case: str) -> None:
    reply, request_type, response = QUESTIONS[case]
    await stage.script(reply, says("Thanks."))
    started = await sdk.assistant.chat("Ask me", llm=stage.llm)
    events = await heard(sdk, started.chat_id, started.run_id)
    question = user_input_request_from_event(events[-1].data)
    assert question is not None
    assert isinstance(question, request_type)
    chat_id = str(started.chat_id)
    await stage.settled(chat_id)
    status = await sdk.assistant.status(chat_id)
    assert (status.awaiting_input, status.pending_request_id) == (True, question.request_id)
    resumed = await sdk.assistant.resume(chat_id, request_id=question.request_id, response=response, llm=stage.llm)
    assert resumed.status == "resuming"
    assert resumed.run_id != started.run_id
    assert resumed.thread_id == chat_id
    after = await heard(sdk, chat_id, resumed.run_id)
    result = next(event for event in after if event.event == "tool_result").data["data"]["output"]
    sent = response.to_dict()
    assert {key: result[key] for key in sent} == sent
    assert after[-1].event == "done"
    with pytest.raises(ModulexError) as gone:
        await sdk.assistant.resume(chat_id, request_id=question.request_id, response=response, llm=stage.llm)
    assert gone.value.status_code == 410


async def test_a_missing_credential_is_asked_for_given_and_used(stage: Stage, sdk: Modulex, github: FakeGitHub) -> None:
    ask = calls(
        "request_credential",
        {
            "integration_name": "github",
            "integration_display_name": "GitHub",
            "auth_options": [{"auth_type": "bearer_token", "display_name": "Token"}],
        },
        id="call_2",
    )
    await stage.script(executes("list_repositories"), ask)
    started = await sdk.assistant.chat("List my repositories", llm=stage.llm)
    chat_id = str(started.chat_id)
    events = await heard(sdk, chat_id, started.run_id)
    question = user_input_request_from_event(events[-1].data)
    assert isinstance(question, CredentialRequest)
    assert question.required is False
    assert [option.auth_type for option in question.auth_options] == ["bearer_token"]
    await stage.settled(chat_id)
    await stage.script(executes("list_repositories", id="call_3"), says("Listed."))
    made = await sdk.credentials.create("github", auth_data={"token": github.token})
    answer = CredentialAddedResponse(
        credential_id=made.credential_id, integration_name="github", auth_type="bearer_token"
    )
    resumed = await sdk.assistant.resume(chat_id, request_id=question.request_id, response=answer, llm=stage.llm)
    after = await heard(sdk, chat_id, resumed.run_id)
    results = [event.data["data"]["output"] for event in after if event.event == "tool_result"]
    assert results[0]["credential_id"] == made.credential_id
    assert results[1]["status"] == "ok"
    assert after[-1].event == "done"


async def test_listening_to_what_is_not_there_is_not_found(stage: Stage, sdk: Modulex) -> None:
    turn = await stage.turn(says("Hi."))
    for chat_id, run_id in ((turn.chat_id, str(uuid4())), (str(uuid4()), turn.run_id)):
        with pytest.raises(NotFoundError):
            await heard(sdk, chat_id, run_id)


async def test_a_paused_run_read_late_ends_on_interrupted(stage: Stage, sdk: Modulex) -> None:
    turn = await stage.turn(QUESTIONS["yes_no"][0])
    async with sdk.assistant.listen(turn.chat_id, turn.run_id) as stream:
        events = [event.event async for event in stream]
    assert events[-2:] == ["user_input_request", "interrupted"]


async def test_get_list_status_cancel_and_delete(stage: Stage, sdk: Modulex) -> None:
    turn = await stage.turn(QUESTIONS["yes_no"][0], message="A question")
    with pytest.raises(ConflictError):
        await sdk.assistant.chat("More", chat_id=turn.chat_id, llm=stage.llm)
    detail = await sdk.assistant.get(turn.chat_id)
    assert isinstance(detail, AssistantChatDetails)
    assert detail.pending_user_input_request == turn.question
    assert [message.role for message in detail.messages] == ["human"]
    listed = await sdk.assistant.list(limit=5)
    assert [(item.id, item.title) for item in listed.items] == [(turn.chat_id, "A question")]
    cancelled = await sdk.assistant.cancel(turn.chat_id)
    assert (cancelled.status, cancelled.chat_id, cancelled.run_id) == ("cancelled", turn.chat_id, turn.run_id)
    with pytest.raises(BadRequestError, match="No active execution to cancel"):
        await sdk.assistant.cancel(turn.chat_id)
    status = await sdk.assistant.status(turn.chat_id)
    assert (status.is_running, status.awaiting_input, status.running_id) == (False, False, None)
    deleted = await sdk.assistant.delete(turn.chat_id, permanent=True)
    assert (deleted.status, deleted.permanent) == ("deleted", True)
    with pytest.raises(NotFoundError):
        await sdk.assistant.get(turn.chat_id)


async def test_pages_of_chats_follow_the_cursor_as_the_client_sends_it(stage: Stage, sdk: Modulex) -> None:
    ids = [(await stage.turn(says("."))).chat_id for _ in range(3)]
    first = await sdk.assistant.list(limit=2)
    second = await sdk.assistant.list(limit=2, cursor=first.next_cursor)
    assert [item.id for item in first.items + second.items] == ids[::-1]
    assert second.next_cursor is None
