"""``Egress.request`` and the shared sessions: bounds, redirects, and what never leaves by accident."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from parley.base.settings import SettingsError
from parley.egress import Egress, Refused, Response, Unreachable
from tests.egress.sites import Authority, Dials, MakeEgress, Names, OpenSite, close_server

HERE = "nas.lan"


@pytest.fixture(autouse=True)
def here(names: Names) -> None:
    names.answers = {HERE: [["127.0.0.1"]]}


async def echo(request: web.Request) -> web.Response:
    return web.json_response(
        {
            "method": request.method,
            "path": str(request.rel_url),
            "headers": dict(request.headers),
            "body": (await request.read()).decode(),
        },
        status=int(request.query.get("status", 200)),
        headers={"X-Answer": "yes", "Set-Cookie": "session=canary"},
    )


@asynccontextmanager
async def raw_server(answer: bytes, *, drip: asyncio.Event | None = None) -> AsyncGenerator[int]:
    """Sends the bytes to whoever connects; with ``drip``, goes on with one byte at a time until it is set."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        while drip is not None and not drip.is_set():
            try:
                async with asyncio.timeout(0.02):
                    await drip.wait()
            except TimeoutError:
                writer.write(b"x")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        if drip is not None:
            drip.set()
        await close_server(server)


async def test_a_request_carries_what_was_given_and_the_answer_comes_back_whole(
    make_egress: MakeEgress, open_site: OpenSite
) -> None:
    site = await open_site(echo)
    egress = make_egress(f"{HERE}:{site.port}")
    url = f"http://{HERE}:{site.port}/a%2Fb?x=1#fragment"
    response = await egress.request("post", url, params={"y": "ä &"}, json={"k": [1]}, headers={"X-Mine": "1"})
    assert response.status == 200
    assert response.headers["x-answer"] == "yes"
    echoed = json.loads(response.body)
    assert echoed["method"] == "POST"
    assert echoed["path"] == "/a%2Fb?x=1&y=%C3%A4+%26"
    assert echoed["headers"]["X-Mine"] == "1"
    assert json.loads(echoed["body"]) == {"k": [1]}
    form = await egress.request("POST", url, data={"grant_type": "code"})
    assert json.loads(form.body)["body"] == "grant_type=code"
    missing = await egress.request("GET", f"http://{HERE}:{site.port}/?status=404")
    assert missing.status == 404


def test_the_body_of_a_response_is_not_in_its_repr() -> None:
    assert "canary" not in repr(Response(200, {}, b"canary"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nas.lan",
        "/path",
        "//nas.lan/",
        "ftp://nas.lan/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http:///x",
        "https://[::1",
        "https://nas.lan:99999/",
    ],
)
async def test_what_is_no_web_address_is_refused(make_egress: MakeEgress, url: str) -> None:
    with pytest.raises(Refused, match="This is not a web address"):
        await make_egress(HERE).request("GET", url)


async def test_an_address_with_user_info_is_refused(make_egress: MakeEgress) -> None:
    for url in ("https://user@nas.lan/", "https://:pw@nas.lan/", "https://a:b@nas.lan/"):
        with pytest.raises(Refused, match="holds a user name or a password"):
            await make_egress(HERE).request("GET", url)


# ── redirects ───────────────────────────────────────────────────────────────────────────────────


async def redirecting(request: web.Request) -> web.StreamResponse:
    left = int(request.match_info["path"] or 0)
    if left == 0:
        return await echo(request)
    return web.Response(status=int(request.query["by"]), headers={"Location": f"/{left - 1}?{request.query_string}"})


async def test_three_redirects_are_followed_and_a_fourth_is_not(make_egress: MakeEgress, open_site: OpenSite) -> None:
    site = await open_site(redirecting)
    egress = make_egress(f"{HERE}:{site.port}")
    assert (await egress.request("GET", f"http://{HERE}:{site.port}/3?by=302")).status == 200
    with pytest.raises(Unreachable, match="redirects more than 3 times"):
        await egress.request("GET", f"http://{HERE}:{site.port}/4?by=302")
    assert len(site.requests) == 4 + 4


