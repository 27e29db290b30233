"""Buying over HTTP: from the published client's link to the signed event that puts the organization on its plan."""

from uuid import uuid4

import pytest
from modulex import Modulex

from parley.testing.scripted_model import ScriptedModel
from tests.billing.conftest import stand_in, stripe
from tests.billing.stripe_world import (
    SECRET_KEY,
    WEBHOOK_SECRET,
    StripeWorld,
    event,
    paid,
    signature,
)
from tests.contract.conftest import billed
from tests.stage import Stage, new_model_key

__all__ = ["stand_in", "stripe"]


@pytest.fixture(scope="module")
def settings_extra(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel, stand_in: str) -> dict[str, str]:
    """A server that takes payments."""
    return {
        **billed(tmp_path_factory.mktemp("plans"), model, new_model_key()),
        "STRIPE_SECRET_KEY": SECRET_KEY,
        "STRIPE_WEBHOOK_SECRET": WEBHOOK_SECRET,
        "STRIPE_BASE_URL": stand_in,
    }


async def send(stage: Stage, payload: bytes, signed: str) -> int:
    """What the server answers to an event; nobody is signed in."""
    headers = {"Stripe-Signature": signed, "Content-Type": "application/json; charset=utf-8"}
    url = f"{stage.client.base_url}/subscriptions/webhook"
    async with stage.client.session.post(url, data=payload, headers=headers) as response:
        return response.status


async def test_a_plan_is_bought_through_the_link_and_counts_once_the_event_says_so(
    stage: Stage, stripe: StripeWorld, sdk: Modulex
) -> None:
    organization_id = stage.client.organization_id
    plans = await sdk.subscriptions.organization_plans()
    assert [plan.plan_slug for plan in plans.plans if plan.selectable] == ["paid"]
    link = await sdk.subscriptions.checkout_link("paid", "month")
    assert link.url is not None and link.url.startswith("https://checkout.test/")
    assert not (await sdk.subscriptions.organization_billing()).has_subscription
    subscription_id = f"sub_{uuid4().hex}"
    await stripe.subscribe(subscription_id, organization_id, stage.clock.now())
    payload = event("customer.subscription.created", {"id": subscription_id})
    assert await send(stage, payload, signature(payload)) == 204
    billing = await sdk.subscriptions.organization_billing()
    assert billing.subscription is not None and billing.plan is not None
    assert (billing.plan.plan_slug, billing.subscription.id) == ("paid", subscription_id)
    assert (billing.subscription.billing_interval, billing.subscription.current_price) == ("month", 20.0)
    portal = await sdk.subscriptions.customer_portal()
    assert portal.url is not None and portal.url.startswith("https://portal.test/")


async def test_credits_are_bought_for_the_wallet(stage: Stage) -> None:
    link = await stage.client.post("/billing/wallet/top-up", {"credits": 1000})
    assert link.body["url"].startswith("https://checkout.test/")
    payload = paid(stage.client.organization_id, 1000, f"pi_{uuid4().hex}")
    for _ in range(2):
        assert await send(stage, payload, signature(payload)) == 204
    assert (await stage.client.get("/billing/wallet")).body["balance"] == 1000.0


async def test_an_event_with_a_wrong_signature_is_400_and_moves_nothing(stage: Stage) -> None:
    payload = paid(stage.client.organization_id, 1000, f"pi_{uuid4().hex}")
    assert await send(stage, payload, signature(payload, "whsec_other")) == 400
    assert (await stage.client.get("/billing/wallet")).body["balance"] == 0.0
