"""The tools as the model meets them: discovery, every status of an action, no secret anywhere (contract §6)."""

import base64
import json
from collections.abc import Mapping
from uuid import uuid4

import pytest

from parley.billing.ledger import Charge, charge
from parley.billing.plans import MICRO
from parley.storage import WriteTx
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import Answer, Asked, Provider, ProviderProxy, json_answer
from parley.testing.scripted_wire import ScriptedReply
from tests.billing.office import put_on
from tests.stage import Json, Stage, calls, everything, executes, output_of, says

NAMES = {"integration_name": "github", "tool_name": "list_repositories"}
CREATE = {"owner": "octocat", "repo": "hello-world", "title": "Bug"}
TYPES = {"string", "integer", "number", "boolean", "array", "object"}
STRIPPED = {"api_key", "token", "access_token", "bearer_token", "auth_type", "auth_data"}


@pytest.fixture
async def connected(stage: Stage, github: FakeGitHub) -> FakeGitHub:
    """GitHub with its credential in the organization."""
    await stage.connect_github(github.token)
    return github


def provider(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Provider:
    """A GitHub that answers everything the same."""

    async def answer(_asked: Asked) -> Answer:
        return Answer(status, body, headers or {"Content-Type": "text/plain"})

    return answer


# ── discovery ───────────────────────────────────────────────────────────────────────────────────


async def test_the_catalogue_has_three_segments_with_action_names_only(stage: Stage) -> None:
    found = output_of(await stage.turn(calls("get_available_integrations", {}), says("Many.")))
    assert list(found) == ["tools", "llm_providers", "knowledge_providers"]
    assert len(found["tools"]) == 194
    for tool in found["tools"]:
        assert set(tool) == {"name", "display_name", "description", "categories", "actions"}
        assert len(tool["description"]) <= 100
        assert all(isinstance(action, str) for action in tool["actions"])
    assert any(len(tool["description"]) == 100 for tool in found["tools"])
    for provider_ in found["llm_providers"]:
        assert set(provider_) == {"name", "display_name", "description", "categories", "models"}
        assert all(set(model) == {"id", "display_name", "max_output_tokens"} for model in provider_["models"])
    assert "openai" in {provider_["name"] for provider_ in found["llm_providers"]}
    for provider_ in found["knowledge_providers"]:
        assert set(provider_) == {"name", "display_name", "description", "categories"}
    assert found["knowledge_providers"]


@pytest.mark.parametrize("segment", ["tools", "llm_providers", "knowledge_providers"])
async def test_one_segment_can_be_asked_for(stage: Stage, segment: str) -> None:
    turn = await stage.turn(calls("get_available_integrations", {"integration_type": segment}), says("Ok."))
    assert list(output_of(turn)) == [segment]


@pytest.mark.parametrize("query", ["GITHUB", "gitHub", "list_pull_requests"])
async def test_a_query_matches_whatever_its_case_also_action_names(stage: Stage, query: str) -> None:
    turn = await stage.turn(calls("get_available_integrations", {"query": query}), says("Ok."))
    assert "github" in {tool["name"] for tool in output_of(turn)["tools"]}


async def test_the_details_of_one_action_are_its_parameters(stage: Stage) -> None:
    wanted = {"integration_name": "github", "action_name": "create_issue"}
    found = output_of(await stage.turn(calls("get_integration_details", wanted), says("Ok.")))
    assert set(found) == {"name", "integration_type", "actions"}
    assert (found["name"], found["integration_type"]) == ("github", "tool")
    (action,) = found["actions"]
    assert set(action) == {"name", "description", "parameters"}
    named = {parameter["name"]: parameter for parameter in action["parameters"]}
    assert {name for name, parameter in named.items() if parameter["required"]} == {"owner", "repo", "title"}
    assert (named["title"]["type"], named["labels"]["type"]) == ("string", "array")
    for parameter in action["parameters"]:
        assert {"name", "type", "required", "description"} <= set(parameter)
        assert set(parameter) <= {"name", "type", "required", "description", "enum", "default"}
        assert parameter["type"] in TYPES
    assert not STRIPPED & set(named)


async def test_without_an_action_every_action_is_described_in_at_most_300_characters(stage: Stage) -> None:
    turn = await stage.turn(calls("get_integration_details", {"integration_name": "github"}), says("Ok."))
    actions = output_of(turn)["actions"]
    assert len(actions) > 10
    assert all(len(action["description"]) <= 300 for action in actions)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"integration_name": "nowhere"}, "Integration 'nowhere' not found"),
        ({"integration_name": "github", "action_name": "fly"}, "Action 'fly' not found in github"),
    ],
)
async def test_what_is_not_in_the_catalogue_is_an_error_value(stage: Stage, arguments: Json, said: str) -> None:
    turn = await stage.turn(calls("get_integration_details", arguments), says("No."))
    assert output_of(turn) == {"error": said}


