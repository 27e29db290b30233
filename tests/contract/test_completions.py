"""``POST /v1/chat/completions``: a turn for front ends that speak OpenAI's chat API (decision 0025)."""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from openai import AsyncOpenAI, BadRequestError
from openai.types.chat import ChatCompletionMessageParam
from sqlalchemy import func, select

from parley.billing.plans import MICRO
from parley.storage.tables.billing import model_usage
from parley.testing.mcp_server import ScriptedMcpServer, mcp_server
from parley.testing.scripted_wire import ScriptedReply
from tests.contract.conftest import ORGANIZATION
from tests.stage import Answer, Json, Stage, calls, executes, says

SECONDS = 20
DELETE = executes("wipe_all", {"path": "a.txt"}, integration="mcp_box")


@pytest.fixture
async def server() -> AsyncIterator[ScriptedMcpServer]:
    async with mcp_server() as running:
        yield running


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def hello() -> str:
    """Words that no other test has said: a conversation is known by its words."""
    return f"Hello {uuid4().hex}"


async def complete(stage: Stage, *messages: Json, **more: Any) -> Answer:
    return await stage.client.post("/v1/chat/completions", {"model": "openai/gpt-4o", "messages": messages} | more)


async def said(stage: Stage, *messages: Json) -> str:
    """The text of a whole answer."""
    answer = await complete(stage, *messages)
    assert answer.status == 200, answer.body
    return answer.body["choices"][0]["message"]["content"]


async def chat_ids(stage: Stage) -> list[str]:
    return [each["id"] for each in (await stage.client.get("/assistant/chats")).body["items"]]


async def test_a_conversation_is_answered_in_openais_shape(stage: Stage) -> None:
    await stage.script(says("Good ", "day."))
    before = await stage.credits()
    answer = await complete(stage, user(hello()))
    assert answer.status == 200, answer.body
    assert answer.body["id"].startswith("chatcmpl-")
    assert (answer.body["object"], answer.body["model"]) == ("chat.completion", "openai/gpt-4o")
    (choice,) = answer.body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Good day.", "refusal": None}
    assert choice["finish_reason"] == "stop"
    usage = answer.body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert await stage.credits() - before == MICRO


async def test_a_streamed_answer_comes_in_chunks_and_ends_with_done(stage: Stage) -> None:
    await stage.script(ScriptedReply(text=["one ", "two ", "three"], delay=0.02))
    body = {
        "model": "openai/gpt-4o", "messages": [user(hello())], "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    url = f"{stage.client.base_url}/v1/chat/completions"
    async with stage.client.session.post(url, json=body, headers=stage.client.headers) as response:
        assert response.content_type == "text/event-stream"
        lines = [line.decode().strip() async for line in response.content if line.strip()]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1] if line.startswith("data: ")]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "one two three"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] > 0


async def test_openais_own_client_lists_models_asks_streams_and_understands_a_refusal(stage: Stage) -> None:
    place, organization = f"{stage.client.base_url}/v1", stage.client.organization_id
    await stage.script(says("Hi."), ScriptedReply(text=["All ", "is ", "fine."], delay=0.02))
    first = hello()
    async with AsyncOpenAI(
        api_key=stage.client.key, organization=organization, base_url=place, max_retries=0, timeout=SECONDS
    ) as client:
        assert "openai/gpt-4o" in [model.id async for model in client.models.list()]
        asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": first}]
        answer = await client.chat.completions.create(model="openai/gpt-4o", messages=asked)
        assert answer.choices[0].message.content == "Hi."
        assert answer.usage is not None
        assert answer.usage.total_tokens > 0
        asked.append({"role": "assistant", "content": "Hi."})
        asked.append({"role": "user", "content": "And you?"})
        pieces: list[str] = []
        async for chunk in await client.chat.completions.create(model="openai/gpt-4o", messages=asked, stream=True):
            pieces += [choice.delta.content for choice in chunk.choices if choice.delta.content]
        assert "".join(pieces) == "All is fine."
        assert len(pieces) > 1
        with pytest.raises(BadRequestError, match="provider"):
            await client.chat.completions.create(model="nobody/gpt", messages=asked)
    assert len(await chat_ids(stage)) == 1


