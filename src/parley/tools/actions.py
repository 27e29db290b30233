"""Every action an organization can run: the catalog's, and those of its own integrations."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from parley.credentials import Usable
from parley.credentials.apis import ImportedApis, imported_integration
from parley.credentials.mcp import McpServers
from parley.credentials.offers import MCP_SERVER
from parley.integrations import Action, Catalog, Integration, Invoked, Secret, available, details, invoke
from parley.integrations.effects import Effect
from parley.integrations.openapi import OPENAPI, effect_of_own, integration_of, reached_of, request_of
from parley.integrations.own import OwnAction, OwnIntegration, own_available, own_details
from parley.integrations.own import store as own_rows
from parley.storage import ReadTx, Store
from parley.turn.model import JsonObject, JsonValue

RESULT_BYTES = 4 * 1024 * 1024

type Call = Callable[[Usable, JsonObject], Awaitable[Invoked]]
"""Runs it with an account and arguments. Raises ActionFailed, and Refusals of the account."""


@dataclass(frozen=True, slots=True)
class Account:
    """Where its credential is looked for: under an integration's name; ``only`` where it came with one.

    An ``optional`` one may be missing.
    """

    integration_name: str
    only: str | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """One action: what it is, what it does to the world, whose account it takes, and how it is run.

    ``version`` stands for an own action as it is now, empty for the catalog's: an approval is for no other.
    """

    integration: Integration
    action: Action
    effect: Effect
    account: Account
    call: Call
    version: str = ""


class Actions:
    """What can be run. ``seconds`` bounds one run."""

    def __init__(
        self, catalog: Catalog, store: Store, servers: McpServers, apis: ImportedApis, *, seconds: float
    ) -> None:
        self.catalog = catalog
        self._store = store
        self.servers = servers
        self.apis = apis
        self._seconds = seconds

    async def find(self, organization_id: str, integration_name: str, action_name: str) -> Found | str:
        """One action, or the sentence that says what there is not. The catalog's names come first."""
        integration = self.catalog.find(integration_name)
        if integration is not None:
            action = self.catalog.action(integration, action_name)
            return (
                _no_action(action_name, integration_name) if action is None else self._of_catalog(integration, action)
            )
        found = await self._store.read(lambda tx: _own(tx, organization_id, integration_name, action_name))
        if found is None:
            return f"Integration '{integration_name}' not found"
        own, own_action = found
        if own_action is None:
            return _no_action(action_name, integration_name)
        return self._of_api(own, own_action) if own.kind == OPENAPI else self._of_server(own, own_action)

    async def integration(self, organization_id: str, name: str) -> Integration | None:
        """What can be connected under a name: of the catalog, or an API that the organization imported."""
        return self.catalog.find(name) or await imported_integration(self._store, organization_id, name)

    async def available(
        self, organization_id: str, kind: str, query: str | None, llm_providers: Sequence[JsonObject]
    ) -> JsonObject:
        """The compact catalogue with the organization's own integrations first among the tools (contract §6)."""
        told = available(self.catalog, kind, query, llm_providers)
        tools = told.get("tools")
        if not isinstance(tools, list):
            return told

        def work(tx: ReadTx) -> list[JsonObject]:
            own = own_rows.list_integrations(tx, organization_id)
            return own_available(own, own_rows.action_names(tx, organization_id) if own else {}, query)

        first: list[JsonValue] = [*await self._store.read(work)]
        return {**told, "tools": first + tools}

    async def details(
        self, organization_id: str, name: str, action: str | None, llm_providers: Sequence[JsonObject]
    ) -> JsonObject:
        """The parameters of an integration's actions, or of one (contract §6)."""
        if self.catalog.find(name) is not None:
            return details(self.catalog, name, action, llm_providers)

        def work(tx: ReadTx) -> tuple[OwnIntegration, Sequence[OwnAction]] | None:
            own = own_rows.find(tx, organization_id, name)
            return None if own is None else (own, own_rows.list_actions(tx, own.id))

        found = await self._store.read(work)
        return details(self.catalog, name, action, llm_providers) if found is None else own_details(*found, action)

    async def ready_names(self, organization_id: str) -> Sequence[str]:
        """The names of the organization's own integrations that need no credential beside what they came with."""
        own = await self._store.read(lambda tx: own_rows.list_integrations(tx, organization_id))
        return [each.name for each in own if each.kind != OPENAPI or reached_of(each).public]

    async def names(self, organization_id: str) -> Sequence[str]:
        """Every integration's name, the organization's own first."""
        own = await self._store.read(lambda tx: own_rows.list_integrations(tx, organization_id))
        return [*(each.name for each in own), *(summary.name for summary in self.catalog.summaries())]

    async def described(self, organization_id: str, integration_name: str) -> Sequence[tuple[str, str]]:
        """The names and descriptions of an integration's actions."""
        integration = self.catalog.find(integration_name)
        if integration is not None:
            return [(action.name, action.description) for action in integration.actions]

        def work(tx: ReadTx) -> Sequence[tuple[str, str]]:
            own = own_rows.find(tx, organization_id, integration_name)
            found = own_rows.list_actions(tx, own.id) if own else ()
            return [(action.found.name, action.found.description) for action in found]

        return await self._store.read(work)

    def _of_catalog(self, integration: Integration, action: Action) -> Found:
        effect = self.catalog.effect(integration, action)
        call = partial(self._call_catalog, integration.name, action.name)
        return Found(integration, action, effect, Account(integration.name), call)

    async def _call_catalog(self, integration: str, action: str, account: Usable, arguments: JsonObject) -> Invoked:
        return await invoke(
            self.catalog,
            integration,
            action,
            arguments,
            Secret(account.auth_type, account.auth_data),
            seconds=self._seconds,
            max_bytes=RESULT_BYTES,
        )

    def _of_server(self, own: OwnIntegration, action: OwnAction) -> Found:
        return Found(
            own.integration(),
            action.action(),
            action.reviewed_effect,
            Account(MCP_SERVER, own.credential_id),
            partial(self._call_server, own, action.found.name),
            action.fingerprint,
        )

    def _of_api(self, own: OwnIntegration, action: OwnAction) -> Found:
        return Found(
            integration_of(own),
            action.action(),
            effect_of_own(action),
            Account(own.name, optional=request_of(action.found).is_open),
            partial(self._call_api, own, action),
            # Who approves a request approves where it goes.
            f"{action.fingerprint} {reached_of(own).base_url}",
        )

    async def _call_api(
        self, own: OwnIntegration, action: OwnAction, account: Usable, arguments: JsonObject
    ) -> Invoked:
        return await self.apis.call(account, own, action, arguments, seconds=self._seconds, max_bytes=RESULT_BYTES)

    async def _call_server(self, own: OwnIntegration, name: str, account: Usable, arguments: JsonObject) -> Invoked:
        return await self.servers.call(account, own, name, arguments, seconds=self._seconds, max_bytes=RESULT_BYTES)


def _own(
    tx: ReadTx, organization_id: str, integration_name: str, action_name: str
) -> tuple[OwnIntegration, OwnAction | None] | None:
    own = own_rows.find(tx, organization_id, integration_name)
    return None if own is None else (own, own_rows.find_action(tx, own.id, action_name))


def _no_action(action_name: str, integration_name: str) -> str:
    return f"Action '{action_name}' not found in {integration_name}"
