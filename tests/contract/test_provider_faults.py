"""Everything a provider can do wrong, over HTTP (trust R1): each turn ends once, with its tokens on record.

The adapters' own tests play silence and slowness, under limits that a test can wait for.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from parley.testing.scripted_wire import ScriptedCall, ScriptedReply, ScriptedUsage, render
from tests.llm.test_faults import FULL, GARBAGE, STATUS_FAULTS, TEXT, positions
from tests.stage import Json, Stage, Turn, new_model_key, says

LEAST = 60
NOW = {"retry-after": "0"}
TOOL = "get_organization_credentials"
HALF = ScriptedReply(text=["Half an ", "answer"], unfinished=True)


@dataclass
class Fault:
    """What the model does; ``ends`` is how the turn has to end, None for either way."""

    name: str
    replies: list[ScriptedReply]
    ends: str | None = "error"
    text: str | None = None
    calls: int = field(default=1)


def faults(wire: str) -> Iterator[Fault]:
    """All cases of one wire format."""
    for name, status, body, _ in STATUS_FAULTS:
        yield Fault(f"status {name}", [ScriptedReply(status=status, headers=NOW, raw=body)] * 4)
    for name, body, _ in GARBAGE:
        yield Fault(f"garbage: {name}", [ScriptedReply(raw=body)])
    start = b"".join(event for _, event in render(HALF, wire, "model-1"))
    for name, body, _ in GARBAGE[4:11]:
        yield Fault(f"after text: {name}", [ScriptedReply(raw=start + body)], text="Half an answer")
    for at in positions(wire)[2::2]:
        reset = msgspec.structs.replace(FULL, calls=[], reset_at=at)
        yield Fault(f"a reset at byte {at}", [reset], ends=None)
    yield from endless_and_huge()
    yield from odd_calls()


def endless_and_huge() -> Iterator[Fault]:
    begun = ScriptedReply(text=["go"], unfinished=True)
    for kind in ("text", "line"):
        yield Fault(f"an endless {kind}", [msgspec.structs.replace(begun, endless=kind)])
    yield Fault("one huge event", [ScriptedReply(text=["x" * 5_000_000])])
    large = ScriptedCall(TOOL, '{"q":"' + "x" * 1_500_000 + '"}', pieces=20)
    yield Fault("arguments beyond the cap", [ScriptedReply(calls=[large])])
    yield Fault("an unfinished stream", [HALF], text="Half an answer")
    yield Fault("no figures", [ScriptedReply(text=["Ok."], usage=None)], "done", "Ok.")
    yield Fault("absurd figures", [ScriptedReply(text=["Ok."], usage=ScriptedUsage(-5, -7, 0))], "done", "Ok.")
    yield Fault("a reply of nothing", [ScriptedReply()], "done", "")


def odd_calls() -> Iterator[Fault]:
    """What models do with tools; the turn goes on to its answer."""
    ids = {"no id": None, "a blank id": "", "a long id": "i" * 900, "an odd id": "a b\n\0ü"}
    odd: dict[str, list[ScriptedCall]] = {name: [ScriptedCall(TOOL, id=given)] for name, given in ids.items()}
    odd |= {f"arguments {text!r}": [ScriptedCall(TOOL, text)] for text in ("", "[1]", "{bad", '"x"', "null", "{}{}")}
    hostile = {
        "nested arguments": '{"a":' * 5_000 + "1" + "}" * 5_000,
        "a number beyond all": '{"n":1e999,"m":' + "9" * 400 + "}",
        "half a surrogate": '{"q":"\\ud83d"}',
        "a NUL": '{"q":"\\u0000"}',
        "one name twice": '{"q":1,"q":2}',
    }
    odd |= {name: [ScriptedCall(TOOL, text)] for name, text in hostile.items()}
    odd["an unknown tool"] = [ScriptedCall("no_such_tool")]
    odd["a tool without a name"] = [ScriptedCall("")]
    odd["a very long name"] = [ScriptedCall("x" * 500)]
    odd["two calls at once"] = [ScriptedCall(TOOL, id="one"), ScriptedCall(TOOL, id="two")]
    odd["two calls of one id"] = [ScriptedCall(TOOL, id="same"), ScriptedCall(TOOL, id="same")]
    for name, calls in odd.items():
        yield Fault(name, [ScriptedReply(calls=calls), says("Fine.")], "done", "Fine.", 2)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_every_fault_of_a_provider_ends_its_turn_once_with_its_tokens_on_record(stage: Stage, wire: str) -> None:
    if wire == "anthropic":
        stage.model_key = await connect_claude(stage)
        stage.llm = {"integration_name": "anthropic", "provider_id": "anthropic", "model_id": "claude-opus-5"}
    cases = list(faults(wire))
    assert len(cases) >= LEAST
    assert len({case.name for case in cases}) == len(cases)
    calls = 0
    for case in cases:
        turn = await stage.turn(*case.replies)
        check(case, turn)
        calls += turn.data("done")["usage"]["llm_calls"]
    usage = (await stage.client.get("/billing/usage")).body
    assert sum(line["calls"] for line in usage["models"]) == calls
    assert (await stage.client.get("/assistant/chats?limit=1")).body["items"][0]["is_running"] is False


def check(case: Fault, turn: Turn) -> None:
    said = f"{case.name}: {turn.events[-2:]}"
    ending = turn.types[-2:] if turn.types[-2] == "error" else turn.types[-1:]
    assert turn.types.count("done") == 1, said
    assert ending in (["error", "done"], ["done"]), said
    assert case.ends in (None, ending[0]), said
    end = turn.data("done")
    assert end.get("error", False) == (ending[0] == "error"), said
    assert case.text in (None, turn.text), said
    assert "SECRET" not in json.dumps(turn.events), said
    assert TEXT.startswith(turn.text) or case.ends is not None, f"no text twice: {said}"
    used = end["usage"]
    assert used["llm_calls"] == case.calls, said
    assert used["total_tokens"] == used["input_tokens"] + used["output_tokens"], said
    assert used["output_tokens"] > 0 or not turn.text or case.name == "absurd figures", said


async def connect_claude(stage: Stage) -> str:
    key = new_model_key()
    body: Json = {"integration_name": "anthropic", "auth_data": {"api_key": key, "base_url": stage.model.anthropic_url}}
    made = await stage.client.post("/credentials", body)
    assert made.status == 201, made.body
    return key
