"""Windows of time: one count for all processes, refused from memory once it is full."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select

from parley.base.clock import SECOND, Clock
from parley.storage import Store, open_store
from parley.storage.tables.billing import rate_windows
from parley.storage.windows import MOST_AT_ONCE, MOST_SUBJECTS, Taken, Windows, forget_windows


@pytest.fixture
async def stores(store: Store, store_url: str) -> AsyncIterator[list[Store]]:
    """The store, and on PostgreSQL one more, as another process would have."""
    others = [open_store(store_url).across] if store.dialect == "postgresql" else []
    yield [store, *others]
    for other in others:
        await other.close()


class StillClock(Clock):
    """A clock that only tests move."""

    def now(self) -> int:
        return 1_796_000_000 * SECOND + self.offset


@pytest.fixture
def clock() -> Clock:
    return StillClock()


@pytest.mark.parametrize("limit", [1, 7, 60, 1000])
async def test_two_processes_together_let_through_exactly_the_limit(
    stores: list[Store], clock: Clock, limit: int
) -> None:
    processes = [Windows(store, clock, "api", seconds=60) for store in (*stores, stores[0])]
    outcomes: list[bool] = []

    async def tries(windows: Windows, count: int) -> None:
        for _ in range(count):
            taken = await windows.take("somebody", limit)
            outcomes.append(taken.remaining >= 0)

    async with asyncio.TaskGroup() as group:
        for windows in processes:
            group.create_task(tries(windows, limit))
    passed = sum(outcomes)
    assert passed <= limit
    # What one process fetched and did not use is the only thing missing.
    assert passed >= limit - len(processes) * (limit // 16 + 1)


async def test_one_process_lets_through_the_limit_and_not_one_more(store: Store, clock: Clock) -> None:
    windows = Windows(store, clock, "api", seconds=60)
    left = [(await windows.take("somebody", 20)).remaining for _ in range(23)]
    assert left == [*range(19, -1, -1), -1, -1, -1]


async def test_a_window_lasts_its_time_from_the_first_call_and_then_begins_anew(store: Store, clock: Clock) -> None:
    windows = Windows(store, clock, "api", seconds=60)
    begun = clock.now()
    assert (await windows.take("somebody", 1)).remaining == 0
    clock.advance(seconds=59)
    refused = await windows.take("somebody", 1)
    assert refused.remaining == -1
    assert refused.reset_at == begun + 60 * SECOND
    clock.advance(seconds=1)
    assert (await windows.take("somebody", 1)).remaining == 0


async def test_a_process_that_comes_later_joins_the_window_that_runs(stores: list[Store], clock: Clock) -> None:
    first, second = (Windows(store, clock, "api", seconds=60) for store in (stores[0], stores[-1]))
    begun = await first.take("somebody", 2)
    clock.advance(seconds=30)
    joined = await second.take("somebody", 2)
    assert (joined.remaining, joined.reset_at) == (0, begun.reset_at)
    assert (await second.take("somebody", 2)).remaining == -1
    clock.advance(seconds=30)
    assert (await second.take("somebody", 2)).remaining == 1


async def test_a_clock_that_was_set_back_shuts_nobody_out(store: Store, clock: Clock) -> None:
    windows = Windows(store, clock, "api", seconds=60)
    await windows.take("somebody", 1)
    clock.advance(days=-1)
    assert (await windows.take("somebody", 1)).remaining == 0


async def test_many_subjects_stay_within_bounds_and_are_remembered_by_the_store(store: Store, clock: Clock) -> None:
    windows = Windows(store, clock, "api", seconds=60)
    await windows.take("first", 1)
    for number in range(MOST_SUBJECTS):
        await windows.look(str(number), 1)
    assert (await windows.take("first", 1)).remaining == -1


async def test_a_flood_costs_the_store_nothing_once_the_window_is_full(store: Store, clock: Clock) -> None:
    windows = Windows(store, clock, "api", seconds=60)
    for _ in range(5):
        await windows.take("flooder", 5)
    await store.close()
    for _ in range(1_000):
        assert (await windows.take("flooder", 5)).remaining == -1


async def _count(store: Store) -> int:
    return await store.read(lambda tx: tx.execute(select(rate_windows.c.taken)).scalar_one())


async def _try(windows: Windows, limit: int) -> Taken | Exception:
    try:
        return await windows.take("somebody", limit)
    except OSError as error:
        return error


async def _burst(windows: Windows, limit: int, *, tries: int, leaving: int = 0) -> list[Taken | Exception]:
    """What came of tries at once, but for the first ones, which leave in the middle."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_try(windows, limit)) for _ in range(tries)]
        await asyncio.sleep(0)
        for task in tasks[:leaving]:
            task.cancel()
    return [task.result() for task in tasks[leaving:]]


