"""The only place that puts the parts together. No container, no globals: a function that reads top to bottom."""

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from parley.accounts import Accounts, Caller, FirstStart, LlmChoice, first_start, open_accounts
from parley.base.clock import Clock
from parley.base.errors import Refusal
from parley.base.settings import Role, Settings, SettingsError
from parley.billing import ApiRate, CreditExhausted, Plans, ToolUse, charge_tool, limit_of, load_plans, require_room
from parley.billing.subscriptions import Subscriptions, open_payments
from parley.billing.usage import Usage
from parley.chats import Chats
from parley.chats.connect import credential_created, sign_in_ended, sign_in_failed
from parley.chats.upkeep import hear, poll_watched, sweep_forever
from parley.credentials import (
    Credential,
    Credentials,
    Flow,
    Listeners,
    OAuth,
    Offers,
    Prober,
    Refresher,
    TokenEndpoint,
    Vault,
    count_credentials,
)
from parley.credentials.apis import ImportedApis, imported_integration
from parley.credentials.mcp import DISCOVERY_SECONDS, McpServers, ServerSignIn
from parley.credentials.offers import MCP_SERVER
from parley.egress import Egress
from parley.equipment import Equipment, Llms
from parley.equipment.llms import saved_choice
from parley.http import app_files
from parley.http.app import create_app, system_routes
from parley.http.browser import Browser
from parley.http.doorstep import ADDRESS_SECONDS, Addresses
from parley.http.identity import Identity
from parley.http.routes import (
    analytics,
    api_keys,
    apis,
    assistant,
    auth,
    billing,
    completions,
    dashboard,
    exports,
    integrations,
    knowledge,
    knowledge_search,
    mcp,
    mcp_servers,
    oauth,
    organizations,
    receipts,
    sessions,
)
from parley.http.routes import credentials as credential_routes
from parley.http.routes import subscriptions as subscription_routes
from parley.http.routes.mcp import ActionServer
from parley.http.stream import EventStreams
from parley.integrations import Catalog, Scrubber, load_catalog
from parley.integrations.mcp import read_servers
from parley.keyring import Keyring, load_keyring
from parley.knowledge.chunk_store import expire_readings
from parley.knowledge.opening import Knowledge, open_knowledge
from parley.llm import Models, Sessions, find_ollama, model_entry, operator_addresses, shipped_catalogue
from parley.runs import Flusher, Hub, Worker
from parley.runs.presence import Presence
from parley.runs.run_store import count_queued, expire_all_leases
from parley.storage import Store, WriteTx, listen_for_notices, open_store
from parley.storage.schema import migrate
from parley.storage.windows import Windows
from parley.telemetry import Watching, open_telemetry, read_collector
from parley.telemetry.facts import Clean
from parley.tools import Workshop
from parley.tools.actions import Actions
from parley.tools.directory import Directory

VERSION = version("parley")
log = logging.getLogger(__name__)
LOCK_TRIES, LOCK_PAUSE_SECONDS = 20, 0.1

type OpenStore = Callable[[str], Store]

CALLBACK_PATH = "/credentials/oauth2/callback"


@dataclass(frozen=True, slots=True)
class Parley:
    """A running Parley: its surface, and the parts that commands and tests look into."""

    app: ASGIApp
    settings: Settings
    clock: Clock
    store: Store
    keyring: Keyring
    accounts: Accounts
    catalog: Catalog
    credentials: Credentials
    plans: Plans
    subscriptions: Subscriptions
    egress: Egress
    chats: Chats
    presence: Presence
    knowledge: Knowledge
    watching: Watching | None
    first_start: FirstStart | None

    async def drain(self) -> None:
        """Hand every run and document back and end every stream resumably; the server may stop then."""
        if self.knowledge.reader is not None:
            await self.knowledge.reader.drain()
        if self.chats.worker is not None:
            await self.chats.worker.drain()
        self.chats.hub.close()


