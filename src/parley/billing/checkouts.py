"""Pages of Stripe on which something is bought: at most one open page for a plan, and nothing paid twice.

Two pages that are open at once could both be paid. So a new page closes the one before it, and where two
subscriptions were paid all the same, the later one is given back whole.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

import stripe
from stripe.checkout import Session

from parley.base.errors import Conflict, Unavailable
from parley.billing.plans import MICRO, Interval, Plan, Plans

CURRENCY = "usd"
TOP_UP = "top_up"
ENDED = ("canceled", "incomplete", "incomplete_expired")
MOST_OPEN = 100

log = logging.getLogger(__name__)


class PaymentsDown(Unavailable):
    """The payment provider does not answer right now, and nothing was bought. Try again in a moment."""


class AnotherCheckout(Conflict):
    """A page for another plan was opened at this very moment. Use that one, or choose the plan again."""


class Checkouts:
    """Opens pages for a customer of Stripe. ``return_url`` is where the browser comes back to."""

    def __init__(self, client: stripe.StripeClient, plans: Plans, return_url: str) -> None:
        self._stripe = client
        self._plans = plans
        self._return_url = return_url

    async def for_plan(self, organization_id: str, customer: str, plan: Plan, interval: Interval) -> str | None:
        """The page for a plan, the same one as long as it is open; None when the customer has just paid on one.

        Pages for other plans are closed: a link given earlier stops working. Raises AnotherCheckout, PaymentsDown.
        """
        cents = int(plan.prices[interval] * 100)
        wanted = {"plan_slug": plan.slug, "interval": interval, "cents": str(cents)}
        with stripe_answers():
            if await self._subscribed(customer):
                return None
            opened = await self._open_pages(customer)
            if not opened or _wish(opened[0]) != wanted:
                await self._open_page(organization_id, customer, plan, wanted)
                opened = await self._open_pages(customer)
            newest, *older = opened
            if not await self._close(older):
                await self._close([newest])
                return None
        if _wish(newest) != wanted:
            raise AnotherCheckout
        return newest.url or self._return_url

    async def for_credits(self, organization_id: str, customer: str, credit: int) -> str:
        """A page for credits of the wallet; the card is kept for automatic top-ups. Raises PaymentsDown."""
        with stripe_answers():
            session = await self._stripe.v1.checkout.sessions.create_async(
                {
                    "mode": "payment",
                    "customer": customer,
                    "line_items": [
                        {
                            "quantity": 1,
                            "price_data": {
                                "currency": CURRENCY,
                                "unit_amount": self._plans.cents(credit * MICRO),
                                "product_data": {"name": f"{credit} credits"},
                            },
                        }
                    ],
                    "payment_intent_data": {
                        "metadata": {"organization_id": organization_id, "purpose": TOP_UP},
                        "setup_future_usage": "off_session",
                    },
                    "success_url": f"{self._return_url}?paid=1",
                    "cancel_url": self._return_url,
                }
            )
        return session.url or self._return_url

    async def _open_page(self, organization_id: str, customer: str, plan: Plan, wanted: Mapping[str, str]) -> None:
        await self._stripe.v1.checkout.sessions.create_async(
            {
                "mode": "subscription",
                "customer": customer,
                "metadata": dict(wanted),
                "line_items": [
                    {
                        "quantity": 1,
                        "price_data": {
                            "currency": CURRENCY,
                            "unit_amount": int(wanted["cents"]),
                            "recurring": {"interval": "year" if wanted["interval"] == "year" else "month"},
                            "product_data": {"name": plan.name, "metadata": {"plan_slug": plan.slug}},
                        },
                    }
                ],
                "subscription_data": {"metadata": {"organization_id": organization_id, "plan_slug": plan.slug}},
                "success_url": f"{self._return_url}?paid=1",
                "cancel_url": self._return_url,
            }
        )

    async def _subscribed(self, customer: str) -> bool:
        """Whether there is a subscription already, even if its event has not arrived."""
        listed = await self._stripe.v1.subscriptions.list_async({"customer": customer, "limit": MOST_OPEN})
        return any(each.status not in ENDED for each in listed.data)

    async def _open_pages(self, customer: str) -> list[Session]:
        """The customer's open pages for plans, the newest first, as Stripe lists them."""
        listed = await self._stripe.v1.checkout.sessions.list_async(
            {"customer": customer, "status": "open", "limit": MOST_OPEN}
        )
        return [session for session in listed.data if session.mode == "subscription"]

    async def _close(self, sessions: Sequence[Session]) -> bool:
        """Close pages; whether none of them was paid before."""
        unpaid = True
        for session in sessions:
            try:
                await self._stripe.v1.checkout.sessions.expire_async(session.id)
            except stripe.InvalidRequestError:
                now = await self._stripe.v1.checkout.sessions.retrieve_async(session.id)
                unpaid = unpaid and now.status != "complete"
        return unpaid


async def give_back(client: stripe.StripeClient, subscription: stripe.Subscription) -> None:
    """End a subscription that was bought beside another one, and pay back what was paid for it.

    The money first: a repeat after a crash finds the subscription still running and does the rest.
    """
    invoice = subscription.latest_invoice
    if invoice is not None:
        name = invoice if isinstance(invoice, str) else invoice.id or ""
        payments = await client.v1.invoice_payments.list_async({"invoice": name, "status": "paid"})
        for each in payments.data:
            paid_by = each.payment.payment_intent
            if paid_by is not None:
                await _refund(client, paid_by if isinstance(paid_by, str) else paid_by.id)
    await client.v1.subscriptions.cancel_async(subscription.id)


async def _refund(client: stripe.StripeClient, payment_intent: str) -> None:
    try:
        await client.v1.refunds.create_async(
            {"payment_intent": payment_intent, "reason": "duplicate"},
            {"idempotency_key": f"second-subscription:{payment_intent}"},
        )
    except stripe.InvalidRequestError as error:
        if error.code != "charge_already_refunded":
            raise


def _wish(session: Session) -> Mapping[str, str]:
    return session.metadata.to_dict() if session.metadata is not None else {}


@contextmanager
def stripe_answers() -> Generator[None]:
    """Turn every failure of Stripe into PaymentsDown; what it was is in the log."""
    try:
        yield
    except stripe.StripeError as error:
        log.warning("stripe: %s %s", type(error).__name__, error.code)
        raise PaymentsDown from error
