"""``/subscriptions``: what an organization can buy and what it has (contract §9.4)."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, status
from pydantic import BaseModel

from parley.accounts import Caller
from parley.base.clock import Clock, iso
from parley.base.errors import BadRequest
from parley.billing.plans import Interval, Plan, month_of
from parley.billing.store import Subscription
from parley.billing.subscriptions import Subscriptions
from parley.http.identity import Identity
from parley.http.schemas import described

CURRENCY = "usd"


class PlanMissing(BadRequest):
    """Say which plan: plan_slug, such as pro."""


class PlanPrice(BaseModel):
    """What a plan costs for an interval, in whole units of the currency."""

    interval: str
    amount: float
    currency: str = CURRENCY


class DiscountedAmount(BaseModel):
    month: float | None = None
    year: float | None = None


class PlanOut(BaseModel):
    """A plan on offer. ``relation`` is how it stands to the organization's own: current, upgrade or downgrade."""

    plan_slug: str
    name: str
    sort_order: int
    is_enterprise: bool
    selectable: bool
    prices: list[PlanPrice]
    discounted_amount: DiscountedAmount | None = None
    badge: str | None
    features: list[str]
    relation: Literal["current", "upgrade", "downgrade"]


class PlansOut(BaseModel):
    plans: list[PlanOut]
    total: int


class OwnPlanPrice(BaseModel):
    interval: str
    price: float
    currency: str = CURRENCY


class OwnPlanOut(BaseModel):
    """The plan that counts for the organization now."""

    id: str
    name: str
    plan_slug: str
    sort_order: int
    is_enterprise: bool
    prices: list[OwnPlanPrice]
    features: list[str]


class ScheduledCancel(BaseModel):
    cancel_at_period_end: bool
    effective_at: str


class SubscriptionOut(BaseModel):
    """A bought or granted plan. ``billing_interval`` and ``current_price`` are null where nobody pays."""

    id: str
    status: str
    current_period_start: str
    current_period_end: str
    billing_interval: str | None
    current_price: float | None
    quantity: int
    scheduled_change: None = None
    cancel_at_period_end: bool
    scheduled_cancel: ScheduledCancel | None
    created_at: str


class BillingOut(BaseModel):
    has_subscription: bool
    subscription: SubscriptionOut | None
    plan: OwnPlanOut


class LinkOut(BaseModel):
    """An address to open in the browser."""

    url: str


def routes(identity: Identity, subscriptions: Subscriptions, clock: Clock) -> APIRouter:
    """The routes under ``/subscriptions``."""
    router = APIRouter(prefix="/subscriptions", tags=["billing"], responses=described())
    owner, admin = Depends(identity.owner), Depends(identity.admin)

    @router.get("/organization-plans")
    async def organization_plans(caller: Annotated[Caller, admin]) -> PlansOut:
        """Every plan, and how it stands to the organization's own."""
        _, own = await subscriptions.current(caller.organization_id)
        plans = [_plan_out(plan, own, selectable=subscriptions.for_sale(plan)) for plan in subscriptions.plans]
        return PlansOut(plans=plans, total=len(plans))

    @router.get("/organization-billing")
    async def organization_billing(caller: Annotated[Caller, admin]) -> BillingOut:
        """The organization's plan, and its subscription where it bought or was granted one."""
        subscription, plan = await subscriptions.current(caller.organization_id)
        has = subscription is not None and subscription.plan_slug is not None
        return BillingOut(
            has_subscription=has,
            subscription=_subscription_out(subscription, plan, clock.now()) if subscription and has else None,
            plan=_own_plan_out(plan),
        )

    @router.post("/checkout-link", responses=described(409))
    async def checkout_link(
        caller: Annotated[Caller, owner],
        plan_slug: Annotated[str, Query(max_length=40)] = "",
        plan_id: Annotated[str, Query(max_length=40)] = "",
        interval: Interval = "month",
    ) -> LinkOut:
        """Where the owner buys a plan. ``plan_id`` is the older name of ``plan_slug``."""
        slug = plan_slug or plan_id
        if not slug:
            raise PlanMissing
        return LinkOut(url=await subscriptions.checkout_link(caller, slug, interval))

    @router.post("/customer-portal", responses=described(409))
    async def customer_portal(caller: Annotated[Caller, owner]) -> LinkOut:
        """Where the owner manages what was bought: cards, invoices, cancellation."""
        return LinkOut(url=await subscriptions.portal(caller.organization_id))

    @router.post("/webhook", status_code=status.HTTP_204_NO_CONTENT, responses=described(409))
    async def webhook(request: Request, stripe_signature: Annotated[str, Header(max_length=2000)] = "") -> None:
        """Payment events, signed by Stripe."""
        await subscriptions.deliver(await request.body(), stripe_signature)

    return router


def _plan_out(plan: Plan, own: Plan, *, selectable: bool) -> PlanOut:
    return PlanOut(
        plan_slug=plan.slug,
        name=plan.name,
        sort_order=plan.sort_order,
        is_enterprise=plan.is_enterprise,
        selectable=selectable,
        prices=[PlanPrice(interval=interval, amount=float(amount)) for interval, amount in plan.prices.items()],
        badge=plan.badge,
        features=list(plan.features),
        relation=_relation(plan, own),
    )


def _relation(plan: Plan, own: Plan) -> Literal["current", "upgrade", "downgrade"]:
    if plan.slug == own.slug:
        return "current"
    return "upgrade" if plan.sort_order > own.sort_order else "downgrade"


def _own_plan_out(plan: Plan) -> OwnPlanOut:
    return OwnPlanOut(
        id=plan.slug,
        name=plan.name,
        plan_slug=plan.slug,
        sort_order=plan.sort_order,
        is_enterprise=plan.is_enterprise,
        prices=[OwnPlanPrice(interval=interval, price=float(amount)) for interval, amount in plan.prices.items()],
        features=list(plan.features),
    )


def _subscription_out(subscription: Subscription, plan: Plan, now: int) -> SubscriptionOut:
    month = month_of(subscription.anchor_at, now)
    start = subscription.paid_from_at if subscription.paid_from_at is not None else month.start
    end = subscription.paid_until_at if subscription.paid_until_at is not None else month.end
    price = {str(interval): amount for interval, amount in plan.prices.items()}.get(subscription.billing_interval or "")
    ends = ScheduledCancel(cancel_at_period_end=True, effective_at=iso(end))
    return SubscriptionOut(
        id=subscription.stripe_subscription or subscription.organization_id,
        status=subscription.status,
        current_period_start=iso(start),
        current_period_end=iso(end),
        billing_interval=subscription.billing_interval,
        current_price=None if price is None else float(price),
        quantity=subscription.quantity,
        cancel_at_period_end=subscription.cancel_at_period_end,
        scheduled_cancel=ends if subscription.cancel_at_period_end else None,
        created_at=iso(subscription.created_at),
    )
