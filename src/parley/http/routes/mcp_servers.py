"""``/credentials/mcp-server`` and what belongs to it: MCP servers as credentials (contract §7)."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, status
from pydantic import BaseModel, Field, StringConstraints

from parley.accounts import Caller
from parley.base.clock import iso, iso_or_none
from parley.credentials import Credentials
from parley.credentials.mcp import McpServers, NewServer, ServerAndTools
from parley.http.identity import Identity
from parley.http.routes.credentials import Name, source_of
from parley.http.schemas import ReviewsIn, described
from parley.integrations.effects import EffectKind
from parley.integrations.own import OwnAction
from parley.storage import Store
from parley.storage.once import once_key, run_once


class ServerIn(BaseModel):
    """A server to connect: an address, or ``stdio:NAME`` for a program that the operator configured."""

    server_url: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] = Field(repr=False)
    headers: dict[str, str] | None = Field(default=None, repr=False)
    display_name: Name | None = None
    make_default: bool = False


class ServerOut(BaseModel):
    """A new server's credential; ``credentials_metadata`` has its tools in short."""

    credential_id: str
    integration_name: str
    display_name: str
    auth_type: str
    is_default: bool
    created_at: str
    credentials_metadata: dict[str, Any]


class RefreshedOut(BaseModel):
    """What looking again has found; ``changes`` are lists of names, and reasons of tools that are not offered."""

    credential_id: str
    refreshed_at: str
    changes: dict[str, Any]
    total_tools: int
    success: bool


class ToolOut(BaseModel):
    """A tool. ``hints`` are the server's own claims and decide nothing; ``effect`` is what people decided.

    Until ``reviewed`` it counts as destructive. A review names the ``fingerprint`` it is for.
    """

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    hints: dict[str, Any]
    fingerprint: str
    reviewed: bool
    effect: EffectKind | None
    reviewed_by: str | None
    reviewed_at: str | None


class ToolsOut(BaseModel):
    """A server's tools. ``integration_name`` is what the Assistant calls the server."""

    credential_id: str
    integration_name: str
    refreshed_at: str
    tools: list[ToolOut]
    total_count: int


def routes(identity: Identity, servers: McpServers, store: Store, credentials: Credentials) -> APIRouter:
    """Connecting MCP servers, looking again, showing and reviewing their tools."""
    router = APIRouter(prefix="/credentials", tags=["credentials"], responses=described(404))
    _connect_route(router, Depends(identity.admin), servers, store, credentials)
    _tool_routes(router, Depends(identity.admin), servers)
    return router


def _connect_route(router: APIRouter, admin: Any, servers: McpServers, store: Store, credentials: Credentials) -> None:
    @router.post("/mcp-server", status_code=status.HTTP_201_CREATED, responses=described(409))
    async def connect(
        caller: Annotated[Caller, admin],
        request: Request,
        wish: ServerIn,
        idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
    ) -> ServerOut:
        """Ask a server what it offers and store it with its tools."""
        new = NewServer(wish.server_url, wish.headers or {}, wish.display_name, wish.make_default)
        once = once_key(caller.organization_id, "mcp-server", idempotency_key, wish.model_dump())

        async def first() -> dict[str, object]:
            made = await servers.connect(caller, new, source_of(request), once=once)
            return {"credential_id": made.credential_id}

        answer = await run_once(store, once, first)
        made, _ = await credentials.get(caller.organization_id, str(answer["credential_id"]))
        return ServerOut(
            credential_id=made.credential_id,
            integration_name=made.integration_name,
            display_name=made.display_name,
            auth_type=made.auth_type,
            is_default=made.is_default,
            created_at=iso(made.created_at),
            credentials_metadata=made.metadata,
        )


def _tool_routes(router: APIRouter, admin: Any, servers: McpServers) -> None:
    @router.post("/{credential_id}/refresh-discovery", responses=described(409))
    async def refresh(caller: Annotated[Caller, admin], request: Request, credential_id: str) -> RefreshedOut:
        """Look again at what a server offers."""
        refreshed = await servers.refresh(caller, credential_id, source_of(request))
        return RefreshedOut(
            credential_id=credential_id,
            refreshed_at=iso(refreshed.refreshed_at),
            changes=refreshed.changes.as_json(),
            total_tools=refreshed.total_tools,
            success=True,
        )

    @router.get("/{credential_id}/mcp-tools")
    async def tools(caller: Annotated[Caller, admin], credential_id: str) -> ToolsOut:
        """A server's tools as they were found last."""
        return _tools_out(credential_id, await servers.tools(caller.organization_id, credential_id))

    @router.put("/{credential_id}/mcp-tools", responses=described(409))
    async def review(
        caller: Annotated[Caller, admin], request: Request, credential_id: str, wish: ReviewsIn
    ) -> ToolsOut:
        """Say what tools do, so that the approval policy knows them."""
        reviewed = await servers.review(caller, credential_id, wish.noted(), source_of(request))
        return _tools_out(credential_id, reviewed)


def _tools_out(credential_id: str, found: ServerAndTools) -> ToolsOut:
    return ToolsOut(
        credential_id=credential_id,
        integration_name=found.server.name,
        refreshed_at=iso(found.server.refreshed_at),
        tools=[_tool_out(tool) for tool in found.tools],
        total_count=len(found.tools),
    )


def _tool_out(tool: OwnAction) -> ToolOut:
    hints, title = tool.found.body.get("hints"), tool.found.body.get("title")
    return ToolOut(
        name=tool.found.name,
        title=title if isinstance(title, str) else "",
        description=tool.found.description,
        input_schema=tool.found.input_schema,
        hints=hints if isinstance(hints, dict) else {},
        fingerprint=tool.fingerprint,
        reviewed=tool.effect is not None,
        effect=tool.effect,
        reviewed_by=tool.reviewed_by,
        reviewed_at=iso_or_none(tool.reviewed_at),
    )
