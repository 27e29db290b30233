"""``parley billing``: plans and prepaid credits by the operator's hand."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from parley.accounts import Organization, all_organizations
from parley.base.clock import Clock, iso
from parley.base.errors import NotFound
from parley.base.ids import new_id
from parley.base.settings import Settings
from parley.billing import Plans, load_plans
from parley.billing.plans import MICRO
from parley.billing.subscriptions import NoSuchPlan, Subscriptions, Wallet
from parley.billing.usage import MonthUsage, Usage
from parley.cli.opening import open_rows
from parley.storage import Store


@dataclass(frozen=True, slots=True)
class Office:
    """What the commands work with."""

    store: Store
    plans: Plans
    subscriptions: Subscriptions
    usage: Usage

    async def find(self, which: str) -> Organization:
        """An organization by its id or its slug. Raises NotFound, listing them."""
        known = await self.store.read(all_organizations)
        for each in known:
            if which.lower() in {each.id, each.slug}:
                return each
        listed = "\n".join(f"  {each.id}  {each.slug}" for each in known) or "  none"
        raise NotFound(f"There is no organization {which!r}. There are:\n{listed}")


def grant(settings: Settings, which: str, credit: int, grant_id: str | None) -> None:
    """Put prepaid credits into an organization's wallet; the same ``grant_id`` counts once."""

    async def work() -> None:
        async with _office(settings) as office:
            organization = await office.find(which)
            wallet = await office.subscriptions.grant_credits(organization.id, credit, grant_id=grant_id or new_id())
            print(f"{organization.name} has {_credits(wallet.balance_micro)} in its wallet.")
            print(_overage(wallet))

    asyncio.run(work())


def put_on_plan(settings: Settings, which: str, plan_slug: str, instead_of: str | None) -> None:
    """Put an organization on a plan from now on, without payment, in place of a subscription that is over."""

    async def work() -> None:
        async with _office(settings) as office:
            organization = await office.find(which)
            try:
                plan = await office.subscriptions.grant_plan(organization.id, plan_slug, instead_of=instead_of)
            except NoSuchPlan:
                slugs = ", ".join(plan.slug for plan in office.subscriptions.plans)
                raise NoSuchPlan(f"There is no plan {plan_slug!r}. There are: {slugs}") from None
            print(f"{organization.name} is on the plan {plan.name} from now on.")

    asyncio.run(work())


def show(settings: Settings, which: str | None) -> None:
    """Print the plan, the month and the wallet of an organization, or of all of them."""

    async def work() -> None:
        async with _office(settings) as office:
            chosen: Sequence[Organization] = (
                await office.store.read(all_organizations) if which is None else [await office.find(which)]
            )
            for organization in chosen:
                month = await office.usage.month(organization.id)
                _print(organization, month, await office.subscriptions.wallet(organization.id))

    asyncio.run(work())


@asynccontextmanager
async def _office(settings: Settings) -> AsyncGenerator[Office]:
    plans, clock = load_plans(settings.plans_file), Clock()
    async with open_rows(settings) as store:
        yield Office(store, plans, Subscriptions(store, plans, clock, None), Usage(store, plans, clock))


def _print(organization: Organization, month: MonthUsage, wallet: Wallet) -> None:
    limit = "no ceiling" if month.allowance_micro is None else f"of {_credits(month.allowance_micro)}"
    print(f"{organization.name}  {organization.slug}  {organization.id}")
    print(f"  Plan    {month.plan.name} ({month.plan.slug})")
    print(f"  Month   {_credits(month.used_micro)} used, {limit}; until {iso(month.month.end)[:10]}")
    print(f"  Wallet  {_credits(wallet.balance_micro)}, {_credits(wallet.held_micro)} held. {_overage(wallet)}")


def _overage(wallet: Wallet) -> str:
    if not wallet.overage_allowed:
        return "Its plan does not let the wallet pay beyond the month."
    if not wallet.overage:
        return "The wallet pays nothing until the organization switches overage on under Usage."
    return "The wallet pays for what goes beyond the month."


def _credits(micro: int) -> str:
    return f"{micro / MICRO:,.2f} credits"
