"""Making a conversation fit its model, as little as is needed."""

from dataclasses import replace

from parley.turn.compaction import TRIGGER, characters, cut_before, summary_prompt, trimmable, view
from parley.turn.model import Model, ModelError, Prompt, Reply
from parley.turn.pace import Turn
from parley.turn.ports import Journal

ENOUGH = 0.75


async def fit(turn: Turn, model: Model, journal: Journal) -> None:
    """Shorten the conversation when the last request used most of the model's window."""
    if turn.window_tokens and turn.context_tokens >= TRIGGER * turn.window_tokens:
        await shrink(turn, model, journal)


async def shrink(turn: Turn, model: Model, journal: Journal) -> bool:
    """Shorten large old results, and where that is not enough summarise whole turns; whether anything changed.

    A summary that cannot be had leaves the conversation as it is: the next model call says what is wrong.
    """
    before = characters(view(turn.entries, turn.compaction))
    changed = False
    until = trimmable(turn.entries, turn.compaction)
    if until:
        turn.compaction = replace(turn.compaction, trimmed=until)
        changed = True
    if characters(view(turn.entries, turn.compaction)) > ENOUGH * before:
        changed = await _summarise(turn, model) or changed
    if changed:
        after = characters(view(turn.entries, turn.compaction))
        turn.context_tokens = turn.context_tokens * after // max(before, 1)
        await journal.compacted(turn)
    return changed


async def _summarise(turn: Turn, model: Model) -> bool:
    cut = cut_before(turn.entries, turn.compaction) or cut_before(turn.entries, turn.compaction, keep=1)
    if not cut:
        return False
    try:
        summary = await _ask(model, summary_prompt(turn.entries, turn.compaction, cut))
    except ModelError as error:
        turn.spend(error.usage)
        return False
    turn.spend(summary.usage)
    turn.model_calls += 1
    if not summary.text.strip():
        return False
    turn.compaction = replace(turn.compaction, covered=cut, summary=summary.text.strip())
    return True


async def _ask(model: Model, prompt: Prompt) -> Reply:
    stream = model.reply(prompt)
    try:
        async for part in stream:
            if isinstance(part, Reply):
                return part
    finally:
        await stream.aclose()
    raise AssertionError("a model stream ended without its reply")