@pytest.mark.parametrize(
    ("by", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (302, "PUT", "PUT"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
    ],
)
async def test_a_redirect_keeps_or_drops_method_and_body_as_http_says(
    make_egress: MakeEgress, open_site: OpenSite, by: int, method: str, then: str
) -> None:
    site = await open_site(redirecting)
    egress = make_egress(f"{HERE}:{site.port}")
    data = None if method == "HEAD" else b"payload"
    response = await egress.request(method, f"http://{HERE}:{site.port}/1?by={by}", data=data)
    assert site.requests[1].method == then
    if then != "HEAD":
        assert json.loads(response.body)["body"] == ("payload" if then == method else "")


async def test_a_location_without_a_redirect_is_only_a_header(make_egress: MakeEgress, open_site: OpenSite) -> None:
    async def created(_request: web.Request) -> web.Response:
        return web.Response(status=201, headers={"Location": "/new"})

    site = await open_site(created)
    response = await make_egress(HERE).request("POST", f"http://{HERE}:{site.port}/", data=b"x")
    assert (response.status, response.headers["Location"], len(site.requests)) == (201, "/new", 1)


async def test_a_body_is_not_sent_on_to_another_site(make_egress: MakeEgress, open_site: OpenSite) -> None:
    other = await open_site(echo)

    async def redirect(_request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"http://{HERE}:{other.port}/"})

    site = await open_site(redirect)
    egress = make_egress(HERE)
    secret = {"client_secret": "canary"}
    with pytest.raises(Refused, match="redirects this request to another site"):
        await egress.request("POST", f"http://{HERE}:{site.port}/", data=secret)
    with pytest.raises(Refused, match="redirects this request to another site"):
        await egress.request("POST", f"http://{HERE}:{site.port}/", json=secret)
    assert other.requests == []


@pytest.mark.parametrize("location", ["https://user:pw@nas.lan/", "ftp://nas.lan/", "http://[::1", "data:text/html,x"])
async def test_a_redirect_to_no_proper_address_is_not_followed(
    make_egress: MakeEgress, open_site: OpenSite, location: str
) -> None:
    async def redirect(_request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": location})

    site = await open_site(redirect)
    with pytest.raises((Refused, Unreachable)):
        await make_egress(HERE).request("GET", f"http://{HERE}:{site.port}/")
    assert len(site.requests) == 1


# ── time and size ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"],
    ids=["before the head", "in the head", "in the body"],
)
async def test_an_answer_that_only_drips_ends_at_the_deadline(make_egress: MakeEgress, beginning: bytes) -> None:
    async with raw_server(beginning, drip=asyncio.Event()) as port, asyncio.timeout(60):
        with pytest.raises(Unreachable, match=r"did not answer within 0\.3 seconds|sent what is not HTTP"):
            await make_egress(HERE).request("GET", f"http://{HERE}:{port}/", seconds=0.3)


async def test_the_deadline_covers_all_hops_together(make_egress: MakeEgress, open_site: OpenSite) -> None:
    release = asyncio.Event()

    async def redirect(request: web.Request) -> web.Response:
        if request.path == "/second":
            await release.wait()
        return web.Response(status=302, headers={"Location": "/second"})

    site = await open_site(redirect)
    with pytest.raises(Unreachable, match="did not answer within"):
        await make_egress(HERE).request("GET", f"http://{HERE}:{site.port}/", seconds=0.3)
    release.set()


async def test_an_answer_over_the_limit_is_not_read_on(make_egress: MakeEgress, open_site: OpenSite) -> None:
    async def send(request: web.Request) -> web.Response:
        return web.Response(body=bytes(int(request.query["bytes"])))

    site = await open_site(send)
    egress = make_egress(HERE)
    url = f"http://{HERE}:{site.port}/?bytes="
    assert len((await egress.request("GET", f"{url}1048576", max_bytes=1_048_576)).body) == 1_048_576
    with pytest.raises(Unreachable, match="is larger than 1 MiB"):
        await egress.request("GET", f"{url}1048577", max_bytes=1_048_576)


