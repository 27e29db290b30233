"""The demo model drives the real tools by fixed rules and always says what it is."""

import json
from contextlib import aclosing
from typing import Any

import pytest

from parley.llm.demo import LABEL, DemoModel
from parley.turn.model import (
    AssistantEntry,
    Entry,
    JsonObject,
    Prompt,
    Reply,
    TextDelta,
    ToolEntry,
    ToolSpec,
    UserEntry,
)

NAMES = [
    "get_available_integrations",
    "get_integration_details",
    "get_organization_credentials",
    "execute_integration_tool",
    "search_knowledge",
    "request_credential",
    "ask_user_choice",
    "ask_user_multi_choice",
    "ask_user_yes_no",
    "ask_user_free_text",
]
TOOLS = [ToolSpec(name, name, {"type": "object"}) for name in NAMES]
FOUND = {
    "tools": [
        {"name": "github_pages", "display_name": "GitHub Pages", "description": "p", "actions": ["list_sites"]},
        {"name": "github", "display_name": "GitHub", "description": "Code.", "actions": ["list_repositories"]},
    ]
}
DETAILS = {
    "name": "github",
    "actions": [
        {"name": "create_repository", "parameters": [{"name": "name", "required": True}]},
        {"name": "list_repositories", "parameters": [{"name": "sort", "required": False}]},
        {
            "name": "delete_repository",
            "parameters": [{"name": "owner", "required": True}, {"name": "repo", "required": True}],
        },
        {"name": "create_issue", "parameters": [{"name": n, "required": True} for n in ("owner", "repo", "title")]},
    ],
}
NEEDS = {
    "status": "needs_credential",
    "auth_options": [{"auth_type": "bearer_token", "display_name": "Personal Access Token", "fields": []}],
}


class Talk:
    """A conversation with the demo model; each tool is answered by a given output."""

    def __init__(self, message: str) -> None:
        self.entries: list[Entry] = [UserEntry(message)]
        self.texts: list[str] = []

    async def step(self, tools: list[ToolSpec] = TOOLS) -> Reply:
        model = DemoModel(pace_seconds=0)
        async with aclosing(model.reply(Prompt("S", self.entries, tools))) as stream:
            parts = [part async for part in stream]
        reply = parts[-1]
        assert isinstance(reply, Reply)
        self.texts = [part.text for part in parts if isinstance(part, TextDelta)]
        assert reply.usage.input > 0
        assert reply.usage == model.partial_usage()
        return reply

    async def uses(self, tool: str, output: Any) -> JsonObject:
        """The next step calls this tool; its arguments."""
        (call,) = (await self.step()).calls
        assert call.tool == tool
        self.entries += [AssistantEntry("", [call]), ToolEntry(call.id, tool, json.dumps(output))]
        return json.loads(call.arguments)

    async def answers(self) -> str:
        reply = await self.step()
        assert not reply.calls
        assert reply.text.startswith(LABEL)
        assert "".join(self.texts) == reply.text
        assert len(self.texts) > 3
        return reply.text


async def test_what_can_you_do_lists_real_integrations() -> None:
    talk = Talk("What can you do?")
    assert await talk.uses("get_available_integrations", FOUND) == {"integration_type": "tools"}
    assert "2 integrations with 2 actions" in await talk.answers()


@pytest.mark.parametrize("message", ["List my GitHub repositories", "show the repos on github", "list github repos"])
async def test_listing_repositories_finds_reads_runs_connects_and_runs_again(message: str) -> None:
    talk = Talk(message)
    searched = await talk.uses(
        "get_available_integrations", FOUND if "github" in message[:15].lower() else {"tools": []}
    )
    if searched["query"] != "github":
        assert (await talk.uses("get_available_integrations", FOUND))["query"] == "github"
    assert await talk.uses("get_integration_details", DETAILS) == {"integration_name": "github"}
    ran = await talk.uses("execute_integration_tool", NEEDS)
    assert ran == {"integration_name": "github", "tool_name": "list_repositories", "parameters": {}}
    asked = await talk.uses("request_credential", {"kind": "credential_added", "credential_id": "c"})
    assert asked["auth_options"] == NEEDS["auth_options"]
    assert asked["integration_display_name"] == "GitHub"
    result = {"repositories": [{"name": "hello", "full_name": "me/hello"}, {"name": "world"}]}
    assert await talk.uses("execute_integration_tool", {"status": "ok", "result": result}) == ran
    answer = await talk.answers()
    assert "me/hello" in answer
    assert "world" in answer


