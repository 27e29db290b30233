"""Whatever happened in a conversation, what is sent is valid for both wire formats (lessons A)."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.llm.anthropic_messages import AnthropicMessages
from parley.llm.openai_chat import OpenAIChat
from parley.llm.providers import Endpoint, find_provider
from parley.llm.transcript import INTERRUPTED, legal_arguments
from parley.turn.compaction import Compaction, cut_before, view
from parley.turn.model import (
    AssistantEntry,
    Entry,
    JsonObject,
    NoteEntry,
    Prompt,
    ToolCall,
    ToolEntry,
    ToolSpec,
    UserEntry,
)

TOOLS = [ToolSpec("lookup", "Look up.", {"type": "object", "properties": {}}), ToolSpec("other", "Other.", {})]


def endpoint(provider: str) -> Endpoint:
    found = find_provider(provider)
    assert found is not None
    return Endpoint(found, "http://127.0.0.1", "k", "the key")


def sent(provider: str, entries: Sequence[Entry], tools: Sequence[ToolSpec] = TOOLS, system: str = "S") -> Any:
    place = endpoint(provider)
    wire = AnthropicMessages(place, "m") if place.provider.wire == "anthropic" else OpenAIChat(place, "m")
    return json.loads(wire.request(Prompt(system, entries, tools), frozenset()).body)


# ── what the formats demand ─────────────────────────────────────────────────────────────────────


def check_openai(body: Mapping[str, Any], *, ids: str = r"[\w-]{1,40}", user_after_tool: bool = True) -> None:
    messages = [message for message in body["messages"] if message["role"] != "system"]
    assert messages[0]["role"] == "user"
    assert messages[-1]["role"] in ("user", "tool")
    used: set[str] = set()
    waiting: list[str] = []
    previous = ""
    for message in messages:
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            assert message["content"].strip()
        else:
            assert not waiting, "a call without its result"
            assert role != previous, "users and assistants alternate"
            assert user_after_tool or not (role == "user" and previous == "tool")
        if role == "user":
            assert message["content"].strip()
        if role == "assistant":
            calls = message.get("tool_calls", [])
            assert calls or message["content"].strip()
            for call in calls:
                assert re.fullmatch(ids, call["id"])
                assert call["id"] not in used
                used.add(call["id"])
                waiting.append(call["id"])
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
                assert re.fullmatch(r"[\w-]{1,64}", call["function"]["name"])
        previous = role
    assert not waiting
    assert body.get("tools") or not used


def check_anthropic(body: Mapping[str, Any]) -> None:
    messages = body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]
    used: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        assert any("thinking" not in block["type"] for block in message["content"])
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert results == waiting
        waiting = []
        seen_text = False
        for block in message["content"]:
            match block["type"]:
                case "text":
                    assert block["text"].strip()
                    seen_text = True
                case "tool_result":
                    assert not seen_text, "results come first"
                case "tool_use":
                    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["id"])
                    assert block["id"] not in used
                    used.add(block["id"])
                    waiting.append(block["id"])
                    assert isinstance(block["input"], dict)
                    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", block["name"])
                case kind:
                    assert kind in ("thinking", "redacted_thinking")
    assert not waiting
    assert body.get("tools") or not used
    marked = json.dumps(body).count('"cache_control"')
    assert 1 <= marked <= 4


texts = st.sampled_from(["", " ", "\n\t", "hello", "Ünï 🎉", '{"a":1}'])
ids = st.sampled_from(["", "a", "a", "b", "call_1", "x" * 80, "id with spaces", "toolu_01", "ünï", "abcDEF123"])
arguments = st.sampled_from(
    ["", "  ", "{}", '{"q":1}', "[1]", '"x"', "{bad", "null", '{"deep":' * 3000, '{"q":"\\ud83d"}']
)
calls = st.builds(ToolCall, ids, st.sampled_from(["lookup", "", "no such!", "x" * 90]), arguments)
states = st.sampled_from(
    [
        None,
        "x",
        {},
        {"model": "m", "blocks": []},
        {
            "model": "m",
            "blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "tool_use", "id": "a"}],
        },
        {
            "model": "m",
            "blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": " "}],
        },
        {"model": "m", "blocks": [{"type": "redacted_thinking", "data": "d"}, {"type": "text", "text": "hello"}]},
        {"model": "other", "blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}]},
        {"model": "m", "blocks": ["junk", 7]},
        {"extra_content": {"a": {"google": {"thought_signature": "sig"}}}},
        {"extra_content": 7},
    ]
)
entries = st.one_of(
    st.builds(UserEntry, texts),
    st.builds(NoteEntry, texts),
    st.builds(ToolEntry, ids, st.just("lookup"), texts),
    st.builds(
        AssistantEntry,
        texts,
        st.lists(calls, max_size=3),
        st.none() | texts,
        st.sampled_from(["", "openai", "anthropic", "gemini", "deepseek"]),
        states,
    ),
)
conversations = st.lists(entries, max_size=14)


@settings(max_examples=300)
@given(conversations, st.sampled_from([TOOLS, []]), st.sampled_from(["S", "", " "]))
def test_every_conversation_is_valid_for_every_format(said: list[Entry], tools: list[ToolSpec], system: str) -> None:
    for provider in ("openai", "gemini", "deepseek"):
        check_openai(sent(provider, said, tools, system))
    check_openai(sent("mistral", said, tools, system), ids=r"[a-zA-Z0-9]{9}", user_after_tool=False)
    body = sent("anthropic", said, tools, system)
    check_anthropic(body)


@given(conversations, st.integers(0, 14), st.sampled_from(["", "What was said."]))
def test_a_shortened_conversation_is_valid_too(said: list[Entry], trimmed: int, summary: str) -> None:
    cut = cut_before(said, Compaction(), keep=1) if summary else 0
    shown = view(said, Compaction(cut, trimmed, summary))
    check_openai(sent("openai", shown))
    check_openai(sent("mistral", shown), ids=r"[a-zA-Z0-9]{9}", user_after_tool=False)
    check_anthropic(sent("anthropic", shown))
    check_openai(sent("openai", shown, []))
    check_anthropic(sent("anthropic", shown, []))


@given(conversations)
def test_thinking_is_asked_for_only_where_the_turn_began_with_it(said: list[Entry]) -> None:
    wish: JsonObject = {"type": "enabled", "budget_tokens": 1_024}
    wire = AnthropicMessages(endpoint("anthropic"), "m", thinking=wish)
    body = json.loads(wire.request(Prompt("S", said, TOOLS), frozenset()).body)
    check_anthropic(body)
    messages = body["messages"]
    newest = max(
        number
        for number, message in enumerate(messages)
        if message["role"] == "user" and any(block["type"] != "tool_result" for block in message["content"])
    )
    begun = [message["content"][0]["type"] for message in messages[newest + 1 :] if message["role"] == "assistant"]
    assert ("thinking" in body) == (not begun or "thinking" in begun[0])


@given(conversations)
def test_the_same_conversation_is_sent_as_the_same_bytes(said: list[Entry]) -> None:
    for provider in ("openai", "anthropic"):
        assert sent(provider, said) == sent(provider, said)


@given(conversations, st.builds(UserEntry, texts) | st.builds(NoteEntry, texts))
def test_a_longer_conversation_keeps_its_beginning_for_the_providers_cache(said: list[Entry], more: Entry) -> None:
    closed = [*said, UserEntry("go"), AssistantEntry("done")]
    before = sent("openai", closed)["messages"][:-1]  # without the request to go on
    after = sent("openai", [*closed, more, UserEntry("next")])["messages"]
    assert after[: len(before)] == before


# ── examples ────────────────────────────────────────────────────────────────────────────────────


def test_a_call_without_a_result_is_told_to_be_interrupted() -> None:
    said = [UserEntry("Hi"), AssistantEntry("", [ToolCall("a", "lookup", "{}")]), UserEntry("Still there?")]
    tool = sent("openai", said)["messages"][3]
    assert tool == {"role": "tool", "tool_call_id": "a", "content": INTERRUPTED}
    blocks = sent("anthropic", said)["messages"][2]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "text"]


def test_a_repeated_id_gets_each_result_to_its_own_call() -> None:
    said: list[Entry] = [UserEntry("Hi")]
    for number in (1, 2):
        said += [AssistantEntry("", [ToolCall("call_0", "lookup", "{}")]), ToolEntry("call_0", "lookup", str(number))]
    messages = sent("openai", said)["messages"]
    results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
    sent_ids = [message["tool_calls"][0]["id"] for message in messages if message["role"] == "assistant"]
    assert [results[one] for one in sent_ids] == ["1", "2"]


def test_malformed_arguments_are_quoted_not_guessed() -> None:
    assert json.loads(legal_arguments('{"q": oops')) == {"malformed_arguments": '{"q": oops'}
    assert legal_arguments('{"q" : 1.50}') == '{"q" : 1.50}', "legal arguments stay byte for byte"
    assert legal_arguments(" ") == "{}"


def test_notes_are_marked_as_not_the_users() -> None:
    text = sent("openai", [UserEntry("Hi"), NoteEntry("Stop soon.")])["messages"][1]["content"]
    assert text.startswith("Hi\n\n[Note from Parley, not from the user]")


def test_without_tools_the_calls_are_told_in_words() -> None:
    said = [
        UserEntry("Hi"),
        AssistantEntry("Ok", [ToolCall("a", "lookup", '{"q":1}')]),
        ToolEntry("a", "lookup", "found"),
    ]
    messages = sent("openai", said, tools=[])["messages"]
    assert messages[2] == {"role": "assistant", "content": 'Ok\n[called lookup with {"q":1}]'}
    assert messages[3] == {"role": "user", "content": "[lookup returned] found"}


# ── single providers ────────────────────────────────────────────────────────────────────────────

CALLED = [ToolCall("a", "lookup", '{"q":1}')]
SIGNED: JsonObject = {"extra_content": {"a": {"google": {"thought_signature": "sig"}}}}


def conversation(entry: AssistantEntry) -> list[Entry]:
    return [UserEntry("Hi"), entry, ToolEntry("a", "lookup", "{}")]


def test_gemini_gets_its_signatures_back() -> None:
    entry = AssistantEntry("", CALLED, provider="gemini", provider_state=SIGNED)
    call = sent("gemini", conversation(entry))["messages"][2]["tool_calls"][0]
    assert call["extra_content"] == {"google": {"thought_signature": "sig"}}


@pytest.mark.parametrize(("provider", "state"), [("openai", SIGNED), ("gemini", None)])
def test_gemini_is_told_that_a_call_has_no_signature(provider: str, state: Any) -> None:
    entry = AssistantEntry("", CALLED, provider=provider, provider_state=state)
    call = sent("gemini", conversation(entry))["messages"][2]["tool_calls"][0]
    assert call["extra_content"]["google"]["thought_signature"] == "skip_thought_signature_validator"


def test_nobody_else_sees_geminis_signatures() -> None:
    entry = AssistantEntry("", CALLED, provider="gemini", provider_state=SIGNED)
    assert "sig" not in json.dumps(sent("openai", conversation(entry))["messages"][2])


def test_deepseek_gets_its_reasoning_back_with_every_call() -> None:
    ours = AssistantEntry("", CALLED, thinking="hm", provider="deepseek")
    theirs = AssistantEntry("", CALLED, thinking="hm", provider="openai")
    assert sent("deepseek", conversation(ours))["messages"][2]["reasoning_content"] == "hm"
    assert sent("deepseek", conversation(theirs))["messages"][2]["reasoning_content"] == ""
    assert "reasoning_content" not in sent("openai", conversation(ours))["messages"][2]


def test_mistral_ids_have_nine_characters_and_match_their_results() -> None:
    call, tool = sent("mistral", conversation(AssistantEntry("", CALLED)))["messages"][2:4]
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", call["tool_calls"][0]["id"])
    assert tool["tool_call_id"] == call["tool_calls"][0]["id"]


THOUGHT = [
    {"type": "thinking", "thinking": "hm", "signature": "s1"},
    {"type": "redacted_thinking", "data": "opaque"},
    {"type": "text", "text": "Looking."},
    {"type": "tool_use", "id": "a"},
]


def test_thinking_blocks_come_back_as_they_were() -> None:
    state: Any = {"model": "m", "blocks": THOUGHT}
    entry = AssistantEntry("Looking.", CALLED, thinking="hm", provider="anthropic", provider_state=state)
    content = sent("anthropic", conversation(entry))["messages"][1]["content"]
    assert content[:3] == THOUGHT[:3]
    assert content[3] == {"type": "tool_use", "id": "a", "name": "lookup", "input": {"q": 1}}


@pytest.mark.parametrize(("provider", "model"), [("anthropic", "another"), ("openai", "m")])
def test_thinking_of_another_model_is_left_out(provider: str, model: str) -> None:
    state: Any = {"model": model, "blocks": THOUGHT}
    entry = AssistantEntry("Looking.", CALLED, thinking="hm", provider=provider, provider_state=state)
    content = sent("anthropic", conversation(entry))["messages"][1]["content"]
    assert [block["type"] for block in content] == ["text", "tool_use"]


def test_the_prefix_is_marked_for_anthropics_cache() -> None:
    body = sent("anthropic", [UserEntry("Hi"), AssistantEntry("Yo"), UserEntry("Go")])
    cached = {"type": "ephemeral"}
    assert body["system"][-1]["cache_control"] == cached
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, cached]
    assert body["messages"][-1]["content"][-1]["cache_control"] == cached
    assert "cache_control" not in json.dumps(body["messages"][:-1])


def test_one_call_a_step_is_asked_for_where_it_can_be() -> None:
    said = [UserEntry("Hi")]
    assert sent("openai", said)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in sent("gemini", said)
    assert "parallel_tool_calls" not in sent("openai", said, tools=[])
    assert sent("anthropic", said)["tool_choice"]["disable_parallel_tool_use"] is True


def test_usage_is_asked_for_where_it_must_be() -> None:
    assert sent("openai", [UserEntry("Hi")])["stream_options"] == {"include_usage": True}
    assert "stream_options" not in sent("mistral", [UserEntry("Hi")])


@pytest.mark.parametrize(("provider", "name"), [("openai", "max_completion_tokens"), ("xai", "max_tokens")])
def test_the_limit_of_a_reply_has_the_providers_name(provider: str, name: str) -> None:
    wire = OpenAIChat(endpoint(provider), "m", max_output_tokens=77, temperature=0.5)
    body = json.loads(wire.request(Prompt("", [UserEntry("Hi")], []), frozenset()).body)
    assert (body[name], body["temperature"]) == (77, 0.5)


def test_azure_takes_the_key_in_its_own_header() -> None:
    request = OpenAIChat(endpoint("azure"), "m").request(Prompt("", [UserEntry("Hi")], []), frozenset())
    assert request.headers == {"api-key": "k"}
