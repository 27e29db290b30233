"""The organization's fall-back model over HTTP: when it takes over, who sees it, who pays (issue 7, sentence 7)."""

import json
from collections.abc import Sequence

import pytest

from parley.testing.scripted_wire import ScriptedCall, ScriptedReply, ScriptedUsage
from tests.stage import Json, Stage, calls, new_model_key, says

SECOND = {"integration_name": "anthropic", "provider_id": "anthropic", "model_id": "claude-sonnet-4-5"}
NOW = {"retry-after": "0"}


def failing(status: int, code: str = "x") -> ScriptedReply:
    """A refusal that may pass; the next try is due at once."""
    return ScriptedReply(status=status, headers=NOW, raw=json.dumps({"error": {"code": code}}).encode())


OVERLOADED = [failing(529, "overloaded_error")] * 4


async def with_fallback(stage: Stage, *replies: ScriptedReply) -> str:
    """A second model behind the organization's own; the key its requests carry."""
    key = new_model_key()
    body = {
        "integration_name": "anthropic",
        "auth_data": {"api_key": key, "base_url": stage.model.anthropic_url},
        "display_name": "Second",
    }
    made = await stage.client.post("/credentials", body)
    assert made.status == 201, made.body
    chosen = await stage.client.call("PUT", "/organizations/settings/fallback-llm", {"fallback_llm": SECOND})
    assert chosen.status == 200, chosen.body
    await stage.model.script(key, *replies)
    return key


async def used(stage: Stage) -> dict[str, Json]:
    """What each model was used for; the organization has had one turn."""
    answer = await stage.client.get("/billing/usage")
    assert answer.status == 200, answer.body
    return {line["model_id"]: line for line in answer.body["models"]}


@pytest.mark.parametrize(
    ("faulty", "why"),
    [
        (OVERLOADED, "not working"),
        ([failing(503)] * 4, "not working"),
        ([failing(429)] * 4, "limits requests"),
        ([ScriptedReply(text=["never"], reset_at=0)] * 4, "not working"),
        ([ScriptedReply(text=["never"], reset_at=60)], "not working"),
    ],
    ids=["overloaded", "unavailable", "rate-limited", "reset", "broken-off-before-text"],
)
async def test_a_step_goes_to_the_fallback_when_the_chosen_models_provider_is_down(
    stage: Stage, faulty: Sequence[ScriptedReply], why: str
) -> None:
    await with_fallback(stage, says("From the second.", usage=ScriptedUsage(30, 4)))
    turn = await stage.turn(*faulty)
    assert turn.types == ["metadata", "guidance", "response_chunk", "done"]
    assert turn.text == turn.data("done")["response"] == "From the second."
    note = turn.data("guidance")
    assert set(note) == {"message", "total_llm_calls"}
    assert "gpt-4o" in note["message"]
    assert "claude-sonnet-4-5" in note["message"]
    assert why in note["message"]
    models = await used(stage)
    assert models["gpt-4o"]["output_tokens"] == 0
    assert (models["claude-sonnet-4-5"]["input_tokens"], models["claude-sonnet-4-5"]["output_tokens"]) == (30, 4)
    assert turn.data("done")["usage"]["output_tokens"] == 4
    assert turn.data("done")["usage"]["llm_calls"] == 2


async def test_the_rest_of_the_turn_stays_with_the_fallback_and_the_next_turn_begins_with_the_chosen_model(
    stage: Stage,
) -> None:
    key = await with_fallback(stage, calls("get_organization_credentials", id="t1"), says("Two connected."))
    turn = await stage.turn(*OVERLOADED)
    assert turn.types.count("guidance") == 1
    assert turn.data("done")["response"] == "Two connected."
    assert len(await stage.sent()) == 4
    after = await stage.turn(says("Here again."), chat_id=turn.chat_id)
    assert after.types == ["metadata", "response_chunk", "done"]
    assert len(await stage.model.requests(key)) == 2
    assert "Two connected." in str((await stage.sent())[-1])
    assert "not working" not in str((await stage.sent())[-1]), "the note is for people only"


async def test_a_step_in_mid_turn_takes_what_was_done_along(stage: Stage) -> None:
    key = await with_fallback(stage, says("Done by the second."))
    turn = await stage.turn(calls("get_organization_credentials", text="Looking."), *OVERLOADED)
    assert turn.types == [
        "metadata",
        "response_chunk",
        "tool_call",
        "tool_result",
        "guidance",
        "response_chunk",
        "done",
    ]
    (request,) = await stage.model.requests(key)
    assert "tool_result" in json.dumps(request.body)


async def test_a_reply_that_was_begun_is_never_begun_again(stage: Stage) -> None:
    key = await with_fallback(stage, says("never"))
    turn = await stage.turn(ScriptedReply(text=["Half an answer"], unfinished=True))
    assert turn.types[-2:] == ["error", "done"]
    assert turn.text == "Half an answer"
    messages = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body["messages"]
    assert messages[-1]["content"] == "Half an answer", "the last words are kept, however soon the error came"
    assert await stage.model.requests(key) == []


