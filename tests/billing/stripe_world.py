"""Talking to the stand-in for Stripe, and signing events as Stripe does."""

import hashlib
import hmac
import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp

from parley.base.clock import SECOND

type Json = dict[str, Any]

SECRET_KEY = f"sk_test_{uuid4().hex}"
WEBHOOK_SECRET = f"whsec_{uuid4().hex}"


@contextmanager
def stand_in_process() -> Generator[str]:
    """The stand-in's base URL while it runs."""
    script = Path(__file__).with_name("stripe_stand_in.py")
    with subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        process.kill()


@dataclass(frozen=True, slots=True)
class StripeWorld:
    """The stand-in as a test sees it."""

    base_url: str
    session: aiohttp.ClientSession

    async def requests(self, path: str, **body: str) -> list[Json]:
        """What was asked of a path, with these fields."""
        async with self.session.get(f"{self.base_url}/control/requests") as response:
            every: list[Json] = await response.json()
        return [each for each in every if each["path"] == path and body.items() <= each["body"].items()]

    async def keep_card(self, customer: str, *, declines: bool = False) -> None:
        body = {"customer": customer, "card": f"pm_{uuid4().hex[:12]}", "declines": declines}
        async with self.session.post(f"{self.base_url}/control/cards", json=body) as response:
            assert response.status == 200

    async def fail(self, what: str) -> None:
        """Let the next ``refund`` or ``cancel`` fail, repeats included."""
        async with self.session.post(f"{self.base_url}/control/fail", json={"what": what}) as response:
            assert response.status == 200

    async def pay(self, url: str, now: int) -> str | None:
        """Pay on a page that was opened for a plan; the subscription that comes of it, None for a closed page."""
        async with self.session.post(f"{self.base_url}/control/pay", json={"url": url}) as response:
            said: Json = await response.json()
        if not said["paid"]:
            return None
        subscription_id, named = f"sub_{uuid4().hex}", said["metadata"]
        invoice = f"in_{uuid4().hex}"
        await self.subscribe(
            subscription_id,
            named["organization_id"],
            now,
            plan_slug=named["plan_slug"],
            latest_invoice=invoice,
            customer=said["customer"],
        )
        return subscription_id

    async def status_of(self, subscription_id: str) -> str:
        """What a subscription is in at Stripe."""
        async with self.session.get(f"{self.base_url}/v1/subscriptions/{subscription_id}") as response:
            found: Json = await response.json()
            return found["status"]

    async def subscribe(self, subscription_id: str, organization_id: str, now: int, **said: Any) -> None:
        """What Stripe says of a subscription from now on."""
        plan_slug = said.pop("plan_slug", "paid")
        start = now // SECOND
        item = {
            "id": "si_1",
            "object": "subscription_item",
            "quantity": 1,
            "current_period_start": start,
            "current_period_end": start + 30 * 86_400,
            "price": {
                "id": "price_1",
                "object": "price",
                "recurring": {"interval": "month"},
                "product": {"id": "prod_1", "object": "product", "metadata": {"plan_slug": plan_slug}},
            },
        }
        body: Json = {
            "id": subscription_id,
            "object": "subscription",
            "status": "active",
            "billing_cycle_anchor": start,
            "cancel_at_period_end": False,
            "metadata": {"organization_id": organization_id, "plan_slug": "paid"},
            "items": {"object": "list", "data": [item], "has_more": False, "url": "/v1/subscription_items"},
            **said,
        }
        async with self.session.post(f"{self.base_url}/control/subscriptions", json=body) as response:
            assert response.status == 200


def event(kind: str, body: Json, **more: Json) -> bytes:
    """An event as Stripe sends it."""
    return json.dumps({"id": f"evt_{uuid4().hex}", "type": kind, "data": {"object": body, **more}}).encode()


def signature(payload: bytes, secret: str = WEBHOOK_SECRET) -> str:
    """The header that Stripe signs an event with."""
    stamp = int(time.time())
    digest = hmac.new(secret.encode(), f"{stamp}.".encode() + payload, hashlib.sha256).hexdigest()
    return f"t={stamp},v1={digest}"


def paid(organization_id: str, cents: int, payment_id: str) -> bytes:
    """Money for a wallet arrived."""
    metadata = {"organization_id": organization_id, "purpose": "top_up"}
    return event("payment_intent.succeeded", {"id": payment_id, "amount_received": cents, "metadata": metadata})


def refunded(organization_id: str, total: int, before: int, payment_id: str) -> bytes:
    """Money for a wallet was given back, ``total`` cents of it by now."""
    metadata = {"organization_id": organization_id, "purpose": "top_up"}
    body = {"amount_refunded": total, "payment_intent": payment_id, "metadata": metadata}
    return event("charge.refunded", body, previous_attributes={"amount_refunded": before})
