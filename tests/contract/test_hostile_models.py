"""A model provider that lies: arguments that are none, figures no model reaches, waits no clock knows."""

from typing import Any

import pytest

from parley.testing.scripted_wire import ScriptedReply, ScriptedUsage
from tests.stage import Stage, calls, says

DEEP = "[" * 3_000 + "]" * 3_000
NO_OBJECTS = {
    "null": "null",
    "a list": "[]",
    "a text": '"owner"',
    "a number": "7",
    "deep": DEEP,
    "a deep field": f'{{"integration_name": "github", "action_name": {DEEP}}}',
    "half a character": '{"integration_name": "\\ud800"}',
    "cut off": '{"integration_name": "gith',
}
# JSON that is no object is shown as it is.
SHOWN: dict[str, Any] = {"[]": [], '"owner"': "owner", "7": 7}


@pytest.mark.parametrize("arguments", NO_OBJECTS.values(), ids=NO_OBJECTS.keys())
async def test_arguments_that_are_no_object_come_back_as_a_value_and_the_chat_goes_on(
    stage: Stage, arguments: str
) -> None:
    turn = await stage.turn(calls("execute_integration_tool", arguments), says("Sorry."))
    assert turn.types == ["metadata", "tool_call", "tool_result", "response_chunk", "done"]
    assert turn.data("tool_call")["input"] == SHOWN.get(arguments, arguments)
    output = turn.data("tool_result")["output"]
    assert (output["error"], output["success"]) == ("invalid_arguments", False)
    after = await stage.turn(says("Still here."), chat_id=turn.chat_id)
    assert after.data("done")["response"] == "Still here."


@pytest.mark.parametrize("levels", [100, 980])
async def test_arguments_of_too_many_levels_are_refused_as_a_value(stage: Stage, levels: int) -> None:
    labels = "[" * levels + "]" * levels
    arguments = f'{{"integration_name": "github", "tool_name": "create_issue", "parameters": {{"labels": {labels}}}}}'
    turn = await stage.turn(calls("execute_integration_tool", arguments), says("Sorry."))
    assert turn.types[-1] == "done"
    output = turn.data("tool_result")["output"]
    assert (output["error"], output["success"]) == ("invalid_arguments", False)


@pytest.mark.parametrize("tokens", [2**63 - 1, 2**62])
async def test_token_figures_that_no_model_reaches_neither_break_nor_stop_anything(stage: Stage, tokens: int) -> None:
    lie = ScriptedUsage(tokens, tokens, tokens)
    raw = ScriptedReply(text=["Believe me."], usage=lie)
    turn = await stage.turn(raw)
    assert turn.types[-1] == "done"
    usage = turn.data("done")["usage"]
    assert 0 < usage["input_tokens"] <= 20_000_000
    assert 0 < usage["output_tokens"] <= 20_000_000
    # The chat now counts as full, so its beginning is summed up before it goes on.
    after = await stage.turn(says("A summary."), says("Next."), chat_id=turn.chat_id)
    assert after.data("done")["response"] == "Next."


@pytest.mark.parametrize(
    "wait",
    ["-5", "nan", "1e9", "Mon, 01 Jan 2024 00:00:00 GMT", "Mon, 01 Jan 2024 00:00:00 +99999999999999"],
)
async def test_a_wait_that_is_none_is_a_short_one(stage: Stage, wait: str) -> None:
    busy = ScriptedReply(status=429, headers={"Retry-After": wait}, raw=b"{}")
    turn = await stage.turn(busy, says("At last."))
    assert turn.data("done")["response"] == "At last."


async def test_a_wait_without_end_ends_the_turn_with_what_to_do(stage: Stage) -> None:
    busy = ScriptedReply(status=429, headers={"Retry-After": "9" * 400}, raw=b"{}")
    turn = await stage.turn(busy, says("never"))
    assert "Wait a minute" in turn.data("error")["message"]
    assert len(await stage.sent()) == 1
