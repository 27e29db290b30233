"""Parley as an MCP server, asked by the official client: same policy, same approval, same metering (issue 9, 2)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from sqlalchemy import func, select

from parley.billing.ledger import Charge, charge
from parley.billing.plans import MICRO
from parley.storage import WriteTx
from parley.storage.tables.chats import tool_calls
from parley.testing.fake_github import FakeGitHub
from parley.testing.mcp_server import ScriptedMcpServer, mcp_server
from tests.billing.office import put_on
from tests.contract.conftest import ORGANIZATION
from tests.stage import Answer, Json, Stage

MISSING = "11111111-1111-4111-8111-999999999999"
CREATE = {"owner": "octocat", "repo": "hello-world", "title": "Bug"}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedMcpServer]:
    async with mcp_server() as running:
        yield running


@pytest.fixture
async def connected(stage: Stage, github: FakeGitHub) -> FakeGitHub:
    await stage.connect_github(github.token)
    return github


@asynccontextmanager
async def client_of(stage: Stage, mode: str = "auto") -> AsyncGenerator[Client]:
    """The official client with the stage's key."""
    async with httpx2.AsyncClient(headers=stage.client.headers) as http:
        transport = streamable_http_client(f"{stage.client.base_url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


async def ask(stage: Stage, tool: str, /, **arguments: Any) -> Json:
    """One tool's structured answer, with its ``failed``."""
    async with client_of(stage) as client:
        result = await client.call_tool(tool, arguments)
    return {**result.structured_content, "failed": result.is_error}


async def rpc(stage: Stage, message: Any) -> Answer:
    return await stage.client.post("/mcp", message)


async def box(stage: Stage, server: ScriptedMcpServer) -> None:
    """Give the organization an MCP server of its own."""
    made = await stage.client.post("/credentials/mcp-server", {"server_url": server.url, "display_name": "Box"})
    assert made.status == 201, made.body


async def approve(stage: Stage, run: Json, *, answer: bool) -> None:
    """What the person does in the web app."""
    chat_id = run["approve_url"].rpartition("/")[2]
    state = (await stage.client.get(f"/assistant/chat/{chat_id}/status")).body
    body = {
        "request_id": state["pending_request_id"],
        "response": {"kind": "yes_no", "answer": answer},
        "llm": stage.llm,
    }
    resumed = await stage.client.post(f"/assistant/chat/{chat_id}/resume", body)
    assert resumed.status == 200, resumed.body


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_finds_four_tools(stage: Stage, mode: str) -> None:
    async with client_of(stage, mode) as client:
        assert client.server_info is not None
        assert client.server_info.name == "parley"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"search_actions", "describe_action", "run_action", "get_run"}
    hints = {name: tool.annotations.read_only_hint for name, tool in tools.items() if tool.annotations}
    assert hints == {"search_actions": True, "describe_action": True, "run_action": False, "get_run": True}


async def test_only_connected_actions_are_found_unless_all_are_wanted(stage: Stage, connected: FakeGitHub) -> None:
    mine = await ask(stage, "search_actions", query="list repositories")
    assert {each["integration_name"] for each in mine["actions"]} == {"github"}
    assert all(each["connected"] for each in mine["actions"])
    every = await ask(stage, "search_actions", query="list", connected_only=False)
    assert every["total"] > len(every["actions"]) == 50
    assert every["more"] is True


async def test_an_action_is_described_with_its_schema_and_what_it_does(stage: Stage, connected: FakeGitHub) -> None:
    told = await ask(stage, "describe_action", integration_name="github", action_name="create_issue")
    assert told["parameters"]["required"] == ["owner", "repo", "title"]
    assert (told["effect"], told["asks_first"], told["connected"]) == ("write", None, True)
    missing = await ask(stage, "describe_action", integration_name="github", action_name="fly")
    assert missing["failed"] is True