@pytest.mark.parametrize("response", [{"kind": "skipped"}, {"kind": "credential_failed", "error_code": "oauth_denied"}])
async def test_without_a_credential_it_stops(response: JsonObject) -> None:
    talk = Talk("list github repositories")
    await talk.uses("get_available_integrations", FOUND)
    await talk.uses("get_integration_details", DETAILS)
    await talk.uses("execute_integration_tool", NEEDS)
    await talk.uses("request_credential", response)
    assert "cannot go on" in await talk.answers()


async def test_a_credential_that_does_not_help_is_not_asked_for_for_ever() -> None:
    talk = Talk("list github repositories")
    await talk.uses("get_available_integrations", FOUND)
    await talk.uses("get_integration_details", DETAILS)
    await talk.uses("execute_integration_tool", NEEDS)
    await talk.uses("request_credential", {"kind": "credential_added"})
    await talk.uses("execute_integration_tool", NEEDS)
    assert "cannot go on" in await talk.answers()


async def test_missing_parameters_are_asked_for_one_by_one() -> None:
    talk = Talk('Create an issue "Broken door" on github')
    await talk.uses("get_available_integrations", {"tools": []})
    await talk.uses("get_available_integrations", {"tools": []})
    await talk.uses("get_available_integrations", FOUND)
    await talk.uses("get_integration_details", DETAILS)
    assert "`owner`" in str((await talk.uses("ask_user_free_text", {"kind": "free_text", "text": "me"}))["message"])
    assert "`repo`" in str((await talk.uses("ask_user_free_text", {"kind": "free_text", "text": "hello"}))["message"])
    ran = await talk.uses("execute_integration_tool", {"status": "error", "error": "no such repository"})
    assert ran["parameters"] == {"owner": "me", "repo": "hello", "title": "Broken door"}
    assert "no such repository" in await talk.answers()


async def test_a_skipped_parameter_ends_the_turn() -> None:
    talk = Talk("create github repository")
    await talk.uses("get_available_integrations", FOUND)
    await talk.uses("get_integration_details", DETAILS)
    await talk.uses("ask_user_free_text", {"kind": "skipped"})
    assert "without `name`" in await talk.answers()


async def test_a_declined_action_is_told() -> None:
    talk = Talk("delete github repository me/hello")
    await talk.uses("get_available_integrations", FOUND)
    await talk.uses("get_integration_details", DETAILS)
    ran = await talk.uses("execute_integration_tool", {"status": "cancelled", "reason": "declined"})
    assert ran["parameters"] == {"owner": "me", "repo": "hello"}
    assert "declined" in await talk.answers()


@pytest.mark.parametrize(
    ("message", "tool", "response", "expected"),
    [
        ("Ask me something", "ask_user_choice", {"kind": "single_choice", "selected_value": "red"}, "`red`"),
        ("ask me yes or no", "ask_user_yes_no", {"kind": "yes_no", "answer": False}, "`False`"),
        ("ask me several", "ask_user_multi_choice", {"kind": "multi_choice", "selected_values": []}, "`[]`"),
        ("ask me for a text", "ask_user_free_text", {"kind": "free_text", "text": "hi"}, "`hi`"),
        ("ask me", "ask_user_choice", {"kind": "skipped"}, "skip the question"),
    ],
)
async def test_it_asks_each_kind_of_question(message: str, tool: str, response: JsonObject, expected: str) -> None:
    talk = Talk(message)
    arguments = await talk.uses(tool, response)
    assert arguments["message"]
    assert expected in await talk.answers()


async def test_knowledge_and_accounts_are_looked_up() -> None:
    talk = Talk("Search knowledge for refunds")
    assert await talk.uses("search_knowledge", {"matches": [{"content": "30 days"}]}) == {"query": "refunds"}
    assert "30 days" in await talk.answers()
    talk = Talk("Which accounts are connected?")
    await talk.uses("get_organization_credentials", [{"display_name": "Mine", "integration_name": "github"}])
    assert "Mine (github)" in await talk.answers()


async def test_anything_else_is_answered_with_what_it_can_do() -> None:
    assert "connect a model" in await Talk("Is there life on Mars?").answers()


async def test_it_uses_no_tool_it_was_not_given() -> None:
    reply = await Talk("List my GitHub repositories").step(tools=[])
    assert not reply.calls
    assert reply.text.startswith(LABEL)


async def test_a_new_message_begins_anew() -> None:
    talk = Talk("ask me something")
    await talk.uses("ask_user_choice", {"kind": "single_choice", "selected_value": "red"})
    talk.entries += [AssistantEntry("ok"), UserEntry("ask me yes or no")]
    await talk.uses("ask_user_yes_no", {"kind": "yes_no", "answer": True})


async def test_broken_tool_outputs_do_not_break_it() -> None:
    for output in ("not json", [1, 2], None, {"tools": "x"}, {"tools": [{"name": 7}]}):
        talk = Talk("What can you do?")
        await talk.uses("get_available_integrations", output)
        assert await talk.answers()
