"""Both wire formats over HTTP: thinking, caches, long prefixes, and what no store can keep (issue 7)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from parley.testing.scripted_wire import ScriptedCall, ScriptedReply, ScriptedUsage
from tests.stage import Json, Stage, Turn, calls, new_model_key, says

OPENAI = {"integration_name": "openai", "provider_id": "openai", "model_id": "gpt-4o"}
CLAUDE = {"integration_name": "anthropic", "provider_id": "anthropic", "model_id": "claude-opus-4-5"}
MARK = b',"cache_control":{"type":"ephemeral"}'
ASK = ScriptedCall("ask_user_free_text", '{"message": "Which one?"}')
TOOL = "get_organization_credentials"


@dataclass(slots=True)
class Voice:
    """One model of the organization, and its script."""

    stage: Stage
    llm: Json

    async def turn(self, *replies: ScriptedReply, message: str = "Do it", chat_id: str | None = None) -> Turn:
        self.stage.llm = self.llm
        return await self.stage.turn(*replies, message=message, chat_id=chat_id)

    async def bodies(self) -> list[bytes]:
        """The requests as bytes; what was read keeps its order."""
        return [msgspec.json.encode(body) for body in await self.stage.sent()]


async def connect_claude(stage: Stage) -> str:
    """Make the scripted model the organization's Anthropic too; its key."""
    key = new_model_key()
    body = {"integration_name": "anthropic", "auth_data": {"api_key": key, "base_url": stage.model.anthropic_url}}
    made = await stage.client.post("/credentials", body)
    assert made.status == 201, made.body
    return key


@pytest.fixture(params=["openai", "anthropic"])
async def voice(request: pytest.FixtureRequest, stage: Stage) -> Voice:
    if request.param == "anthropic":
        stage.model_key = await connect_claude(stage)
    return Voice(stage, OPENAI if request.param == "openai" else CLAUDE)


@pytest.fixture
async def claude(stage: Stage) -> Voice:
    stage.model_key = await connect_claude(stage)
    return Voice(stage, CLAUDE)


async def shown(stage: Stage, chat_id: str) -> list[Json]:
    return (await stage.client.get(f"/assistant/chat/{chat_id}")).body["messages"]


# ── thinking ────────────────────────────────────────────────────────────────────────────────────


async def test_thinking_is_asked_of_claude_and_reaches_the_chats_messages(claude: Voice) -> None:
    first = ScriptedReply(thinking=["First ", "thought."], calls=[ScriptedCall(TOOL)])
    turn = await claude.turn(first, ScriptedReply(thinking=["Second."], text=["Done."]))
    assert turn.text == "Done.", "thoughts are not the answer"
    messages = await shown(claude.stage, turn.chat_id)
    assert [message["thinking"] for message in messages] == [None, "First thought.\n\nSecond."]
    one, two = await claude.stage.sent()
    assert one["thinking"] == {"type": "enabled", "budget_tokens": 4_096}
    assert one["max_tokens"] > 4_096
    assert two["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "First thought.",
        "signature": "c2lnbmVk",
    }