async def test_an_action_runs_with_the_organizations_account_and_is_counted(
    stage: Stage, connected: FakeGitHub
) -> None:
    before = await stage.credits()
    run = await ask(stage, "run_action", integration_name="github", action_name="list_repositories")
    assert (run["status"], run["failed"]) == ("finished", False)
    assert run["output"]["status"] == "ok"
    assert run["output"]["result"]["success"] is True
    assert await stage.credits() - before == MICRO
    again = await ask(stage, "get_run", run_id=run["run_id"])
    assert again["output"] == run["output"]
    listed = await stage.client.get("/assistant/chats")
    assert listed.body["items"] == []


async def test_the_same_idempotency_key_runs_once(stage: Stage, connected: FakeGitHub) -> None:
    arguments = {"integration_name": "github", "action_name": "create_issue", "parameters": CREATE}
    runs = [await ask(stage, "run_action", **arguments, idempotency_key="k1") for _ in range(2)]
    assert runs[0] == runs[1]
    assert len(connected.created) == 1


async def test_an_action_that_asks_waits_for_a_person_and_then_runs_once(
    stage: Stage, server: ScriptedMcpServer
) -> None:
    await box(stage, server)
    run = await ask(stage, "run_action", integration_name="mcp_box", action_name="wipe_all", parameters={"deep": True})
    assert (run["status"], run["failed"]) == ("needs_approval", False)
    assert "Box" in run["question"]
    assert server.calls == []
    waiting = await ask(stage, "get_run", run_id=run["run_id"])
    assert waiting["status"] == "needs_approval"
    await approve(stage, run, answer=True)
    ended = await ask(stage, "get_run", run_id=run["run_id"])
    assert (ended["status"], ended["output"]["status"]) == ("finished", "ok")
    assert server.calls == [("wipe_all", {"deep": True})]
    assert await stage.sent() == []


async def test_what_the_organizations_own_policy_asks_about_waits_here_too(stage: Stage, connected: FakeGitHub) -> None:
    name = {"integration_name": "github", "action_name": "create_issue"}
    assert (await ask(stage, "describe_action", **name))["asks_first"] is None
    strict = {"approval_policy": "strict"}
    assert (await stage.client.call("PUT", "/organizations/settings/approval-policy", strict)).status == 200
    assert (await ask(stage, "describe_action", **name))["asks_first"] is not None
    run = await ask(stage, "run_action", **name, parameters=CREATE)
    assert (run["status"], connected.created) == ("needs_approval", [])
    await approve(stage, run, answer=True)
    assert (await ask(stage, "get_run", run_id=run["run_id"]))["output"]["status"] == "ok"
    assert len(connected.created) == 1


async def test_an_organization_without_credits_is_denied_as_in_a_chat_and_nothing_runs(
    stage: Stage, connected: FakeGitHub
) -> None:
    def use_up(tx: WriteTx) -> None:
        put_on(stage.client.organization_id, "free")(tx)
        everything = Charge("used", "tool", 200 * MICRO)
        assert charge(tx, stage.parley.plans, stage.client.organization_id, everything, stage.clock.now()) is None

    await stage.parley.store.write(use_up)
    refused = await stage.client.post("/assistant/chat", {"message": "Hi", "llm": stage.llm})
    assert (refused.status, refused.body["code"]) == (402, "credit_plan_exhausted")
    run = await ask(stage, "run_action", integration_name="github", action_name="create_issue", parameters=CREATE)
    assert (run["failed"], run["denial"]["code"]) == (True, "credit_plan_exhausted")
    assert connected.created == []


async def test_a_person_who_declines_runs_nothing(stage: Stage, server: ScriptedMcpServer) -> None:
    await box(stage, server)
    run = await ask(stage, "run_action", integration_name="mcp_box", action_name="look")
    await approve(stage, run, answer=False)
    ended = await ask(stage, "get_run", run_id=run["run_id"])
    assert (ended["status"], ended["output"]["status"]) == ("finished", "cancelled")
    assert server.calls == []


