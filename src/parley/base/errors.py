"""The ways Parley says no.

    Refusal                 we will not do it; a status and a sentence for the caller
    ├── BadRequest 400      ├── Unauthorized 401    ├── Forbidden 403
    ├── NotFound 404        ├── Conflict 409        ├── Gone 410
    ├── TooManyRequests 429 └── Unavailable 503

Packages subclass these beside the use case that raises them. ``http/errors.py`` is the only
renderer. Expected ends are values, and bugs are ordinary exceptions; neither is a Refusal.
"""

from collections.abc import Mapping
from typing import ClassVar


class Refusal(Exception):
    """Parley will not do what was asked. The docstring of a subclass is its default sentence.

    ``headers`` go out with the answer, such as ``Retry-After``.
    """

    status: ClassVar[int] = 400

    def __init__(self, detail: str | None = None, *, headers: Mapping[str, str] | None = None) -> None:
        self.detail = detail if detail is not None else (type(self).__doc__ or "").strip()
        self.headers: Mapping[str, str] = headers or {}
        super().__init__(self.detail)


class BadRequest(Refusal):
    """The request cannot be understood."""

    status = 400


class Unauthorized(Refusal):
    """Invalid API key"""

    status = 401


class Forbidden(Refusal):
    """You may not do this."""

    status = 403


class NotFound(Refusal):
    """Not found"""

    status = 404


class Conflict(Refusal):
    """Not possible in the present state."""

    status = 409


class Gone(Refusal):
    """No longer possible."""

    status = 410


class TooManyRequests(Refusal):
    """Too many requests. Wait a moment, then try again."""

    status = 429


class Unavailable(Refusal):
    """Parley cannot do this right now. Try again in a moment."""

    status = 503
