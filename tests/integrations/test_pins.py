"""T5: what an action may send is pinned; whatever gets past the checks of its parameters still does not leave."""

from collections.abc import Sequence

import pytest

from parley.integrations import ActionFailed, Catalog, Secret, invoke
from parley.integrations.effects import all_effects
from parley.integrations.effects.review.make import ONLY_READ
from parley.integrations.effects.review.record import record
from parley.integrations.pins import Pin, Pinned, all_pins
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import ProviderProxy, json_answer
from parley.turn.model import JsonObject

PINS = all_pins()
# These send nothing (they compute), or need texts of a make that no rehearsal guesses: their hosts are pinned.
HOSTS_ONLY = {
    "airtable.update_records", "datadog.post_metric_data", "fireflies.create_bite", "flint.generate_pages",
    "gohighlevel.bulk_update_contact_tags", "google_calendar.get_date_time", "google_drive.create_text_file",
    "instacart.create_recipe_page", "instacart.create_shopping_list_page", "mem0.add_memories",
    "quickbooks.create_bill_payment", "quickbooks.create_purchase", "shopify_partner.verify_webhook",
    "tavily.answer_search", "tavily.news_search", "tavily.web_search", "twilio.download_recording_media",
}  # fmt: skip


# ── the data ────────────────────────────────────────────────────────────────────────────────────


def test_every_action_that_speaks_http_is_pinned(catalog: Catalog) -> None:
    for integration in catalog.integrations():
        if integration.name not in ONLY_READ:
            assert set(PINS[integration.name].actions) == {action.name for action in integration.actions}
    assert set(PINS) == {one.name for one in catalog.integrations()} - ONLY_READ


def test_the_actions_that_are_pinned_by_their_hosts_only_are_known() -> None:
    unseen = {f"{name}.{action}" for name, one in PINS.items() for action, sent in one.actions.items() if not sent}
    assert unseen == HOSTS_ONLY


def test_a_read_never_deletes() -> None:
    effects = all_effects()
    deleting = {
        f"{name}.{action}"
        for name, one in PINS.items()
        for action, requests in one.actions.items()
        if any(request.startswith("DELETE ") for request in requests)
    }
    assert {name for name in deleting if effects[name].effect == "read"} <= {"scrape_do.scrape"}


async def test_the_pins_are_what_the_package_sends(catalog: Catalog) -> None:
    """Drift alarm: a new version that sends something else turns this red."""
    for name in ("npm", "telegram"):
        integration = catalog.find(name)
        assert integration is not None
        assert await record(integration, all_effects()) == PINS[name]


# ── matching ────────────────────────────────────────────────────────────────────────────────────


def pin(requests: Sequence[str], hosts: Sequence[str], known: Sequence[str] = (), given: Sequence[str] = ()) -> Pin:
    return Pin(Pinned(tuple(hosts), {"a": tuple(requests)}), "a", known, given)


@pytest.mark.parametrize(
    ("method", "host", "path", "allowed"),
    [
        ("DELETE", "api.stripe.com", "/v1/subscriptions/sub_1", True),
        ("DELETE", "api.stripe.com", "/v1/customers/cus_1", False),
        ("DELETE", "api.stripe.com", "/v1/subscriptions/sub_1/discount", False),
        ("DELETE", "api.stripe.com", "/v1/subscriptions/", False),
        ("POST", "api.stripe.com", "/v1/subscriptions/sub_1", False),
        ("DELETE", "api.stripe.com.evil.example", "/v1/subscriptions/sub_1", False),
        ("DELETE", "evil.example", "/v1/subscriptions/sub_1", False),
    ],
)
def test_method_host_and_path_must_all_fit(method: str, host: str, path: str, *, allowed: bool) -> None:
    stripe = pin(["DELETE /v1/subscriptions/*"], ["api.stripe.com"])
    assert stripe.allows(method, host, path) is allowed


def test_a_host_out_of_the_credential_must_be_in_the_credential() -> None:
    grafana = pin(["GET {}/api/search"], ["{}"], known=["https://grafana.acme.com/team"])
    assert grafana.allows("GET", "grafana.acme.com", "/team/api/search")
    assert grafana.allows("GET", "grafana.acme.com", "/api/search")
    assert not grafana.allows("GET", "evil.example", "/team/api/search")
    assert not grafana.allows("GET", "grafana.acme.com", "/other/api/search")


def test_an_address_that_is_fetched_must_be_in_the_arguments() -> None:
    fetching = pin(["GET {argument}/**"], ["api.example.com"], given=["https://files.example.org/a.pdf"])
    assert fetching.allows("GET", "files.example.org", "/a.pdf")
    assert not fetching.allows("GET", "evil.example", "/a.pdf")
    assert not fetching.allows("POST", "files.example.org", "/a.pdf")


def test_a_path_parameter_may_be_encoded_and_may_not_become_two_parts() -> None:
    github = pin(["GET /repos/*/*"], ["api.github.com"])
    assert github.allows("GET", "api.github.com", "/repos/octocat/hello%2Fworld")
    assert not github.allows("GET", "api.github.com", "/repos/octocat/hello/world")
    assert not github.allows("GET", "api.github.com", "/user/emails")


# ── at work ─────────────────────────────────────────────────────────────────────────────────────


async def failure(catalog: Catalog, path: str, arguments: JsonObject, secret: Secret) -> ActionFailed:
    name, _, action = path.partition(".")
    with pytest.raises(ActionFailed) as failed:
        await invoke(catalog, name, action, arguments, secret, seconds=20, max_bytes=1_000_000)
    return failed.value


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("github.get_repository", {"owner": "..", "repo": "user/emails"}),
        ("github.get_repository", {"owner": "octocat", "repo": "hello-world/collaborators"}),
        ("github.delete_repository", {"owner": "octocat/../../orgs", "repo": "acme"}),
        ("stripe.cancel_subscription", {"id": "../customers/cus_VICTIM"}),
        ("vercel.remove_project_domain", {"project_id": "../projects/prj_1?a=", "domain": "x"}),
    ],
)
async def test_a_path_that_leads_elsewhere_is_held_back_even_without_the_check_of_parameters(
    catalog: Catalog, proxy: ProviderProxy, path: str, arguments: JsonObject
) -> None:
    async def anything(_asked: object) -> object:
        return json_answer({})

    proxy.answer("*", anything)  # pyright: ignore[reportArgumentType]
    secret = Secret("bearer_token", {"token": "tenant-token-1", "api_key": "tenant-key-1"})
    failed = await failure(catalog, path, arguments, secret)
    assert "Parley held back a request" in failed.public
    assert "Nothing was sent" in failed.public
    assert not failed.attempted
    assert proxy.asked == []


async def test_an_ordinary_call_passes(catalog: Catalog, token: Secret, github: FakeGitHub) -> None:
    done = await invoke(
        catalog,
        "github",
        "list_repositories",
        {},
        token,
        seconds=20,
        max_bytes=1_000_000,
    )
    assert done.succeeded