@asynccontextmanager
async def open_parley(
    settings: Settings, role: Role = "all", clock: Clock | None = None, store_at: OpenStore = open_store
) -> AsyncGenerator[Parley]:
    """Everything, from the settings up; let go in reverse order. Drills put their own ``store_at`` in between.

    Raises SettingsError, KeyringError or StoreInUse, each with a sentence for the operator.
    """
    clock = clock or Clock()
    async with AsyncExitStack() as stack:
        store, beats = await _open_stores(settings, role, store_at, stack)
        keyring = load_keyring(settings.master_keys, settings.data_dir)
        plans = load_plans(settings.plans_file)
        began = await first_start(store.across, keyring, settings, clock)
        accounts = await open_accounts(store.across, keyring, clock, partial(_seats, plans))
        stack.push_async_callback(accounts.close)
        egress = Egress(settings.allow_private_hosts, settings.environment)
        stack.push_async_callback(egress.close)
        stack.enter_context(egress.install())
        catalog = await load_catalog(settings.data_dir, house=settings.house)
        models = await open_models(settings, egress)
        vault, offers = (
            Vault(keyring),
            Offers(catalog, models, settings.environment, _room(plans, clock), partial(imported_integration, store)),
        )
        tokens = TokenEndpoint(egress)
        refresher = Refresher(store, clock, vault=vault, offers=offers, tokens=tokens)
        credentials = Credentials(
            store, clock, vault=vault, offers=offers, prober=Prober(egress, models), refresher=refresher
        )
        llms = Llms(models, credentials, accounts)
        flusher = Flusher(store.across, Hub(), clock, plans)
        servers = McpServers(
            store,
            clock,
            vault=vault,
            offers=offers,
            credentials=credentials,
            refresher=refresher,
            programs=read_servers(settings.mcp_servers),
            seconds=min(DISCOVERY_SECONDS, settings.action_seconds),
        )
        actions = Actions(
            catalog,
            store,
            servers,
            ImportedApis(store, clock, egress, offers, tokens),
            seconds=settings.action_seconds,
        )
        documents = open_knowledge(
            store,
            clock,
            plans=plans,
            credentials=credentials,
            egress=egress,
            settings=settings,
            beats=beats if role != "api" else None,
        )
        workshop = Workshop(
            catalog=catalog,
            actions=actions,
            credentials=credentials,
            refresher=refresher,
            llm_providers=models.entries,
            settings=settings,
            clock=clock,
            charge_tool=_tool_charges(store, plans, clock),
            knowledge=documents.search,
        )
        equipment = Equipment(store, llms, workshop, accounts, plans)
        watching = _open_watching(settings, egress, credentials, store, stack)
        worker = (
            None
            if role == "api"
            else Worker(store, beats, flusher, clock, settings, equipment, watching and watching.telemetry)
        )
        chats = Chats(store, clock, settings, flusher.hub, flusher, worker, llms, credentials, plans)
        sign_ins = OAuth(
            store,
            clock,
            vault=vault,
            offers=offers,
            tokens=tokens,
            callback_url=f"{settings.base_url}{CALLBACK_PATH}",
            listeners=Listeners(partial(_signed_in, chats, actions.servers), partial(sign_in_failed, chats)),
            ask_service=ServerSignIn(egress),
        )
        subscriptions = _subscriptions(settings, store, plans, clock, egress)
        parley = Parley(
            app=_surface(accounts, actions, models, chats, sign_ins, refresher, subscriptions, documents),
            settings=settings,
            clock=clock,
            store=store.across,
            keyring=keyring,
            accounts=accounts,
            catalog=catalog,
            credentials=credentials,
            plans=plans,
            subscriptions=subscriptions,
            egress=egress,
            chats=chats,
            presence=Presence(store, settings, role, VERSION, worker),
            knowledge=documents,
            watching=watching,
            first_start=began,
        )
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task) for task in _tasks(parley)]
            try:
                yield parley
            finally:
                await parley.drain()
                await flusher.flush()
                for task in running:
                    task.cancel()


class StoreInUse(SettingsError):
    """Another Parley is using this data folder."""


