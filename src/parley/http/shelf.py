"""Tools, model providers and knowledge providers side by side, in the wire forms of contract §11."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from parley.base.errors import NotFound
from parley.base.settings import ApprovalPolicy
from parley.integrations import Action, AuthSchema, Catalog, Integration
from parley.integrations.effects import asks_first
from parley.turn.model import JsonObject, JsonValue

LOGOS = "/app/logos"
OAUTH = "oauth2"
APP_FIELDS = ("CLIENT_ID", "CLIENT_SECRET")

type Kind = Literal["tool", "llm_provider", "knowledge_provider"]
type LlmProviders = Callable[[], Sequence[JsonObject]]

KINDS: tuple[Kind, ...] = ("tool", "llm_provider", "knowledge_provider")


class IntegrationNotFound(NotFound):
    """There is no integration of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Integration '{name}' not found")


@dataclass(frozen=True, slots=True)
class Item:
    """One integration as lists are filtered and sorted.

    ``make`` gives its wire form with all details; the policy decides what asks first.
    """

    name: str
    kind: Kind
    display_name: str
    categories: Sequence[str]
    auth_types: Sequence[str]
    text: str
    make: Callable[[ApprovalPolicy], JsonObject]


class Shelf:
    """Everything that can be connected.

    ``llm_providers`` gives the model providers as they are now, in their wire form; the operator's
    OAuth apps are in ``environment`` under the names the manifests give.
    """

    def __init__(self, catalog: Catalog, llm_providers: LlmProviders, environment: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._llm_providers = llm_providers
        self._environment = environment
        self._fixed = (*self._tools(), *self._knowledge())

    def found(
        self,
        kinds: Sequence[Kind],
        *,
        category: str | None = None,
        auth_type: str | None = None,
        search: str | None = None,
    ) -> Sequence[Item]:
        """What matches every filter, in the order of display names; case does not matter."""
        wanted = (search or "").strip().lower()
        matching = [
            item
            for item in self._items(kinds)
            if wanted in item.text
            and (auth_type is None or auth_type in item.auth_types)
            and (category is None or category.lower() in (name.lower() for name in item.categories))
        ]
        return sorted(matching, key=lambda item: (item.display_name.lower(), item.kind))

    def whole(self, name: str, kinds: Sequence[Kind], policy: ApprovalPolicy) -> JsonObject:
        """One integration with its details, and what asks first under the policy. Raises IntegrationNotFound."""
        for item in self._items(kinds):
            if item.name == name:
                return item.make(policy)
        raise IntegrationNotFound(name)

    def display_name(self, name: str) -> str:
        """What people call it; the name itself where it is none of ours."""
        return next((item.display_name for item in self._items(KINDS) if item.name == name), name)

    def with_oauth(self, entry: JsonObject) -> JsonObject:
        """The entry, telling of each OAuth schema whose app it can be used with."""
        return {**entry, "auth_schemas": [self._oauth(schema) for schema in _objects(entry["auth_schemas"])]}

    def _oauth(self, schema: JsonObject) -> JsonObject:
        if schema["auth_type"] != OAUTH:
            return schema
        names = [str(field["name"]) for field in _objects(schema["setup_environment_variables"])]
        app = [name for name in names if name.endswith(APP_FIELDS)]
        pooled = bool(app) and all(self._environment.get(name) for name in app)
        return {**schema, "supports_modulex_oauth": pooled, "supports_custom_oauth": True}

    def _items(self, kinds: Sequence[Kind]) -> Iterator[Item]:
        for item in (*self._fixed, *self._models()):
            if item.kind in kinds:
                yield item

    def _tools(self) -> Iterator[Item]:
        for summary in self._catalog.summaries():
            yield Item(
                name=summary.name,
                kind="tool",
                display_name=summary.display_name,
                categories=summary.categories,
                auth_types=summary.auth_types,
                text=summary.text,
                make=partial(self._tool, summary.name),
            )

    def _tool(self, name: str, policy: ApprovalPolicy) -> JsonObject:
        integration = self._catalog.find(name)
        if integration is None:
            raise IntegrationNotFound(name)
        broken = self._catalog.failures().get(name)
        return {
            "name": name,
            "display_name": integration.display_name,
            "description": integration.description,
            "logo": f"{LOGOS}/{name}",
            "app_url": integration.app_url,
            "docs_url": None,
            "categories": list(integration.categories),
            "integration_type": "tool",
            "version": integration.version,
            "status": "active" if broken is None else "unavailable",
            "unavailable_reason": broken,
            "recommended": False,
            "actions": [
                {**_action(action), **self._gate(integration, action, policy)} for action in integration.actions
            ],
            "auth_schemas": _auth_schemas(integration),
        }

    def _gate(self, integration: Integration, action: Action, policy: ApprovalPolicy) -> JsonObject:
        """What the action does, and why it asks first whatever it is called with; None where it runs at once."""
        effect = self._catalog.listed_effect(integration, action)
        reason = asks_first(policy, integration.name, action.name, {}, effect)
        return {"effect": effect.effect, "asks_first": None if reason is None else reason.sentence}

    def _models(self) -> Iterator[Item]:
        for provider in self._llm_providers():
            name, display_name = str(provider["name"]), str(provider["display_name"])
            categories = provider["categories"]
            listed = [str(category) for category in categories] if isinstance(categories, list) else []
            entry: JsonObject = {**provider, "logo": f"{LOGOS}/{name}"}
            yield Item(
                name=name,
                kind="llm_provider",
                display_name=display_name,
                categories=listed,
                auth_types=[str(schema["auth_type"]) for schema in _objects(provider["auth_schemas"])],
                text="\n".join((name, display_name, str(provider["description"]), *listed)).lower(),
                make=partial(_same, entry),
            )

    def _knowledge(self) -> Iterator[Item]:
        for provider in self._catalog.knowledge_providers:
            behind = self._catalog.find(provider.integration)
            entry: JsonObject = {
                "name": provider.name,
                "display_name": provider.display_name,
                "description": provider.description,
                "logo": f"{LOGOS}/{provider.name}",
                "app_url": provider.app_url,
                "docs_url": provider.docs_url,
                "categories": list(provider.categories),
                "integration_type": "knowledge_provider",
                "version": "1.0.0",
                "status": "active",
                "recommended": provider.recommended,
                "actions": [],
                "auth_schemas": _auth_schemas(behind) if behind else [],
            }
            yield Item(
                name=provider.name,
                kind="knowledge_provider",
                display_name=provider.display_name,
                categories=provider.categories,
                auth_types=[schema.auth_type for schema in behind.auth_schemas] if behind else [],
                text=provider.text,
                make=partial(_same, entry),
            )


def _same(entry: JsonObject, _policy: ApprovalPolicy) -> JsonObject:
    return dict(entry)


def _objects(value: JsonValue) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# ── wire forms ──────────────────────────────────────────────────────────────────────────────────


def _action(action: Action) -> JsonObject:
    parameters: JsonObject = {}
    for parameter in action.parameters:
        told: JsonObject = {
            "type": parameter.type,
            "description": parameter.description,
            "required": parameter.required,
            "default": parameter.default,
        }
        parameters[parameter.name] = told if parameter.enum is None else {**told, "enum": list(parameter.enum)}
    entry: JsonObject = {
        "name": action.name,
        "display_name": action.name.replace("_", " ").capitalize(),
        "description": action.description,
        "parameters": parameters,
    }
    return {**entry, "switched_off": action.switched_off} if action.switched_off else entry


def _auth_schemas(integration: Integration) -> list[JsonValue]:
    return [_auth_schema(integration, schema) for schema in integration.auth_schemas]


def _auth_schema(integration: Integration, schema: AuthSchema) -> JsonObject:
    oauth = schema.oauth_config
    return {
        "auth_type": schema.auth_type,
        "display_name": schema.display_name,
        "description": schema.description,
        "setup_instructions": list(schema.setup_instructions),
        "setup_environment_variables": [msgspec.structs.asdict(field) for field in schema.fields],
        "oauth_config": None if oauth is None else {**msgspec.structs.asdict(oauth), "scopes": list(oauth.scopes)},
        "required_scopes": [] if oauth is None else list(oauth.scopes),
        "important_notes": list(integration.notes),
        "test_supported": schema.test_endpoint is not None,
    }
