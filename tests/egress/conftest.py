"""Local sites and an egress over a local name table."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from parley.egress import Egress
from tests.egress.sites import Authority, Dials, Handler, MakeEgress, Names, OpenSite, Site, close_server


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The plain loop, whose every dial the audit sees; uvloop dials in C, and has tests of its own here."""
    return "asyncio", {"use_uvloop": False}


@pytest.fixture(autouse=True)
def without_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of the machine that runs the tests stands between."""
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)


@pytest.fixture(scope="session")
def dials() -> Dials:
    return Dials()


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority of our own, and the file that SSL_CERT_FILE names."""
    ca = trustme.CA()
    path: Path = tmp_path_factory.mktemp("authority") / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return Authority(ca, str(path))


@pytest.fixture
async def open_site() -> AsyncIterator[OpenSite]:
    """Starts a local site: ``await open_site(handler, tls=None)``."""
    async with AsyncExitStack() as stack:

        async def start(handler: Handler, tls: ssl.SSLContext | None = None) -> Site:
            site = Site(0)

            async def record(request: web.Request) -> web.StreamResponse:
                site.requests.append(request)
                return await handler(request)

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", record)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            assert runner.server is not None
            server = await asyncio.get_running_loop().create_server(
                runner.server, "127.0.0.1", 0, ssl=tls, ssl_shutdown_timeout=0.1 if tls else None
            )

            async def stop() -> None:
                await runner.cleanup()
                await close_server(server)

            stack.push_async_callback(stop)
            site.port = server.sockets[0].getsockname()[1]
            return site

        yield start


@pytest.fixture
async def make_egress(names: Names) -> AsyncIterator[MakeEgress]:
    """Makes an Egress over the name table: ``make_egress(*opened, **environment)``."""
    async with AsyncExitStack() as stack:

        def make(*opened: str, **environment: str) -> Egress:
            egress = Egress(opened, environment, resolve=names)
            stack.push_async_callback(egress.close)
            return egress

        yield make
