"""What both adapters do alike, against a process that speaks their wire formats."""

import asyncio
import json
from contextlib import aclosing

import pytest

from parley.testing.scripted_model import ScriptedCall, ScriptedReply, ScriptedUsage
from parley.turn.model import AssistantEntry, Reply, TextDelta, ThinkingDelta, ToolCall, ToolEntry, Usage, UserEntry
from tests.llm.wired import QUICK, MakeWired, Wired, impatient, outcome, prompt


async def test_text_streams_and_the_reply_has_all_of_it(wired: Wired) -> None:
    seen = await wired.ask(ScriptedReply(text=["Héllo ", "wörld ", "🎉"], usage=ScriptedUsage(120, 7, 100)))
    assert seen.text == "Héllo wörld 🎉"
    assert seen.whole().text == seen.text
    assert seen.whole().usage == Usage(120, 7, 100)
    assert seen.whole().calls == []


async def test_a_tool_call_arrives_whole_however_many_pieces_it_came_in(wired: Wired) -> None:
    arguments = '{"q": "caf\\u00e9 \\"x\\" 🎉", "n": [1, 2.5e3]}'
    call = ScriptedCall("lookup", arguments, id="abc_1", pieces=17)
    seen = await wired.ask(ScriptedReply(text=["Looking."], calls=[call]))
    assert seen.whole().calls == [ToolCall("abc_1", "lookup", arguments)]
    assert seen.whole().text == "Looking."


async def test_several_calls_at_once_are_all_in_the_reply(wired: Wired) -> None:
    calls = [ScriptedCall("lookup", '{"q":"a"}', id="one"), ScriptedCall("nowhere", '{"q":"b"}', id="two", pieces=3)]
    seen = await wired.ask(ScriptedReply(calls=calls))
    assert [(c.id, c.tool, c.arguments) for c in seen.whole().calls] == [
        ("one", "lookup", '{"q":"a"}'),
        ("two", "nowhere", '{"q":"b"}'),
    ]


async def test_blank_arguments_become_an_empty_object(wired: Wired) -> None:
    seen = await wired.ask(ScriptedReply(calls=[ScriptedCall("lookup", "")]))
    assert seen.whole().calls[0].arguments == "{}"


@pytest.mark.parametrize("arguments", ['{"q": "unterminated', "not json", '{"q":1}}', "[1]", '"text"'])
async def test_malformed_arguments_are_kept_as_they_came(wired: Wired, arguments: str) -> None:
    seen = await wired.ask(ScriptedReply(calls=[ScriptedCall("lookup", arguments, pieces=2)]))
    assert seen.whole().calls[0].arguments == arguments


async def test_missing_and_repeated_call_ids_become_unique(wired: Wired) -> None:
    before = prompt(
        UserEntry("Hi"),
        AssistantEntry("", [ToolCall("used", "lookup", "{}")]),
        ToolEntry("used", "lookup", "{}"),
    )
    calls = [ScriptedCall("lookup", id=given) for given in (None, "same", "same", "used", "")]
    seen = await wired.ask(ScriptedReply(calls=calls), said=before)
    ids = [call.id for call in seen.whole().calls]
    assert len(set(ids)) == 5
    assert all(ids)
    assert "used" not in ids
    assert ids[1] == "same"


async def test_thinking_is_streamed_apart_from_the_text(wired: Wired) -> None:
    seen = await wired.ask(ScriptedReply(thinking=["Let me ", "see."], text=["Yes."]))
    assert (seen.thinking, seen.text) == ("Let me see.", "Yes.")
    assert seen.whole().thinking == "Let me see."
    kinds = [type(delta) for delta in seen.deltas]
    assert kinds.index(ThinkingDelta) < kinds.index(TextDelta)


async def test_the_first_text_arrives_before_the_reply_is_finished(wired: Wired) -> None:
    await wired.script(ScriptedReply(text=["now", "later"], barrier=wired.key, barrier_after=6))
    parts: list[object] = []
    async with asyncio.timeout(20), aclosing(wired.model(impatient(idle_seconds=20)).reply(prompt())) as stream:
        async for part in stream:
            if not parts:
                await wired.provider.release(wired.key)
            parts.append(part)
    assert isinstance(parts[0], TextDelta)
    assert isinstance(parts[-1], Reply)


async def test_closing_the_stream_drops_the_connection_at_once(wired: Wired) -> None:
    await wired.script(ScriptedReply(text=["one ", "two ", "three"], barrier="never", barrier_after=5))
    model = wired.model(impatient(idle_seconds=30))
    async with aclosing(model.reply(prompt())) as stream:
        first = await anext(stream)
        assert isinstance(first, TextDelta)
    async with asyncio.timeout(20):
        (dropped,) = await wired.provider.dropped(wired.key)
    assert dropped.dropped
    usage = model.partial_usage()
    assert not usage.exact
    assert usage.input > 0
    assert usage.output > 0