async def _open_stores(
    settings: Settings, role: Role, store_at: OpenStore, stack: AsyncExitStack
) -> tuple[Store, Store]:
    """The store, and the connection heartbeats have for themselves; migrated, and this process's alone on SQLite."""
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = store_at(settings.store_url)
    stack.push_async_callback(store.close)
    if store.dialect == "sqlite":
        if role != "all":
            raise SettingsError("Several processes need PostgreSQL: set PARLEY_DATABASE_URL, or serve without --role")
        await _lock(settings.data_dir / "serve.lock", stack)
        await migrate(store)
        await store.across.write(expire_all_leases)
        await store.across.write(expire_readings)
        return store, store
    await migrate(store)
    beats = open_store(settings.store_url, connections=2)
    stack.push_async_callback(beats.close)
    return store, beats


async def _lock(path: Path, stack: AsyncExitStack) -> None:
    """Be the only process on the folder. Raises StoreInUse; a process that is just ending gets two seconds."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    stack.callback(os.close, descriptor)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            await asyncio.sleep(LOCK_PAUSE_SECONDS)
        else:
            return
    raise StoreInUse(
        f"Another Parley is using {path.parent}. Stop it, choose another PARLEY_DATA_DIR, or use PostgreSQL."
    )


async def open_models(settings: Settings, egress: Egress) -> Models:
    """Every model that can be used here; the operator's own addresses are opened for it."""
    environment = settings.environment
    for address in operator_addresses(environment):
        egress.allow(address)
    operator = egress.session()
    found = await find_ollama(environment, operator)
    sessions = Sessions(tenant=egress.tenant_session(), operator=operator)
    return Models(shipped_catalogue(), environment, sessions, found, thinking_tokens=settings.thinking_tokens)


def _open_watching(
    settings: Settings, egress: Egress, credentials: Credentials, store: Store, stack: AsyncExitStack
) -> Watching | None:
    collector = read_collector(settings.environment)
    if collector is not None:
        egress.allow(collector.url)

    async def clean_for(organization_id: str) -> Clean:
        return Scrubber(await credentials.secret_texts(organization_id)).text

    async def count_waiting() -> int:
        return await store.across.read(count_queued)

    watching = open_telemetry(settings, VERSION, collector, egress.session(), clean_for, count_waiting)
    if watching is not None:
        stack.push_async_callback(watching.close)
    return watching


def _tool_charges(
    store: Store, plans: Plans, clock: Clock
) -> Callable[[str, ToolUse], Awaitable[CreditExhausted | None]]:
    async def charge(organization_id: str, use: ToolUse) -> CreditExhausted | None:
        return await store.write(lambda tx: charge_tool(tx, plans, organization_id, use, clock.now()))

    return charge


def _surface(
    accounts: Accounts,
    actions: Actions,
    models: Models,
    chats: Chats,
    sign_ins: OAuth,
    refresher: Refresher,
    subscriptions: Subscriptions,
    documents: Knowledge,
) -> ASGIApp:
    catalog, credentials, clock, settings = actions.catalog, chats.credentials, chats.clock, chats.settings
    usage = Usage(chats.store, chats.plans, clock)
    browser = Browser(settings.public_url)
    identity = Identity(accounts, browser, ApiRate(chats.store, chats.plans, clock).count)
    routers = [
        # First, because the framework tries them in this order: it starts every turn.
        assistant.routes(identity, chats),
        system_routes(VERSION, partial(_health, catalog)),
        auth.routes(identity, accounts),
        sessions.routes(identity, accounts, browser),
        api_keys.routes(identity, accounts),
        organizations.routes(
            identity,
            accounts,
            _llm_listing(models, credentials, chats.llms),
            settings.base_url,
            settings.approval_policy,
        ),
        apis.routes(identity, actions.apis, chats.store),
        integrations.routes(
            identity, accounts, catalog, models.entries, settings.environment, settings.approval_policy
        ),
        completions.routes(identity, chats),
        mcp.routes(identity, ActionServer(chats, accounts, Directory(actions, credentials)), VERSION),
        mcp_servers.routes(identity, actions.servers, chats.store, credentials),
        credential_routes.routes(identity, credentials, chats.store, partial(credential_created, chats)),
        oauth.routes(identity, sign_ins, refresher, settings.base_url),
        receipts.routes(identity, chats),
        exports.routes(identity, chats),
        knowledge_search.routes(identity, documents),
        knowledge.routes(identity, documents),
        subscription_routes.routes(identity, subscriptions, clock),
        billing.routes(identity, usage, subscriptions),
        dashboard.routes(identity, usage, clock),
        analytics.routes(identity, usage, clock, lambda: len(catalog.summaries())),
        app_files.routes(),
    ]
    uploads = {knowledge.PREFIX: knowledge.MOST_UPLOAD_BYTES}
    windows = Windows(chats.store.across, clock, "address", seconds=ADDRESS_SECONDS)
    addresses = Addresses(windows, settings.requests_per_address)
    return create_app(routers, EventStreams(chats, identity), addresses, clock, version=VERSION, uploads=uploads)


