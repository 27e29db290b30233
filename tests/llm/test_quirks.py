"""What each listed provider is known to want or to refuse, read off the request it is sent."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from parley.llm.anthropic_messages import AnthropicMessages
from parley.llm.openai_chat import OpenAIChat
from parley.llm.providers import PROVIDERS, VENDORS, Endpoint, find_provider, pooled_endpoint
from parley.turn.model import AssistantEntry, Prompt, ToolCall, ToolEntry, ToolSpec, UserEntry

TOOL = ToolSpec("lookup", "Look up.", {"type": "object", "properties": {}})
CALL = ToolCall("call_1", "lookup", '{"q":1}')
SAID = [
    UserEntry("Hi"),
    AssistantEntry("", [CALL], thinking="hm"),
    ToolEntry("call_1", "lookup", "{}"),
    UserEntry("Well?"),
]


@dataclass(frozen=True)
class Wants:
    """How one provider is spoken to."""

    url: str
    limit: str = "max_tokens"
    one_call: bool = True
    usage_option: bool = True
    header: str = "Authorization"
    call_id: str = "call_1"
    extra: str = ""
    bridge: bool = False


WANTS = {
    "openai": Wants("https://api.openai.com/v1", limit="max_completion_tokens"),
    "anthropic": Wants("https://api.anthropic.com", header="x-api-key", usage_option=False),
    "gemini": Wants("https://generativelanguage.googleapis.com/v1beta/openai", one_call=False, extra="extra_content"),
    "xai": Wants("https://api.x.ai/v1"),
    "groq": Wants("https://api.groq.com/openai/v1", limit="max_completion_tokens"),
    "mistral": Wants("https://api.mistral.ai/v1", usage_option=False, call_id="", bridge=True),
    "deepseek": Wants("https://api.deepseek.com", one_call=False, extra="reasoning_content"),
    "openrouter": Wants("https://openrouter.ai/api/v1"),
    "azure": Wants("https://mine.example.com/openai/v1", limit="max_completion_tokens", header="api-key"),
    "ollama": Wants("http://127.0.0.1:11434/v1", one_call=False),
    "vllm": Wants("http://gpu.example.com:8000/v1"),
}
GIVEN = {"azure": "https://mine.example.com", "vllm": "http://gpu.example.com:8000/v1"}


def test_every_provider_of_the_issue_is_listed_and_in_this_table() -> None:
    assert {provider.name for provider in PROVIDERS} - {VENDORS} == set(WANTS)


def endpoint(name: str) -> Endpoint:
    """The provider as an operator's variables open it."""
    provider = find_provider(name)
    assert provider is not None
    environment = {provider.key_variables[0]: "k", provider.base_url_variables[0]: GIVEN.get(name, "")}
    pooled = pooled_endpoint(provider, environment)
    assert pooled is not None
    return pooled


@pytest.mark.parametrize("name", WANTS)
def test_a_provider_is_reached_where_and_as_it_wants(name: str) -> None:
    wants, place = WANTS[name], endpoint(name)
    assert place.base_url == wants.url
    wire = AnthropicMessages if name == "anthropic" else OpenAIChat
    request = wire(place, "m", max_output_tokens=77).request(Prompt("S", SAID, [TOOL]), frozenset())
    assert request.headers[wants.header] in ("k", "Bearer k")
    body = json.loads(request.body)
    assert body[wants.limit] == 77
    assert {"max_tokens", "max_completion_tokens"} & body.keys() == {wants.limit}
    assert ("stream_options" in body) == wants.usage_option
    one_call = body.get("parallel_tool_calls") is False or body.get("tool_choice", {}).get("disable_parallel_tool_use")
    assert bool(one_call) == wants.one_call
    assert wants.limit not in request.optional or name != "anthropic"


@pytest.mark.parametrize("name", [name for name in WANTS if name != "anthropic"])
def test_a_call_is_replayed_as_the_provider_wants(name: str) -> None:
    wants = WANTS[name]
    body = json.loads(OpenAIChat(endpoint(name), "m").request(Prompt("S", SAID, [TOOL]), frozenset()).body)
    _, _, assistant, result, *rest = body["messages"]
    call: dict[str, Any] = assistant["tool_calls"][0]
    assert result["tool_call_id"] == call["id"]
    assert call["id"] == wants.call_id if wants.call_id else len(call["id"]) == 9
    assert ("extra_content" in call) == (wants.extra == "extra_content")
    assert ("reasoning_content" in assistant) == (wants.extra == "reasoning_content")
    assert [message["role"] for message in rest] == (["assistant", "user"] if wants.bridge else ["user"])