async def test_cancelling_the_task_drops_the_connection_at_once(wired: Wired) -> None:
    await wired.script(ScriptedReply(text=["one ", "two"], barrier="never", barrier_after=5))
    model = wired.model(impatient(idle_seconds=30))
    started = asyncio.Event()

    async def read() -> None:
        async with aclosing(model.reply(prompt())) as stream:
            async for _ in stream:
                started.set()

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(read())
        await started.wait()
        task.cancel()
    assert (await wired.provider.dropped(wired.key))[0].dropped
    assert model.partial_usage().output > 0


async def test_closing_while_waiting_for_the_first_byte_drops_the_connection(wired: Wired) -> None:
    await wired.script(ScriptedReply(hang_at=-1))
    model = wired.model(impatient(idle_seconds=30))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(outcome(model, prompt()))
        while not await wired.requests():
            continue
        task.cancel()
    assert (await wired.provider.dropped(wired.key))[0].dropped
    assert model.partial_usage() == Usage()


async def test_a_finished_reply_leaves_its_connection_for_the_next(wired: Wired) -> None:
    for _ in range(5):
        (await wired.ask(ScriptedReply(text=["fine"]))).whole()
    assert len({request.connection for request in await wired.requests()}) == 1


async def test_one_model_serves_one_reply_after_another(wired: Wired) -> None:
    await wired.script(ScriptedReply(text=["first"], usage=ScriptedUsage(1, 1)), ScriptedReply(text=["second"]))
    model = wired.model()
    assert (await outcome(model, prompt())).whole().text == "first"
    assert (await outcome(model, prompt())).whole().text == "second"


async def test_the_tools_the_system_prompt_and_the_conversation_are_sent(wired: Wired) -> None:
    said = prompt(
        UserEntry("What is it?"),
        AssistantEntry("Looking.", [ToolCall("c1", "lookup", '{"q":"it"}')]),
        ToolEntry("c1", "lookup", '{"found":true}'),
        UserEntry("Well?"),
    )
    (await wired.ask(ScriptedReply(text=["ok"]), said=said)).whole()
    (request,) = await wired.requests()
    text = json.dumps(request.body)
    for expected in ("You are Parley.", "What is it?", "Looking.", "c1", "lookup", "found", "Well?"):
        assert expected in text
    assert request.body["stream"] is True


async def test_the_request_is_the_same_bytes_each_time(wired: Wired) -> None:
    await wired.script(ScriptedReply(text=["a"]), ScriptedReply(text=["b"]))
    for _ in range(2):
        (await outcome(wired.model(), prompt(UserEntry("Hi")))).whole()
    first, second = await wired.requests()
    assert json.dumps(first.body) == json.dumps(second.body)


async def test_no_figures_from_the_provider_means_an_estimate(wired: Wired) -> None:
    seen = await wired.ask(ScriptedReply(text=["x" * 400], usage=None))
    usage = seen.whole().usage
    assert not usage.exact or wired.wire == "anthropic"
    assert usage.output == 100


async def test_a_refusal_by_the_safety_filter_is_a_clear_error(wired: Wired) -> None:
    finish = "content_filter" if wired.wire == "openai" else "refusal"
    failure = (await wired.ask(ScriptedReply(finish=finish))).failure()
    assert failure.kind == "request"
    assert "declined" in failure.public


async def test_a_reply_cut_by_its_length_limit_is_still_a_reply(wired: Wired) -> None:
    finish = "length" if wired.wire == "openai" else "max_tokens"
    assert (await wired.ask(ScriptedReply(text=["so far"], finish=finish))).whole().text == "so far"


async def test_an_unknown_optional_parameter_is_left_out_the_next_time(wired_as: MakeWired) -> None:
    wired = wired_as("openai")
    complaint = b'{"error":{"message":"Unsupported parameter: \'parallel_tool_calls\'","code":"unsupported_parameter"}}'
    await wired.script(ScriptedReply(status=400, raw=complaint), ScriptedReply(text=["ok"]), ScriptedReply(text=["ok"]))
    model = wired.model()
    assert (await outcome(model, prompt())).whole().text == "ok"
    assert (await outcome(model, prompt())).whole().text == "ok"
    requests = await wired.requests()
    assert ["parallel_tool_calls" in request.body for request in requests] == [True, False, False]


async def test_large_arguments_below_the_cap_pass(wired: Wired) -> None:
    arguments = json.dumps({"q": "x" * 400_000})
    seen = await wired.ask(ScriptedReply(calls=[ScriptedCall("lookup", arguments, pieces=40)]), limits=QUICK)
    assert seen.whole().calls[0].arguments == arguments
