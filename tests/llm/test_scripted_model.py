"""The scripted provider itself: what other parts' tests and benches count on."""

import time

from parley.testing.scripted_model import ScriptedCall, ScriptedModel, ScriptedReply
from tests.llm.wired import MakeWired, Wired, outcome, prompt


async def test_past_the_script_it_answers_500(wired: Wired) -> None:
    await wired.script(ScriptedReply(text=["only one"]))
    assert (await outcome(wired.model(), prompt())).text == "only one"
    assert (await outcome(wired.model(), prompt())).failure().kind == "down"


async def test_keys_have_their_own_scripts_and_records(wired_as: MakeWired) -> None:
    one, other = wired_as("openai"), wired_as("anthropic")
    await one.script(ScriptedReply(text=["one"]))
    await other.script(ScriptedReply(text=["other"]))
    assert (await outcome(other.model(), prompt())).text == "other"
    assert (await outcome(one.model(), prompt())).text == "one"
    assert [request.path for request in await one.requests()] == ["/v1/chat/completions"]
    assert [request.path for request in await other.requests()] == ["/v1/messages"]


async def test_pieces_of_text_can_be_paced(wired: Wired) -> None:
    began = time.monotonic()
    seen = await wired.ask(ScriptedReply(text=["x"] * 10, paced=0.02))
    assert seen.text == "x" * 10
    assert time.monotonic() - began >= 0.2
    assert len(seen.deltas) > 5


async def test_replies_can_follow_the_turns_tool_results(wired: Wired, provider: ScriptedModel) -> None:
    call = ScriptedReply(calls=[ScriptedCall("lookup", id="c1")])
    await provider.script(wired.key, call, ScriptedReply(text=["done"]), by_step=True)
    from_start = (await outcome(wired.model(), prompt())).whole()
    assert [c.tool for c in from_start.calls] == ["lookup"]
    assert (await outcome(wired.model(), prompt())).whole().calls