async def test_credentials_are_listed_with_safe_fields_only(stage: Stage, connected: FakeGitHub) -> None:
    listed = output_of(await stage.turn(calls("get_organization_credentials", {}), says("Two.")))
    assert {entry["integration_name"] for entry in listed} == {"openai", "github"}
    for entry in listed:
        assert set(entry) == {
            "credential_id",
            "integration_name",
            "display_name",
            "auth_type",
            "is_default",
            "is_valid",
        }
    only = {"integration_name": "github"}
    (entry,) = output_of(await stage.turn(calls("get_organization_credentials", only), says("One.")))
    assert (entry["auth_type"], entry["is_default"], entry["is_valid"]) == ("bearer_token", False, True)
    await stage.client.post(f"/credentials/{entry['credential_id']}/set-default")
    (entry,) = output_of(await stage.turn(calls("get_organization_credentials", only), says("One.")))
    assert entry["is_default"] is True
    none = await stage.turn(calls("get_organization_credentials", {"integration_name": "slack"}), says("None."))
    assert output_of(none) == []


# ── one action, each status ─────────────────────────────────────────────────────────────────────


async def test_ok_has_the_bare_result(stage: Stage, connected: FakeGitHub) -> None:
    output = output_of(await stage.turn(executes("create_issue", CREATE), says("Done.")))
    assert set(output) == {"status", "integration_name", "tool_name", "result"}
    assert (output["status"], output["integration_name"], output["tool_name"]) == ("ok", "github", "create_issue")
    assert output["result"]["success"] is True
    assert output["result"]["issue"]["title"] == "Bug"
    assert len(connected.created) == 1


async def test_parameters_default_to_none(stage: Stage, connected: FakeGitHub) -> None:
    turn = await stage.turn(calls("execute_integration_tool", NAMES), says("Ok."))
    assert output_of(turn)["status"] == "ok"


async def test_needs_credential_says_what_to_do_and_names_the_ways(stage: Stage, github: FakeGitHub) -> None:
    output = output_of(await stage.turn(executes("list_repositories"), says("Not connected.")))
    ours = {"integration_display_name", "auth_options"}
    assert set(output) == {"status", "integration_name", "tool_name", "message"} | ours
    assert output["status"] == "needs_credential"
    assert "request_credential" in output["message"]
    assert {option["auth_type"] for option in output["auth_options"]} <= {
        "oauth2",
        "api_key",
        "bearer_token",
        "modulex_key",
        "custom",
    }


async def test_declined_is_cancelled_with_a_reason(stage: Stage, connected: FakeGitHub) -> None:
    turn = await stage.turn(executes("delete_repository", {"owner": "octocat", "repo": "hello-world"}))
    assert turn.question["kind"] == "yes_no"
    await stage.script(says("Kept."))
    after = await stage.follow((await stage.resume(turn, {"kind": "yes_no", "answer": False})).body)
    output = output_of(after)
    assert set(output) == {"status", "integration_name", "tool_name", "reason"}
    assert output["status"] == "cancelled"
    assert connected.deleted == []


async def test_a_managed_key_past_the_month_is_credit_limit(stage: Stage, proxy: ProviderProxy) -> None:
    made = await stage.client.post("/credentials", {"integration_name": "hackernews", "auth_type": "modulex_key"})
    assert made.status == 201, made.body
    organization_id, plans = stage.client.organization_id, stage.parley.plans
    await stage.parley.store.write(put_on(organization_id, "free"))
    ceiling = plans.of("free").monthly_credits
    assert ceiling is not None
    all_but_one = (int(ceiling) - 1) * MICRO

    def use_up(tx: WriteTx) -> None:
        what = Charge(f"used-{organization_id}", "tool", all_but_one)
        assert charge(tx, plans, organization_id, what, stage.clock.now()) is None

    await stage.parley.store.write(use_up)
    before = len(proxy.asked)
    action = executes("get_top_stories", {}, integration="hackernews")
    output = output_of(await stage.turn(action, says("No credits.")))
    assert set(output) == {"status", "integration_name", "tool_name", "message", "reason"}
    assert (output["status"], output["reason"]) == ("credit_limit", "credit_exhausted")
    assert len(proxy.asked) == before


