"""A real server over one store, with accounts and nothing else, and people to use it."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated
from uuid import uuid4

import httpx
import uvicorn
from fastapi import Body, Depends, FastAPI, Request
from pydantic import AfterValidator, BaseModel
from starlette.types import ASGIApp

from parley.accounts import Accounts, Caller, FirstStart, LlmChoice, first_start, open_accounts
from parley.base.clock import Clock
from parley.base.settings import Settings
from parley.billing.denials import CreditDenied
from parley.http.browser import Browser
from parley.http.document import complete_document
from parley.http.errors import install_errors
from parley.http.identity import Identity
from parley.http.limits import BodyLimits
from parley.http.routes import api_keys, auth, organizations, sessions
from parley.keyring import Keyring
from parley.keyring.keyring import KEY_BYTES
from parley.storage import ReadTx, Store

PASSWORD = f"long {uuid4()}"


def new_keyring() -> Keyring:
    return Keyring({"k1": uuid4().bytes + uuid4().bytes[: KEY_BYTES - 16]})


def plain_client(url: str, headers: dict[str, str]) -> httpx.AsyncClient:
    """A client for plain http: reading the certificates of the world would take longer than most tests."""
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=20, verify=False)


@dataclass
class Person:
    """Someone with an account of their own, an organization they own, and a key without a lock."""

    user_id: str
    email: str
    organization_id: str
    key: str

    def headers(self, organization_id: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}", "X-Organization-ID": organization_id or self.organization_id}


@dataclass
class Desk:
    """A running server and how to reach it."""

    url: str
    store: Store
    clock: Clock
    accounts: Accounts
    first: FirstStart
    owner: Person
    web: httpx.AsyncClient
    seats: dict[str, int] = field(default_factory=dict[str, int])

    def browser(self, **headers: str) -> httpx.AsyncClient:
        """A client with its own cookies, on a page of the server's."""
        return plain_client(self.url, {"Sec-Fetch-Site": "same-origin", **headers})

    async def invite(self, inviter: Person, email: str) -> httpx.Response:
        return await self.web.post("/organizations/invite", json={"invited_email": email}, headers=inviter.headers())

    async def newcomer(self, name: str, password: str | None = None) -> Person:
        """A person who came by an invitation of the owner's, left, and has an organization of their own."""
        email = f"{name}@example.com"
        token = (await self.invite(self.owner, email)).json()["invitation"]["token"]
        async with self.browser() as page:
            way = {"invitation_token": token, "username": name, "password": password}
            user = (await page.post("/auth/session", json=way)).json()["user"]
            left = await page.post(
                "/auth/organizations/leave", headers={"X-Organization-ID": self.owner.organization_id}
            )
            assert left.status_code == 200, left.text
            made = await page.post("/organizations", json={"name": f"{name}'s"})
            key = await page.post("/api-keys", json={"name": "all", "rate_limit_per_minute": 1000})
        return Person(user["id"], email, made.json()["organization"]["id"], key.json()["key"])

    async def colleague(self, name: str, of: Person) -> Person:
        """A person who is an admin of another's organization too."""
        person = await self.newcomer(name)
        invited = (await self.invite(of, person.email)).json()["invitation"]["id"]
        joined = await self.web.post(f"/auth/invitations/{invited}/accept", headers=person.headers())
        assert joined.status_code == 200, joined.text
        return person


@dataclass
class Models:
    """What the model list is made from."""

    providers: Sequence[organizations.LlmProvider] = ()
    credentials: dict[str, list[organizations.LlmCredential]] = field(
        default_factory=dict[str, list[organizations.LlmCredential]]
    )

    async def all_providers(self) -> Sequence[organizations.LlmProvider]:
        return self.providers

    async def held_by(self, caller: Caller) -> Sequence[organizations.LlmCredential]:
        return self.credentials.get(caller.organization_id, [])

    async def check(self, organization_id: str, llm: LlmChoice) -> None:
        held = self.credentials.get(organization_id, [])
        if llm.credential_id is not None and llm.credential_id not in [each.credential_id for each in held]:
            raise organizations.NoSuchCredential


def _quote(text: str) -> str:
    raise ValueError(f"cannot read {text!r}")


class Quoted(BaseModel):
    """A body whose parser quotes what it was given."""

    text: Annotated[str, AfterValidator(_quote)]


def build_app(accounts: Accounts, models: Models, public_url: str = "") -> ASGIApp:
    """The routes of accounts, and a few of the test's own behind ``/probe``."""
    app = FastAPI(redirect_slashes=False)
    install_errors(app)
    complete_document(app)
    browser = Browser(public_url)
    identity = Identity(accounts, browser)
    llms = organizations.Llms(models.all_providers, models.held_by, models.check)
    app.include_router(auth.routes(identity, accounts))
    app.include_router(sessions.routes(identity, accounts, browser))
    app.include_router(api_keys.routes(identity, accounts))
    app.include_router(organizations.routes(identity, accounts, llms, public_url or "http://parley.test"))
    _identity_probes(app, identity)
    _other_probes(app)
    return BodyLimits(app, {"/probe/upload": 3_000_000})


def _identity_probes(app: FastAPI, identity: Identity) -> None:
    @app.get("/probe/admin")
    async def admin(caller: Annotated[Caller, Depends(identity.admin)]) -> dict[str, str | None]:
        return {"user_id": caller.user_id, "role": caller.role, "api_key_id": caller.api_key_id}

    @app.get("/probe/owner")
    async def owner(_caller: Annotated[Caller, Depends(identity.owner)]) -> dict[str, str]:
        return {}

    @app.get("/probe/scope")
    async def scope(request: Request) -> dict[str, str]:
        return {"role": (await identity.authenticate(request.scope)).role}

    @app.get("/probe/recheck")
    async def recheck(request: Request) -> dict[str, str]:
        return {"role": (await identity.recheck(request.scope)).role}


def _other_probes(app: FastAPI) -> None:
    @app.get("/probe/bug")
    async def bug() -> None:
        raise RuntimeError("the secret word is xyzzy")

    @app.get("/probe/denied")
    async def denied() -> None:
        raise CreditDenied("The plan's credits are used up.")

    @app.post("/probe/quote")
    async def quote(_body: Annotated[Quoted, Body()]) -> None: ...

    @app.post("/probe/upload")
    @app.post("/probe/body")
    async def body(request: Request) -> dict[str, int]:
        return {"bytes": len(await request.body())}


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncGenerator[str]:
    """The app behind a real server on a free port; its URL."""
    # The protocol by name: only then does asyncio send small answers at once.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.serve(sockets=[listener]))
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True
                async with asyncio.timeout(60):
                    await running


@asynccontextmanager
async def open_desk(store: Store, models: Models | None = None, public_url: str = "") -> AsyncGenerator[Desk]:
    """A server with its first start done."""
    clock, keyring, seats = Clock(), new_keyring(), dict[str, int]()
    first = await first_start(store, keyring, Settings(bootstrap_email="owner@example.com"), clock)
    assert first is not None and first.api_key is not None

    def seats_of(_tx: ReadTx, organization_id: str) -> int | None:
        return seats.get(organization_id)

    accounts = await open_accounts(store, keyring, clock, seats_of)
    app = build_app(accounts, models or Models(), public_url)
    async with served(app) as url, plain_client(url, {}) as web:
        me = await web.get("/auth/me", headers={"Authorization": f"Bearer {first.api_key}"})
        owner = Person(me.json()["id"], first.email, first.organization_id, first.api_key)
        yield Desk(url, store, clock, accounts, first, owner, web, seats)
    await accounts.close()
