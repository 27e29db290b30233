"""A stand-in for Stripe's API: a process of its own that remembers what it was asked.

It answers what our calls need, honours ``Idempotency-Key``, and takes orders under ``/control``.
Run as a script it prints its port.
"""

import asyncio
import json
import sys
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

from aiohttp import web

type Json = dict[str, Any]


@dataclass(slots=True)
class StandIn:
    """Everything the stand-in knows."""

    requests: list[Json] = field(default_factory=list[Json])
    answers: dict[str, Json] = field(default_factory=dict[str, Json])
    subscriptions: dict[str, Json] = field(default_factory=dict[str, Json])
    cards: dict[str, str] = field(default_factory=dict[str, str])
    declining: set[str] = field(default_factory=set[str])
    sessions: dict[str, Json] = field(default_factory=dict[str, Json])
    refunded: set[str] = field(default_factory=set[str])
    failing: list[str] = field(default_factory=list[str])

    def app(self) -> web.Application:
        """Its routes."""
        app = web.Application()
        app.router.add_post("/v1/customers", self.post)
        app.router.add_post("/v1/checkout/sessions", self.open_session)
        app.router.add_get("/v1/checkout/sessions", self.list_sessions)
        app.router.add_get("/v1/checkout/sessions/{id}", self.read_session)
        app.router.add_post("/v1/checkout/sessions/{id}/expire", self.expire_session)
        app.router.add_get("/v1/invoice_payments", self.list_payments)
        app.router.add_post("/v1/refunds", self.refund)
        app.router.add_delete("/v1/subscriptions/{id}", self.cancel_subscription)
        app.router.add_post("/control/pay", self.pay)
        app.router.add_post("/control/fail", self.fail)
        app.router.add_post("/v1/billing_portal/sessions", self.post)
        app.router.add_post("/v1/payment_intents", self.post)
        app.router.add_get("/v1/customers/{customer}/payment_methods", self.list_cards)
        app.router.add_get("/v1/subscriptions", self.list_subscriptions)
        app.router.add_get("/v1/subscriptions/{id}", self.read_subscription)
        app.router.add_post("/control/subscriptions", self.set_subscription)
        app.router.add_post("/control/cards", self.set_card)
        app.router.add_get("/control/requests", self.list_requests)
        return app

    async def post(self, request: web.Request) -> web.Response:
        body = dict(parse_qsl(await request.text()))
        key = request.headers.get("Idempotency-Key", "")
        self.requests.append({"path": request.path, "body": body, "key": key})
        if not request.headers.get("Authorization", "").startswith("Bearer sk_test_"):
            return web.json_response({"error": {"type": "invalid_request_error", "message": "no key"}}, status=401)
        if body.get("customer") in self.declining and request.path == "/v1/payment_intents":
            error = {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}
            return web.json_response({"error": error}, status=402)
        # The library makes up a key of its own where none was given, so a repeat is told by path and key.
        answer = self.answers.setdefault(f"{request.path} {key}", make(request.path, body))
        return web.json_response(answer)

    async def open_session(self, request: web.Request) -> web.Response:
        await self.post(request)
        body = dict(parse_qsl(await request.text()))
        key = f"{request.path} {request.headers.get('Idempotency-Key', '')}"
        session = self.answers.get(key)
        if session is None:
            return web.json_response({"error": {"type": "invalid_request_error", "message": "no key"}}, status=401)
        if session["id"] not in self.sessions:
            session |= {"status": "open", "mode": body["mode"], "customer": body["customer"]}
            session |= {"metadata": nested(body, "metadata"), "asked": body}
            self.sessions[session["id"]] = session
        return web.json_response(session)

    async def list_sessions(self, request: web.Request) -> web.Response:
        wanted = {name: request.query[name] for name in ("customer", "status")}
        data = [each for each in reversed(self.sessions.values()) if wanted.items() <= each.items()]
        return web.json_response({"object": "list", "data": data, "has_more": False, "url": request.path})

    async def read_session(self, request: web.Request) -> web.Response:
        return web.json_response(self.sessions[request.match_info["id"]])

    async def expire_session(self, request: web.Request) -> web.Response:
        session = self.sessions[request.match_info["id"]]
        if session["status"] != "open":
            return refused("This Checkout Session is not open")
        session["status"] = "expired"
        return web.json_response(session)

    async def pay(self, request: web.Request) -> web.Response:
        """Somebody pays on a page: its session is complete, and there is a subscription with a paid invoice."""
        body = await request.json()
        session = next(each for each in self.sessions.values() if each["url"] == body["url"])
        if session["status"] != "open":
            return web.json_response({"paid": False})
        session["status"] = "complete"
        metadata = nested(session["asked"], "subscription_data[metadata]")
        return web.json_response({"paid": True, "metadata": metadata, "customer": session["customer"]})

    async def list_payments(self, request: web.Request) -> web.Response:
        intent = f"pi_of_{request.query['invoice']}"
        payment = {"type": "payment_intent", "payment_intent": intent}
        data = [{"id": "inpay_1", "object": "invoice_payment", "payment": payment}]
        return web.json_response({"object": "list", "data": data, "has_more": False, "url": request.path})

    async def refund(self, request: web.Request) -> web.Response:
        if self._fails("refund"):
            return web.json_response({"error": {"type": "api_error", "message": "try again"}}, status=500)
        known = self.answers.get(f"{request.path} {request.headers.get('Idempotency-Key', '')}")
        intent = dict(parse_qsl(await request.text()))["payment_intent"]
        if known is None and intent in self.refunded:
            return refused("Charge has already been refunded.", "charge_already_refunded")
        self.refunded.add(intent)
        return await self.post(request)

    async def cancel_subscription(self, request: web.Request) -> web.Response:
        if self._fails("cancel"):
            return web.json_response({"error": {"type": "api_error", "message": "try again"}}, status=500)
        found = self.subscriptions[request.match_info["id"]]
        self.requests.append({"path": request.path, "body": {}, "key": ""})
        found["status"] = "canceled"
        return web.json_response(found)

    async def fail(self, request: web.Request) -> web.Response:
        """Answer the next requests of a kind with a 500, as many as their repeats need."""
        self.failing = [(await request.json())["what"]] * 3
        return web.json_response({})

    def _fails(self, what: str) -> bool:
        if what not in self.failing:
            return False
        self.failing.remove(what)
        return True

    async def list_cards(self, request: web.Request) -> web.Response:
        card = self.cards.get(request.match_info["customer"])
        data = [{"id": card, "object": "payment_method", "type": "card"}] if card else []
        return web.json_response({"object": "list", "data": data, "has_more": False, "url": request.path})

    async def list_subscriptions(self, request: web.Request) -> web.Response:
        customer = request.query["customer"]
        data = [each for each in self.subscriptions.values() if each.get("customer") == customer]
        return web.json_response({"object": "list", "data": data, "has_more": False, "url": request.path})

    async def read_subscription(self, request: web.Request) -> web.Response:
        found = self.subscriptions.get(request.match_info["id"])
        if found is None:
            error = {"type": "invalid_request_error", "code": "resource_missing", "message": "No such subscription"}
            return web.json_response({"error": error}, status=404)
        # What is read is what was; by the time it is acted upon it may be something else.
        then = found.pop("_then", None)
        answer = web.json_response(found)
        if then is not None:
            found |= then
        return answer

    async def set_subscription(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.subscriptions[body["id"]] = body
        return web.json_response({})

    async def set_card(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.cards[body["customer"]] = body["card"]
        self.declining.discard(body["customer"])
        if body["declines"]:
            self.declining.add(body["customer"])
        return web.json_response({})

    async def list_requests(self, _request: web.Request) -> web.Response:
        return web.json_response(self.requests)


def nested(body: dict[str, str], name: str) -> dict[str, str]:
    """The fields of a nested object in a form."""
    return {key[len(name) + 1 : -1]: value for key, value in body.items() if key.startswith(f"{name}[")}


def refused(message: str, code: str | None = None) -> web.Response:
    """A request that Stripe will not do."""
    error = {"type": "invalid_request_error", "message": message, **({"code": code} if code else {})}
    return web.json_response({"error": error}, status=400)


def make(path: str, body: dict[str, str]) -> Json:
    """A fresh object of the kind that a path makes."""
    name = uuid4().hex[:16]
    match path:
        case "/v1/customers":
            return {"id": f"cus_{name}", "object": "customer"}
        case "/v1/checkout/sessions":
            return {"id": f"cs_{name}", "object": "checkout.session", "url": f"https://checkout.test/{name}"}
        case "/v1/billing_portal/sessions":
            return {"id": f"bps_{name}", "object": "billing_portal.session", "url": f"https://portal.test/{name}"}
        case "/v1/refunds":
            return {"id": f"re_{name}", "object": "refund", "status": "succeeded"}
        case _:
            amount = int(body["amount"])
            return {
                "id": f"pi_{name}",
                "object": "payment_intent",
                "status": "succeeded",
                "amount": amount,
                "amount_received": amount,
            }


async def serve() -> None:
    """Serve on a free port until standard input closes."""
    runner = web.AppRunner(StandIn().app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve())
