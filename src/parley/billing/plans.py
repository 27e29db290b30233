"""The plan file: allowances, quotas, rates and prices, and the calendar of credit months.

Prices are exact decimals in the file; every amount that leaves this module is whole micro-credits,
rounded up.
"""

import calendar
import importlib.resources
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from parley.base.clock import SECOND
from parley.base.settings import SettingsError
from parley.turn.model import Usage

MICRO = 1_000_000
"""Micro-credits in a credit."""

type Interval = Literal["month", "year"]


class Quotas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many of each thing an organization may have at once; None: any number."""

    credentials: int | None = None
    knowledge_bases: int | None = None
    documents: int | None = None
    seats: int | None = None
    concurrent_turns: int | None = None


type QuotaName = Literal["credentials", "knowledge_bases", "documents", "seats", "concurrent_turns"]


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calls a minute by rate class (contract §9.3); None: any number.

    ``sync_exec``: turns. ``api``: requests of the whole organization. ``api_user``: of each person in it.
    """

    sync_exec: int | None = None
    api: int | None = None
    api_user: int | None = None


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One plan. ``prices`` are US dollars by interval, empty where the plan is not for sale."""

    slug: str
    name: str
    sort_order: int = 0
    is_enterprise: bool = False
    selectable: bool = True
    overage: bool = False
    monthly_credits: Decimal | None = None
    prices: Mapping[Interval, Decimal] = {}
    features: Sequence[str] = ()
    badge: str | None = None
    quotas: Quotas = Quotas()
    rates: Rates = Rates()

    @property
    def allowance_micro(self) -> int | None:
        """Micro-credits a month; None: no ceiling."""
        return None if self.monthly_credits is None else to_micro(self.monthly_credits)

    def quota(self, name: QuotaName) -> int | None:
        """The most of a thing an organization on this plan may have; None: any number."""
        return getattr(self.quotas, name)


class ModelPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Credits for a million tokens of the models whose name starts with ``match``."""

    match: str
    input: Decimal
    cached: Decimal
    output: Decimal
    multiplier: Decimal = Decimal(1)


class ToolPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Credits for a managed tool call, and what each integration multiplies them by."""

    call: Decimal = Decimal(1)
    multipliers: Mapping[str, Decimal] = {}


class KnowledgePrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Credits for managed knowledge."""

    ingest_per_1000_tokens: Decimal = Decimal(0)
    retrieval: Decimal = Decimal(0)


