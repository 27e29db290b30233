"""An organization's connected actions for a caller who is no model of ours: searching and describing them."""

from parley.base.settings import ApprovalPolicy
from parley.credentials import Credentials
from parley.credentials.offers import MCP_SERVER
from parley.integrations.effects import asks_first, raised_effect
from parley.tools.actions import Actions, Found
from parley.turn.model import JsonObject, JsonValue

MOST_FOUND = 50
DESCRIPTION_CHARACTERS = 200
CREDENTIAL_PAGE = 500


class Directory:
    """What an organization can run right away, and what it would take to run the rest."""

    def __init__(self, actions: Actions, credentials: Credentials) -> None:
        self._actions = actions
        self._credentials = credentials

    async def search(self, organization_id: str, query: str, *, connected_only: bool) -> JsonObject:
        """Actions whose name or description has every word of the query: ``{actions, total, more}``."""
        connected = await self._connected(organization_id)
        words = query.lower().split()
        found: list[JsonValue] = []
        total = 0
        for name in await self._actions.names(organization_id):
            if connected_only and name not in connected:
                continue
            for action, description in await self._actions.described(organization_id, name):
                text = f"{name} {action} {description}".lower()
                if not all(word in text for word in words):
                    continue
                total += 1
                if len(found) < MOST_FOUND:
                    found.append(
                        {
                            "integration_name": name,
                            "action_name": action,
                            "description": description[:DESCRIPTION_CHARACTERS],
                            "connected": name in connected,
                        }
                    )
        return {"actions": found, "total": total, "more": total > len(found)}

    async def describe(
        self, organization_id: str, integration_name: str, action_name: str, policy: ApprovalPolicy
    ) -> JsonObject:
        """One action with the JSON Schema of its parameters, what it does, and why it asks first; or ``{error}``."""
        found = await self._actions.find(organization_id, integration_name, action_name)
        if isinstance(found, str):
            return {"error": found}
        connected = integration_name in await self._connected(organization_id)
        return _described(found, policy, connected=connected)

    async def _connected(self, organization_id: str) -> frozenset[str]:
        """The names under which the organization can act, own integrations by their own names."""
        groups = await self._credentials.list(organization_id, limit=CREDENTIAL_PAGE)
        names = {group.integration_name for group in groups if group.integration_name != MCP_SERVER}
        public = {summary.name for summary in self._actions.catalog.integrations() if summary.public}
        return frozenset(names | public | set(await self._actions.ready_names(organization_id)))


def _described(found: Found, policy: ApprovalPolicy, *, connected: bool) -> JsonObject:
    action = found.action
    reason = asks_first(policy, found.integration.name, action.name, {}, raised_effect(found.effect, {}))
    described: JsonObject = {
        "integration_name": found.integration.name,
        "action_name": action.name,
        "description": action.description,
        "parameters": {**action.argument_schema, "additionalProperties": action.open},
        "effect": found.effect.effect if found.effect.known else "not reviewed",
        "asks_first": None if reason is None else reason.sentence,
        "connected": connected,
    }
    if action.switched_off:
        described["switched_off"] = action.switched_off
    return described
