"""What people see of their usage: the month, the dashboard, the ledger, a turn's receipt (contract §9.4, §13)."""

from collections.abc import Sequence
from dataclasses import dataclass

from parley.base.clock import DAY, Clock
from parley.base.errors import NotFound
from parley.billing import dashboard_store, store, usage_store
from parley.billing.dashboard_store import (
    CallLine,
    CallTotals,
    Inventory,
    InvitedLine,
    LogFilter,
    LogLine,
    PersonLine,
)
from parley.billing.ledger import plan_of
from parley.billing.plans import Month, Plan, Plans, month_of
from parley.billing.store import Subscription
from parley.billing.usage_store import ActionLine, LedgerLine, ModelLine, SpendingLine
from parley.storage import ReadTx, Store


class TurnNotFound(NotFound):
    """Turn not found"""


@dataclass(frozen=True, slots=True)
class MonthUsage:
    """The running credit month: what was used of what there is. ``allowance_micro`` None: no ceiling."""

    month: Month
    used_micro: int
    allowance_micro: int | None
    plan: Plan
    subscription: Subscription | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The dashboard's first page."""

    usage: MonthUsage
    inventory: Inventory
    calls: Sequence[CallLine]


@dataclass(frozen=True, slots=True)
class CallsPage:
    """Tool or model calls: this month, the asked period, and a page of that period's calls."""

    usage: MonthUsage
    inventory: Inventory
    month: CallTotals
    period: CallTotals
    calls: Sequence[CallLine]
    most_used: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class DayUsage:
    """One UTC day. ``number`` counts days since 1970; ``integrations`` counts tool calls by name.

    ``failed_calls`` are tool calls; ``cached_tokens`` are those of the input that a provider's cache served.
    """

    number: int
    spent_micro: int
    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    model_calls: int
    tool_calls: int
    failed_calls: int
    integrations: dict[str, int]


@dataclass(frozen=True, slots=True)
class People:
    """An organization's members with what each used this month, and its open invitations."""

    members: Sequence[PersonLine]
    invited: Sequence[InvitedLine]
    spent_micro: dict[str, int]
    seats: int | None


@dataclass(frozen=True, slots=True)
class Breakdown:
    """What a turn or a month used: models, actions, and what each was charged and to whom."""

    models: Sequence[ModelLine]
    actions: Sequence[ActionLine]
    spending: Sequence[SpendingLine]

    @property
    def spent_micro(self) -> int:
        """Everything that was charged."""
        return sum(line.plan_micro + line.wallet_micro for line in self.spending)


@dataclass(frozen=True, slots=True)
class MonthReport:
    """The running month in full."""

    usage: MonthUsage
    breakdown: Breakdown
    by_day: dict[int, int]


