"""The catalog over HTTP, with the published client and without."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from modulex import Modulex
from modulex.types.integrations import IntegrationMetadata

from parley.accounts import first_start, open_accounts
from parley.base.clock import Clock
from parley.base.settings import Settings
from parley.http.browser import Browser
from parley.http.errors import install_errors
from parley.http.identity import Identity
from parley.http.routes import integrations
from parley.http.routes.integrations import IntegrationEntry, IntegrationPage
from parley.http.shelf import Shelf
from parley.integrations import Catalog, Integration
from parley.integrations.index import FORMAT, Index, summarized
from parley.llm import PROVIDERS, provider_entry, shipped_catalogue
from parley.storage import Store
from tests.accounts.desk import new_keyring, served

KNOWLEDGE = {"modulexdb", "qdrant", "pinecone", "mongodb_atlas", "weaviate"}
OAUTH_APP = {"GITHUB_OAUTH2_CLIENT_ID": "Iv1.x", "GITHUB_OAUTH2_CLIENT_SECRET": "y"}


@pytest.fixture
async def web(store: Store, catalog: Catalog) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a key, on a server that has the catalog's routes only."""
    clock, keyring = Clock(), new_keyring()
    first = await first_start(store, keyring, Settings(), clock)
    assert first is not None
    accounts = await open_accounts(store, keyring, clock, lambda _tx, _organization_id: None)
    known = shipped_catalogue()
    models = [provider_entry(provider, known.of(provider.name), "1") for provider in PROVIDERS]
    app = FastAPI(redirect_slashes=False)
    identity = Identity(accounts, Browser(""))
    app.include_router(integrations.routes(identity, accounts, catalog, lambda: models, OAUTH_APP))
    install_errors(app)
    async with served(app) as url:
        headers = {"Authorization": f"Bearer {first.api_key}", "X-Organization-ID": first.organization_id}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
            yield client
    await accounts.close()


async def browse(web: httpx.AsyncClient, **query: str | int) -> IntegrationPage:
    response = await web.get("/integrations/browse", params=query)
    assert response.status_code == 200, response.text
    return IntegrationPage.model_validate(response.json())


async def test_everything_is_browsed_page_by_page(web: httpx.AsyncClient) -> None:
    first = await browse(web)
    assert (first.page, first.page_size, first.has_more, len(first.integrations)) == (1, 50, True, 50)
    everything = await browse(web, paginate="false")
    assert everything.total == len(everything.integrations) == first.total
    assert not everything.has_more
    names: list[str] = []
    for page in range(1, 100):
        answer = await browse(web, page=page, page_size=37, include_details="false")
        names += [one.name for one in answer.integrations]
        if not answer.has_more:
            break
    assert names == [one.name for one in everything.integrations]
    assert [one.display_name.lower() for one in everything.integrations] == sorted(
        one.display_name.lower() for one in everything.integrations
    )


async def test_a_page_behind_the_last_is_empty(web: httpx.AsyncClient) -> None:
    answer = await browse(web, page=1000)
    assert answer.integrations == []
    assert not answer.has_more


async def test_details_can_be_left_out(web: httpx.AsyncClient) -> None:
    response = await web.get("/integrations/browse", params={"include_details": "false", "search": "github"})
    for entry in response.json()["integrations"]:
        assert set(entry).isdisjoint({"actions", "models", "auth_schemas"})
    (github,) = (await browse(web, search="github", category="version-control")).integrations[:1]
    assert github.actions is not None
    assert {action.name for action in github.actions} >= {"create_issue", "list_repositories"}


async def test_filters_narrow_and_combine(web: httpx.AsyncClient) -> None:
    assert {one.integration_type for one in (await browse(web, type="llm_provider")).integrations} == {"llm_provider"}
    assert {one.name for one in (await browse(web, type="knowledge_provider")).integrations} == KNOWLEDGE
    oauth = await browse(web, auth_type="oauth2", paginate="false")
    assert oauth.total > 50
    assert all(one.auth_schemas and "oauth2" in {s.auth_type for s in one.auth_schemas} for one in oauth.integrations)
    found = {one.name for one in (await browse(web, search="POST_MESSAGE", type="tool")).integrations}
    assert found == {"slack"}
    databases = await browse(web, category="databases", type="tool")
    assert databases.total > 0
    assert all("databases" in {name.lower() for name in one.categories} for one in databases.integrations)
    assert (await browse(web, search="no such thing anywhere")).total == 0


@pytest.mark.parametrize(
    "query", ["page=0", "page=x", "page_size=0", "page_size=101", "type=gadget", "include_details=maybe"]
)
async def test_a_value_out_of_range_is_a_422(web: httpx.AsyncClient, query: str) -> None:
    response = await web.get(f"/integrations/browse?{query}")
    assert response.status_code == 422
    assert isinstance(response.json()["detail"], list)


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [
        ("tools", "tool", "github"),
        ("llm-providers", "llm_provider", "anthropic"),
        ("knowledge-providers", "knowledge_provider", "modulexdb"),
    ],
)
async def test_each_kind_has_a_bare_list_and_details(web: httpx.AsyncClient, path: str, kind: str, name: str) -> None:
    listed = (await web.get(f"/integrations/{path}")).json()
    assert isinstance(listed, list)
    assert {entry["integration_type"] for entry in listed} == {kind}
    assert all("auth_schemas" not in entry for entry in listed)
    detail = IntegrationEntry.model_validate((await web.get(f"/integrations/{path}/{name}")).json())
    assert (detail.name, detail.integration_type) == (name, kind)
    assert (detail.models is not None) == (kind == "llm_provider")
    other = "tools" if path != "tools" else "llm-providers"
    assert (await web.get(f"/integrations/{other}/{name}")).status_code == 404


