"""``/integrations/openapi``: APIs that an organization imports from an OpenAPI document."""

from typing import Annotated, Any, cast

import msgspec
from fastapi import APIRouter, Depends, Header, Request, Response, status
from pydantic import BaseModel, Field, StringConstraints

from parley.accounts import Caller
from parley.base.clock import iso, iso_or_none
from parley.base.errors import BadRequest
from parley.credentials.apis import Api, ImportedApis, Looked, NewApi
from parley.http.identity import Identity
from parley.http.routes.credentials import Name, source_of
from parley.http.schemas import MOST_ACTIONS, ActionName, ReviewsIn, described
from parley.integrations.effects import EffectKind
from parley.integrations.openapi import Reached, Wanted, reached_of, request_of
from parley.integrations.own import ActionCount, FoundAction, OwnAction, OwnIntegration
from parley.storage import Store
from parley.storage.once import once_key, run_once
from parley.turn.model import JsonValue

MOST_VARIABLES = 20

type Url = Annotated[str, StringConstraints(max_length=2_000)]


class OneDocument(BadRequest):
    """Send the document as 'spec', or its address as 'url', and not both."""


class DocumentIn(BaseModel):
    """A document: its text or JSON value, or where it is; and what was chosen of it.

    ``digest`` confirms what an answer without it has shown.
    """

    spec: str | dict[str, Any] | None = None
    url: Url | None = None
    server_url: Url | None = None
    server_variables: Annotated[dict[str, str], Field(max_length=MOST_VARIABLES)] = {}
    leave_out: Annotated[list[ActionName], Field(max_length=MOST_ACTIONS)] = []
    digest: Annotated[str, StringConstraints(max_length=64)] | None = None


class ImportIn(DocumentIn):
    """A document to import. ``effects`` say otherwise of actions than their verbs, by name."""

    display_name: Name | None = None
    effects: Annotated[dict[ActionName, EffectKind], Field(max_length=MOST_ACTIONS)] = {}


class SeenActionOut(BaseModel):
    """An action as the document describes it. ``proposed_effect`` is what its verb promises."""

    name: str
    description: str
    method: str
    path: str
    input_schema: dict[str, Any]
    proposed_effect: EffectKind
    fingerprint: str


class ActionOut(SeenActionOut):
    """A stored action. ``effect`` is null until somebody has looked at it as it is now: it counts as destructive."""

    reviewed: bool
    effect: EffectKind | None
    reviewed_by: str | None
    reviewed_at: str | None


class ConnectOut(BaseModel):
    """One way to connect it, and where what is entered goes."""

    auth_type: str
    display_name: str
    fields: list[dict[str, Any]]
    sent_as: list[dict[str, Any]]


class LookedOut(BaseModel):
    """What a document describes; nothing is stored yet. Send the same again with ``digest`` to take it over.

    ``rejected`` says of operations and sign-ins that are not offered why.
    """

    digest: str
    display_name: str
    description: str
    version: str
    base_url: str
    servers: list[str]
    connect_by: list[ConnectOut]
    actions: list[SeenActionOut]
    total_actions: int
    rejected: dict[str, str]
    notes: list[str]
    changes: dict[str, Any]


class ApiBriefOut(BaseModel):
    """An imported API. ``integration_name`` is what the Assistant and credentials call it."""

    integration_name: str
    display_name: str
    description: str
    version: str
    base_url: str
    document_url: str
    needs_credential: bool
    total_actions: int
    unreviewed: int
    created_at: str
    refreshed_at: str


class ApiOut(ApiBriefOut):
    """An imported API with its actions."""

    connect_by: list[ConnectOut]
    left_out: list[str]
    actions: list[ActionOut]


class ApisOut(BaseModel):
    """An organization's imported APIs."""

    integrations: list[ApiBriefOut]
    total_count: int


def routes(identity: Identity, apis: ImportedApis, store: Store) -> APIRouter:
    """Importing APIs, looking again, reviewing, deleting; for owners and admins."""
    router = APIRouter(prefix="/integrations/openapi", tags=["integrations"], responses=described(404, 409, 429))
    _import_route(router, Depends(identity.admin), apis, store)
    _show_routes(router, Depends(identity.admin), apis)
    _change_routes(router, Depends(identity.admin), apis)
    return router


def _import_route(router: APIRouter, admin: Any, apis: ImportedApis, store: Store) -> None:
    @router.post("", responses={201: {"model": ApiOut}})
    async def import_api(
        caller: Annotated[Caller, admin],
        request: Request,
        response: Response,
        wish: ImportIn,
        idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
    ) -> LookedOut | ApiOut:
        """Show what a document describes; with the ``digest`` of what was shown, import it."""
        new = _new(wish, wish.display_name)
        if not (new.text or new.url):
            raise OneDocument
        digest = wish.digest
        if digest is None:
            return _looked_out(await apis.look(new))
        once = once_key(caller.organization_id, "openapi", idempotency_key, wish.model_dump())

        async def first() -> dict[str, object]:
            return {"name": await apis.add(caller, new, digest, wish.effects, source_of(request), once=once)}

        answer = await run_once(store, once, first)
        response.status_code = status.HTTP_201_CREATED
        return _api_out(await apis.get(caller.organization_id, str(answer["name"])))


