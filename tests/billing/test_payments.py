"""Buying through Stripe's own library, against a stand-in for Stripe in a process of its own."""

import asyncio
from uuid import uuid4

import pytest
from sqlalchemy import select

from parley.accounts import Caller
from parley.base.clock import DAY, SECOND, Clock
from parley.base.settings import SettingsError
from parley.billing import Plans
from parley.billing.checkouts import PaymentsDown
from parley.billing.ledger import MOST_IN_WALLET, MOST_MICRO, Charge, WalletFull, charge, open_books
from parley.billing.payments import BadSignature, Payments, RefundTooEarly, StripeKeys
from parley.billing.plans import MICRO
from parley.billing.store import change_subscription, peek
from parley.billing.subscriptions import GrantDiffers, NotForSale, NothingBought, Subscriptions, open_payments
from parley.billing.verify import billing_faults
from parley.egress import Egress
from parley.storage import ReadTx, Store, WriteTx
from parley.storage.tables.billing import ledger
from tests.billing.office import put_on
from tests.billing.stripe_world import (
    SECRET_KEY,
    WEBHOOK_SECRET,
    StripeWorld,
    event,
    paid,
    refunded,
    signature,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shop(store: Store, plans: Plans, clock: Clock, stripe: StripeWorld) -> Subscriptions:
    keys = StripeKeys(SECRET_KEY, WEBHOOK_SECRET, stripe.base_url)
    payments = Payments(store, plans, clock, stripe.session, keys, "https://parley.test/app/usage")
    return Subscriptions(store, plans, clock, payments)


@pytest.fixture
def owner(organization: str) -> Caller:
    return Caller("user", "owner@acme.test", "owner", organization, "owner", None)


async def deliver(shop: Subscriptions, payload: bytes) -> None:
    await shop.deliver(payload, signature(payload))


async def customer_of(store: Store, organization: str) -> str:
    def read(tx: ReadTx) -> str:
        found = peek(tx, organization)
        assert found is not None and found.stripe_customer is not None
        return found.stripe_customer

    return await store.read(read)


async def balance_of(shop: Subscriptions, organization: str) -> float:
    return (await shop.wallet(organization)).balance_micro / MICRO


async def test_an_organization_is_one_customer_however_often_it_goes_shopping(
    shop: Subscriptions, store: Store, stripe: StripeWorld, owner: Caller
) -> None:
    first = await shop.checkout_link(owner, "paid", "month")
    second = await shop.top_up_link(owner, 500)
    assert first.startswith("https://checkout.test/") and second.startswith("https://checkout.test/")
    assert first != second
    made = await stripe.requests("/v1/customers", **{"metadata[organization_id]": owner.organization_id})
    assert len(made) == 1
    customer = await customer_of(store, owner.organization_id)
    for_plan, for_credits = await stripe.requests("/v1/checkout/sessions", customer=customer)
    assert for_plan["body"]["line_items[0][price_data][unit_amount]"] == "2000"
    assert for_plan["body"]["line_items[0][price_data][recurring][interval]"] == "month"
    assert for_plan["body"]["subscription_data[metadata][organization_id]"] == owner.organization_id
    assert for_credits["body"]["line_items[0][price_data][unit_amount]"] == "500"
    assert for_credits["body"]["payment_intent_data[metadata][purpose]"] == "top_up"


async def test_a_plan_that_is_not_for_sale_is_refused_before_stripe_is_asked(
    shop: Subscriptions, owner: Caller
) -> None:
    with pytest.raises(NotForSale):
        await shop.checkout_link(owner, "tiny", "month")
    with pytest.raises(NothingBought):
        await shop.portal(owner.organization_id)


async def test_a_paid_subscription_puts_the_organization_on_its_plan_and_its_day(
    shop: Subscriptions, store: Store, plans: Plans, clock: Clock, stripe: StripeWorld, owner: Caller
) -> None:
    subscription_id, bought_at = f"sub_{uuid4().hex}", clock.now()
    await stripe.subscribe(subscription_id, owner.organization_id, bought_at)
    await deliver(shop, event("customer.subscription.created", {"id": subscription_id}))
    subscription, plan = await shop.current(owner.organization_id)
    assert subscription is not None
    assert (plan.slug, subscription.billing_interval, subscription.status) == ("paid", "month", "active")
    assert subscription.anchor_at == subscription.paid_from_at == bought_at // SECOND * SECOND
    await store.write(lambda tx: change_subscription(tx, owner.organization_id, {"stripe_customer": "cus_known"}))
    assert (await shop.checkout_link(owner, "paid", "year")).startswith("https://portal.test/")
    assert (await shop.portal(owner.organization_id)).startswith("https://portal.test/")


async def test_events_out_of_order_end_in_what_stripe_says_now(
    shop: Subscriptions, clock: Clock, stripe: StripeWorld, owner: Caller
) -> None:
    subscription_id = f"sub_{uuid4().hex}"
    await stripe.subscribe(subscription_id, owner.organization_id, clock.now(), cancel_at_period_end=True)
    late = event("customer.subscription.created", {"id": subscription_id, "cancel_at_period_end": False})
    await deliver(shop, event("customer.subscription.updated", {"id": subscription_id}))
    await deliver(shop, late)
    subscription, _ = await shop.current(owner.organization_id)
    assert subscription is not None and subscription.cancel_at_period_end


async def test_a_plan_changed_in_the_portal_is_told_by_its_product(
    shop: Subscriptions, clock: Clock, stripe: StripeWorld, owner: Caller
) -> None:
    subscription_id = f"sub_{uuid4().hex}"
    await stripe.subscribe(subscription_id, owner.organization_id, clock.now(), plan_slug="tiny")
    await deliver(shop, event("customer.subscription.updated", {"id": subscription_id}))
    _, plan = await shop.current(owner.organization_id)
    assert plan.slug == "tiny"


async def test_the_end_of_a_subscription_is_the_default_plan_and_an_older_ones_end_changes_nothing(
    shop: Subscriptions, clock: Clock, stripe: StripeWorld, owner: Caller
) -> None:
    old, new = f"sub_{uuid4().hex}", f"sub_{uuid4().hex}"
    await stripe.subscribe(new, owner.organization_id, clock.now())
    await deliver(shop, event("customer.subscription.created", {"id": new}))
    await stripe.subscribe(old, owner.organization_id, clock.now(), status="canceled")
    await deliver(shop, event("customer.subscription.deleted", {"id": old}))
    assert (await shop.current(owner.organization_id))[1].slug == "paid"
    await stripe.subscribe(new, owner.organization_id, clock.now(), status="canceled")
    await deliver(shop, event("customer.subscription.deleted", {"id": new}))
    subscription, plan = await shop.current(owner.organization_id)
    assert subscription is not None
    assert (plan.slug, subscription.stripe_subscription, subscription.paid_until_at) == ("open", None, None)


async def test_an_unpaid_subscription_gives_the_default_plan_until_it_is_paid(
    shop: Subscriptions, clock: Clock, stripe: StripeWorld, owner: Caller
) -> None:
    subscription_id = f"sub_{uuid4().hex}"
    for status, slug in (("past_due", "paid"), ("unpaid", "open"), ("active", "paid")):
        await stripe.subscribe(subscription_id, owner.organization_id, clock.now(), status=status)
        await deliver(shop, event("customer.subscription.updated", {"id": subscription_id}))
        assert (await shop.current(owner.organization_id))[1].slug == slug


async def test_money_that_arrived_counts_once_however_often_it_is_told(
    shop: Subscriptions, store: Store, plans: Plans, organization: str
) -> None:
    payment_id = f"pi_{uuid4().hex}"
    for _ in range(3):
        await deliver(shop, paid(organization, 500, payment_id))
    assert await balance_of(shop, organization) == 500
    entries = await store.read(lambda tx: tx.execute(select(ledger.c.kind, ledger.c.charge_key)).all())
    assert [tuple(entry) for entry in entries] == [("top_up", f"stripe:{payment_id}")]
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_money_for_something_else_or_for_nobody_moves_nothing(shop: Subscriptions, organization: str) -> None:
    await deliver(shop, event("payment_intent.succeeded", {"id": "pi_other", "amount_received": 900}))
    await deliver(shop, event("invoice.paid", {"id": "in_1"}))
    await deliver(shop, paid(str(uuid4()), 500, f"pi_{uuid4().hex}"))
    await deliver(shop, refunded(str(uuid4()), 500, 0, f"pi_{uuid4().hex}"))
    assert await balance_of(shop, organization) == 0


async def test_the_same_payment_told_by_many_at_once_counts_once(
    shop: Subscriptions, store: Store, plans: Plans, organization: str
) -> None:
    payload = paid(organization, 500, f"pi_{uuid4().hex}")
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(deliver(shop, payload))
    assert await balance_of(shop, organization) == 500
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_a_refund_told_before_its_payment_waits_for_it_and_gives_nothing_away(
    shop: Subscriptions, store: Store, plans: Plans, organization: str
) -> None:
    payment_id = f"pi_{uuid4().hex}"
    back = refunded(organization, 500, 0, payment_id)
    with pytest.raises(RefundTooEarly):
        await deliver(shop, back)
    await deliver(shop, paid(organization, 500, payment_id))
    await deliver(shop, back)
    assert await balance_of(shop, organization) == 0
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_a_grant_that_is_repeated_counts_once_and_another_amount_under_its_id_is_refused(
    shop: Subscriptions, organization: str
) -> None:
    for _ in range(2):
        assert (await shop.grant_credits(organization, 500, grant_id="welcome")).balance_micro == 500 * MICRO
    with pytest.raises(GrantDiffers):
        await shop.grant_credits(organization, 600, grant_id="welcome")
    with pytest.raises(GrantDiffers):
        await shop.grant_credits(organization, 500, grant_id="x" * 200)
    assert await balance_of(shop, organization) == 500


async def test_a_wallet_takes_no_more_than_can_be_added_up(
    shop: Subscriptions, store: Store, plans: Plans, organization: str
) -> None:
    most = MOST_MICRO // MICRO
    for number in range(MOST_IN_WALLET // MOST_MICRO):
        await shop.grant_credits(organization, most, grant_id=str(number))
    with pytest.raises(WalletFull):
        await shop.grant_credits(organization, 1, grant_id="one more")
    with pytest.raises(ValueError, match="cannot be moved"):
        await shop.grant_credits(organization, most + 1, grant_id="too much")
    assert await balance_of(shop, organization) == MOST_IN_WALLET // MICRO
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_a_refund_takes_back_what_is_left_and_never_more(
    shop: Subscriptions, store: Store, plans: Plans, clock: Clock, organization: str
) -> None:
    payment_id = f"pi_{uuid4().hex}"
    await store.write(put_on(organization, "paid", overage=True))
    await deliver(shop, paid(organization, 100, payment_id))
    part = refunded(organization, 30, 0, payment_id)
    for _ in range(2):
        await deliver(shop, part)
    assert await balance_of(shop, organization) == 70
    spent = Charge("spent", "tool", 50 * MICRO)
    assert await store.write(lambda tx: charge(tx, plans, organization, spent, clock.now())) is None
    await deliver(shop, refunded(organization, 100, 30, payment_id))
    assert await balance_of(shop, organization) == 0
    assert await store.read(lambda tx: billing_faults(tx, plans)) == []


@pytest.mark.parametrize("tamper", ["other secret", "other body", "no signature", "no json"])
async def test_an_event_nobody_signed_is_refused_and_moves_nothing(
    shop: Subscriptions, organization: str, tamper: str
) -> None:
    payload = paid(organization, 500, f"pi_{uuid4().hex}")
    signed = signature(payload)
    match tamper:
        case "other secret":
            signed = signature(payload, "whsec_other")
        case "other body":
            payload = payload.replace(b"500", b"900")
        case "no signature":
            signed = ""
        case _:
            payload = b"{"
            signed = signature(payload)
    with pytest.raises(BadSignature):
        await shop.deliver(payload, signed)
    assert await balance_of(shop, organization) == 0


async def top_up_itself(store: Store, plans: Plans, clock: Clock, organization: str, customer: str) -> None:
    """An organization that wants 200 credits more whenever fewer than 50 are left."""
    await store.write(put_on(organization, "paid"))
    switches = {"overage": True, "top_up_below_micro": 50 * MICRO, "top_up_amount_micro": 200 * MICRO}

    def work(tx: WriteTx) -> None:
        open_books(tx, plans, organization, clock.now())
        change_subscription(tx, organization, {**switches, "stripe_customer": customer})

    await store.write(work)


async def test_a_wallet_that_runs_low_is_topped_up_by_itself_once(
    shop: Subscriptions, store: Store, plans: Plans, clock: Clock, stripe: StripeWorld, organization: str
) -> None:
    customer = f"cus_{uuid4().hex}"
    await top_up_itself(store, plans, clock, organization, customer)
    await stripe.keep_card(customer)
    for _ in range(2):
        await shop.sweep()
    assert await balance_of(shop, organization) == 200
    intents = await stripe.requests("/v1/payment_intents", customer=customer)
    assert [(each["body"]["amount"], each["body"]["off_session"]) for each in intents] == [("200", "true")]
    entry = await store.read(lambda tx: tx.execute(select(ledger.c.charge_key)).scalar_one())
    await deliver(shop, paid(organization, 200, entry.removeprefix("stripe:")))
    assert await balance_of(shop, organization) == 200


async def test_a_refused_card_is_tried_again_an_hour_later(
    shop: Subscriptions, store: Store, plans: Plans, clock: Clock, stripe: StripeWorld, organization: str
) -> None:
    customer = f"cus_{uuid4().hex}"
    await top_up_itself(store, plans, clock, organization, customer)
    await stripe.keep_card(customer, declines=True)
    for _ in range(3):
        await shop.sweep()
    assert len(await stripe.requests("/v1/payment_intents", customer=customer)) == 1
    assert await balance_of(shop, organization) == 0
    await stripe.keep_card(customer)
    clock.advance(seconds=3_601)
    await shop.sweep()
    assert await balance_of(shop, organization) == 200


async def test_a_stripe_that_does_not_answer_is_a_503_and_changes_nothing(
    store: Store, plans: Plans, clock: Clock, stripe: StripeWorld, owner: Caller
) -> None:
    keys = StripeKeys("a key that Stripe does not know", WEBHOOK_SECRET, stripe.base_url)
    payments = Payments(store, plans, clock, stripe.session, keys, "https://parley.test/app/usage")
    shop = Subscriptions(store, plans, clock, payments)
    with pytest.raises(PaymentsDown) as caught:
        await shop.checkout_link(owner, "paid", "month")
    assert caught.value.status == 503
    payload = event("customer.subscription.updated", {"id": "sub_nobody_knows"})
    with pytest.raises(PaymentsDown):
        await deliver(shop, payload)
    assert (await shop.current(owner.organization_id))[0] is None


async def test_payments_are_on_with_both_keys_and_refuse_to_start_with_one(
    store: Store, plans: Plans, clock: Clock
) -> None:
    egress = Egress((), {})
    both = {"STRIPE_SECRET_KEY": SECRET_KEY, "STRIPE_WEBHOOK_SECRET": WEBHOOK_SECRET}
    assert open_payments({}, store, plans, clock, egress, "http://here") is None
    assert open_payments(both, store, plans, clock, egress, "http://here") is not None
    for name, value in both.items():
        with pytest.raises(SettingsError, match="STRIPE_SECRET_KEY and STRIPE_WEBHOOK_SECRET"):
            open_payments({name: value}, store, plans, clock, egress, "http://here")
    await egress.close()


async def test_an_annual_subscription_still_has_monthly_credits(
    shop: Subscriptions, store: Store, plans: Plans, clock: Clock, stripe: StripeWorld, owner: Caller
) -> None:
    subscription_id = f"sub_{uuid4().hex}"
    await stripe.subscribe(subscription_id, owner.organization_id, clock.now())
    await deliver(shop, event("customer.subscription.created", {"id": subscription_id}))
    everything = Charge("all", "tool", 10 * MICRO)
    assert await store.write(lambda tx: charge(tx, plans, owner.organization_id, everything, clock.now())) is None
    next_month = Charge("next", "tool", 10 * MICRO)
    later = clock.now() + 32 * DAY
    assert await store.write(lambda tx: charge(tx, plans, owner.organization_id, next_month, later)) is None