class Plans(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole plan file."""

    default_plan: str
    plans: Sequence[Plan]
    models: Sequence[ModelPrice]
    credits_per_usd: Decimal = Decimal(100)
    turn_credits: Decimal = Decimal(1)
    tools: ToolPrices = ToolPrices()
    knowledge: KnowledgePrices = KnowledgePrices()

    def find(self, slug: str | None) -> Plan | None:
        """The plan of that name, the default one for None; None where the file has no such plan."""
        wanted = self.default_plan if slug is None else slug
        return next((plan for plan in self.plans if plan.slug == wanted), None)

    def of(self, slug: str | None) -> Plan:
        """As ``find``; the default plan for a name the file no longer has."""
        plan = self.find(slug) or self.find(None)
        if plan is None:
            raise LookupError(f"the plan file has no plan {self.default_plan!r}")
        return plan

    @property
    def turn_micro(self) -> int:
        """What one turn costs (contract §9.1)."""
        return to_micro(self.turn_credits)

    def tool_micro(self, integration_name: str) -> int:
        """What one managed call of an integration's action costs (contract §9.1)."""
        return to_micro(self.tools.call * self.tools.multipliers.get(integration_name, Decimal(1)))

    def model_micro(self, model_id: str, usage: Usage) -> int:
        """What a managed model call costs. ``usage.input`` includes ``usage.cached``."""
        price = max(
            (price for price in self.models if model_id.startswith(price.match)), key=lambda price: len(price.match)
        )
        fresh = usage.input - usage.cached
        credits_per_million = fresh * price.input + usage.cached * price.cached + usage.output * price.output
        return to_micro(credits_per_million * price.multiplier / MICRO)

    def ingest_micro(self, tokens: int) -> int:
        """What reading ``tokens`` of a document into managed knowledge costs."""
        return to_micro(self.knowledge.ingest_per_1000_tokens * tokens / 1000)

    @property
    def retrieval_micro(self) -> int:
        """What one search of managed knowledge costs."""
        return to_micro(self.knowledge.retrieval)

    def cents_to_micro(self, cents: int) -> int:
        """The micro-credits that so many hundredths of a US dollar buy."""
        return to_micro(self.credits_per_usd * cents / 100)

    def cents(self, micro: int) -> int:
        """What micro-credits cost, in hundredths of a US dollar, rounded up."""
        return int((Decimal(micro) * 100 / MICRO / self.credits_per_usd).to_integral_value(ROUND_CEILING))


class Month(NamedTuple):
    """One credit month: from ``start`` up to, not including, ``end``."""

    start: int
    end: int


def to_micro(credit: Decimal) -> int:
    """Whole micro-credits, rounded up."""
    return int((credit * MICRO).to_integral_value(ROUND_CEILING))


def credits_text(micro: int) -> str:
    """Micro-credits as credits, exactly: ``12``, ``0.5``, ``-1.000001``."""
    whole, part = divmod(abs(micro), MICRO)
    digits = f"{whole}.{part:06d}".rstrip("0").rstrip(".")
    return f"-{digits}" if micro < 0 else digits


def load_plans(path: str) -> Plans:
    """The plan file at ``path`` (``PARLEY_PLANS_FILE``), or the shipped one where it is empty.

    Raises SettingsError, saying what is wrong with the file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8") if path else _shipped()
        plans = msgspec.convert(tomllib.loads(text, parse_float=Decimal), Plans)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SettingsError(f"PARLEY_PLANS_FILE: {path or 'plans.toml'} cannot be used: {error}") from error
    fault = _fault(plans)
    if fault:
        raise SettingsError(f"PARLEY_PLANS_FILE: {path or 'plans.toml'} cannot be used: {fault}")
    return plans


def month_of(anchor: int, now: int) -> Month:
    """The credit month that ``now`` lies in, where months start at the anchor's day and time of day, UTC.

    A month without that day starts on its last one: 31 January, 28 February, 31 March.
    """
    begun, today = datetime.fromtimestamp(anchor // SECOND, UTC), datetime.fromtimestamp(now // SECOND, UTC)
    months = (today.year - begun.year) * 12 + today.month - begun.month
    if _months_on(begun, months, anchor) > now:
        months -= 1
    return Month(_months_on(begun, months, anchor), _months_on(begun, months + 1, anchor))


def _months_on(begun: datetime, months: int, anchor: int) -> int:
    year, month = divmod(begun.year * 12 + begun.month - 1 + months, 12)
    day = min(begun.day, calendar.monthrange(year, month + 1)[1])
    return int(begun.replace(year=year, month=month + 1, day=day).timestamp()) * SECOND + anchor % SECOND


def _shipped() -> str:
    return (importlib.resources.files("parley.billing") / "plans.toml").read_text(encoding="utf-8")


def _fault(plans: Plans) -> str | None:
    slugs = [plan.slug for plan in plans.plans]
    if len(set(slugs)) != len(slugs):
        return "two plans have the same slug"
    if plans.find(None) is None:
        return f"default_plan is {plans.default_plan!r}, but no plan has that slug"
    if not any(price.match == "" for price in plans.models):
        return 'one of [[models]] must have match = "" to price the models no other one matches'
    if _least_figure(plans) < 0 or not plans.credits_per_usd:
        return "no figure may be negative, and credits_per_usd must be more than 0"
    return None


def _least_figure(plans: Plans) -> Decimal:
    figures = [plans.credits_per_usd, plans.turn_credits, plans.tools.call, plans.knowledge.retrieval]
    figures += [plans.knowledge.ingest_per_1000_tokens, *plans.tools.multipliers.values()]
    for price in plans.models:
        figures += [price.input, price.cached, price.output, price.multiplier]
    for plan in plans.plans:
        limits = (*msgspec.structs.astuple(plan.quotas), *msgspec.structs.astuple(plan.rates), plan.monthly_credits)
        figures += [*plan.prices.values(), *(Decimal(limit) for limit in limits if limit is not None)]
    return min(figures)