@pytest.mark.parametrize(
    ("integration", "action", "said"),
    [("nowhere", "fly", "Integration 'nowhere' not found"), ("github", "fly", "Action 'fly' not found in github")],
)
async def test_an_unknown_integration_or_action_is_an_error_value(
    stage: Stage, connected: FakeGitHub, integration: str, action: str, said: str
) -> None:
    output = output_of(await stage.turn(executes(action, integration=integration), says("No.")))
    assert output == {
        "status": "error",
        "integration_name": integration,
        "tool_name": action,
        "error": said,
        "success": False,
    }


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b'{"message":"Not Found"}'),
        (500, b"boom " * 1_000),
        (403, b""),
        (502, b"<html>" + b"x" * 10_000),
        (200, b"no json at all"),
    ],
)
async def test_whatever_the_provider_does_is_an_error_value_of_at_most_500_characters(
    stage: Stage, connected: FakeGitHub, proxy: ProviderProxy, status: int, body: bytes
) -> None:
    proxy.answer("api.github.com", provider(status, body))
    output = output_of(await stage.turn(executes("list_repositories"), says("Sorry.")))
    assert set(output) == {"status", "integration_name", "tool_name", "error", "success"}
    assert (output["status"], output["success"]) == ("error", False)
    assert 0 < len(output["error"]) <= 500
    if status != 200:
        assert str(status) in output["error"]
    after = await stage.turn(says("Going on."))
    assert after.types[-1] == "done"


async def test_missing_parameters_are_an_error_value_and_reach_nobody(
    stage: Stage, connected: FakeGitHub, proxy: ProviderProxy
) -> None:
    before = len(proxy.asked)
    output = output_of(await stage.turn(executes("create_issue", {"owner": "octocat"}), says("Sorry.")))
    assert output["status"] == "error"
    assert "title" in output["error"]
    assert len(proxy.asked) == before