@pytest.mark.parametrize(("status", "code"), [(401, "authentication_error"), (404, "not_found_error"), (400, "x")])
async def test_what_is_wrong_with_the_key_or_the_request_is_told_and_not_covered_up(
    stage: Stage, status: int, code: str
) -> None:
    key = await with_fallback(stage, says("never"))
    turn = await stage.turn(failing(status, code))
    assert turn.types == ["metadata", "error", "done"]
    assert await stage.model.requests(key) == []


async def test_a_fallback_that_fails_too_ends_with_an_error_that_names_both(stage: Stage) -> None:
    await with_fallback(stage, failing(401, "authentication_error"))
    turn = await stage.turn(*OVERLOADED)
    assert turn.types == ["metadata", "guidance", "error", "done"]
    said = turn.data("error")["message"]
    assert "OpenAI is not working" in said
    assert "claude-sonnet-4-5 failed too" in said
    assert 'the credential "Second"' in said
    models = await used(stage)
    assert set(models) == {"gpt-4o", "claude-sonnet-4-5"}
    assert (await stage.settled(turn.chat_id))["is_running"] is False


async def test_a_fallback_that_breaks_off_keeps_what_it_said(stage: Stage) -> None:
    await with_fallback(stage, ScriptedReply(text=["So far"], unfinished=True))
    turn = await stage.turn(*OVERLOADED)
    assert turn.text == "So far"
    assert turn.types[-2:] == ["error", "done"]
    messages = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body["messages"]
    assert messages[-1]["content"] == "So far"


async def test_a_fallback_whose_credential_is_gone_says_so(stage: Stage) -> None:
    await with_fallback(stage)
    groups = (await stage.client.get("/credentials")).body["integrations"]
    (row,) = groups["anthropic"]["credentials"]
    assert (await stage.client.call("DELETE", f"/credentials/{row['credential_id']}")).status == 204
    turn = await stage.turn(*OVERLOADED)
    assert turn.types == ["metadata", "error", "done"]
    assert "OpenAI is not working" in turn.data("error")["message"]
    assert "fall-back model cannot be used: Anthropic needs an API key" in turn.data("error")["message"]


async def test_without_a_fallback_and_with_the_same_model_as_fallback_the_error_is_the_models_own(stage: Stage) -> None:
    plain = await stage.turn(*OVERLOADED)
    assert plain.types == ["metadata", "error", "done"]
    chosen = await stage.client.call("PUT", "/organizations/settings/fallback-llm", {"fallback_llm": stage.llm})
    assert chosen.status == 200
    same = await stage.turn(*OVERLOADED)
    assert same.types == ["metadata", "error", "done"]
    assert same.data("error") == plain.data("error")
    assert len(await stage.sent()) == 8


@pytest.mark.parametrize(
    ("llm", "says_what"),
    [
        ({**SECOND, "integration_name": "nobody"}, "provider"),
        ({**SECOND, "integration_name": "mistral"}, "Mistral needs an API key"),
        ({**SECOND, "integration_name": "modulexai"}, "does not offer"),
        ({**SECOND, "credential_id": "11111111-1111-4111-8111-111111111111"}, "credential"),
    ],
)
async def test_a_fallback_that_cannot_be_used_is_refused_when_it_is_chosen(
    stage: Stage, llm: Json, says_what: str
) -> None:
    refused = await stage.client.call("PUT", "/organizations/settings/fallback-llm", {"fallback_llm": llm})
    assert refused.status == 400
    assert says_what in refused.detail
    assert (await stage.client.get("/organizations/settings")).body["fallback_llm"] is None


async def test_a_summary_is_written_by_the_fallback_too(stage: Stage) -> None:
    turn = await stage.turn(says("One."), message="Old")
    for number in range(3):
        turn = await stage.turn(says("Two."), message=f"Old {number}", chat_id=turn.chat_id)
    full = ScriptedReply(status=400, raw=b'{"error":{"code":"context_length_exceeded"}}')
    await with_fallback(stage, says("Short."), says("It fits."))
    after = await stage.turn(full, *OVERLOADED, message="New", chat_id=turn.chat_id)
    assert after.data("done")["response"] == "It fits."
    assert after.types == ["metadata", "guidance", "response_chunk", "done"]


async def test_two_models_of_one_turn_never_share_a_usage_row(stage: Stage) -> None:
    await with_fallback(
        stage,
        calls("get_organization_credentials", id="t1"),
        calls("get_organization_credentials", id="t2"),
        says("Ok."),
    )
    first = ScriptedReply(calls=[ScriptedCall("get_organization_credentials")])
    turn = await stage.turn(first, *OVERLOADED)
    models = await used(stage)
    assert (models["gpt-4o"]["calls"], models["claude-sonnet-4-5"]["calls"]) == (2, 3)
    assert turn.data("done")["usage"]["llm_calls"] == 5
