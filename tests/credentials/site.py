"""A service on this machine that answers every request alike and keeps what it was asked."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass(frozen=True)
class Page:
    """The one answer."""

    status: int = 200
    body: str = "{}"


@dataclass
class Site:
    """Where it is, and what it has seen."""

    origin: str = ""
    seen: list[web.Request] = field(default_factory=list[web.Request])

    @property
    def place(self) -> str:
        return self.origin.removeprefix("http://")


@asynccontextmanager
async def pages(page: Page) -> AsyncGenerator[Site]:
    """The service, for the time of the block."""
    site = Site()

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        site.seen.append(request)
        return web.Response(status=page.status, text=page.body, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        listening = web.TCPSite(runner, "127.0.0.1", 0)
        await listening.start()
        site.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield site
    finally:
        await runner.cleanup()
