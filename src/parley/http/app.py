"""The whole HTTP surface: routes, limits, errors, streams, health."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, ConfigDict
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.base.clock import Clock
from parley.http.document import complete_document
from parley.http.doorstep import Addresses, Doors, Doorstep, Refused
from parley.http.errors import install_errors
from parley.http.limits import BodyLimits
from parley.http.stream import EventStreams, listen_path

SERVICE = "ModuleX"


def create_app(
    routers: Sequence[APIRouter],
    streams: EventStreams,
    addresses: Addresses,
    clock: Clock,
    *,
    version: str,
    uploads: Mapping[str, int] | None = None,
) -> ASGIApp:
    """The ASGI application. ``listen`` requests go past the framework: an open stream must stay small."""
    app = FastAPI(
        title="Parley",
        version=version,
        summary="A self-hosted assistant that acts on a team's own tools",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    for router in routers:
        app.include_router(router)
    install_errors(app)
    complete_document(app)
    return Doorstep(Surface(BodyLimits(app, uploads), streams), Doors(app), Refused(clock), addresses, clock)


class IntegrationsLoaded(BaseModel):
    """How many integrations work on this machine, and why others do not."""

    loadable: int
    failed: dict[str, str]


class Health(BaseModel):
    """That the server is ready (contract §13)."""

    model_config = ConfigDict(extra="allow")

    status: Literal["healthy"]
    service: str
    version: str
    integrations: IntegrationsLoaded


class Surface:
    """Routes each request to the event streams or to the framework."""

    def __init__(self, app: ASGIApp, streams: EventStreams) -> None:
        self._app = app
        self._streams = streams

    # No coroutine of its own, which would stay in memory for as long as a stream is open; servers ask for one.
    @inspect.markcoroutinefunction
    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and listen_path(scope) is not None:
            return self._streams(scope, receive, send)
        return self._app(scope, receive, send)


def system_routes(version: str, detail: Callable[[], Mapping[str, Any]]) -> APIRouter:
    """``GET /system/health``: public, and honest about what does not work on this machine (contract §13)."""
    router = APIRouter(prefix="/system", tags=["system"])

    @router.get("/health", response_model=Health)
    async def health() -> dict[str, Any]:
        """Whether the server is ready."""
        return {"status": "healthy", "service": SERVICE, "version": version, **detail()}

    return router