async def test_a_refused_key_is_an_error_and_marks_the_credential(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(f"ghp_{uuid4().hex}")
    output = output_of(await stage.turn(executes("list_repositories"), says("Refused.")))
    assert output["status"] == "error"
    assert "401" in output["error"]
    listed = await stage.turn(calls("get_organization_credentials", {"integration_name": "github"}), says("Bad key."))
    assert [entry["is_valid"] for entry in output_of(listed)] == [False]


async def test_credential_fields_from_the_model_are_dropped(
    stage: Stage, connected: FakeGitHub, proxy: ProviderProxy
) -> None:
    forged = dict.fromkeys(STRIPPED, "forged-by-the-model") | {"auth_data": {"token": "forged-by-the-model"}}
    output = output_of(await stage.turn(executes("list_repositories", forged), says("Ok.")))
    assert output["status"] == "ok"
    sent = proxy.asked[-1]
    assert sent.headers["authorization"] == f"Bearer {connected.token}"
    assert "forged-by-the-model" not in str(sent)


async def test_a_certain_credential_can_be_named(stage: Stage, github: FakeGitHub) -> None:
    good = await stage.connect_github(github.token)
    bad = await stage.connect_github(f"ghp_{uuid4().hex}")
    await stage.client.post(f"/credentials/{bad}/set-default")
    arguments = {**NAMES, "credential_id": good}
    assert output_of(await stage.turn(calls("execute_integration_tool", arguments), says(".")))["status"] == "ok"
    arguments["credential_id"] = str(uuid4())
    output = output_of(await stage.turn(calls("execute_integration_tool", arguments), says(".")))
    assert output["status"] == "error"


async def test_search_knowledge_answers_with_a_status(stage: Stage) -> None:
    output = output_of(await stage.turn(calls("search_knowledge", {"query": "holidays"}), says("Nothing.")))
    assert output["status"] in ("ok", "error")
    assert output["query"] == "holidays"


# ── whatever the model makes up ─────────────────────────────────────────────────────────────────


async def test_nul_characters_in_a_reply_are_left_out_and_the_turn_ends(stage: Stage) -> None:
    turn = await stage.turn(ScriptedReply(text=["a\0b", "\0", "c"], thinking=["h\0m"]))
    assert turn.text == "abc"
    assert turn.data("done")["response"] == "abc"
    (_, said) = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body["messages"]
    assert (said["content"], said["thinking"]) == ("abc", "hm")


@pytest.mark.parametrize("name", ["x" * 5_000, "get\0_tools", ""])
async def test_a_made_up_tool_of_any_name_is_a_value(stage: Stage, name: str) -> None:
    turn = await stage.turn(calls(name, {"a\0": "b\0"}, id="c\0" + "y" * 5_000), says("No such tool."))
    assert output_of(turn)["error"] == "unknown_tool"
    again = await stage.turn(says("Going on."), chat_id=turn.chat_id)
    assert again.text == "Going on."


async def test_names_and_parameters_of_any_length_are_values(stage: Stage, connected: FakeGitHub) -> None:
    long = "\0" + "x" * 5_000
    turn = await stage.turn(
        executes(long, {long: long}, integration=long),
        executes(long, {long: long}, id="call_2"),
        executes("list_repositories", {long: long}, id="call_3"),
        says("Fine."),
    )
    assert [data["output"]["status"] for data in turn.every("tool_result")] == ["error", "error", "ok"]
    assert turn.types[-1] == "done"


async def test_a_question_with_nul_characters_can_be_asked_and_answered(stage: Stage) -> None:
    turn = await stage.turn(calls("ask_user_free_text", {"message": "Your\0 name?"}))
    assert turn.types[-1] == "user_input_request"
    await stage.script(says("Thanks."))
    resumed = await stage.resume(turn, {"kind": "free_text", "text": "Ada"})
    assert (await stage.follow(resumed.body)).types[-1] == "done"


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────


async def test_no_secret_of_a_credential_is_ever_in_streams_messages_prompts_or_the_store(
    stage: Stage, github: FakeGitHub, proxy: ProviderProxy
) -> None:
    """GitHub echoes the key it got, in a result and in an error; the model repeats nothing it never saw."""
    canary = f"ghp_canary{uuid4().hex}"
    await stage.connect_github(canary)

    async def echo(asked: Asked) -> Answer:
        key = asked.headers["authorization"]
        if asked.method == "POST":
            return Answer(500, f"bad key {key} {base64.b64encode(canary.encode()).decode()}".encode())
        owner: Json = {
            "id": 1,
            "name": key,
            "full_name": canary,
            "private": False,
            "html_url": f"https://x/?k={canary}",
        }
        return json_answer([{**owner, "description": base64.b64encode(f"u:{canary}".encode()).decode()}])

    proxy.answer("api.github.com", echo)
    turn = await stage.turn(
        executes("list_repositories"),
        executes("create_issue", CREATE, id="call_2"),
        calls("get_organization_credentials", {}, id="call_3"),
        says("Done."),
    )
    results = [data["output"] for data in turn.every("tool_result")]
    assert [results[0]["status"], results[1]["status"]] == ["ok", "error"]
    requests = await stage.sent()
    assert len(requests) == 4
    seen = {
        "stream": json.dumps(turn.events),
        "replay": json.dumps(await stage.client.listen(turn.chat_id, turn.run_id)),
        "messages": json.dumps((await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body),
        "status": json.dumps((await stage.client.get(f"/assistant/chat/{turn.chat_id}/status")).body),
        "credentials": json.dumps((await stage.client.get("/credentials")).body),
        "prompts": json.dumps(requests),
        "store": "\n".join((await stage.parley.store.read(everything)).values()),
    }
    assert "list_repositories" in seen["store"]
    coded = base64.b64encode(canary.encode()).decode()
    for where, text in seen.items():
        for form in (canary, canary[4:], coded[:30], canary.encode().hex()):
            assert form not in text, where
        assert stage.model_key not in text, where
        assert stage.client.key not in text, where


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_model_provider_that_echoes_its_key_reveals_nothing(stage: Stage, status: int) -> None:
    said = {"error": {"message": f"Incorrect API key provided: {stage.model_key}.", "code": "invalid_api_key"}}
    turn = await stage.turn(ScriptedReply(status=status, raw=json.dumps(said).encode()))
    assert turn.types[-2:] == ["error", "done"]
    detail = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body
    state = (await stage.client.get(f"/assistant/chat/{turn.chat_id}/status")).body
    stored = await stage.parley.store.read(everything)
    assert turn.chat_id in stored["chats"]
    for text in (str(turn.events), str(detail), str(state), *stored.values()):
        assert stage.model_key not in text
        assert stage.model_key[-12:] not in text