async def test_thoughts_before_a_question_are_kept_over_the_answer(claude: Voice) -> None:
    asking = ScriptedReply(thinking=["Ask first."], calls=[ASK])
    turn = await claude.turn(asking, ScriptedReply(thinking=["Now I know."], text=["Ok."]))
    answer = await claude.stage.resume(turn, {"kind": "free_text", "text": "That one."})
    assert answer.status == 200, answer.body
    assert (await claude.stage.follow(answer.body)).text == "Ok."
    messages = await shown(claude.stage, turn.chat_id)
    assert messages[-1]["thinking"] == "Ask first.\n\nNow I know."
    blocks = (await claude.stage.sent())[-1]["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]


async def test_redacted_thoughts_are_replayed_and_shown_to_nobody(claude: Voice) -> None:
    turn = await claude.turn(ScriptedReply(redacted="b3BhcXVl", calls=[ScriptedCall(TOOL)]), says("Done."))
    assert (await claude.stage.sent())[1]["messages"][1]["content"][0] == {
        "type": "redacted_thinking",
        "data": "b3BhcXVl",
    }
    messages = await shown(claude.stage, turn.chat_id)
    assert messages[-1]["thinking"] is None
    assert "b3BhcXVl" not in str(messages) + str(turn.events)


# ── what no store can keep ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("odd", ["a\0b", "a\0\0", "\0", "\ufffe\uffff", "\u2028\u0085\u200e"])
async def test_odd_characters_in_every_place_are_kept_or_dropped_and_never_stop_a_turn(voice: Voice, odd: str) -> None:
    arguments = msgspec.json.encode({"q": odd}).decode()
    first = ScriptedReply(
        thinking=[f"T{odd}"], text=[f"X{odd}"], calls=[ScriptedCall(f"no{odd}", arguments, f"i{odd}")]
    )
    turn = await voice.turn(first, ScriptedReply(thinking=[odd or "t"], text=["Done", odd]))
    assert turn.types[-1] == "done"
    plain = odd.replace("\0", "")
    assert turn.data("done")["response"] == f"Done{plain}"
    messages = await shown(voice.stage, turn.chat_id)
    assert messages[-1]["content"] == f"Done{plain}"
    assert messages[-1]["thinking"].startswith(f"T{plain}")
    again = await voice.turn(says("Still here."), message="And?", chat_id=turn.chat_id)
    assert again.text == "Still here."


@pytest.mark.parametrize("where", ["text", "thinking", "partial_json", "name"])
async def test_half_a_surrogate_is_a_clear_error_and_the_chat_goes_on(claude: Voice, where: str) -> None:
    raw = _claude_stream(where, "\\ud83d")
    turn = await claude.turn(ScriptedReply(raw=raw))
    assert turn.types == ["metadata", "error", "done"]
    assert "cannot be read" in turn.data("error")["message"]
    assert turn.data("done")["usage"]["input_tokens"] > 0
    again = await claude.turn(says("Fine."), message="Again", chat_id=turn.chat_id)
    assert again.text == "Fine."


def _claude_stream(where: str, odd: str) -> bytes:
    """A stream with the odd text in one place."""
    block = {"text": "text", "thinking": "thinking"}.get(where, "tool_use")
    name = odd if where == "name" else TOOL
    delta = {"text": "text_delta", "thinking": "thinking_delta"}.get(where, "input_json_delta")
    field = "partial_json" if where == "name" else where
    events = [
        '{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}',
        f'{{"type":"content_block_start","index":0,"content_block":{{"type":"{block}","id":"t","name":"{name}"}}}}',
        f'{{"type":"content_block_delta","index":0,"delta":{{"type":"{delta}","{field}":"{odd}"}}}}',
        '{"type":"content_block_stop","index":0}',
        '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}',
        '{"type":"message_stop"}',
    ]
    return b"".join(f"data: {event}\n\n".encode() for event in events)


# ── the frozen prefix ───────────────────────────────────────────────────────────────────────────


async def test_every_request_of_a_long_chat_begins_with_the_bytes_of_the_one_before(voice: Voice) -> None:
    chat_id: str | None = None
    for number in range(14):
        step = ScriptedReply(
            thinking=[f"Hm {number}."], text=[f"Looking {number}."], calls=[ScriptedCall(TOOL, id=f"c{number}")]
        )
        failing = [calls("no_such_tool", {"n": n}, id=f"f{number}_{n}") for n in range(3 if number == 5 else 0)]
        turn = await voice.turn(
            step, *failing, says(f"Answer {number}."), message=f"Question {number}?", chat_id=chat_id
        )
        assert turn.types[-1] == "done"
        chat_id = turn.chat_id
    bodies = await voice.bodies()
    assert len(bodies) == 31
    for before, after in pairwise(bodies):
        # All but the closing brackets; the mark of the cache moves on to the newest message.
        beginning = before.replace(MARK, b"").removesuffix(b"]}")
        assert after.replace(MARK, b"").startswith(beginning)


async def test_the_head_is_the_same_for_every_chat_and_names_no_time(voice: Voice) -> None:
    await voice.turn(says("One."), message="A")
    await voice.turn(says("Two."), message="B")
    bodies = await voice.bodies()
    heads = {body[: body.index(b'"messages":[')] for body in bodies}
    systems = {
        str(body["messages"][0] if "system" not in body else body["system"]) for body in await voice.stage.sent()
    }
    assert len(heads) == 1
    assert len(systems) == 1


# ── the cache-hit share ─────────────────────────────────────────────────────────────────────────


async def test_the_share_of_the_input_that_a_cache_served_is_shown(voice: Voice) -> None:
    model_id = voice.llm["model_id"]
    before = (await voice.stage.client.get("/billing/usage")).body
    assert before["cache_hit_share"] is None
    cold = says("Cold.", usage=ScriptedUsage(1_000, 5, 0))
    warm = says("Warm.", usage=ScriptedUsage(1_000, 5, 900))
    turn = await voice.turn(cold)
    turn = await voice.turn(warm, chat_id=turn.chat_id)
    assert turn.data("done")["usage"]["cached_tokens"] == 900
    usage = (await voice.stage.client.get("/billing/usage")).body
    (line,) = [each for each in usage["models"] if each["model_id"] == model_id]
    assert (line["input_tokens"], line["cached_tokens"], line["cache_hit_share"]) == (2_000, 900, 0.45)
    assert usage["cache_hit_share"] == 0.45
    days: list[Any] = (await voice.stage.client.get("/dashboard/analytics/daily?period=7d")).body["data"]["days"]
    assert (days[-1]["input_tokens"], days[-1]["cached_tokens"]) == (2_000, 900)


# ── changing voices ─────────────────────────────────────────────────────────────────────────────


async def test_a_chat_goes_on_through_changes_of_provider_and_model(stage: Stage) -> None:
    openai_key, claude_key = stage.model_key, await connect_claude(stage)
    chat_id: str | None = None
    voices = [(openai_key, OPENAI), (claude_key, CLAUDE), (openai_key, OPENAI)]
    voices += [(claude_key, {**CLAUDE, "model_id": "claude-opus-5"}), (claude_key, CLAUDE)]
    for number, (key, llm) in enumerate(voices):
        stage.model_key, stage.llm = key, llm
        step = ScriptedReply(thinking=[f"Hm {number}."], calls=[ScriptedCall(TOOL, id="call_0")])
        turn = await stage.turn(step, says(f"Answer {number}."), message=f"Question {number}", chat_id=chat_id)
        assert turn.data("done")["response"] == f"Answer {number}."
        chat_id = turn.chat_id
        text = str((await stage.sent())[-1])
        assert all(f"Question {before}" in text for before in range(number))
    thoughts = [
        block
        for message in (await stage.sent())[-1]["messages"]
        for block in message["content"]
        if block["type"] == "thinking"
    ]
    assert [block["thinking"] for block in thoughts] == ["Hm 1.", "Hm 4."], "a model is given its own thoughts only"
