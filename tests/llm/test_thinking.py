"""Thinking of Claude models: asked for where the catalogue says it can be, replayed as the format demands."""

import json
from typing import Any

import aiohttp
import pytest

from parley.base.settings import SettingsError, read_settings
from parley.llm import LlmConfig, LlmCredential, Models, Sessions, shipped_catalogue
from parley.llm.anthropic_messages import AnthropicMessages, thinking_wish
from parley.llm.catalogue import reply_tokens
from parley.llm.http_model import HttpModel
from parley.llm.providers import Endpoint, find_provider
from parley.testing.scripted_model import ScriptedCall, ScriptedReply
from parley.turn.model import AssistantEntry, Entry, JsonObject, NoteEntry, Prompt, ToolCall, ToolEntry, UserEntry
from tests.llm.wired import LOOKUP, QUICK, MakeWired, outcome, prompt

BUDGET: JsonObject = {"type": "enabled", "budget_tokens": 2_000}
ADAPTIVE: JsonObject = {"type": "adaptive", "display": "summarized"}
CALL = [ToolCall("a", "lookup", "{}")]
STATE: JsonObject = {
    "model": "m",
    "blocks": [
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "tool_use", "id": "a"},
    ],
}
THOUGHT = AssistantEntry("", CALL, thinking="hm", provider="anthropic", provider_state=STATE)
UNTHOUGHT = AssistantEntry("", CALL, provider="openai")
RESULT = ToolEntry("a", "lookup", "{}")


def sent(*entries: Entry, thinking: JsonObject | None, refused: str = "", **more: Any) -> dict[str, Any]:
    provider = find_provider("anthropic")
    assert provider is not None
    endpoint = Endpoint(provider, "http://127.0.0.1", "k", "the key")
    wire = AnthropicMessages(endpoint, "m", thinking=thinking, temperature=more.get("temperature"))
    asked = Prompt("S", entries or [UserEntry("Hi")], more.get("tools", [LOOKUP]))
    return json.loads(wire.request(asked, frozenset({refused})).body)


@pytest.mark.parametrize(
    ("kind", "budget", "most", "wish"),
    [
        (None, 4_096, 32_000, None),
        ("budget", 0, 32_000, None),
        ("adaptive", 0, 32_000, None),
        ("adaptive", 4_096, 32_000, ADAPTIVE),
        ("budget", 4_096, 32_000, {"type": "enabled", "budget_tokens": 4_096}),
        ("budget", 100_000, 32_000, {"type": "enabled", "budget_tokens": 16_000}),
        ("budget", 4_096, None, {"type": "enabled", "budget_tokens": 4_096}),
        ("budget", 4_096, 2_000, None),
    ],
)
def test_the_wish_leaves_room_for_the_answer(kind: Any, budget: int, most: int | None, wish: JsonObject | None) -> None:
    assert thinking_wish(kind, budget, most) == wish


def test_every_model_that_thinks_within_a_budget_has_a_longer_reply_than_budget() -> None:
    models = shipped_catalogue().of("anthropic")
    assert {model.thinking for model in models} == {"budget", "adaptive"}
    for model in models:
        most = reply_tokens(model)
        wish = thinking_wish(model.thinking, 1_000_000, most)
        assert wish is not None
        assert most is not None
        budget = wish.get("budget_tokens", 0)
        assert isinstance(budget, int)
        assert budget < most
    assert {model.thinking for model in shipped_catalogue().of("openrouter")} == {None}


@pytest.mark.parametrize("wish", [BUDGET, ADAPTIVE])
def test_it_is_asked_for_in_every_request_of_a_turn(wish: JsonObject) -> None:
    assert sent(thinking=wish)["thinking"] == wish
    assert sent(UserEntry("Hi"), THOUGHT, RESULT, thinking=wish)["thinking"] == wish
    assert "thinking" not in sent(thinking=None)


def test_it_is_not_asked_for_with_a_chosen_temperature_nor_for_a_summary() -> None:
    assert "thinking" not in sent(thinking=BUDGET, temperature=0.2)
    assert "thinking" not in sent(thinking=BUDGET, tools=[])


