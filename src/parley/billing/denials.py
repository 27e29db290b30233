"""How billing says no.

A ``Denial`` is the gate's refusal: the one envelope of the wire that is flat (contract §9.3, §10).
Inside a turn the same lack of credits is a value, ``CreditExhausted``, because a tool never raises to
the model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from parley.base.clock import SECOND
from parley.base.errors import Forbidden, Refusal, Unavailable
from parley.billing.plans import MICRO, QuotaName
from parley.storage.windows import seconds_left
from parley.turn.model import JsonObject

type Layer = Literal["rate", "quota", "credit", "wallet"]


class Denial(Refusal):
    """The billing gate refused, before any row was written.

    Rendered as its ``envelope`` with its ``headers``, never as ``{"detail": …}``.
    """

    layer: ClassVar[Layer]
    code: ClassVar[str]

    def __init__(
        self,
        detail: str,
        *,
        key: str | None = None,
        current: float | None = None,
        limit: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail, headers=headers)
        self.envelope: JsonObject = {
            "code": self.code,
            "layer": self.layer,
            "key": key,
            "current": current,
            "limit": limit,
            "reason": self.code,
        }


class RateDenied(Denial):
    """Too many turns in this minute."""

    status = 429
    layer = "rate"
    code = "rate_limit_exceeded"


class ApiRateDenied(RateDenied):
    """Too many requests in this minute.

    Ordinary routes never answer with a flat envelope, so this one is wrapped in ``detail`` (contract §10, 4).
    It holds until ``resets_at``, a time.
    """

    def __init__(self, detail: str, *, key: str, limit: int, resets_at: int, now: int) -> None:
        headers = rate_headers(limit=limit, remaining=0, resets_at=resets_at, now=now)
        super().__init__(detail, key=key, current=limit, limit=limit, headers=headers)
        self.envelope = {"detail": self.envelope}
        self.resets_at = resets_at


class QuotaDenied(Denial):
    """The plan allows no more of this."""

    status = 403
    layer = "quota"
    code = "quota_exceeded"


class CreditDenied(Denial):
    """The month's credits are used up."""

    status = 402
    layer = "credit"
    code = "credit_plan_exhausted"


class WalletDenied(Denial):
    """The month's credits are used up, and the wallet cannot cover the rest."""

    status = 402
    layer = "wallet"
    code = "wallet_insufficient"


class PlanFull(Forbidden):
    """Your plan allows no more of these. Remove one, or move to a larger plan under Usage."""


class GateUnavailable(Unavailable):
    """Usage cannot be checked right now, so nothing was started or charged. Try again in a moment."""


@dataclass(frozen=True, slots=True)
class CreditExhausted:
    """A managed call cannot be paid for (contract §6: ``credit_limit``).

    ``message`` is for the model and for people; ``reason`` is the stable word of the wire.
    """

    message: str
    denial: CreditDenied | WalletDenied
    reason: str = "credit_exhausted"


def rate_headers(*, limit: int, remaining: int, resets_at: int, now: int) -> dict[str, str]:
    """``X-RateLimit-*`` and a numeric ``Retry-After`` in seconds, at least 1 (contract §0.2, §10)."""
    return {
        "Retry-After": str(seconds_left(resets_at, now)),
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(remaining),
        "X-RateLimit-Reset": str(-(-resets_at // SECOND)),
    }


def rate_denied(*, limit: int, resets_at: int, now: int) -> RateDenied:
    """The organization started as many turns this minute as its plan allows."""
    headers = rate_headers(limit=limit, remaining=0, resets_at=resets_at, now=now)
    sentence = f"Your plan starts at most {limit} turns a minute. Try again in {headers['Retry-After']} seconds."
    return RateDenied(sentence, key="sync_exec", current=limit, limit=limit, headers=headers)


def api_rate_denied(*, key: str, limit: int, resets_at: int, now: int) -> ApiRateDenied:
    """The organization, or one person in it, sent as many requests this minute as its plan allows."""
    wait = seconds_left(resets_at, now)
    sentence = f"Your plan takes at most {limit} requests a minute. Try again in {wait} seconds."
    return ApiRateDenied(sentence, key=key, limit=limit, resets_at=resets_at, now=now)


def quota_denied(name: QuotaName, *, current: int, limit: int) -> QuotaDenied:
    """The organization has as many of a thing as its plan allows."""
    things = name.replace("_", " ")
    return QuotaDenied(
        f"Your plan allows {limit} {things}, and all are in use.", key=name, current=current, limit=limit
    )


def credit_denied(*, used_micro: int, allowance_micro: int) -> CreditDenied:
    """The month is used up and nothing may go beyond it."""
    return CreditDenied(
        "This month's credits are used up. Move to a larger plan, or switch on the wallet under Usage.",
        key="monthly_credits",
        current=used_micro / MICRO,
        limit=allowance_micro / MICRO,
    )


def wallet_denied(*, left_micro: int, needed_micro: int) -> WalletDenied:
    """The month is used up and the wallet is short. ``current`` is what is left, ``limit`` what is needed."""
    return WalletDenied(
        "This month's credits are used up, and the wallet is empty. Top it up under Usage.",
        key="wallet",
        current=left_micro / MICRO,
        limit=needed_micro / MICRO,
    )
