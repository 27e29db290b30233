"""Replacing attributes of other people's modules, and dialling the addresses that were vetted."""

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any


class Patches:
    """What was replaced; ``undo`` puts everything back, the last first."""

    def __init__(self) -> None:
        self._undo = ExitStack()

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put ``make(original)`` in place of an attribute of a module or class."""
        original = getattr(owner, name)
        if name in vars(owner):
            self._undo.callback(setattr, owner, name, original)
        else:
            self._undo.callback(delattr, owner, name)
        setattr(owner, name, make(original))

    def set_variable(self, name: str, value: str) -> None:
        """Set an environment variable that the operator did not."""
        if name not in os.environ:
            os.environ[name] = value
            self._undo.callback(os.environ.pop, name, None)

    def undo(self) -> None:
        """Put every original back."""
        self._undo.close()


def root_of(module: ModuleType) -> Any:
    """The package that a module belongs to: httpcore or httpcore2, httpx or httpx2."""
    return sys.modules[module.__name__.partition(".")[0]]


async def first_that_answers[T](
    addresses: Sequence[str],
    dial: Callable[[str], Awaitable[T]],
    failures: type[Exception] | tuple[type[Exception], ...],
) -> T:
    """Dial the addresses in their order until one answers; the last one's failure is the caller's."""
    *others, last = addresses
    for address in others:
        try:
            return await dial(address)
        except failures:
            continue
    return await dial(last)


def first_that_answers_now[T](addresses: Sequence[str], dial: Callable[[str], T]) -> T:
    """``first_that_answers`` for a blocking client, where a failed dial is an OSError."""
    *others, last = addresses
    for address in others:
        try:
            return dial(address)
        except OSError:
            continue
    return dial(last)
