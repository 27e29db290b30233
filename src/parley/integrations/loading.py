"""Loading one integration's code, when an action of it is first run, and running what would block.

Importing an integration takes up to a second, so it happens in a thread, once. Some integrations
call synchronous drivers inside async functions; those run in a thread with a loop of its own.
"""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from parley.integrations import transport
from parley.integrations.house.folders import (
    UnfitFolder,
    arguments_model,
    content_hash,
    found_functions,
    import_actions,
)
from parley.integrations.index import Integration

BLOCKING_THREADS = 8
PREFIX = "modulex_integrations.tools."


class CannotLoad(Exception):
    """The integration's code does not load here; the message says why."""


@dataclass(frozen=True, slots=True)
class LoadedAction:
    """An action's function and the pydantic model of its arguments."""

    call: Callable[..., Awaitable[object]]
    arguments: type[BaseModel]


class Threads:
    """At most ``limit`` daemon threads that run what blocks, in order of arrival.

    Daemons, because a driver that hangs must not keep the process from ending.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._started = 0
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    async def run[T](self, work: Callable[[], T]) -> T:
        """Run the work in one of the threads, with the caller's context variables.

        Cancelling takes it out of the queue; once it runs it cannot be stopped.
        """
        future: Future[T] = Future()
        context = copy_context()

        def fulfil() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(context.run(work))
            except BaseException as error:  # whatever it is belongs to the caller, and the thread goes on
                future.set_exception(error)

        self._waiting.put(fulfil)
        if self._started < self._limit:
            self._started += 1
            threading.Thread(target=self._work, name=f"parley-blocking-{self._started}", daemon=True).start()
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            self._waiting.get()()


class Loader:
    """The code that has been loaded, and what could not be. ``house`` is the operator's folder of integrations."""

    def __init__(self, house: Path | None = None) -> None:
        self._house = house
        self._loaded: dict[str, Mapping[str, LoadedAction]] = {}
        self._imports = Threads(1)
        self._blocking = Threads(BLOCKING_THREADS)
        self._alone: dict[str, Threads] = {}
        self.failures: dict[str, str] = {}

    async def load(self, integration: Integration) -> Mapping[str, LoadedAction]:
        """The integration's actions by name. Raises CannotLoad, and remembers why."""
        loaded = self._loaded.get(integration.name)
        if loaded is None:
            try:
                loaded = await self._imports.run(lambda: self._import(integration))
            except Exception as error:  # whatever a vendor's import raises
                self.failures[integration.name] = f"{type(error).__name__}: {error}"
                raise CannotLoad(self.failures[integration.name]) from error
            self._loaded[integration.name] = loaded
        transport.install()
        return loaded

    def _import(self, integration: Integration) -> Mapping[str, LoadedAction]:
        if integration.house and self._house is not None:
            return _import_house(integration, self._house / integration.name)
        return _import(integration.name)

    async def run(self, integration: Integration, call: Callable[[], Awaitable[object]]) -> object:
        """Await the call here, or in a thread where the integration would hold up the event loop."""
        if integration.alone:
            threads = self._alone.setdefault(integration.name, Threads(1))
        elif integration.blocking:
            threads = self._blocking
        else:
            return await call()
        # A vendor's SDK drops its clients without closing them; the operator's code may keep one for the next action.
        around = nullcontext() if integration.house else transport.closing_clients()
        return await threads.run(lambda: _run_apart(call, around))


def _run_apart(call: Callable[[], Awaitable[object]], around: AbstractContextManager[None]) -> object:
    """Await the call on a loop of its own."""
    with around:
        return asyncio.run(_awaited(call))


async def _awaited(call: Callable[[], Awaitable[object]]) -> object:
    return await call()


def _import_house(integration: Integration, folder: Path) -> Mapping[str, LoadedAction]:
    """The functions of a house integration; never other ones than those that were looked at."""
    transport.install()
    if content_hash(folder) != integration.house:
        raise UnfitFolder("its files have changed since this server started. Start it again to use them")
    functions = found_functions(import_actions(folder))
    return {
        action.name: LoadedAction(functions[action.name], arguments_model(action.name, functions[action.name]))
        for action in integration.actions
    }


def _import(name: str) -> Mapping[str, LoadedAction]:
    transport.install()
    module: Any = import_module(f"{PREFIX}{name}")
    transport.adapt(name)
    return {tool.name: LoadedAction(tool.coroutine, tool.args_schema) for tool in module.TOOLS}
