"""Wall-clock time, in one place, so that stories can move it by days.

Stored times are integers: microseconds since 1970-01-01 UTC.
"""

import time
from datetime import UTC, datetime

SECOND = 1_000_000
DAY = 86_400 * SECOND


class Clock:
    """The wall clock, plus an offset that only tests and drills move."""

    def __init__(self) -> None:
        self.offset = 0

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000 + self.offset

    def advance(self, *, days: float = 0, seconds: float = 0) -> None:
        """Move the clock forward."""
        self.offset += int(days * DAY + seconds * SECOND)


def iso(moment: int) -> str:
    """The wire form of a stored time, such as ``2026-06-20T10:00:01.250000+00:00`` (contract §0)."""
    return datetime.fromtimestamp(moment / SECOND, UTC).isoformat()


def iso_or_none(moment: int | None) -> str | None:
    """``iso`` for a column that may be empty."""
    return None if moment is None else iso(moment)


def from_iso(text: str) -> int:
    """A stored time from ISO 8601 text; a time without an offset is taken as UTC.

    Raises ValueError when the text is not a time, or one that ``iso`` could not say again.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time lies outside the years 1 to 9999") from None
    return int(moment.timestamp() * SECOND)
