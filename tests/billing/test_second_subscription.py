"""An organization never pays for two plans: one page is open at a time, and a second payment is given back."""

import asyncio
from uuid import uuid4

import pytest
from sqlalchemy import select

from parley.accounts import Caller
from parley.base.clock import Clock
from parley.billing import Plans
from parley.billing.checkouts import AnotherCheckout, PaymentsDown
from parley.billing.payments import Payments, StripeKeys
from parley.billing.subscriptions import StillPaid, Subscriptions
from parley.storage import Store
from parley.storage.tables.accounts import audit_log
from tests.billing.stripe_world import SECRET_KEY, WEBHOOK_SECRET, StripeWorld, event, signature


@pytest.fixture
def shop(store: Store, plans: Plans, stripe: StripeWorld) -> Subscriptions:
    keys = StripeKeys(SECRET_KEY, WEBHOOK_SECRET, stripe.base_url)
    payments = Payments(store, plans, Clock(), stripe.session, keys, "https://parley.test/app/usage")
    return Subscriptions(store, plans, Clock(), payments)


@pytest.fixture
def owner(organization: str) -> Caller:
    return Caller("user", "owner@acme.test", "owner", organization, "owner", None)


async def tell(shop: Subscriptions, subscription_id: str, kind: str = "created") -> None:
    payload = event(f"customer.subscription.{kind}", {"id": subscription_id})
    await shop.deliver(payload, signature(payload))


async def paid_twice(stripe: StripeWorld, owner: Caller) -> tuple[str, str]:
    """Two subscriptions that were paid, as from two pages of an older version of Parley."""
    bought = (f"sub_{uuid4().hex}", f"sub_{uuid4().hex}")
    for each in bought:
        await stripe.subscribe(each, owner.organization_id, Clock().now(), latest_invoice=f"in_{each}")
    return bought


async def kept(shop: Subscriptions, owner: Caller) -> str | None:
    subscription, _ = await shop.current(owner.organization_id)
    return subscription.stripe_subscription if subscription else None


async def test_the_operator_does_not_put_a_plan_over_one_that_is_paid(
    shop: Subscriptions, stripe: StripeWorld, owner: Caller
) -> None:
    paid = f"sub_{uuid4().hex}"
    await stripe.subscribe(paid, owner.organization_id, Clock().now(), latest_invoice=f"in_{paid}")
    await tell(shop, paid)
    before = await shop.current(owner.organization_id)
    with pytest.raises(StillPaid):
        await shop.grant_plan(owner.organization_id, "paid")
    assert await shop.current(owner.organization_id) == before
    with pytest.raises(StillPaid, match=f"--instead-of {paid}"):
        await shop.grant_plan(owner.organization_id, "paid", instead_of="sub_another")
    assert await shop.current(owner.organization_id) == before
    assert await kept(shop, owner) == paid
    # Its end was never heard of; the operator has looked.
    await shop.grant_plan(owner.organization_id, "paid", instead_of=paid)
    assert await kept(shop, owner) is None


# ── pages ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_page_for_the_same_plan_is_the_same_page_as_long_as_it_is_open(
    shop: Subscriptions, stripe: StripeWorld, owner: Caller
) -> None:
    first = await shop.checkout_link(owner, "paid", "month")
    assert await shop.checkout_link(owner, "paid", "month") == first
    bought = await stripe.pay(first, Clock().now())
    assert bought is not None
    assert await stripe.pay(first, Clock().now()) is None


async def test_a_page_for_something_else_closes_the_one_before(
    shop: Subscriptions, stripe: StripeWorld, owner: Caller
) -> None:
    monthly = await shop.checkout_link(owner, "paid", "month")
    yearly = await shop.checkout_link(owner, "paid", "year")
    assert await stripe.pay(monthly, Clock().now()) is None
    bought = await stripe.pay(yearly, Clock().now())
    assert bought is not None
    await tell(shop, bought)
    assert await kept(shop, owner) == bought
    assert (await shop.checkout_link(owner, "paid", "month")).startswith("https://portal.test/")


async def test_a_page_for_credits_closes_none_and_is_closed_by_none(
    shop: Subscriptions, stripe: StripeWorld, owner: Caller
) -> None:
    credits_page = await shop.top_up_link(owner, 500)
    plan_page = await shop.checkout_link(owner, "paid", "month")
    assert await shop.top_up_link(owner, 500) not in (credits_page, plan_page)
    assert await shop.checkout_link(owner, "paid", "month") == plan_page


