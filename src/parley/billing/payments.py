"""Buying plans and credits through Stripe, by its own library. Loaded only where its keys are set.

Money is believed only when a signed event, or the answer to our own call, says that it arrived. Events
come twice and out of order: each counts once, and the state of a subscription is asked for afresh.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp
import msgspec
import stripe

from parley.accounts import AuditEntry, Caller, record
from parley.base.clock import SECOND, Clock
from parley.base.errors import BadRequest, Unavailable
from parley.billing import ledger, store
from parley.billing.checkouts import CURRENCY, ENDED, TOP_UP, Checkouts, PaymentsDown, give_back, stripe_answers
from parley.billing.ledger import Charge
from parley.billing.plans import Interval, Plan, Plans
from parley.billing.store import Subscription
from parley.billing.subscriptions import NOT_PAID, NothingBought
from parley.storage import Store, WriteTx

CALL_SECONDS = 30
RETRIES = 2
TOP_UP_RETRY = 3_600 * SECOND
MOST_LOOKS = 5

log = logging.getLogger(__name__)


class BadSignature(BadRequest):
    """The event was not signed with this server's webhook secret. Check STRIPE_WEBHOOK_SECRET."""


class RefundTooEarly(Unavailable):
    """The refund came before its payment. Send it again: nothing was moved."""


@dataclass(frozen=True, slots=True)
class StripeKeys:
    """How Stripe is reached. ``base_url`` empty: Stripe's own address."""

    secret: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    base_url: str = ""


class _Event(msgspec.Struct):
    id: str
    type: str
    data: "_EventData"


class _EventData(msgspec.Struct):
    object: msgspec.Raw
    previous_attributes: msgspec.Raw = msgspec.Raw(b"{}")


class _PaymentIntent(msgspec.Struct):
    id: str
    amount_received: int
    metadata: Mapping[str, str] = {}


class _Charge(msgspec.Struct):
    amount_refunded: int = 0
    payment_intent: str | None = None
    metadata: Mapping[str, str] = {}


class _Named(msgspec.Struct):
    id: str


