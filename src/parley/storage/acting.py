"""For whom the present task works: known to the second net under queries and to every line of the log."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

NOBODY = ""


@dataclass(frozen=True, slots=True)
class Acting:
    """An organization's id, and the id of the run that is executed for it; empty where there is none."""

    organization_id: str = NOBODY
    run_id: str = ""


IDLE = Acting()
_acting: ContextVar[Acting] = ContextVar("parley_acting", default=IDLE)


def acting() -> Acting:
    """For whom this task works."""
    return _acting.get()


def act_for(organization_id: str, run_id: str = "") -> None:
    """From here on this task, and those it begins, work for the organization."""
    _acting.set(Acting(organization_id, run_id))


@contextmanager
def acting_for(organization_id: str) -> Generator[None]:
    """``act_for`` within a block."""
    token = _acting.set(Acting(organization_id))
    try:
        yield
    finally:
        _acting.reset(token)