async def test_a_conversation_that_goes_on_is_the_same_chat(stage: Stage) -> None:
    first = hello()
    await stage.script(says("Hi."), says("Fine."))
    reply = await said(stage, {"role": "system", "content": "Be brief."}, user(first))
    assert await said(stage, user(first), assistant(reply), user("How are you?")) == "Fine."
    assert len(await chat_ids(stage)) == 1
    last = (await stage.sent())[-1]["messages"]
    told = [message["content"] for message in last if message["role"] == "user"]
    assert told == [f"[How this app wants you to answer]\nBe brief.\n\n{first}", "How are you?"]


async def test_a_conversation_that_was_edited_begins_a_new_chat_with_its_history(stage: Stage) -> None:
    first = hello()
    await stage.script(says("Hi."), says("Other."))
    await said(stage, user(first))
    assert await said(stage, user(first), assistant("Something else."), user("And?")) == "Other."
    assert len(await chat_ids(stage)) == 2
    last = (await stage.sent())[-1]["messages"]
    assert [message["content"] for message in last if message["role"] in ("user", "assistant")] == [
        first, "Something else.", "And?",
    ]  # fmt: skip


async def test_the_text_of_several_steps_is_one_answer(stage: Stage) -> None:
    await stage.script(calls("get_available_integrations", {"query": "github"}, text="Looking."), says("Found GitHub."))
    assert await said(stage, user(hello())) == "Looking.\n\nFound GitHub."


async def test_a_choice_is_text_and_a_number_answers_it(stage: Stage) -> None:
    options = [{"value": "a", "label": "Apples"}, {"value": "b", "label": "Pears", "description": "ripe"}]
    first = hello()
    await stage.script(calls("ask_user_choice", {"message": "Which?", "options": options}), says("Pears it is."))
    asked = await said(stage, user(first))
    assert asked == "Which?\n\n1. Apples\n2. Pears: ripe\n\nAnswer with a number."
    before = await stage.credits()
    again = await said(stage, user(first), assistant(asked), user("hm"))
    assert again.endswith(asked)
    assert "did not understand" in again
    talk = [user(first), assistant(asked), user("hm"), assistant(again), user("2")]
    assert await said(stage, *talk) == "Pears it is."
    assert await stage.credits() == before


@pytest.mark.parametrize(("word", "ran"), [("yes", True), ("Yes.", True), ("no", False)])
async def test_an_approval_is_text_and_only_the_word_itself_agrees(
    stage: Stage, server: ScriptedMcpServer, word: str, ran: bool
) -> None:
    made = await stage.client.post("/credentials/mcp-server", {"server_url": server.url, "display_name": "Box"})
    assert made.status == 201, made.body
    first = hello()
    await stage.script(DELETE, says("Ended."))
    asked = await said(stage, user(first))
    assert "`path`: a.txt" in asked
    again = await said(stage, user(first), assistant(asked), user("yes, but wait until tomorrow"))
    assert "did not understand" in again
    talk = [user(first), assistant(asked), user("yes, but wait until tomorrow"), assistant(again), user(word)]
    assert server.calls == []
    assert await said(stage, *talk) == "Ended."
    assert server.calls == ([("wipe_all", {"path": "a.txt"})] if ran else [])


async def test_what_others_said_in_the_same_words_is_not_their_chat(stage: Stage) -> None:
    first = hello()
    await stage.script(says("Hi."))
    reply = await said(stage, user(first))
    mine, stage.client.organization_id = stage.client.organization_id, ORGANIZATION
    messages = [user(first), assistant(reply), user("Go on.")]
    answer = await stage.client.post("/v1/chat/completions", {"model": "parley", "messages": messages})
    assert answer.status == 200, answer.body
    stage.client.organization_id = mine
    assert len(await chat_ids(stage)) == 1