def _show_routes(router: APIRouter, admin: Any, apis: ImportedApis) -> None:
    @router.get("")
    async def list_apis(caller: Annotated[Caller, admin]) -> ApisOut:
        """The imported APIs, without their actions."""
        found = [_brief(each.own, reached_of(each.own), each.count) for each in await apis.list(caller.organization_id)]
        return ApisOut(integrations=found, total_count=len(found))

    @router.get("/{api_name}")
    async def show_api(caller: Annotated[Caller, admin], api_name: str) -> ApiOut:
        """One imported API with its actions."""
        return _api_out(await apis.get(caller.organization_id, api_name))


def _change_routes(router: APIRouter, admin: Any, apis: ImportedApis) -> None:
    @router.post("/{api_name}/refresh")
    async def refresh(caller: Annotated[Caller, admin], request: Request, api_name: str, wish: DocumentIn) -> LookedOut:
        """Show what is different in the document now; with the ``digest`` of what was shown, take it over."""
        new = _new(wish, None)
        if wish.digest is None:
            return _looked_out(await apis.look_again(caller.organization_id, api_name, new))
        return _looked_out(await apis.refresh(caller, api_name, new, wish.digest, source_of(request)))

    @router.put("/{api_name}/actions")
    async def review(caller: Annotated[Caller, admin], request: Request, api_name: str, wish: ReviewsIn) -> ApiOut:
        """Say what actions do, so that the approval policy knows them."""
        return _api_out(await apis.review(caller, api_name, wish.noted(), source_of(request)))

    @router.delete("/{api_name}", status_code=status.HTTP_204_NO_CONTENT)
    async def delete(caller: Annotated[Caller, admin], request: Request, api_name: str) -> None:
        """Delete an imported API, its actions and every credential for it."""
        await apis.delete(caller, api_name, source_of(request))


def _new(wish: DocumentIn, display_name: str | None) -> NewApi:
    if wish.spec and wish.url:
        raise OneDocument
    spec: JsonValue = wish.spec or ""
    return NewApi(
        text=spec if isinstance(spec, str) else msgspec.json.encode(spec).decode(),
        url=wish.url or "",
        display_name=display_name,
        wanted=Wanted(
            server_url=(wish.server_url or "").rstrip("/"),
            variables=wish.server_variables,
            left_out=frozenset(wish.leave_out),
        ),
    )


# ── wire forms ──────────────────────────────────────────────────────────────────────────────────


def _looked_out(looked: Looked) -> LookedOut:
    description = looked.description
    return LookedOut(
        digest=looked.digest,
        display_name=description.title,
        description=description.text,
        version=description.reached.version,
        base_url=description.reached.base_url,
        servers=list(description.servers),
        connect_by=_connect_out(description.reached),
        actions=[_seen(action, action.fingerprint) for action in description.actions],
        total_actions=len(description.actions),
        rejected=dict(description.rejected),
        notes=list(looked.notes),
        changes=looked.changes.as_json(),
    )


def _seen(action: FoundAction, fingerprint: str) -> SeenActionOut:
    request = request_of(action)
    return SeenActionOut(
        name=action.name,
        description=action.description,
        method=request.method.upper(),
        path=request.path,
        input_schema=action.input_schema,
        proposed_effect=cast("EffectKind", action.body["proposed_effect"]),
        fingerprint=fingerprint,
    )


def _connect_out(reached: Reached) -> list[ConnectOut]:
    return [
        ConnectOut(
            auth_type=way.schema.auth_type,
            display_name=way.schema.display_name,
            fields=[msgspec.to_builtins(field) for field in way.schema.fields],
            sent_as=[{"scheme": name, **msgspec.structs.asdict(reached.schemes[name])} for name in way.schemes],
        )
        for way in reached.ways
    ]


def _brief(own: OwnIntegration, reached: Reached, count: ActionCount) -> ApiBriefOut:
    return ApiBriefOut(
        integration_name=own.name,
        display_name=own.display_name,
        description=own.description,
        version=reached.version,
        base_url=reached.base_url,
        document_url=reached.document_url,
        needs_credential=not reached.public,
        total_actions=count.total,
        unreviewed=count.unreviewed,
        created_at=iso(own.created_at),
        refreshed_at=iso(own.refreshed_at),
    )


def _api_out(api: Api) -> ApiOut:
    reached = reached_of(api.own)
    count = ActionCount(len(api.actions), sum(action.effect is None for action in api.actions))
    return ApiOut(
        **_brief(api.own, reached, count).model_dump(),
        connect_by=_connect_out(reached),
        left_out=list(reached.left_out),
        actions=[_action_out(action) for action in api.actions],
    )


def _action_out(action: OwnAction) -> ActionOut:
    return ActionOut(
        **_seen(action.found, action.fingerprint).model_dump(),
        reviewed=action.effect is not None,
        effect=action.effect,
        reviewed_by=action.reviewed_by,
        reviewed_at=iso_or_none(action.reviewed_at),
    )
