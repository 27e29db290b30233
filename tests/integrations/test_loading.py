"""Loading an integration's code, and the threads for what blocks."""

import asyncio
import contextvars
import threading

import httpx
import pytest

from parley.integrations import Integration
from parley.integrations.loading import CannotLoad, Loader, Threads

WAIT_SECONDS = 10


def integration(name: str, *, blocking: bool = False, alone: bool = False) -> Integration:
    return Integration(name=name, display_name=name, description="", blocking=blocking, alone=alone)


async def test_an_integration_is_imported_once() -> None:
    loader = Loader()
    first = await loader.load(integration("hackernews"))
    assert "get_item" in first
    assert await loader.load(integration("hackernews")) is first
    assert loader.failures == {}


async def test_code_that_does_not_load_is_remembered_with_its_reason() -> None:
    loader = Loader()
    with pytest.raises(CannotLoad, match="no_such_integration"):
        await loader.load(integration("no_such_integration"))
    assert "ModuleNotFoundError" in loader.failures["no_such_integration"]


async def test_an_ordinary_action_runs_on_the_callers_loop() -> None:
    async def call() -> object:
        return asyncio.get_running_loop()

    assert await Loader().run(integration("a"), call) is asyncio.get_running_loop()


async def test_a_blocking_action_leaves_the_callers_loop_free() -> None:
    """The call blocks its thread until the caller's loop has done something else."""
    released = threading.Event()

    async def call() -> object:
        return released.wait(WAIT_SECONDS)

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        blocked = group.create_task(Loader().run(integration("a", blocking=True), call))
        await asyncio.sleep(0)
        released.set()
    assert blocked.result() is True


async def test_what_a_blocking_action_leaves_open_is_closed_after_it() -> None:
    """And no other client: somebody else's may be in use."""
    loader = Loader()
    await loader.load(integration("hackernews"))
    made: list[httpx.Client] = []

    async def leaves_one() -> object:
        made.append(httpx.Client())
        return made[-1].is_closed

    async def fails() -> object:
        made.append(httpx.Client())
        raise LookupError("no")

    with httpx.Client() as other:
        assert await loader.run(integration("a", blocking=True), leaves_one) is False
        with pytest.raises(LookupError):
            await loader.run(integration("a", blocking=True), fails)
        assert [client.is_closed for client in made] == [True, True]
        assert not other.is_closed


async def test_integrations_that_must_be_alone_run_one_call_at_a_time() -> None:
    loader, running, most = Loader(), 0, 0

    async def call() -> object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return threading.current_thread().name

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        tasks = [group.create_task(loader.run(integration("n", blocking=True, alone=True), call)) for _ in range(20)]
    assert most == 1
    assert len({task.result() for task in tasks}) == 1


async def test_no_more_threads_start_than_allowed() -> None:
    threads, both = Threads(2), threading.Barrier(2)

    def work() -> str:
        both.wait(WAIT_SECONDS)
        return threading.current_thread().name

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        tasks = [group.create_task(threads.run(work)) for _ in range(6)]
    assert len({task.result() for task in tasks}) == 2


async def test_work_that_was_given_up_before_it_began_never_runs() -> None:
    threads, hold, ran = Threads(1), threading.Event(), threading.Event()
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        first = group.create_task(threads.run(lambda: hold.wait(WAIT_SECONDS)))
        second = group.create_task(threads.run(ran.set))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        hold.set()
    assert first.result() is True
    assert await threads.run(ran.is_set) is False


async def test_work_sees_the_callers_context_and_its_exception_reaches_the_caller() -> None:
    variable = contextvars.ContextVar("variable", default="")
    variable.set("mine")
    threads = Threads(1)
    assert await threads.run(variable.get) == "mine"

    def broken() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        await threads.run(broken)
    assert await threads.run(variable.get) == "mine"
