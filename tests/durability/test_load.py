"""The load test itself, small: it plays turns to their end, and it would notice what it is there to notice."""

from dataclasses import replace

import pytest

from bench.load import Memory, Told, play
from tests.conftest import POSTGRES

WELL = Told(
    asked=8,
    started=8,
    done=8,
    completed=8,
    failed=0,
    effects=8,
    errors=[],
    walls=[1.0] * 8,
    first_texts=[0.1] * 8,
    arrived=4.0,
    late=0.0,
    cpu=1.0,
    store_cpu=1.0,
    complaints=[],
    memory=Memory([100] * 8),
)


@pytest.mark.skipif(POSTGRES is None, reason="no PostgreSQL answers")
async def test_turns_at_an_even_pace_are_all_done_once_and_counted_alike_by_everyone() -> None:
    told = await play(per_second=2, seconds=4, chunks=3)
    assert (told.asked, told.started, told.done, told.completed, told.effects) == (8, 8, 8, 8, 8), told.errors
    assert told.is_whole, told.errors
    assert told.lost == told.failed == 0
    assert len(told.walls) == len(told.first_texts) == 8
    assert told.cpu > 0


@pytest.mark.parametrize("lacking", ["started", "done", "completed", "effects"])
def test_one_turn_less_in_any_count_is_noticed(lacking: str) -> None:
    assert WELL.is_whole
    assert not replace(WELL, **{lacking: 7}).is_whole


def test_an_action_done_twice_is_noticed() -> None:
    assert not replace(WELL, effects=9).is_whole


def test_a_turn_without_an_end_is_lost() -> None:
    assert replace(WELL, completed=6, failed=1).lost == 1


def test_memory_that_fills_its_caches_first_is_flat_and_memory_that_goes_on_growing_is_not() -> None:
    assert Memory([50, 90, *[100] * 6]).is_flat
    assert not Memory([100 + 10 * second for second in range(8)]).is_flat