async def test_what_an_action_lacks_is_said(stage: Stage, github: FakeGitHub) -> None:
    run = await ask(stage, "run_action", integration_name="github", action_name="list_repositories")
    assert (run["output"]["status"], run["failed"]) == ("needs_credential", True)
    unknown = await ask(stage, "run_action", integration_name="nowhere", action_name="x")
    assert unknown["output"]["error"] == "Integration 'nowhere' not found"


async def test_another_organizations_run_and_servers_are_like_missing_ones(
    stage: Stage, server: ScriptedMcpServer, connected: FakeGitHub
) -> None:
    await box(stage, server)
    run = await ask(stage, "run_action", integration_name="github", action_name="list_repositories")
    mine = stage.client.organization_id
    stage.client.organization_id = ORGANIZATION
    foreign = await ask(stage, "get_run", run_id=run["run_id"])
    missing = await ask(stage, "get_run", run_id=MISSING)
    assert foreign == missing == {"error": "Run not found", "failed": True}
    found = await ask(stage, "search_actions", query="mcp_box", connected_only=False)
    assert found["total"] == 0
    stage.client.organization_id = mine


async def test_an_ordinary_turn_is_no_run_of_this_surface(stage: Stage) -> None:
    started = await stage.start()
    assert (await ask(stage, "get_run", run_id=started["run_id"]))["error"] == "Run not found"
    await stage.settled(started["chat_id"])


async def test_many_at_once_all_end_and_are_charged_once_each(stage: Stage, connected: FakeGitHub) -> None:
    before = await stage.credits()
    arguments = {"integration_name": "github", "action_name": "list_repositories"}
    params = {"name": "run_action", "arguments": arguments}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(rpc(stage, call)) for _ in range(15)]
    assert {each.result().body["result"]["structuredContent"]["status"] for each in calls} == {"finished"}
    assert await stage.credits() - before == 15 * MICRO
    count = (
        select(func.count()).select_from(tool_calls).where(tool_calls.c.organization_id == stage.client.organization_id)
    )
    assert await stage.parley.store.read(lambda tx: tx.execute(count).scalar_one()) == 15


async def test_without_a_key_or_an_organization_nobody_gets_in(stage: Stage) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with stage.client.session.post(f"{stage.client.base_url}/mcp", json=ping) as refused:
        assert refused.status == 401
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    headers = {"Authorization": f"Bearer {stage.client.key}"}
    async with stage.client.session.post(f"{stage.client.base_url}/mcp", json=ping, headers=headers) as nowhere:
        assert nowhere.status == 400
    async with stage.client.session.get(f"{stage.client.base_url}/mcp", headers=stage.client.headers) as opened:
        assert opened.status == 405


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ([], 400, -32600),
        ("x", 400, -32600),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": {"a": 1}, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}, 200, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "rm"}}, 200, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, 200, -32602),
    ],
)
async def test_a_wrong_message_is_answered_in_the_protocols_words(
    stage: Stage, message: Any, status: int, code: int
) -> None:
    answer = await rpc(stage, message)
    assert (answer.status, answer.body["error"]["code"]) == (status, code)


async def test_wrong_arguments_run_nothing_and_say_what_is_wrong(stage: Stage) -> None:
    before = await stage.credits()
    for arguments in ({}, {"integration_name": 1, "action_name": "x"}, {"integration_name": "a", "odd": 1}):
        params = {"name": "run_action", "arguments": arguments}
        answer = await rpc(stage, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert answer.body["result"]["isError"] is True
        assert "integration_name (required), action_name (required), parameters" in str(answer.body["result"])
    assert await stage.credits() == before


async def test_a_notification_is_taken_without_an_answer(stage: Stage) -> None:
    answer = await rpc(stage, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (answer.status, answer.body) == (202, None)