async def test_a_list_is_narrowed_by_category(web: httpx.AsyncClient) -> None:
    listed = (await web.get("/integrations/tools", params={"category": "CRM"})).json()
    assert {"salesforce", "hubspot"} <= {entry["name"] for entry in listed}
    assert all("crm" in {name.lower() for name in entry["categories"]} for entry in listed)


async def test_details_have_the_documented_shape(web: httpx.AsyncClient) -> None:
    detail = (await web.get("/integrations/tools/github")).json()
    assert {
        "name", "display_name", "description", "logo", "app_url", "docs_url", "categories", "integration_type",
        "version", "status", "recommended", "actions", "auth_schemas",
    } <= set(detail)  # fmt: skip
    assert (detail["logo"], detail["status"]) == ("/app/logos/github", "active")
    create = next(action for action in detail["actions"] if action["name"] == "create_issue")
    assert create["display_name"] == "Create issue"
    assert create["parameters"]["title"] == {
        "type": "string", "description": "Issue title", "required": True, "default": None,
    }  # fmt: skip
    assert set(create["parameters"]) == {"owner", "repo", "title", "body", "labels", "assignees"}


async def test_oauth_schemas_say_whose_app_can_be_used_on_the_kinds_route_only(web: httpx.AsyncClient) -> None:
    by_kind = (await web.get("/integrations/tools/github")).json()["auth_schemas"][0]
    assert (by_kind["supports_modulex_oauth"], by_kind["supports_custom_oauth"]) == (True, True)
    assert by_kind["oauth_config"]["scopes"] == by_kind["required_scopes"]
    gitlab = (await web.get("/integrations/tools/gitlab")).json()["auth_schemas"][0]
    assert (gitlab["supports_modulex_oauth"], gitlab["supports_custom_oauth"]) == (False, True)
    generic = (await web.get("/integrations/github")).json()
    assert "supports_modulex_oauth" not in generic["auth_schemas"][0]
    assert generic["models"] == []


async def test_a_credentials_form_names_its_fields(web: httpx.AsyncClient) -> None:
    schema = (await web.get("/integrations/tools/posthog")).json()["auth_schemas"][0]
    fields = {field["name"]: field for field in schema["setup_environment_variables"]}
    assert fields["POSTHOG_API_KEY"]["sensitive"] is True
    assert fields["POSTHOG_BASE_URL"]["key"] == "base_url"
    assert schema["important_notes"]


@pytest.mark.parametrize("path", ["nothing", "tools/nothing", "llm-providers/nothing", "knowledge-providers/nothing"])
async def test_what_is_not_there_is_a_404(web: httpx.AsyncClient, path: str) -> None:
    response = await web.get(f"/integrations/{path}")
    assert response.status_code == 404
    assert response.json() == {"detail": "Integration 'nothing' not found"}


async def test_the_catalog_needs_a_key(web: httpx.AsyncClient) -> None:
    for path in ("browse", "tools", "github"):
        assert (await web.get(f"/integrations/{path}", headers={"Authorization": ""})).status_code == 401


async def test_the_published_client_reads_all_of_it(web: httpx.AsyncClient) -> None:
    key = web.headers["Authorization"].removeprefix("Bearer ")
    async with Modulex(api_key=key, base_url=str(web.base_url)) as client:
        page = await client.integrations.browse(page_size=100)
        assert len(page.integrations) == 100
        assert page.has_more
        tools: list[IntegrationMetadata] = await client.integrations.tools()
        assert len(tools) == 194
        detail = await client.integrations.tool_detail("github")
        assert detail.auth_schemas[0].supports_custom_oauth is True
        models = (await client.integrations.llm_provider_detail("anthropic")).models
        assert models
        assert {one.name for one in await client.integrations.knowledge_providers()} == KNOWLEDGE
        assert (await client.integrations.get("slack")).name == "slack"


async def test_a_picture_is_drawn_for_every_name_without_a_key(web: httpx.AsyncClient) -> None:
    response = await web.get("/app/logos/google_sheets", headers={"Authorization": ""})
    assert response.status_code == 200
    assert response.headers["content-type"] == "image/svg+xml"
    assert ">GS<" in response.text
    assert (await web.get("/app/logos/google_sheets")).text == response.text
    assert (await web.get("/app/logos/..%2Fetc")).status_code in (404, 422)


async def test_an_integration_that_does_not_load_is_shown_as_unavailable() -> None:
    broken = Integration("example", "Example", "For tests")
    catalog = Catalog(Index(FORMAT, "0", {}, (summarized(broken, ("no_such_driver",)),)))
    entry = Shelf(catalog, list, {}).whole("example", ("tool",), "catalog")
    assert entry["status"] == "unavailable"
    assert entry["unavailable_reason"] == "needs no_such_driver, which is not installed"
