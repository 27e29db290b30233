"""The loop: reason, act, observe, until the turn ends. The order of these lines is the specification.

A run ends in one of four ways (seed how-it-works, "Termination and limits"): the model answers or a
person ends the turn, a person is asked, the run fails, or the task is cancelled from outside. Whoever
runs the loop settles the ending; the loop itself only returns it.
"""

from typing import assert_never

from parley.turn.model import (
    Answered,
    Asked,
    Declined,
    Failed,
    Model,
    ModelError,
    Observed,
    Outcome,
    Paused,
    Reply,
    Stopped,
    TextDelta,
    ThinkingDelta,
)
from parley.turn.pace import MAX_STEPS, Guidance, Turn
from parley.turn.ports import Journal, Toolbox
from parley.turn.shrink import fit, shrink

STEP_LIMIT = Failed(
    f"The assistant stopped after {MAX_STEPS} steps without finishing. Try a smaller request.", "step_limit"
)


async def run_turn(turn: Turn, model: Model, tools: Toolbox, journal: Journal) -> Outcome:
    """Run one turn to its end, or from where a pause or a dead process left it."""
    pending = turn.open_call
    while True:
        if pending is not None:
            call, result = pending.call, await tools.reenter(pending)
            pending = None
        else:
            if turn.step >= MAX_STEPS:
                return STEP_LIMIT
            await _guide(turn, turn.before_model(), journal)
            await fit(turn, model, journal)
            reply = await _reason(turn, model, tools, journal)
            if isinstance(reply, Failed):
                return reply
            if not reply.calls:
                return Answered(reply)
            call = reply.calls[0]
            await journal.acting(turn, reply, call)
            result = await tools.run(call, turn.step)
        match result:
            case Asked() | Declined():
                return Paused(call, result.question) if isinstance(result, Asked) else Stopped(call, result)
            case Observed():
                turn.observe(call, result)
                await journal.observed(turn, call, result)
                await _guide(turn, turn.after_tool(result), journal)
            case _:
                assert_never(result)


async def _reason(turn: Turn, model: Model, tools: Toolbox, journal: Journal) -> Reply | Failed:
    """One model call, once more with a shorter conversation where it did not fit."""
    turn.begin_step()
    try:
        return await _stream(turn, model, tools, journal)
    except ModelError as error:
        turn.spend(error.usage)
        failed = Failed(error.public, f"model_{error.kind}")
        if error.kind != "context" or error.text or not await shrink(turn, model, journal):
            return failed
    try:
        return await _stream(turn, model, tools, journal)
    except ModelError as error:
        turn.spend(error.usage)
        return Failed(error.public, f"model_{error.kind}")


async def _stream(turn: Turn, model: Model, tools: Toolbox, journal: Journal) -> Reply:
    """The reply's text is streamed, the reply joins the conversation."""
    stream = model.reply(turn.prompt(tools.specs))
    try:
        async for part in stream:
            match part:
                case TextDelta(text):
                    journal.chunk(text)
                case ThinkingDelta():
                    pass
                case Reply():
                    turn.reply(part)
                    return part
                case _:
                    assert_never(part)
    finally:
        await stream.aclose()
    raise AssertionError("a model stream ended without its reply")


async def _guide(turn: Turn, guidance: Guidance | None, journal: Journal) -> None:
    if guidance is not None:
        turn.note(guidance)
        await journal.guided(turn, guidance)


__all__ = ["Journal", "Toolbox", "run_turn"]
