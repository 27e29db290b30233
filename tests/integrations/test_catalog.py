"""The catalog: complete, quick to open, honest about what does not load."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from parley.integrations import Action, AuthSchema, Catalog, CredentialField, Integration, load_catalog
from parley.integrations.build import read_review
from parley.integrations.index import FORMAT, SHIPPED, Index, IndexBroken, read_index, summarized, write_index

INTEGRATIONS = 194
ACTIONS = 2140

# Parameters whose names look like secrets and are ordinary all the same (trust §2.2).
LEGITIMATE = {
    "agentmail.list_messages": "page_token",
    "ashby.list_offers": "sync_token",
    "ses.list_identities": "next_token",
    "google_contacts.list_directory_contacts": "request_sync_token",
    "railway.list_projects": "token_type",
    "elevenlabs.create_agent": "max_tokens",
    "jina_ai.deep_search": "budget_tokens",
    "revenuecat.create_purchase": "fetch_token",
    "zoom.get_meeting_recordings": "download_access_token",
    "zoom.create_meeting": "password",
    "short_io.create_link": "password",
    "woocommerce.create_customer": "password",
    "daytona.git_clone": "password",
    "dropbox.create_update_share_link": "link_password",
    "fireflies.add_to_live_meeting": "meeting_password",
    "vercel.create_env_var": "key",
    "posthog.get_feature_flag": "project_id",
    "agentmail.create_inbox": "domain",
    "aws.dynamodb_scan": "region",
}

# Parameters that choose where a credential goes, or are one (trust §2.2, §2.4 A).
HIDDEN = {
    "freshdesk.get_ticket": {"domain"},
    "grafana.list_dashboards": {"base_url"},
    "mailgun.send_email": {"region"},
    "supabase.select_row": {"subdomain", "service_key"},
    "posthog.run_query": {"base_url"},
    "posthog.capture_event": {"project_api_key", "ingest_url"},
    "obsidian.get_note": {"base_url"},
    "datadog.search_logs": {"region", "application_key"},
    "shopify.update_order": {"shop_id"},
    "kalshi.get_balance": {"key_id", "private_key"},
    "shopify_partner.verify_webhook": {"app_secret_key", "organization_id"},
    "clay.populate": {"webhook_url"},
    "greptile.query": {"github_token"},
    "segment.track": {"write_key"},
}


def entry(integration: Integration, *needs: str) -> Index:
    return Index(FORMAT, "0", {}, (summarized(integration, needs),))


def some_integration(name: str = "example") -> Integration:
    return Integration(name=name, display_name="Example", description="For tests", actions=(Action("look", "Looks"),))


def test_every_integration_and_action_of_the_package_is_there(catalog: Catalog) -> None:
    assert len(catalog.summaries()) == INTEGRATIONS
    assert sum(len(integration.actions) for integration in catalog.integrations()) == ACTIONS


def test_everything_can_load_on_this_machine(catalog: Catalog) -> None:
    assert catalog.failures() == {}


def test_an_integration_and_its_action_are_found_by_name(catalog: Catalog) -> None:
    github = catalog.find("github")
    assert github is not None
    assert github.display_name == "GitHub"
    create = catalog.action(github, "create_issue")
    assert create is not None
    assert [parameter.name for parameter in create.parameters] == [
        "owner", "repo", "title", "body", "labels", "assignees",
    ]  # fmt: skip


def test_what_is_not_there_is_not_found(catalog: Catalog) -> None:
    github = catalog.find("github")
    assert github is not None
    assert catalog.find("gitlub") is None
    assert catalog.action(github, "crate_issue") is None


def test_parameters_are_those_of_the_function_not_of_the_manifest(catalog: Catalog) -> None:
    shown = parameters(catalog, "github.list_repositories")
    assert shown == ["visibility", "affiliation", "sort", "direction", "per_page", "page"]


@pytest.mark.parametrize(
    ("path", "published", "real"),
    [
        ("github.get_file_content", "branch", "ref"),
        ("microsoft_teams.search_messages", "from_", "from"),
        ("servicenow.update_table_record", "exclude_reference_link", None),
    ],
)
def test_a_published_parameter_that_the_function_lacks_is_shown_by_its_real_name(
    catalog: Catalog, path: str, published: str, real: str | None
) -> None:
    assert published not in parameters(catalog, path)
    action = find_action(catalog, path)
    assert action.aliases.get(published) == real
    assert real is None or real in parameters(catalog, path)


@pytest.mark.parametrize(("path", "name"), LEGITIMATE.items())
def test_an_ordinary_parameter_with_a_secret_looking_name_survives(catalog: Catalog, path: str, name: str) -> None:
    assert name in parameters(catalog, path)


@pytest.mark.parametrize(("path", "names"), HIDDEN.items())
def test_a_parameter_that_belongs_to_the_credential_is_not_shown(catalog: Catalog, path: str, names: set[str]) -> None:
    assert names.isdisjoint(parameters(catalog, path))
    assert names <= set(find_action(catalog, path).bound)


def test_no_action_shows_the_model_a_credential(catalog: Catalog) -> None:
    credential = {"api_key", "token", "access_token", "bearer_token", "auth_type", "auth_data", "private_key"}
    shown = {
        f"{integration.name}.{action.name}.{parameter.name}"
        for integration in catalog.integrations()
        for action in integration.actions
        for parameter in action.parameters
        if parameter.name in credential
    }
    assert shown == set()


def test_every_action_takes_its_credential_in_a_reviewed_way(catalog: Catalog) -> None:
    """Both conventions are covered, but for the actions that read public data."""
    unbound = {
        integration.name for integration in catalog.integrations() for action in integration.actions if not action.bound
    }
    assert unbound == {"kalshi"}


def test_each_bound_argument_has_a_field_that_fills_it(catalog: Catalog) -> None:
    """Of every way to connect, unless the secret itself fills it or its function can do without."""
    lacking = {
        f"{integration.name}.{name}"
        for integration in catalog.integrations()
        for action in integration.actions
        for name in action.bound
        if name not in ("auth_type", "auth_data", "api_key")
        and not any(name == field.key for schema in integration.auth_schemas for field in schema.fields)
    }
    assert lacking == set()


def test_the_schema_of_an_action_allows_what_is_shown_and_nothing_else(catalog: Catalog) -> None:
    assert find_action(catalog, "linear.search_issues").argument_schema["additionalProperties"] is False
    for integration in catalog.integrations():
        for action in integration.actions:
            schema = action.argument_schema
            properties = schema["properties"]
            assert isinstance(properties, dict)
            assert list(properties) == [parameter.name for parameter in action.parameters]
            assert schema["required"] == [parameter.name for parameter in action.parameters if parameter.required]


def test_an_enum_of_the_function_is_shown(catalog: Catalog) -> None:
    order = next(one for one in find_action(catalog, "linear.search_issues").parameters if one.name == "order_by")
    assert order.enum == ("createdAt", "updatedAt")
    assert not order.required


def test_texts_hide_no_characters(catalog: Catalog) -> None:
    for integration in catalog.integrations():
        texts = [integration.description, *(action.description for action in integration.actions)]
        texts += [parameter.description for action in integration.actions for parameter in action.parameters]
        assert all(text.isprintable() for text in texts), integration.name


def test_what_is_switched_off_or_run_differently_says_so(catalog: Catalog) -> None:
    download = find_action(catalog, "microsoft_onedrive.download_file")
    assert "all organizations of this server share" in download.switched_off
    for name in ("mysql", "obsidian", "postgresql"):
        integration = catalog.find(name)
        assert integration is not None
        assert any("certificate" in note for note in integration.notes)


def test_test_endpoints_only_ask_for_fields_that_exist(catalog: Catalog) -> None:
    for integration in catalog.integrations():
        for schema in integration.auth_schemas:
            missing = placeholders(schema) - {name for field in schema.fields for name in (field.name, field.key)}
            assert missing <= {"api_key", "access_token", "token", "bearer_token"}, integration.name


def placeholders(schema: AuthSchema) -> set[str]:
    probe = schema.test_endpoint
    if probe is None:
        return set()
    text = json.dumps([probe.url, probe.headers, probe.params])
    return {part.partition("}")[0] for part in text.split("{")[1:] if part.partition("}")[0].isidentifier()}


def test_search_finds_by_name_description_category_and_action_whatever_the_case(catalog: Catalog) -> None:
    for wanted in ("SLACK", "post_message", "workspace messaging", "communication"):
        found = {summary.name for summary in catalog.search(wanted)}
        expected = {
            integration.name
            for integration in catalog.integrations()
            if any(
                wanted.lower() in text.lower()
                for text in (
                    integration.name,
                    integration.display_name,
                    integration.description,
                    *integration.categories,
                    *(action.name for action in integration.actions),
                )
            )
        }
        assert found == expected


def test_an_integration_whose_driver_is_missing_is_reported_by_name() -> None:
    catalog = Catalog(entry(some_integration(), "msgspec", "no_such_driver"))
    assert catalog.failures() == {"example": "needs no_such_driver, which is not installed"}


def test_an_integration_that_could_not_be_indexed_is_reported_by_name() -> None:
    index = Index(FORMAT, "0", {"broken": "ImportError: no"}, entry(some_integration()).integrations)
    assert Catalog(index).failures() == {"broken": "ImportError: no"}
    assert index.names == {"broken", "example"}


def test_a_file_that_is_no_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json.gz"
    path.write_bytes(b"no")
    with pytest.raises(IndexBroken, match=r"catalog\.json\.gz"):
        read_index(path)
    write_index(Index(FORMAT + 1, "0", {}, ()), path)
    with pytest.raises(IndexBroken, match="format"):
        read_index(path)


def test_opening_the_catalog_imports_no_integration_and_none_of_its_clients() -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        "from parley.integrations import load_catalog\n"
        "catalog = asyncio.run(load_catalog(pathlib.Path('var')))\n"
        "assert len(catalog.summaries()) == 194\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=50)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint({"modulex_integrations", "langchain_core", "httpx", "boto3", "hubspot"})


@pytest.mark.timeout(240)
async def test_the_shipped_index_is_what_the_installed_package_gives(tmp_path: Path) -> None:
    """An index of another version is replaced by a new one from a child process, and kept for the next start."""
    old = tmp_path / "old.json.gz"
    write_index(entry(some_integration()), old)
    rebuilt = await load_catalog(tmp_path / "data", shipped=old)
    assert rebuilt.find("example") is None
    kept = list((tmp_path / "data").iterdir())
    assert len(kept) == 1
    assert read_index(kept[0]) == read_index(SHIPPED)


def test_drivers_that_integrations_import_late_are_importable(catalog: Catalog) -> None:
    drivers = sorted({module for summary in catalog.summaries() for module in summary.needs})
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(drivers)}"], capture_output=True, text=True, check=False, timeout=55
    )
    assert done.returncode == 0, done.stderr


def test_the_review_is_checked_for_misspelt_tables(tmp_path: Path) -> None:
    path = tmp_path / "review.toml"
    path.write_text("[bonud]\ngithub = []\n")
    with pytest.raises(msgspec.ValidationError):
        read_review(path)


def test_a_field_knows_the_key_its_integration_reads(catalog: Catalog) -> None:
    keys = {
        field.name: field.key
        for integration in catalog.integrations()
        for schema in integration.auth_schemas
        for field in schema.fields
    }
    assert keys["SHOPIFY_SHOP_ID"] == "shop_id"
    assert keys["MSSQL_HOST"] == "host"
    assert keys["AZURE_STORAGE_ACCOUNT_NAME"] == "storage_account_name"
    assert keys["OBSIDIAN_BASE_URL"] == "base_url"
    assert CredentialField("A", "a", "A", "").required


def find_action(catalog: Catalog, path: str) -> Action:
    name, _, action_name = path.partition(".")
    integration = catalog.find(name)
    assert integration is not None, name
    action = catalog.action(integration, action_name)
    assert action is not None, path
    return action


def parameters(catalog: Catalog, path: str) -> list[str]:
    return [parameter.name for parameter in find_action(catalog, path).parameters]