async def _signed_in(chats: Chats, servers: McpServers, flow: Flow, credential: Credential) -> None:
    """A sign-in has stored a credential; a server's tools are looked at before a chat goes on with them."""
    if credential.integration_name == MCP_SERVER:
        try:
            await servers.signed_in(credential)
        except Refusal as refusal:
            # The credential stays: looking again is one click, signing in again is a person's time.
            log.info("the tools of MCP server %s were not found: %s", credential.credential_id, refusal.detail)
    await sign_in_ended(chats, flow, credential)


def _subscriptions(settings: Settings, store: Store, plans: Plans, clock: Clock, egress: Egress) -> Subscriptions:
    payments = open_payments(settings.environment, store, plans, clock, egress, settings.base_url)
    return Subscriptions(store, plans, clock, payments)


def _llm_listing(models: Models, credentials: Credentials, llms: Llms) -> organizations.Llms:
    """What ``GET /organizations/llms`` shows: every model, and what an organization has for it."""

    async def providers() -> list[organizations.LlmProvider]:
        return [
            organizations.LlmProvider(
                name=provider.name,
                display_name=provider.display_name,
                models=[model_entry(model) for model in models.of(provider.name)],
                ready=not models.needs_credential(provider.name),
            )
            for provider in models.providers()
        ]

    async def held(caller: Caller) -> list[organizations.LlmCredential]:
        groups = await credentials.list(caller.organization_id)
        return [
            organizations.LlmCredential(row.credential_id, row.integration_name, row.display_name, row.is_default)
            for group in groups
            for row in group.credentials
        ]

    async def check(organization_id: str, llm: LlmChoice) -> None:
        await llms.check(organization_id, saved_choice(llm))

    return organizations.Llms(providers, held, check)


def _health(catalog: Catalog) -> Mapping[str, Any]:
    return {"integrations": {"loadable": catalog.loadable(), "failed": dict(catalog.failures())}}


def _room(plans: Plans, clock: Clock) -> Callable[[WriteTx, str], None]:
    """Refuses a credential beyond the plan's number of them."""

    def check(tx: WriteTx, organization_id: str) -> None:
        require_room(tx, plans, organization_id, "credentials", count_credentials, clock.now())

    return check


def _seats(plans: Plans, tx: Any, organization_id: str) -> int | None:
    return limit_of(tx, plans, organization_id, "seats")


def _tasks(parley: Parley) -> list[Any]:
    chats = parley.chats
    tasks = [
        chats.flusher.run(),
        poll_watched(chats),
        sweep_forever(chats),
        parley.accounts.callers.uses.keep_writing(),
        parley.subscriptions.keep_sweeping(),
        parley.presence.keep(),
        parley.knowledge.keep_sweeping(),
    ]
    if parley.watching is not None:
        tasks += parley.watching.tasks()
    if parley.knowledge.reader is not None:
        tasks.append(parley.knowledge.reader.run())
    if chats.worker is not None:
        tasks.append(chats.worker.run())
    if parley.store.dialect == "postgresql":
        tasks.append(listen_for_notices(parley.settings.store_url, partial(hear, chats)))
    return tasks
