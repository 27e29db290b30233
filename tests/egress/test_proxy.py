"""Behind HTTPS_PROXY: the proxy is dialled, the target is still judged by its name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from parley.egress import Refused
from tests.egress.fetching import HTTPX, Fetch, by_aiohttp, by_requests
from tests.egress.sites import Authority, MakeEgress, Names, OpenSite, close_server

PRIVATE_TARGETS = (
    "https://127.0.0.1/",
    "https://169.254.169.254/latest/meta-data",
    "https://[::ffff:10.0.0.1]/",
    "https://2130706433/",
    "https://localhost/",
    "https://vault.internal/",
    "https://printer.local/",
    "https://postgres/",
    "http://api.example.com/",
    "https://api.example.com:6379/",
)


@dataclass
class Proxy:
    """A CONNECT proxy that reaches one local site, whatever is asked for."""

    port: int = 0
    site_port: int = 0
    asked: list[str] = field(default_factory=list[str])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.split(b"\r\n")[0].decode())
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self.site_port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as relay:
            relay.create_task(pump(reader, upstream))
            relay.create_task(pump(upstream_reader, writer))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
    writer.close()


@pytest.fixture
async def proxy(open_site: OpenSite, authority: Authority) -> AsyncIterator[Proxy]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="through the proxy", headers={"Connection": "close"})

    site = await open_site(answer, authority.server_tls("api.example.com"))
    proxy = Proxy(site_port=site.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    yield proxy
    await close_server(server)


async def test_ours_go_through_the_proxy_and_private_targets_do_not(
    proxy: Proxy, make_egress: MakeEgress, authority: Authority, names: Names
) -> None:
    egress = make_egress(HTTPS_PROXY=proxy.url, HTTP_PROXY=proxy.url, SSL_CERT_FILE=authority.file)
    response = await egress.request("GET", "https://api.example.com/")
    assert response.body == b"through the proxy"
    async with egress.session().get("https://api.example.com/") as streamed:
        assert await streamed.text() == "through the proxy"
    assert proxy.asked == ["CONNECT api.example.com:443 HTTP/1.1"] * 2
    for target in (*PRIVATE_TARGETS, proxy.url, f"https://127.0.0.1:{proxy.port}/"):
        with pytest.raises(Refused):
            await egress.request("GET", target)
    assert len(proxy.asked) == 2
    assert names.asked == []


@pytest.mark.parametrize("fetch", [*HTTPX, by_requests, by_aiohttp])
async def test_clients_of_integrations_go_through_the_proxy_and_private_targets_do_not(
    fetch: Fetch, proxy: Proxy, make_egress: MakeEgress, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"HTTPS_PROXY": proxy.url, "HTTP_PROXY": proxy.url, "SSL_CERT_FILE": authority.file}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    egress = make_egress(**environment)
    with egress.install():
        assert await fetch(egress, "https://api.example.com/", {}) == b"through the proxy"
        assert proxy.asked == ["CONNECT api.example.com:443 HTTP/1.1"]
        for target in (*PRIVATE_TARGETS, f"https://127.0.0.1:{proxy.port}/"):
            with pytest.raises(Exception, match=r"."):
                await fetch(egress, target, {})
    assert len(proxy.asked) == 1


async def test_names_under_no_proxy_are_dialled_directly_and_vetted(
    proxy: Proxy, make_egress: MakeEgress, names: Names
) -> None:
    egress = make_egress(HTTPS_PROXY=proxy.url, NO_PROXY="direct.example.com")
    names.answers = {"direct.example.com": [["127.0.0.1"]]}
    with pytest.raises(Refused, match="leads to a private network"):
        await egress.request("GET", "https://direct.example.com/")
    assert names.asked == ["direct.example.com"]
    assert proxy.asked == []


async def test_what_listens_on_this_machine_is_never_asked_of_the_proxy(
    proxy: Proxy, make_egress: MakeEgress, open_site: OpenSite
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="local model")

    site = await open_site(answer)
    egress = make_egress(HTTP_PROXY=proxy.url)
    egress.allow(f"http://127.0.0.1:{site.port}/v1")
    async with egress.session().get(f"http://127.0.0.1:{site.port}/v1") as response:
        assert await response.text() == "local model"
    assert proxy.asked == []