def test_a_turn_begun_without_thinking_ends_without_it_and_the_next_one_thinks_again() -> None:
    begun = (UserEntry("Hi"), UNTHOUGHT, RESULT)
    assert "thinking" not in sent(*begun, thinking=BUDGET)
    assert sent(*begun, thinking=ADAPTIVE)["thinking"] == ADAPTIVE, "these models need no first thought"
    assert sent(*begun, NoteEntry("Stop soon."), thinking=BUDGET)["thinking"] == BUDGET
    assert sent(*begun, AssistantEntry("Done."), UserEntry("More"), thinking=BUDGET)["thinking"] == BUDGET
    later = AssistantEntry("", [ToolCall("b", "lookup", "{}")], provider="anthropic")
    assert sent(UserEntry("Hi"), THOUGHT, RESULT, later, ToolEntry("b", "lookup", "{}"), thinking=BUDGET)["thinking"]


def test_a_server_that_refuses_it_gets_neither_the_wish_nor_old_thoughts() -> None:
    body = sent(UserEntry("Hi"), THOUGHT, RESULT, thinking=BUDGET, refused="thinking")
    assert "thinking" not in json.dumps(body)


@pytest.mark.parametrize(
    "complaint", ["thinking: Extra inputs are not permitted", "Invalid `signature` in `thinking` block"]
)
async def test_a_refusal_of_thinking_is_not_the_end_of_the_reply(wired_as: MakeWired, complaint: str) -> None:
    wired = wired_as("anthropic")
    raw = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": complaint}}).encode()
    await wired.script(ScriptedReply(status=400, raw=raw), ScriptedReply(text=["ok"]), ScriptedReply(text=["ok"]))
    wire = AnthropicMessages(wired.endpoint(), "m", thinking=BUDGET, limits=QUICK)
    model = HttpModel(wire, wired.endpoint(), wired.session, QUICK)
    for _ in range(2):
        assert (await outcome(model, prompt(UserEntry("Hi"), THOUGHT, RESULT))).whole().text == "ok"
    assert ["thinking" in request.body for request in await wired.requests()] == [True, False, False]


async def test_thoughts_come_back_with_their_signatures_readable_or_not(wired_as: MakeWired) -> None:
    wired = wired_as("anthropic")
    await wired.script(
        ScriptedReply(
            thinking=["Let me ", "see."], redacted="b3BhcXVl", text=["Looking."], calls=[ScriptedCall("lookup")]
        ),
        ScriptedReply(text=["Found."]),
    )
    model = wired.model()
    first = (await outcome(model, prompt())).whole()
    entry = AssistantEntry(first.text, first.calls, first.thinking, first.provider, first.provider_state)
    said = prompt(UserEntry("Hello"), entry, ToolEntry("call_1", "lookup", '{"found":1}'))
    assert (await outcome(model, said)).whole().text == "Found."
    content: Any = (await wired.requests())[-1].body["messages"]
    assert content[1]["content"] == [
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "call_1", "name": "lookup", "input": {}},
    ]


@pytest.mark.parametrize(
    ("model_id", "budget", "asked"),
    [
        ("claude-opus-4-5", 4_096, {"type": "enabled", "budget_tokens": 4_096}),
        ("claude-opus-4-5", 0, None),
        ("claude-opus-5", 4_096, ADAPTIVE),
        ("somebody-elses", 4_096, None),
    ],
)
async def test_the_catalogue_and_the_settings_decide(
    wired_as: MakeWired, session: aiohttp.ClientSession, model_id: str, budget: int, asked: JsonObject | None
) -> None:
    wired = wired_as("anthropic")
    await wired.script(ScriptedReply(text=["ok"]))
    models = Models(shipped_catalogue(), {}, Sessions(session, session), limits=QUICK, thinking_tokens=budget)
    credential = LlmCredential(wired.key, wired.endpoint().base_url)
    model = models.open(LlmConfig("anthropic", "anthropic", model_id), credential)
    assert isinstance(model, HttpModel)
    (await outcome(model, prompt())).whole()
    body = (await wired.requests())[0].body
    assert body.get("thinking") == asked
    assert asked is None or "budget_tokens" not in asked or body["max_tokens"] == 32_000


def test_the_setting_is_zero_or_what_the_format_takes() -> None:
    assert read_settings({}).thinking_tokens == 4_096
    assert read_settings({"PARLEY_THINKING_TOKENS": "0"}).thinking_tokens == 0
    assert read_settings({"PARLEY_THINKING_TOKENS": "1024"}).thinking_tokens == 1_024
    for wrong in ("1023", "-1", "much"):
        with pytest.raises(SettingsError, match="PARLEY_THINKING_TOKENS"):
            read_settings({"PARLEY_THINKING_TOKENS": wrong})
