"""What can be connected (contract §11): tools, model providers, knowledge providers, and their pictures."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel

from parley.accounts import Accounts, User
from parley.base.settings import ApprovalPolicy
from parley.equipment.equip import stricter
from parley.http.identity import Identity, own_organization
from parley.http.schemas import NOT_FOUND, described
from parley.http.shelf import KINDS, LOGOS, Kind, LlmProviders, Shelf
from parley.integrations import Catalog, monogram
from parley.turn.model import JsonObject, JsonValue

PATHS: Mapping[str, Kind] = {
    "tools": "tool",
    "llm-providers": "llm_provider",
    "knowledge-providers": "knowledge_provider",
}
DETAILS = ("actions", "models", "auth_schemas")
MOST_PAGES = 1_000_000
DAY_SECONDS = 86_400
NAME = r"^[a-z0-9][a-z0-9_]{0,63}$"


class ActionEntry(BaseModel):
    """One action; ``parameters`` by name. ``switched_off`` says why this server does not run it.

    ``effect`` is what it does to the world, ``asks_first`` why a person is asked before it runs.
    """

    name: str
    display_name: str
    description: str
    parameters: dict[str, Any]
    switched_off: str | None = None
    effect: str | None = None
    asks_first: str | None = None


class ModelEntry(BaseModel):
    """One language model."""

    id: str
    name: str
    display_name: str
    description: str
    context_length: int | None
    max_input_tokens: int | None
    max_output_tokens: int | None
    intelligence: Any
    speed: Any
    data_freshness: Any
    supports_vision: bool | None


class AuthSchemaEntry(BaseModel):
    """One way to connect. The two ``supports_`` fields are on the detail routes of a kind only."""

    auth_type: str
    display_name: str
    description: str
    setup_instructions: list[str]
    setup_environment_variables: list[dict[str, Any]]
    oauth_config: dict[str, Any] | None = None
    required_scopes: list[str] = []
    important_notes: list[str] = []
    test_supported: bool = False
    supports_modulex_oauth: bool | None = None
    supports_custom_oauth: bool | None = None


class IntegrationEntry(BaseModel):
    """An integration. ``status`` is active, or unavailable with the reason beside it."""

    name: str
    display_name: str
    description: str
    logo: str | None
    app_url: str | None
    docs_url: str | None
    categories: list[str]
    integration_type: Kind
    version: str
    status: str
    unavailable_reason: str | None = None
    recommended: bool
    action_count: int | None = None
    actions: list[ActionEntry] | None = None
    models: list[ModelEntry] | None = None
    auth_schemas: list[AuthSchemaEntry] | None = None


class Picture(Response):
    media_type = "image/svg+xml"


class IntegrationPage(BaseModel):
    """Some of the integrations that match, in the order of their display names."""

    integrations: list[IntegrationEntry]
    total: int
    page: int
    page_size: int
    has_more: bool


type PolicyOf = Callable[[Request, User], Awaitable[ApprovalPolicy]]
"""A dependency: the policy that counts for who asks."""


def routes(
    identity: Identity,
    accounts: Accounts,
    catalog: Catalog,
    llm_providers: LlmProviders,
    environment: Mapping[str, str],
    operator: ApprovalPolicy = "catalog",
) -> APIRouter:
    """The catalog's routes, and the pictures' under ``/app/logos``, which need no key.

    ``llm_providers`` gives the model providers as they are now, in their wire form; the operator's
    OAuth apps are in ``environment`` under the names the manifests give. ``operator`` decides what asks
    first, and where the request names an organization of its user's, a stricter policy of that.
    """

    async def policy(request: Request, user: Annotated[User, Depends(identity.user)]) -> ApprovalPolicy:
        organization_id = own_organization(request.scope, user)
        if organization_id is None:
            return operator
        return stricter(operator, (await accounts.organizations.settings(organization_id)).approval_policy)

    shelf = Shelf(catalog, llm_providers, environment)
    router = APIRouter(prefix="/integrations", tags=["integrations"], dependencies=[Depends(identity.user)])
    _browse_route(router, shelf, policy)
    for path, kind in PATHS.items():
        _kind_routes(router, shelf, policy, path, kind)

    @router.get("/{name}", response_model=IntegrationEntry, responses=NOT_FOUND)
    async def detail(name: str, asking: Annotated[ApprovalPolicy, Depends(policy)]) -> Response:
        """One integration of whichever kind has the name."""
        return _json({"actions": [], "models": [], **shelf.whole(name, KINDS, asking)})

    both = APIRouter()
    both.include_router(router)
    _logo_route(both, shelf)
    return both


def _browse_route(router: APIRouter, shelf: Shelf, policy: PolicyOf) -> None:
    @router.get("/browse", response_model=IntegrationPage, responses=described())
    async def browse(
        *,
        asking: Annotated[ApprovalPolicy, Depends(policy)],
        category: str | None = None,
        kind: Annotated[Kind | None, Query(alias="type")] = None,
        auth_type: str | None = None,
        search: str | None = None,
        include_details: bool = True,
        paginate: bool = True,
        page: Annotated[int, Query(ge=1, le=MOST_PAGES)] = 1,
        page_size: Annotated[int, Query(ge=1, le=100)] = 50,
    ) -> Response:
        """Everything that can be connected, filtered; all on one page unless ``paginate``."""
        kinds = KINDS if kind is None else (kind,)
        found = shelf.found(kinds, category=category, auth_type=auth_type, search=search)
        page, page_size = (page, page_size) if paginate else (1, max(len(found), 1))
        whole = [one.make(asking) for one in found[(page - 1) * page_size : page * page_size]]
        return _json(
            {
                "integrations": [entry if include_details else _brief(entry) for entry in whole],
                "total": len(found),
                "page": page,
                "page_size": page_size,
                "has_more": page * page_size < len(found),
            }
        )


def _kind_routes(router: APIRouter, shelf: Shelf, policy: PolicyOf, path: str, kind: Kind) -> None:
    @router.get(f"/{path}", response_model=list[IntegrationEntry], responses=described(), name=f"list_{kind}s")
    async def listing(asking: Annotated[ApprovalPolicy, Depends(policy)], category: str | None = None) -> Response:
        """Every integration of one kind, without its details."""
        return _json([_brief(one.make(asking)) for one in shelf.found((kind,), category=category)])

    @router.get(f"/{path}/{{name}}", response_model=IntegrationEntry, responses=NOT_FOUND, name=f"{kind}_detail")
    async def detail(name: str, asking: Annotated[ApprovalPolicy, Depends(policy)]) -> Response:
        """One integration of one kind, with its actions or models and the ways to connect it."""
        return _json(shelf.with_oauth(shelf.whole(name, (kind,), asking)))


def _logo_route(router: APIRouter, shelf: Shelf) -> None:
    @router.get(f"{LOGOS}/{{name}}", response_class=Picture, tags=["integrations"])
    async def logo(name: Annotated[str, Path(pattern=NAME)]) -> Response:
        """A picture for an integration, drawn from its name."""
        return Picture(
            monogram(name, shelf.display_name(name)),
            headers={"Cache-Control": f"public, max-age={DAY_SECONDS}", "X-Content-Type-Options": "nosniff"},
        )


def _brief(entry: JsonObject) -> JsonObject:
    actions = entry.get("actions")
    counted: JsonObject = {"action_count": len(actions)} if isinstance(actions, list) else {}
    return {key: value for key, value in entry.items() if key not in DETAILS} | counted


def _json(value: JsonValue) -> Response:
    """A response of values that are JSON already: the whole catalog would take FastAPI's own way too long."""
    return Response(msgspec.json.encode(value), media_type="application/json")