class Payments:
    """Buys, and books what was bought."""

    def __init__(
        self,
        store_: Store,
        plans: Plans,
        clock: Clock,
        session: aiohttp.ClientSession,
        keys: StripeKeys,
        return_url: str,
    ) -> None:
        self._store = store_
        self._plans = plans
        self._clock = clock
        self._keys = keys
        self._return_url = return_url
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        self._stripe = stripe.StripeClient(
            keys.secret,
            base_addresses={"api": keys.base_url} if keys.base_url else {},
            http_client=stripe.AIOHTTPClient(timeout=timeout, session=session),
            max_network_retries=RETRIES,
        )
        self._checkouts = Checkouts(self._stripe, plans, return_url)

    async def checkout_plan(self, caller: Caller, plan: Plan, interval: Interval) -> str:
        """Where a browser buys a plan that has a price for the interval.

        An organization that already pays is sent to where it changes its plan, so that it never pays twice.
        Raises AnotherCheckout, PaymentsDown.
        """
        subscription = await self._store.read(lambda tx: store.peek(tx, caller.organization_id))
        if subscription is not None and subscription.stripe_subscription is not None:
            return await self.portal(caller.organization_id)
        customer = await self._customer(caller)
        page = await self._checkouts.for_plan(caller.organization_id, customer, plan, interval)
        return page or await self.portal(caller.organization_id)

    async def checkout_credits(self, caller: Caller, credit: int) -> str:
        """Where a browser buys credits for the wallet. Raises PaymentsDown."""
        return await self._checkouts.for_credits(caller.organization_id, await self._customer(caller), credit)

    async def portal(self, organization_id: str) -> str:
        """Where a browser manages what was bought. Raises NothingBought, PaymentsDown."""
        subscription = await self._store.read(lambda tx: store.peek(tx, organization_id))
        if subscription is None or subscription.stripe_customer is None:
            raise NothingBought
        with stripe_answers():
            session = await self._stripe.v1.billing_portal.sessions.create_async(
                {"customer": subscription.stripe_customer, "return_url": self._return_url}
            )
        return session.url

    async def deliver(self, payload: bytes, signature: str) -> None:
        """Act on a signed event, once however often it comes; events of other kinds are ignored.

        Raises BadSignature, and PaymentsDown and RefundTooEarly, upon which the event is sent again.
        """
        try:
            stripe.WebhookSignature.verify_header(payload.decode(), signature, self._keys.webhook_secret, 300)
            event = msgspec.json.decode(payload, type=_Event)
        except (stripe.SignatureVerificationError, UnicodeDecodeError, msgspec.DecodeError) as error:
            raise BadSignature from error
        if event.type == "payment_intent.succeeded":
            await self._paid(msgspec.json.decode(event.data.object, type=_PaymentIntent))
        elif event.type == "charge.refunded":
            await self._refunded(event)
        elif event.type.startswith("customer.subscription."):
            await self._subscription_moved(msgspec.json.decode(event.data.object, type=_Named).id)

    async def top_up_low_wallets(self) -> None:
        """Charge the kept card of every organization whose wallet fell below the mark it set.

        A card that is refused is tried again an hour later.
        """
        now = self._clock.now()
        for organization_id in await self._store.across.read(lambda tx: store.low_wallets(tx, now - TOP_UP_RETRY)):
            claimed = await self._store.across.write(
                lambda tx, organization_id=organization_id: store.claim_top_up(
                    tx, organization_id, now, before=now - TOP_UP_RETRY
                )
            )
            if claimed is not None:
                await self._top_up(claimed, now)

    async def _top_up(self, subscription: Subscription, now: int) -> None:
        organization_id, customer = subscription.organization_id, subscription.stripe_customer or ""
        cents = self._plans.cents(subscription.top_up_amount_micro or 0)
        try:
            cards = await self._stripe.v1.customers.payment_methods.list_async(customer, {"limit": 1})
            if not cards.data:
                log.warning("no card is kept for organization %s: its wallet was not topped up", organization_id)
                return
            intent = await self._stripe.v1.payment_intents.create_async(
                {
                    "amount": cents,
                    "currency": CURRENCY,
                    "customer": customer,
                    "payment_method": cards.data[0].id,
                    "off_session": True,
                    "confirm": True,
                    "metadata": {"organization_id": organization_id, "purpose": TOP_UP},
                },
                {"idempotency_key": f"top-up:{organization_id}:{now}"},
            )
        except stripe.StripeError as error:
            log.warning("the wallet of organization %s was not topped up: %s", organization_id, type(error).__name__)
            return
        if intent.status == "succeeded":
            await self._store.across.write(
                lambda tx: self._deposit(tx, organization_id, intent.id, intent.amount_received)
            )

    async def _paid(self, intent: _PaymentIntent) -> None:
        organization_id = intent.metadata.get("organization_id", "")
        if intent.metadata.get("purpose") == TOP_UP:
            await self._store.across.write(
                lambda tx: self._deposit(tx, organization_id, intent.id, intent.amount_received)
            )

    def _deposit(self, tx: WriteTx, organization_id: str, payment_id: str, cents: int) -> None:
        now = self._clock.now()
        if not self._exists(tx, organization_id, payment_id):
            return
        what = Charge(f"stripe:{payment_id}", "top_up", self._plans.cents_to_micro(cents), detail={"cents": cents})
        ledger.deposit(tx, self._plans, organization_id, what, now)
        store.change_subscription(tx, organization_id, {"top_up_tried_at": None})

    async def _refunded(self, event: _Event) -> None:
        charge = msgspec.json.decode(event.data.object, type=_Charge)
        before = msgspec.json.decode(event.data.previous_attributes, type=_Charge)
        organization_id = charge.metadata.get("organization_id", "")
        cents = charge.amount_refunded - before.amount_refunded
        if charge.metadata.get("purpose") != TOP_UP or cents <= 0:
            return
        what = Charge(
            f"stripe:{event.id}",
            "refund",
            self._plans.cents_to_micro(cents),
            detail={"cents": cents, "payment": charge.payment_intent},
        )

        paid_by = f"stripe:{charge.payment_intent}"

        def work(tx: WriteTx) -> None:
            if self._exists(tx, organization_id, event.id):
                if store.entered_micro(tx, organization_id, paid_by) is None:
                    raise RefundTooEarly
                ledger.withdraw(tx, self._plans, organization_id, what, self._clock.now())

        await self._store.across.write(work)

    def _exists(self, tx: WriteTx, organization_id: str, named_by: str) -> bool:
        """Whether the organization is still there; an event for one that is gone is not worth a retry."""
        if store.lock(tx, organization_id, self._clock.now()) is not None:
            return True
        log.error("%s is for organization %r, which does not exist", named_by, organization_id)
        return False

    async def _subscription_moved(self, subscription_id: str) -> None:
        """Book what Stripe says of it now, and once more where that changed meanwhile.

        Whoever writes looks again afterwards, so of two at once the last one to write has seen the end of it.
        """
        found = await self._subscription(subscription_id)
        for _ in range(MOST_LOOKS):
            await self._book(found)
            booked, found = found, await self._subscription(subscription_id)
            if found.to_dict() == booked.to_dict():
                return
        raise PaymentsDown

    async def _book(self, found: stripe.Subscription) -> None:
        named = found.metadata.to_dict()
        organization_id, item = named.get("organization_id", ""), found.items.data[0]
        paid: Mapping[str, str | int | bool | None] = {
            "plan_slug": _plan_slug(item.price.product) or named.get("plan_slug"),
            "status": found.status,
            "billing_interval": item.price.recurring.interval if item.price.recurring else None,
            "quantity": item.quantity or 1,
            "anchor_at": found.billing_cycle_anchor * SECOND,
            "paid_from_at": item.current_period_start * SECOND,
            "paid_until_at": item.current_period_end * SECOND,
            "cancel_at_period_end": found.cancel_at_period_end,
            "stripe_subscription": found.id,
        }

        def work(tx: WriteTx) -> str | None:
            """Book it; the other subscription that the organization has, where it has one."""
            present = store.lock(tx, organization_id, self._clock.now())
            if present is None:
                log.error("%s is for organization %r, which does not exist", found.id, organization_id)
            elif found.status in ENDED:
                if present.stripe_subscription == found.id:
                    store.change_subscription(tx, organization_id, {**NOT_PAID, "plan_slug": None})
            elif present.stripe_subscription in (None, found.id, gone):
                store.change_subscription(tx, organization_id, paid)
            else:
                return present.stripe_subscription
            return None

        gone: str | None = None
        while (other := await self._store.across.write(work)) is not None:
            if not await self._has_ended(other):
                await self._give_back(organization_id, found)
                return
            gone = other

    async def _give_back(self, organization_id: str, second: stripe.Subscription) -> None:
        """The organization pays for a subscription already: this one was bought from a page opened before."""
        with stripe_answers():
            await give_back(self._stripe, second)
        entry = AuditEntry(
            organization_id,
            None,
            "ORGANIZATION",
            "second_subscription_refunded",
            "A second subscription was paid, so it was ended and refunded",
            {"subscription": second.id},
            self._clock.now(),
        )
        await self._store.across.write(lambda tx: record(tx, entry))

    async def _has_ended(self, subscription_id: str) -> bool:
        """Whether it ended; so did one that Stripe does not know, such as another account's."""
        with stripe_answers():
            try:
                return (await self._stripe.v1.subscriptions.retrieve_async(subscription_id)).status in ENDED
            except stripe.InvalidRequestError as error:
                if error.code != "resource_missing":
                    raise
                return True

    async def _subscription(self, subscription_id: str) -> stripe.Subscription:
        with stripe_answers():
            return await self._stripe.v1.subscriptions.retrieve_async(
                subscription_id, {"expand": ["items.data.price.product"]}
            )

    async def _customer(self, caller: Caller) -> str:
        """The organization as Stripe knows it; made at its first purchase."""
        organization_id = caller.organization_id
        subscription = await self._store.read(lambda tx: store.peek(tx, organization_id))
        if subscription is not None and subscription.stripe_customer is not None:
            return subscription.stripe_customer
        with stripe_answers():
            customer = await self._stripe.v1.customers.create_async(
                {"email": caller.email, "metadata": {"organization_id": organization_id}},
                {"idempotency_key": f"customer:{organization_id}"},
            )

        def work(tx: WriteTx) -> None:
            store.lock(tx, organization_id, self._clock.now())
            store.change_subscription(tx, organization_id, {"stripe_customer": customer.id})

        await self._store.write(work)
        return customer.id


def _plan_slug(product: str | stripe.Product) -> str | None:
    """The plan that a product stands for: who changes plans in the portal changes the product, nothing else."""
    return None if isinstance(product, str) else product.metadata.to_dict().get("plan_slug")
