"""Refusing whoever tries too often."""

from collections.abc import Mapping

from parley.base.clock import SECOND
from parley.base.errors import TooManyRequests
from parley.storage.windows import Taken, seconds_left


class RateReached(TooManyRequests):
    """A limit is reached until ``resets_at``, a time."""

    def __init__(self, detail: str, *, resets_at: int, headers: Mapping[str, str]) -> None:
        super().__init__(detail, headers=headers)
        self.resets_at = resets_at


def refuse_over(taken: Taken, sentence: str) -> None:
    """Raise RateReached with ``Retry-After`` and ``X-RateLimit-*`` when the limit is passed (contract §1, §10)."""
    if taken.remaining >= 0:
        return
    raise RateReached(
        sentence,
        resets_at=taken.reset_at,
        headers={
            "Retry-After": str(seconds_left(taken.reset_at, taken.now)),
            "X-RateLimit-Limit": str(taken.limit),
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": str(-(-taken.reset_at // SECOND)),
        },
    )
