"""T6: no argument of a model changes where a credential goes.

Every text parameter is poisoned with the attacker's host in every make, and so is every field of the
credential, slipped in as arguments. What carries a secret must never arrive at the attacker. The check of
parameters is left out on purpose: binding and pins must hold by themselves. By default the actions that
take hosts, addresses or have hosts in their credentials; ``make canaries`` takes all of them. Drivers that no
proxy sees are called by nobody here: all of their actions are looked at where the call has been filled in.
"""

import base64
import os
from collections.abc import AsyncIterator

import pytest

from parley.egress import Egress
from parley.integrations import Integration
from parley.integrations.arguments import call_arguments
from parley.integrations.effects import effect_of
from parley.integrations.index import Action
from parley.integrations.pins import all_pins
from parley.testing.provider_proxy import Answer, Asked, ProviderProxy, json_answer
from parley.turn.model import JsonObject
from tests.contract.conftest import proxied
from tests.trust.drive import CATALOG, canary_credential, outcome, sample_arguments, ways

FULL = os.environ.get("PARLEY_CANARIES") == "all"
EVIL = "evil.attacker-place.com"
POISONS = (f"{EVIL}/", f"https://{EVIL}/x", f"@{EVIL}", f"{EVIL}#", f"x.{EVIL}?a=", f"../../..//{EVIL}/", EVIL)
# These dial in ways that no proxy sees; their drivers dial what the credential says (tests/egress).
DRIVERS = ["microsoft_sql_server", "mongodb_atlas", "mysql", "nasdaq", "postgresql", "snowflake"]
FROM_CREDENTIAL = {name for name, pinned in all_pins().items() if any("{}" in host for host in pinned.hosts)}
OF_EACH = 2
SECONDS = 1.5  # for all of one call; a few wait for jobs of the provider that never end here


def at_risk(integration: Integration, action: Action) -> bool:
    effect = effect_of(integration.name, action.name)
    return bool(effect.hosts or effect.fetched)


def chosen(integration: Integration) -> list[Action]:
    """All actions, or those that could be turned most easily."""
    if FULL:
        return list(integration.actions)
    risky = [action for action in integration.actions if at_risk(integration, action)]
    bound = [action for action in integration.actions if action.parameters][:OF_EACH]
    return (risky or (bound if integration.name in FROM_CREDENTIAL else []))[: 2 * OF_EACH]


NAMES = [one.name for one in CATALOG.integrations() if one.name not in DRIVERS and chosen(one)]


@pytest.fixture(scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProviderProxy]:
    async with proxied(tmp_path_factory.mktemp("proxy")) as running:
        with Egress((), os.environ).install():
            yield running


def poisoned(integration: Integration, action: Action, poison: str) -> JsonObject:
    arguments = sample_arguments(action, poison)
    fields = {one.key for schema in integration.auth_schemas for one in schema.fields} | set(action.bound)
    fields |= {"base_url", "domain", "subdomain", "region", "shop_id", "host", "auth_type", "api_key", "token"}
    return {**dict.fromkeys(sorted(fields), poison), "auth_data": {"token": poison}, **arguments}


@pytest.mark.timeout(900 if FULL else 60)
@pytest.mark.parametrize("name", NAMES)
async def test_t6_no_argument_changes_where_a_credential_goes(name: str, proxy: ProviderProxy) -> None:
    async def provide(asked: Asked) -> Answer:
        if EVIL in asked.host:  # a file that was asked for, and nothing else
            told = f"{asked.path} {asked.query} {asked.headers} {asked.body!r}"
            assert asked.method == "GET"
            stolen.extend(canaries.found_in(told + base64.b64encode(told.encode()).decode()))
        return json_answer({"id": "1", "data": [{"id": "1"}], "results": []})

    integration = CATALOG.find(name)
    assert integration is not None
    proxy.answer("*", provide)
    stolen: list[str] = []
    for schema in ways(integration)[: None if FULL else 1] or [None]:
        secret, canaries = canary_credential(integration, schema)
        for action in chosen(integration):
            for poison in POISONS:
                proxy.asked.clear()
                await outcome(integration, action, poisoned(integration, action, poison), secret, seconds=SECONDS)
                assert stolen == [], f"{name}.{action.name} with {poison}"
                went = {asked.host for asked in proxy.asked if canaries.found_in(f"{asked.headers} {asked.query}")}
                assert not [host for host in went if EVIL in host], f"{name}.{action.name} with {poison}"


@pytest.mark.parametrize("name", DRIVERS)
async def test_t6_no_argument_changes_what_a_driver_gets_of_the_credential(name: str) -> None:
    integration = CATALOG.find(name)
    assert integration is not None
    loaded = await CATALOG.loader.load(integration)
    for schema in ways(integration):
        secret, _ = canary_credential(integration, schema)
        for action in integration.actions:
            assert action.bound
            plain = call_arguments(integration, action, loaded[action.name].arguments, sample_arguments(action), secret)
            for poison in POISONS:
                filled = call_arguments(
                    integration, action, loaded[action.name].arguments, poisoned(integration, action, poison), secret
                )
                assert filled.keys() == plain.keys()
                changed = {given for given in filled if filled[given] != plain[given]}
                assert changed <= {parameter.name for parameter in action.parameters}, f"{name}.{action.name}"


def test_t6_the_places_that_a_credential_chooses_are_known() -> None:
    """Growing this list means that a new integration lets whoever connects it choose a host: look at it first."""
    assert {
        "algolia", "azure_storage", "clay", "databricks", "datadog", "fellow", "freshdesk", "godaddy", "gong",
        "grafana",
        "insightly", "instructure_canvas", "mailchimp", "microsoft_dynamics_365_sales", "obsidian", "okta", "pipedrive",
        "posthog", "qdrant", "salesforce", "servicenow", "shopify", "supabase", "weaviate", "woocommerce",
    } >= FROM_CREDENTIAL  # fmt: skip