async def test_openais_organization_header_names_the_organization(stage: Stage) -> None:
    await stage.script(says("Hi."))
    headers = {"Authorization": f"Bearer {stage.client.key}", "OpenAI-Organization": stage.client.organization_id}
    body = {"model": "openai/gpt-4o", "messages": [user(hello())]}
    url = f"{stage.client.base_url}/v1/chat/completions"
    async with stage.client.session.post(url, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()


async def test_a_question_tells_what_was_used_and_its_answer_only_the_rest(stage: Stage) -> None:
    first = hello()
    await stage.script(calls("ask_user_yes_no", {"message": "Shall I?"}), says("Then I did."))
    asked = await complete(stage, user(first))
    words = asked.body["choices"][0]["message"]["content"]
    answered = await complete(stage, user(first), assistant(words), user("yes"))
    shares = [answer.body["usage"] for answer in (asked, answered)]
    for usage in shares:
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    used = select(func.sum(model_usage.c.input_tokens + model_usage.c.output_tokens)).where(
        model_usage.c.organization_id == stage.client.organization_id
    )
    assert sum(usage["total_tokens"] for usage in shares) == await stage.parley.store.across.read(
        lambda tx: tx.execute(used).scalar()
    )


async def test_the_models_that_can_be_named_are_listed_and_each_can_be(stage: Stage) -> None:
    listed = (await stage.client.get("/v1/models")).body
    assert listed["object"] == "list"
    assert {frozenset(each) for each in listed["data"]} == {frozenset({"id", "object", "created", "owned_by"})}
    names = [each["id"] for each in listed["data"]]
    assert (names[0], len(names)) == ("parley", len(set(names)))
    # The stage's organization has a key for OpenAI, and for nobody else.
    assert {each["owned_by"] for each in listed["data"]} == {"parley", "demo", "openai"}
    assert "openai/gpt-4o" in names
    for name in ("parley", "openai/gpt-4o"):
        await stage.script(says("Hi."))
        assert (await complete(stage, user(hello()), model=name)).status == 200
        shown = (await stage.client.get(f"/v1/models/{name}")).body
        assert (shown["id"], shown["object"]) == (name, "model")


async def test_a_model_that_the_organization_has_no_key_for_is_no_model(stage: Stage) -> None:
    refused = await stage.client.get("/v1/models/anthropic/claude-opus-4")
    assert (refused.status, refused.body["error"]["code"]) == (404, "not_found")
    async with stage.client.session.get(f"{stage.client.base_url}/v1/models") as nobody:
        assert (nobody.status, (await nobody.json())["error"]["code"]) == (401, "invalid_api_key")


async def test_a_failed_turn_is_an_error_and_no_answer(stage: Stage) -> None:
    await stage.script(ScriptedReply(status=400, raw=b"{}"))
    answer = await complete(stage, user(hello()))
    assert answer.status == 500
    assert answer.body["error"]["code"] == "turn_failed"
    assert answer.body["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ("x", 400, "Expected"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, 400, "user's"),
        ({"messages": [user("a")], "n": 2}, 400, "one answer"),
        ({"messages": [user("  ")]}, 400, "empty"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "text only"),
        ({"messages": [user("a")], "model": "nobody/gpt"}, 400, "provider"),
    ],
)
async def test_what_cannot_be_answered_is_refused_in_openais_shape(
    stage: Stage, body: Any, status: int, word: str
) -> None:
    before = await stage.credits()
    refused = await stage.client.post("/v1/chat/completions", body)
    assert refused.status == status, refused.body
    assert set(refused.body["error"]) == {"message", "type", "param", "code"}
    assert word in refused.body["error"]["message"]
    assert await stage.credits() == before


async def test_without_a_key_the_refusal_has_openais_shape_too(stage: Stage) -> None:
    url = f"{stage.client.base_url}/v1/chat/completions"
    async with stage.client.session.post(url, json={"messages": [user("a")]}) as refused:
        assert refused.status == 401
        assert (await refused.json())["error"]["code"] == "invalid_api_key"