# ── failures in plain words ─────────────────────────────────────────────────────────────────────


async def test_each_failure_has_its_sentence(
    make_egress: MakeEgress, open_site: OpenSite, authority: Authority, names: Names
) -> None:
    site = await open_site(echo, authority.server_tls("unrelated.example.com"))
    names.answers["gone.lan"] = []
    egress = make_egress(HERE, "gone.lan", SSL_CERT_FILE=authority.file)
    with pytest.raises(Unreachable, match=r"The name gone\.lan could not be found"):
        await egress.request("GET", "https://gone.lan/")
    with pytest.raises(Unreachable, match=r"The certificate of nas\.lan cannot be trusted"):
        await egress.request("GET", f"https://{HERE}:{site.port}/")
    with pytest.raises(Unreachable, match=r"No connection to nas\.lan could be made"):
        await egress.request("GET", f"http://{HERE}:1/")
    async with raw_server(b"SSH-2.0-OpenSSH_9.2\r\n\r\n") as port:
        with pytest.raises(Unreachable, match="broke off or sent what is not HTTP"):
            await egress.request("GET", f"http://{HERE}:{port}/")
    async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc") as port:
        with pytest.raises(Unreachable, match="broke off or sent what is not HTTP"):
            await egress.request("GET", f"http://{HERE}:{port}/")


# ── the shared sessions ─────────────────────────────────────────────────────────────────────────


async def test_no_cookie_and_no_netrc_password_is_ever_added(
    make_egress: MakeEgress, open_site: OpenSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login operator password canary\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    site = await open_site(echo)
    egress = make_egress(HERE)
    for _ in range(2):
        await egress.request("GET", f"http://{HERE}:{site.port}/")
        async with egress.session().get(f"http://{HERE}:{site.port}/") as response:
            assert response.status == 200
    sent = [str(request.headers) for request in site.requests]
    assert len(sent) == 4
    assert not any("Cookie" in headers or "Authorization" in headers for headers in sent)


async def test_what_the_operator_configured_is_open_to_parley_and_closed_to_tenants(
    make_egress: MakeEgress, open_site: OpenSite, dials: Dials
) -> None:
    site = await open_site(echo)
    egress = make_egress()
    egress.allow(f"http://127.0.0.1:{site.port}/v1")
    url = f"http://127.0.0.1:{site.port}/v1/models"
    async with egress.session().get(url) as response:
        assert response.status == 200
    with dials.recorded() as dialled:
        with pytest.raises(aiohttp.ClientConnectorError, match="does not connect to port"):
            await egress.tenant_session().get(url)
        with pytest.raises(Refused):
            await egress.request("GET", url)
        with pytest.raises(aiohttp.ClientConnectorError) as refusal:
            await egress.session().get(f"http://127.0.0.1:{site.port + 1}/")
    assert dialled == []
    assert isinstance(refusal.value.os_error, Refused)


@pytest.mark.parametrize("url", ["", "127.0.0.1:11434", "ftp://x.example.com", "http://", "http://a b/"])
def test_an_operators_url_that_is_none_stops_the_start(url: str) -> None:
    with pytest.raises(SettingsError, match="is not a web address"):
        Egress((), {}).allow(url)


def test_a_ca_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    egress = Egress((), {"SSL_CERT_FILE": str(tmp_path / "none.pem")})

    async def open_it() -> None:
        egress.session()

    with pytest.raises(SettingsError, match="SSL_CERT_FILE"):
        asyncio.run(open_it())


async def test_the_sessions_are_shared_and_wide_enough_for_two_thousand_streams(make_egress: MakeEgress) -> None:
    egress = make_egress()
    assert egress.session() is egress.session()
    assert egress.tenant_session() is egress.tenant_session()
    assert egress.session() is not egress.tenant_session()
    for session in (egress.session(), egress.tenant_session()):
        assert session.connector is not None
        assert session.connector.limit >= 2_000
        assert session.connector.limit_per_host == 0
        assert session.timeout.total is None
