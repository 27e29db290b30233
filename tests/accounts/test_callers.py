"""Recognizing keys at little cost: one look-up a second, shared by whoever asks at the same moment."""

import asyncio
from collections.abc import Callable

import pytest

from parley.accounts import first_start
from parley.accounts.callers import Callers, InvalidKey, StoreSlow
from parley.accounts.keys import load_pepper, new_key
from parley.base.clock import Clock
from parley.base.settings import Settings
from parley.storage import ReadTx, Store, WriteTx
from tests.accounts.desk import new_keyring


class Counting:
    """A store that counts its reads."""

    def __init__(self, store: Store) -> None:
        self.dialect = store.dialect
        self._store = store
        self.reads = 0
        self.broken = False
        self.failing_writes = 0

    @property
    def across(self) -> Store:
        return self

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        self.reads += 1
        if self.broken:
            raise TimeoutError
        return await self._store.read(work)

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        if self.failing_writes:
            self.failing_writes -= 1
            raise ConnectionResetError
        return await self._store.write(work)

    async def close(self) -> None:
        await self._store.close()


@pytest.fixture
async def known(store: Store) -> tuple[Counting, Callers, str]:
    """A counting store, callers over it, and a key they know."""
    keyring, clock = new_keyring(), Clock()
    made = await first_start(store, keyring, Settings(), clock)
    assert made is not None
    assert made.api_key is not None
    counting = Counting(store)
    return counting, Callers(counting, clock, await load_pepper(store, keyring, clock), frozenset()), made.api_key


async def test_requests_of_one_moment_share_one_look_up(known: tuple[Counting, Callers, str]) -> None:
    store, callers, key = known
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(callers.by_key(key, address="")) for _ in range(50)]
    assert len({task.result().user.id for task in tasks}) == 1
    assert store.reads == 1


async def test_a_key_without_a_fitting_checksum_never_reaches_the_store(known: tuple[Counting, Callers, str]) -> None:
    store, callers, key = known
    for wrong in (key[:-1], f"{key}a", key.swapcase(), "mx_live_x", "", "\udcff", key.replace("live", "test")):
        with pytest.raises(InvalidKey):
            await callers.by_key(wrong, address="")
    assert store.reads == 0
    with pytest.raises(InvalidKey):
        await callers.by_key(new_key(), address="")
    assert store.reads == 1


async def test_a_store_that_does_not_answer_is_a_503(known: tuple[Counting, Callers, str]) -> None:
    store, callers, key = known
    store.broken = True
    with pytest.raises(StoreSlow):
        await callers.by_key(key, address="")
    store.broken = False
    assert (await callers.by_key(key, address="")).user.roles


async def test_forgetting_asks_the_store_anew(known: tuple[Counting, Callers, str]) -> None:
    store, callers, key = known
    found = await callers.by_key(key, address="")
    assert found.user.api_key_id is not None
    for forget in (
        lambda: callers.forget_user(found.user.id),
        lambda: callers.forget_key(str(found.user.api_key_id)),
    ):
        before = store.reads
        await callers.by_key(key, address="")
        forget()
        await callers.by_key(key, address="")
        assert store.reads == before + 1


async def test_uses_that_could_not_be_written_do_not_stop_the_writing(known: tuple[Counting, Callers, str]) -> None:
    store, callers, key = known
    store.failing_writes = 1
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        writing = group.create_task(callers.uses.keep_writing())
        while (found := await callers.by_key(key, address="")).used_at is None:
            callers.forget_user(found.user.id)
        writing.cancel()
    assert store.failing_writes == 0
