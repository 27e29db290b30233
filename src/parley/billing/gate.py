"""The admission gate (contract §9.3): rate, quota, credit, wallet, in that order, before any row is written."""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from sqlalchemy.exc import IntegrityError

from parley.base.clock import SECOND, Clock
from parley.billing import store
from parley.billing.denials import GateUnavailable, PlanFull, api_rate_denied, quota_denied, rate_denied
from parley.billing.ledger import Books, Charge, charge_books, open_books, plan_of
from parley.billing.plans import Plans, QuotaName, Rates
from parley.storage import STORE_TROUBLE, ReadTx, Store, WriteTx
from parley.storage.windows import Taken, Windows, take

WINDOW_SECONDS = 60
WINDOW = WINDOW_SECONDS * SECOND
# An organization's plan is asked for this often, for as many organizations.
KEEP_SECONDS = 10.0
MOST_KNOWN = 20_000

log = logging.getLogger(__name__)


def reserve(tx: WriteTx, plans: Plans, organization_id: str, *, charge_key: str, run_id: str, now: int) -> None:
    """Admit one turn and charge its credit, inside the transaction that writes the turn's rows.

    ``charge_key`` is ``{chat_id}:{run_id}`` (contract §9.3). A denial rolls everything back, so the rate
    window counts admitted turns only, exactly, in however many processes.
    Raises RateDenied, QuotaDenied, CreditDenied or WalletDenied.
    """
    books = open_books(tx, plans, organization_id, now)
    _rate(tx, books, now)
    _concurrency(tx, books)
    what = Charge(charge_key, "turn", plans.turn_micro, run_id)
    denial = charge_books(tx, books, what, now)
    if denial is not None:
        raise denial


def admit(
    tx: WriteTx, plans: Plans, organization_id: str, quota: QuotaName, used: Callable[[ReadTx, str], int], now: int
) -> None:
    """Refuse one more of a thing on a gated surface, such as managed knowledge, when the plan has no room.

    ``used`` counts the organization's things; it is asked under the organization's lock, so that two
    callers cannot both take the last place. Raises QuotaDenied.
    """
    limit = plan_of(plans, store.lock(tx, organization_id, now)).quota(quota)
    if limit is None:
        return
    current = used(tx, organization_id)
    if current >= limit:
        raise quota_denied(quota, current=current, limit=limit)


def require_room(
    tx: WriteTx, plans: Plans, organization_id: str, quota: QuotaName, used: Callable[[ReadTx, str], int], now: int
) -> None:
    """As ``admit``, for ordinary routes, which never answer with the gate's envelope. Raises PlanFull."""
    limit = plan_of(plans, store.lock(tx, organization_id, now)).quota(quota)
    if limit is not None and used(tx, organization_id) >= limit:
        things = quota.replace("_", " ")
        raise PlanFull(f"Your plan allows {limit} {things}. Remove one, or move to a larger plan under Usage.")


def limit_of(tx: ReadTx, plans: Plans, organization_id: str, quota: QuotaName) -> int | None:
    """The most of a thing the organization's plan allows; None: any number. For showing, not for deciding."""
    return plan_of(plans, store.peek(tx, organization_id)).quota(quota)


class ApiRate:
    """The `api` rate class: every request of an organization, and of each person in it (contract §1, §10).

    Counted over all processes. It fails open: when the store does not answer, the route itself will say so.
    """

    def __init__(self, store_: Store, plans: Plans, clock: Clock) -> None:
        self._store = store_
        self._plans = plans
        self._windows = Windows(store_, clock, "api", seconds=WINDOW_SECONDS)
        self._known: dict[str, tuple[float, Rates]] = {}

    async def count(self, organization_id: str, user_id: str) -> None:
        """Count one request. Raises ApiRateDenied."""
        try:
            rates = await self._rates(organization_id)
            if rates.api_user is not None:
                subject = f"{organization_id}:{user_id}"
                _within(await self._windows.take(subject, rates.api_user), key="api_user")
            if rates.api is not None:
                _within(await self._windows.take(organization_id, rates.api), key="api")
        except STORE_TROUBLE as error:
            log.warning("a request was not counted: %s", type(error).__name__)

    async def _rates(self, organization_id: str) -> Rates:
        known = self._known.get(organization_id)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        subscription = await self._store.read(lambda tx: store.peek(tx, organization_id))
        rates = plan_of(self._plans, subscription).rates
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[organization_id] = (time.monotonic() + KEEP_SECONDS, rates)
        return rates


@contextmanager
def closed_on_outage() -> Generator[None]:
    """Fail closed: a store that does not answer on a gated surface is a clear 503, never a free pass.

    Raises GateUnavailable in place of the store's own error.
    """
    try:
        yield
    except IntegrityError:
        raise
    except STORE_TROUBLE as error:
        raise GateUnavailable from error


def _within(taken: Taken, *, key: str) -> None:
    if taken.remaining < 0:
        raise api_rate_denied(key=key, limit=taken.limit, resets_at=taken.reset_at, now=taken.now)


def _rate(tx: WriteTx, books: Books, now: int) -> None:
    limit = books.plan.rates.sync_exec
    if limit is None:
        return
    window_at, taken = take(tx, books.organization_id, "sync_exec", now=now, length=WINDOW)
    if taken > limit:
        raise rate_denied(limit=limit, resets_at=window_at + WINDOW, now=now)


def _concurrency(tx: WriteTx, books: Books) -> None:
    limit = books.plan.quotas.concurrent_turns
    if limit is None:
        return
    current = store.live_turns(tx, books.organization_id)
    if current >= limit:
        raise quota_denied("concurrent_turns", current=current, limit=limit)