def _passed(outcomes: list[Taken | Exception]) -> int:
    return sum(isinstance(each, Taken) and each.remaining >= 0 for each in outcomes)


async def test_a_burst_takes_no_more_than_a_share_so_that_a_restart_shuts_nobody_out(
    store: Store, clock: Clock
) -> None:
    for process in range(1, 21):
        windows = Windows(store, clock, "api", seconds=60)
        assert _passed(await _burst(windows, 1_000_000, tries=50)) == 50
        assert await _count(store) <= process * MOST_AT_ONCE


@pytest.mark.parametrize("limit", [1, 7, 40, 60])
async def test_a_burst_lets_through_exactly_the_limit(store: Store, clock: Clock, limit: int) -> None:
    windows = Windows(store, clock, "api", seconds=60)
    assert _passed(await _burst(windows, limit, tries=50)) == min(limit, 50)
    assert await _count(store) <= limit


async def test_a_caller_that_leaves_in_the_middle_of_taking_takes_nobody_with_it(store: Store, clock: Clock) -> None:
    windows = Windows(store, clock, "api", seconds=60)
    assert _passed(await _burst(windows, 40, tries=20, leaving=2)) == 18


async def test_where_the_store_does_not_answer_all_who_wait_hear_it_at_once(clock: Clock) -> None:
    gone = open_store("postgresql://postgres@127.0.0.1:1/nowhere")
    outcomes = await _burst(Windows(gone, clock, "api", seconds=60), 40, tries=20)
    await gone.close()
    assert isinstance(outcomes[0], OSError)
    assert all(each is outcomes[0] for each in outcomes)


async def test_looking_counts_nothing_and_forgetting_begins_anew(store: Store, clock: Clock) -> None:
    windows = Windows(store, clock, "sign-in", seconds=60)
    for _ in range(3):
        assert (await windows.look("somebody", 2)).remaining == 1
    await windows.take("somebody", 2)
    await windows.take("somebody", 2)
    assert (await windows.look("somebody", 2)).remaining < 0
    await windows.forget("somebody")
    assert (await windows.take("somebody", 2)).remaining == 1


async def test_classes_and_subjects_do_not_share_a_window(store: Store, clock: Clock) -> None:
    api, sign_in = Windows(store, clock, "api", seconds=60), Windows(store, clock, "sign-in", seconds=60)
    assert (await api.take("somebody", 1)).remaining == 0
    assert (await sign_in.take("somebody", 1)).remaining == 0
    assert (await api.take("somebody else", 1)).remaining == 0


async def test_old_windows_are_forgotten_and_present_ones_kept(store: Store, clock: Clock) -> None:
    windows = Windows(store, clock, "api", seconds=60)
    await windows.take("then", 5)
    clock.advance(days=1)
    await windows.take("now", 5)
    assert await store.write(lambda tx: forget_windows(tx, before=clock.now() - 3_600 * SECOND)) == 1
    assert await store.read(lambda tx: list(tx.execute(select(rate_windows.c.subject)).scalars())) == ["now"]
