"""The approval gate: what asks, what an answer is bound to, what declining means (contract §5.4, §6)."""

import asyncio
import json
from typing import Any

import pytest

from parley.storage.tables.chats import questions
from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedReply
from tests.stage import Answer, Stage, calls, executes, says

DELETE = executes("delete_repository", {"owner": "octocat", "repo": "hello-world"}, text="Deleting.")
CREATE = executes("create_issue", {"owner": "octocat", "repo": "hello-world", "title": "Bug"})
YES: dict[str, Any] = {"kind": "yes_no", "answer": True}
NO: dict[str, Any] = {"kind": "yes_no", "answer": False}


async def test_a_destructive_action_asks_first_and_runs_once_when_approved(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(DELETE)
    card = turn.question
    assert (card["kind"], card["required"]) == ("yes_no", True)
    assert card["context"]["type"] == "approval"
    assert card["context"]["action_name"] == "delete_repository"
    assert card["context"]["parameters"] == {"owner": "octocat", "repo": "hello-world"}
    assert card["context"]["account"]
    assert github.deleted == []
    await stage.script(says("Gone."))
    resumed = await stage.resume(turn, YES)
    after = await stage.follow(resumed.body)
    assert after.data("tool_result")["output"]["status"] == "ok"
    assert after.data("tool_result")["tool_call_id"] == turn.data("tool_call")["tool_call_id"]
    assert github.deleted == ["hello-world"]
    assert (await stage.resume(turn, YES)).status == 410
    assert github.deleted == ["hello-world"]


async def test_declining_runs_nothing_and_the_model_sees_cancelled(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(DELETE)
    await stage.script(says("As you wish."))
    after = await stage.follow((await stage.resume(turn, NO)).body)
    output = after.data("tool_result")["output"]
    assert output["status"] == "cancelled"
    assert output["reason"]
    assert github.deleted == []
    assert after.every("guidance") == []


async def test_an_ordinary_create_runs_at_once(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(CREATE, says("Created."))
    assert turn.types[-1] == "done"
    assert len(github.created) == 1


@pytest.mark.parametrize(
    "response",
    [{"kind": "skipped"}, {"kind": "free_text", "text": "yes"}, {"kind": "single_choice", "selected_value": "yes"}],
)
async def test_only_yes_or_no_answers_an_approval(stage: Stage, github: FakeGitHub, response: dict[str, Any]) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(DELETE)
    assert (await stage.resume(turn, response)).status == 400
    assert github.deleted == []
    await stage.client.post(f"/assistant/chat/{turn.chat_id}/cancel")


async def test_a_hundred_approvals_at_once_delete_once(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(DELETE)
    await stage.script(says("Gone."))
    answers: list[Answer] = []

    async def approve() -> None:
        answers.append(await stage.resume(turn, YES))

    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(approve())
    won = [answer for answer in answers if answer.status == 200]
    assert len(won) == 1
    await stage.follow(won[0].body)
    assert github.deleted == ["hello-world"]


async def test_an_approval_whose_account_changed_since_runs_nothing(stage: Stage, github: FakeGitHub) -> None:
    credential_id = await stage.connect_github(github.token)
    turn = await stage.turn(DELETE)
    await stage.client.call("DELETE", f"/credentials/{credential_id}")
    await stage.connect_github(github.token)
    await stage.script(says("Not done."))
    after = await stage.follow((await stage.resume(turn, YES)).body)
    assert after.data("tool_result")["output"]["status"] in ("cancelled", "error")
    assert github.deleted == []


async def test_an_approval_whose_binding_was_changed_in_the_store_runs_nothing(
    stage: Stage, github: FakeGitHub
) -> None:
    await stage.connect_github(github.token)
    github.repositories.append("other")
    turn = await stage.turn(DELETE)

    def tamper(tx: Any) -> None:
        row = tx.execute(questions.select().where(questions.c.id == turn.question["request_id"])).one()
        binding = {**row.binding, "arguments": {"owner": "octocat", "repo": "other"}}
        tx.execute(questions.update().where(questions.c.id == row.id).values(binding=binding))

    await stage.parley.store.write(tamper)
    await stage.script(says("Not done."))
    after = await stage.follow((await stage.resume(turn, YES)).body)
    assert after.data("tool_result")["output"]["status"] == "cancelled"
    assert github.deleted == []


async def test_who_approved_what_is_kept(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(DELETE)
    await stage.script(says("Gone."))
    await stage.follow((await stage.resume(turn, YES)).body)
    query = questions.select().where(questions.c.id == turn.question["request_id"])
    row = await stage.parley.store.read(lambda tx: tx.execute(query).one())
    assert row.outcome == "answered"
    assert row.answer == YES
    assert row.answered_by == (await stage.client.get("/auth/me")).body["id"]
    assert row.binding["digest"] == turn.question["context"]["arguments_digest"]


async def test_secrets_among_the_parameters_are_masked_on_the_card(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    del github
    await stage.client.call("PUT", "/organizations/settings/approval-policy", {"approval_policy": "strict"})
    document = {
        "Note": "shown",
        "db": [{"userPassword": "hunter2-canary"}, {"name": "API_KEY", "value": "hunter2-canary"}],
        "access_key": {"id": "hunter2-canary"},
    }
    turn = await stage.turn(
        executes(
            "create_issue", {"owner": "octocat", "repo": "hello-world", "title": "T", "body": json.dumps(document)}
        )
    )
    shown = turn.question["context"]["parameters"]
    assert "hunter2-canary" not in str(turn.question)
    assert (shown["title"], json.loads(shown["body"])["Note"]) == ("T", "shown")
    deep = '{"password":' * 980 + '"hunter2-canary"' + "}" * 980
    turn = await stage.turn(
        executes("create_issue", {"owner": "octocat", "repo": "hello-world", "title": "T", "body": deep})
    )
    assert "hunter2-canary" not in str(turn.question)
    await stage.client.post(f"/assistant/chat/{turn.chat_id}/cancel")


@pytest.mark.parametrize("repo", ["../other", "a?b", "a#b", "a\\b", "%2e%2e/other", "%252e%252e%252fx", ".."])
async def test_path_parameters_that_lead_elsewhere_are_refused_before_anything(
    stage: Stage, github: FakeGitHub, repo: str
) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(executes("get_repository", {"owner": "octocat", "repo": repo}), says("Refused."))
    assert turn.data("tool_result")["output"]["status"] == "error"


async def test_a_credential_form_wakes_the_waiting_chat_and_its_resume_still_answers_200(
    stage: Stage, github: FakeGitHub
) -> None:
    first = await stage.turn(executes("list_repositories"), request_github())
    assert first.question["kind"] == "credential_request"
    options = {option["auth_type"] for option in first.question["auth_options"]}
    assert options == {"bearer_token"}
    await stage.script(executes("list_repositories", id="call_3"), says("Listed."))
    credential_id = await stage.connect_github(github.token)
    answer = {
        "kind": "credential_added",
        "credential_id": credential_id,
        "integration_name": "github",
        "auth_type": "bearer_token",
    }
    resumed = await stage.resume(first, answer)
    assert resumed.status == 200, resumed.body
    after = await stage.follow(resumed.body)
    assert after.every("tool_result")[0]["output"]["kind"] == "credential_added"
    assert after.every("tool_result")[1]["output"]["status"] == "ok"
    assert after.data("done")["response"] == "Listed."
    assert (await stage.resume(first, answer)).status == 410


async def test_a_credential_that_does_not_work_resumes_the_chat_as_failed(stage: Stage, github: FakeGitHub) -> None:
    del github
    turn = await stage.turn(request_github())
    credential_id = await stage.connect_github("ghp_wrong")
    assert (await stage.settled(turn.chat_id))["awaiting_input"] is True
    await stage.script(says("It was refused."))
    answer = {
        "kind": "credential_added",
        "credential_id": credential_id,
        "integration_name": "github",
        "auth_type": "bearer_token",
    }
    after = await stage.follow((await stage.resume(turn, answer)).body)
    output = after.data("tool_result")["output"]
    assert (output["kind"], output["error_code"], output["retryable"]) == (
        "credential_failed",
        "invalid_credentials",
        True,
    )


async def test_one_connection_wakes_every_waiting_chat_and_says_how_many(stage: Stage, github: FakeGitHub) -> None:
    await stage.model.script(stage.model_key, request_github(), says("Connected."), by_step=True)
    turns = [await stage.follow(await stage.start()) for _ in range(3)]
    body = {"integration_name": "github", "auth_type": "bearer_token", "auth_data": {"token": github.token}}
    made = await stage.client.post("/credentials", body)
    assert made.body["resumed_chats"] == 3
    for turn in turns:
        status = await stage.settled(turn.chat_id)
        assert status["run_status"]["status"] == "completed"


async def test_a_retried_credential_with_one_key_is_made_once(stage: Stage, github: FakeGitHub) -> None:
    body = {"integration_name": "github", "auth_type": "bearer_token", "auth_data": {"token": github.token}}
    made = [await stage.client.post("/credentials", body, Idempotency_Key="c1") for _ in range(3)]
    assert {answer.status for answer in made} == {201}
    assert len({answer.body["credential_id"] for answer in made}) == 1
    other = await stage.client.post("/credentials", {**body, "display_name": "Other"}, Idempotency_Key="c1")
    assert other.status == 409


def request_github() -> ScriptedReply:
    return calls(
        "request_credential",
        {
            "integration_name": "github",
            "integration_display_name": "GitHub",
            "auth_options": [{"auth_type": "bearer_token", "display_name": "Token", "fields": []}],
        },
        id="call_2",
    )


async def test_an_organization_may_be_stricter_than_the_operator_and_never_looser(
    stage: Stage, github: FakeGitHub
) -> None:
    await stage.connect_github(github.token)

    async def choose(policy: str | None) -> None:
        chosen = {"approval_policy": policy}
        assert (await stage.client.call("PUT", "/organizations/settings/approval-policy", chosen)).status == 200

    await choose("documented")
    turn = await stage.turn(
        executes("merge_pull_request", {"owner": "octocat", "repo": "hello-world", "pull_number": 1})
    )
    assert turn.types[-1] == "user_input_request"
    await choose("strict")
    turn = await stage.turn(CREATE)
    assert turn.types[-1] == "user_input_request"
    assert github.created == []
    await choose(None)
    await stage.script(says("Made."))
    after = await stage.follow((await stage.resume(turn, YES)).body)
    assert after.data("tool_result")["output"]["status"] == "ok"
    assert len(github.created) == 1


async def test_the_catalog_says_what_asks_first_in_the_organization_that_the_request_names(stage: Stage) -> None:
    async def why(organization_id: str) -> str | None:
        header = {"X-Organization-ID": organization_id}
        entry = (await stage.client.call("GET", "/integrations/tools/github", **header)).body
        [creating] = [action for action in entry["actions"] if action["name"] == "create_issue"]
        return creating["asks_first"]

    ours = stage.client.organization_id
    other = (await stage.client.post("/organizations", {"name": "Elsewhere"})).body["organization"]["id"]
    assert await why(ours) is None
    chosen = {"approval_policy": "strict"}
    assert (await stage.client.call("PUT", "/organizations/settings/approval-policy", chosen)).status == 200
    assert "every change asks first" in str(await why(ours))
    assert "every change asks first" in str(await why(ours.upper()))
    assert await why(other) is None
    assert await why("99999999-9999-4999-8999-999999999999") is None
    settings = (await stage.client.get("/organizations/settings")).body
    assert (settings["approval_policy"], settings["operator_approval_policy"]) == ("strict", "catalog")