class Usage:
    """Reads usage for the people of an organization; changes nothing."""

    def __init__(self, store_: Store, plans: Plans, clock: Clock) -> None:
        self._store = store_
        self._plans = plans
        self._clock = clock

    async def overview(self, organization_id: str, *, limit: int, offset: int) -> Overview:
        """The running month, what the organization has, and its newest calls with credentials."""

        def read(tx: ReadTx) -> Overview:
            return Overview(
                self._month(tx, organization_id),
                dashboard_store.inventory(tx, organization_id),
                dashboard_store.tool_lines(tx, organization_id, 0, limit=limit, offset=offset),
            )

        return await self._store.read(read)

    async def tools(self, organization_id: str, *, since: int, limit: int, offset: int) -> CallsPage:
        """Tool calls since a time."""

        def read(tx: ReadTx) -> CallsPage:
            usage = self._month(tx, organization_id)
            return CallsPage(
                usage,
                dashboard_store.inventory(tx, organization_id),
                dashboard_store.tool_totals(tx, organization_id, usage.month.start),
                dashboard_store.tool_totals(tx, organization_id, since),
                dashboard_store.tool_lines(tx, organization_id, since, limit=limit, offset=offset),
                dashboard_store.most_used_action(tx, organization_id, since),
            )

        return await self._store.read(read)

    async def models(self, organization_id: str, *, since: int, limit: int, offset: int) -> CallsPage:
        """Model calls since a time."""

        def read(tx: ReadTx) -> CallsPage:
            usage = self._month(tx, organization_id)
            return CallsPage(
                usage,
                dashboard_store.inventory(tx, organization_id),
                dashboard_store.model_totals(tx, organization_id, usage.month.start),
                dashboard_store.model_totals(tx, organization_id, since),
                dashboard_store.model_lines(tx, organization_id, since, limit=limit, offset=offset),
            )

        return await self._store.read(read)

    async def daily(self, organization_id: str, *, days: int) -> Sequence[DayUsage]:
        """The last ``days`` UTC days, today included, oldest first; quiet days are there too."""
        today = self._clock.now() // DAY
        first = today - days + 1

        def read(tx: ReadTx) -> Sequence[DayUsage]:
            since = first * DAY
            spent = usage_store.spent_by_day(tx, organization_id, since, (today + 1) * DAY)
            tools = {day.number: day for day in dashboard_store.tool_days(tx, organization_id, since)}
            models = {day.number: day for day in dashboard_store.model_days(tx, organization_id, since)}
            named: dict[int, dict[str, int]] = {}
            for number, integration, calls in dashboard_store.integration_days(tx, organization_id, since):
                named.setdefault(number, {})[integration] = calls
            quiet = dashboard_store.Day(0, 0, 0)
            return [
                _day(
                    number,
                    spent.get(number, (0, 0)),
                    tools.get(number, quiet),
                    models.get(number, quiet),
                    named.get(number, {}),
                )
                for number in range(first, today + 1)
            ]

        return await self._store.read(read)

    async def people(self, organization_id: str, *, search: str | None, active: bool | None) -> People:
        """Members and open invitations that match; who was invited has no status yet, so a status leaves them out."""
        now = self._clock.now()

        def read(tx: ReadTx) -> People:
            usage = self._month(tx, organization_id)
            waiting = dashboard_store.invited(tx, organization_id, search=search, now=now) if active is None else []
            return People(
                dashboard_store.people(tx, organization_id, search=search, active=active),
                waiting,
                dashboard_store.spent_by_person(tx, organization_id, usage.month.start),
                usage.plan.quotas.seats,
            )

        return await self._store.read(read)

    async def logs(
        self, organization_id: str, wanted: LogFilter, *, limit: int, offset: int
    ) -> tuple[int, Sequence[LogLine]]:
        """How many audit lines match, and one page of them, the newest first."""
        return await self._store.read(
            lambda tx: dashboard_store.logs(tx, organization_id, wanted, limit=limit, offset=offset)
        )

    async def month(self, organization_id: str) -> MonthUsage:
        """The running credit month in figures."""
        return await self._store.read(lambda tx: self._month(tx, organization_id))

    async def report(self, organization_id: str) -> MonthReport:
        """The running credit month by day, model, integration and payer."""

        def read(tx: ReadTx) -> MonthReport:
            usage = self._month(tx, organization_id)
            start, end = usage.month
            breakdown = Breakdown(
                usage_store.models_between(tx, organization_id, start, end),
                usage_store.actions_between(tx, organization_id, start, end),
                usage_store.spending_between(tx, organization_id, start, end),
            )
            spent = usage_store.spent_by_day(tx, organization_id, start, end)
            return MonthReport(usage, breakdown, {day: micro for day, (micro, _) in spent.items()})

        return await self._store.read(read)

    async def ledger(self, organization_id: str, *, before: tuple[int, str] | None, limit: int) -> Sequence[LedgerLine]:
        """Ledger rows, the newest first, after the one ``before`` names by its time and id."""
        return await self._store.read(
            lambda tx: usage_store.ledger_page(tx, organization_id, before=before, limit=limit)
        )

    def _month(self, tx: ReadTx, organization_id: str) -> MonthUsage:
        subscription = store.peek(tx, organization_id)
        plan = plan_of(self._plans, subscription)
        anchor = store.made_at(tx, organization_id) if subscription is None else subscription.anchor_at
        month = month_of(anchor, self._clock.now())
        found = store.balance(tx, organization_id, "plan", month.start)
        used = -found.posted_micro if found else 0
        return MonthUsage(month, used, plan.allowance_micro, plan, subscription)


def turn_receipt(tx: ReadTx, organization_id: str, turn_id: str) -> Breakdown:
    """What a turn used and what it was charged, over all its runs. Raises TurnNotFound."""
    if not usage_store.turn_exists(tx, organization_id, turn_id):
        raise TurnNotFound
    return Breakdown(
        usage_store.turn_models(tx, turn_id),
        usage_store.turn_actions(tx, turn_id),
        usage_store.turn_spending(tx, turn_id),
    )


def _day(
    number: int,
    spent: tuple[int, int],
    tools: dashboard_store.Day,
    models: dashboard_store.Day,
    named: dict[str, int],
) -> DayUsage:
    spent_micro, turns = spent
    return DayUsage(
        number,
        spent_micro,
        turns,
        models.input_tokens,
        models.output_tokens,
        models.cached_tokens,
        models.calls,
        tools.calls,
        tools.failed,
        named,
    )