async def test_many_who_ask_at_once_leave_one_page_that_can_be_paid(
    shop: Subscriptions, stripe: StripeWorld, owner: Caller
) -> None:
    await shop.checkout_link(owner, "paid", "month")
    links: list[str] = []

    async def ask(number: int) -> None:
        try:
            links.append(await shop.checkout_link(owner, "paid", "year" if number % 2 else "month"))
        except AnotherCheckout:
            links.append("")

    async with asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(ask(number))
    bought = [each for link in set(links) - {""} if (each := await stripe.pay(link, Clock().now())) is not None]
    assert len(bought) <= 1
    assert len(links) == 12


async def test_a_page_that_was_just_paid_leads_to_the_portal_and_not_to_a_second_page(
    shop: Subscriptions, stripe: StripeWorld, owner: Caller
) -> None:
    """The event of the payment has not arrived yet."""
    monthly = await shop.checkout_link(owner, "paid", "month")
    bought = await stripe.pay(monthly, Clock().now())
    assert bought is not None
    for interval in ("month", "year"):
        assert (await shop.checkout_link(owner, "paid", interval)).startswith("https://portal.test/")
    assert await kept(shop, owner) is None
    await tell(shop, bought)
    assert await kept(shop, owner) == bought


# ── two that were paid all the same ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0, 1), (1, 1, 0, 0, 1)])
async def test_of_two_paid_subscriptions_the_one_told_later_is_ended_and_refunded_once(
    shop: Subscriptions, stripe: StripeWorld, store: Store, owner: Caller, order: tuple[int, ...]
) -> None:
    bought = await paid_twice(stripe, owner)
    for which in order:
        await tell(shop, bought[which], "updated" if which else "created")
    stays, goes = bought[order[0]], bought[1 - order[0]]
    assert await kept(shop, owner) == stays
    assert (await stripe.status_of(stays), await stripe.status_of(goes)) == ("active", "canceled")
    await tell(shop, goes, "deleted")
    assert await kept(shop, owner) == stays
    refunds = await stripe.requests("/v1/refunds", payment_intent=f"pi_of_in_{goes}")
    assert [each["body"]["reason"] for each in refunds] == ["duplicate"]
    assert await stripe.requests("/v1/refunds", payment_intent=f"pi_of_in_{stays}") == []
    query = select(audit_log.c.operation).where(audit_log.c.organization_id == owner.organization_id)
    assert await store.read(lambda tx: tx.execute(query).scalars().all()) == ["second_subscription_refunded"]


async def test_two_paid_subscriptions_told_at_once_leave_exactly_one(
    shop: Subscriptions, stripe: StripeWorld, owner: Caller
) -> None:
    bought = await paid_twice(stripe, owner)
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(tell(shop, bought[number % 2]))
    statuses = {each: await stripe.status_of(each) for each in bought}
    assert sorted(statuses.values()) == ["active", "canceled"]
    assert statuses[await kept(shop, owner) or ""] == "active"
    for each in bought:
        refunds = {one["key"] for one in await stripe.requests("/v1/refunds", payment_intent=f"pi_of_in_{each}")}
        assert len(refunds) == (statuses[each] == "canceled")


@pytest.mark.parametrize("what", ["refund", "cancel"])
async def test_a_stripe_that_fails_in_between_is_a_503_and_the_repeat_does_the_rest_once(
    shop: Subscriptions, stripe: StripeWorld, owner: Caller, what: str
) -> None:
    first, second = await paid_twice(stripe, owner)
    await tell(shop, first)
    await stripe.fail(what)
    with pytest.raises(PaymentsDown):
        await tell(shop, second)
    assert (await kept(shop, owner), await stripe.status_of(second)) == (first, "active")
    await tell(shop, second)
    assert await stripe.status_of(second) == "canceled"
    refunds = {one["key"] for one in await stripe.requests("/v1/refunds", payment_intent=f"pi_of_in_{second}")}
    assert len(refunds) == 1


async def test_a_subscription_that_ends_while_its_event_is_acted_upon_has_ended(
    shop: Subscriptions, stripe: StripeWorld, owner: Caller
) -> None:
    ending = f"sub_{uuid4().hex}"
    await stripe.subscribe(ending, owner.organization_id, Clock().now(), _then={"status": "canceled"})
    await tell(shop, ending)
    subscription, plan = await shop.current(owner.organization_id)
    assert subscription is not None
    assert (subscription.stripe_subscription, plan.slug) == (None, "open")


async def test_a_subscription_whose_end_was_not_heard_of_makes_room_for_a_new_one(
    shop: Subscriptions, stripe: StripeWorld, owner: Caller
) -> None:
    first, second = await paid_twice(stripe, owner)
    await tell(shop, first)
    await stripe.subscribe(first, owner.organization_id, Clock().now(), status="canceled")
    await tell(shop, second)
    assert (await kept(shop, owner), await stripe.status_of(second)) == (second, "active")
