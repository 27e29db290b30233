"""A stream that is well under way is read in gathered pieces; its beginning is not held up."""

from contextlib import aclosing

from parley.testing.scripted_model import ScriptedReply
from parley.turn.model import TextDelta
from tests.llm.wired import Wired, impatient, prompt

PIECES = [f"{number} " for number in range(120)]
PATIENT = impatient(idle_seconds=20, reply_seconds=30)


async def test_a_long_stream_is_handed_on_in_gathered_pieces_and_nothing_is_missing(wired: Wired) -> None:
    seen = await wired.ask(ScriptedReply(text=PIECES, paced=0.004), limits=PATIENT)
    assert seen.whole().text == seen.text == "".join(PIECES)
    assert len(seen.deltas) < len(PIECES) / 2


async def test_the_first_words_are_not_gathered(wired: Wired) -> None:
    await wired.script(ScriptedReply(text=PIECES[:40], paced=0.06))
    async with aclosing(wired.model(PATIENT).reply(prompt())) as stream:
        async for part in stream:
            assert isinstance(part, TextDelta)
            assert part.text == PIECES[0]
            break


async def test_a_connection_serves_again_after_a_gathered_stream(wired: Wired) -> None:
    for _ in range(3):
        seen = await wired.ask(ScriptedReply(text=PIECES[:30], paced=0.004), limits=PATIENT)
        assert seen.whole().text == "".join(PIECES[:30])
    assert len({id(connection) for pool in _pools(wired) for connection in pool}) == 1


def _pools(wired: Wired) -> list[list[object]]:
    """The idle connections of the session, by endpoint."""
    connector = wired.session.connector
    assert connector is not None
    return [list(pool) for pool in connector._conns.values() if pool]  # pyright: ignore[reportPrivateUsage]
