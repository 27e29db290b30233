"""Every HTTP client of this process, ours and those of integrations, against real local sites (T7)."""

import asyncio
import gzip
from collections.abc import Generator
from contextlib import contextmanager

import aiohttp
import httpx
import pytest
import requests
from aiohttp import web

from tests.egress.fetching import ALL, CHECKED, HTTPX, THEIRS, Fetch, by_request, by_requests
from tests.egress.sites import HOSTILE, Authority, Dials, MakeEgress, Names, OpenSite

PUBLIC = "93.184.216.34"


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of an operator with a certificate authority of their own."""
    monkeypatch.setenv("SSL_CERT_FILE", authority.file)
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    return {"SSL_CERT_FILE": authority.file}


@contextmanager
def refused_without_dialling(dials: Dials, sentence: str = "") -> Generator[None]:
    """The block must fail, say the sentence, and dial nobody."""
    with dials.recorded() as dialled, pytest.raises(Exception) as failure:  # noqa: PT011 - each client has its own
        yield
    assert dialled == []
    assert sentence in spoken(failure.value)


def spoken(error: BaseException | None) -> str:
    """What the error and all that led to it say."""
    told: list[str] = []
    while error is not None:
        told.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(told)


async def answer_ok(_request: web.Request) -> web.Response:
    return web.Response(text="here")


@pytest.mark.parametrize("fetch", ALL)
async def test_no_client_dials_a_hostile_destination(fetch: Fetch, make_egress: MakeEgress, dials: Dials) -> None:
    egress = make_egress()
    with egress.install():
        for host in HOSTILE:
            with refused_without_dialling(dials):
                await fetch(egress, f"https://{host}/latest/meta-data", {})
        with refused_without_dialling(dials, "leads to a private network"):
            await fetch(egress, "https://169.254.169.254/latest/meta-data", {})


@pytest.mark.parametrize("fetch", THEIRS)
async def test_without_the_guard_the_same_destination_is_dialled(
    fetch: Fetch, make_egress: MakeEgress, dials: Dials
) -> None:
    with dials.recorded() as dialled, pytest.raises(Exception):  # noqa: B017, PT011 - each client has its own
        await fetch(make_egress(), "https://127.0.0.1:1/", {})
    assert ("127.0.0.1", 1) in dialled


@pytest.mark.parametrize("fetch", ALL)
async def test_a_name_is_refused_when_any_of_its_addresses_is_private(
    fetch: Fetch, make_egress: MakeEgress, names: Names, dials: Dials
) -> None:
    egress = make_egress()
    with egress.install():
        for answer in (["127.0.0.1"], [PUBLIC, "10.0.0.5"], ["10.0.0.5", PUBLIC], [PUBLIC, "::1"]):
            names.answers = {"mixed.example.com": [answer]}
            with refused_without_dialling(dials, "mixed.example.com leads to a private network"):
                await fetch(egress, "https://mixed.example.com/", {})


@pytest.mark.parametrize("fetch", ALL)
async def test_the_vetted_address_is_dialled_and_the_certificate_is_checked_by_name(
    fetch: Fetch,
    make_egress: MakeEgress,
    names: Names,
    dials: Dials,
    authority: Authority,
    trusted: dict[str, str],
    open_site: OpenSite,
) -> None:
    site = await open_site(answer_ok, authority.server_tls("api.example.com"))
    # A second look-up would lead elsewhere: the first answer is the one that is dialled.
    names.answers = {"api.example.com": [["127.0.0.1"], ["127.0.0.9"]], "wrong.example.com": [["127.0.0.1"]]}
    egress = make_egress(f"api.example.com:{site.port}", f"wrong.example.com:{site.port}", **trusted)
    with egress.install():
        with pytest.raises(Exception, match=r"(?i)certificate|ssl"):
            await fetch(egress, f"https://wrong.example.com:{site.port}/", {})
        with dials.recorded() as dialled:
            assert await fetch(egress, f"https://api.example.com:{site.port}/", {}) == b"here"
        assert dialled == [("127.0.0.1", site.port)]
        assert names.asked == ["wrong.example.com", "api.example.com"]
    assert len(site.requests) == 1


@pytest.mark.parametrize("fetch", ALL)
async def test_the_next_address_is_dialled_when_the_first_does_not_answer(
    fetch: Fetch,
    make_egress: MakeEgress,
    names: Names,
    authority: Authority,
    trusted: dict[str, str],
    open_site: OpenSite,
) -> None:
    site = await open_site(answer_ok, authority.server_tls("api.example.com"))
    names.answers = {"api.example.com": [["127.0.0.9", "127.0.0.1"]]}
    egress = make_egress(f"api.example.com:{site.port}", **trusted)
    with egress.install():
        assert await fetch(egress, f"https://api.example.com:{site.port}/", {}) == b"here"


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
@pytest.mark.parametrize("fetch", ALL)
async def test_the_guard_holds_on_uvloop_too(
    fetch: Fetch,
    make_egress: MakeEgress,
    names: Names,
    authority: Authority,
    trusted: dict[str, str],
    open_site: OpenSite,
) -> None:
    assert type(asyncio.get_running_loop()).__module__ == "uvloop"
    site = await open_site(answer_ok, authority.server_tls("api.example.com"))
    names.answers = {"api.example.com": [["127.0.0.1"]], "evil.example.com": [["127.0.0.1"]]}
    egress = make_egress(f"api.example.com:{site.port}", **trusted)
    with egress.install():
        for host in ("127.0.0.1", "evil.example.com"):
            with pytest.raises(Exception, match=r".") as refusal:
                await fetch(egress, f"https://{host}/", {})
            assert "leads to a private network" in spoken(refusal.value)
        assert await fetch(egress, f"https://api.example.com:{site.port}/", {}) == b"here"


@pytest.mark.parametrize("fetch", CHECKED)
async def test_a_redirect_into_a_private_network_is_not_followed(
    fetch: Fetch,
    make_egress: MakeEgress,
    names: Names,
    dials: Dials,
    authority: Authority,
    trusted: dict[str, str],
    open_site: OpenSite,
) -> None:
    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": request.query["to"]})

    site = await open_site(redirect, authority.server_tls("api.example.com"))
    names.answers = {"api.example.com": [["127.0.0.1"]], "evil.example.com": [["127.0.0.1"]]}
    egress = make_egress(f"api.example.com:{site.port}", **trusted)
    targets = ("http://127.0.0.1:1/", "https://127.0.0.1/", "http://169.254.169.254/", "https://evil.example.com/")
    with egress.install():
        for target in targets:
            with dials.recorded() as dialled, pytest.raises(Exception, match=r"."):
                await fetch(egress, f"https://api.example.com:{site.port}/?to={target}", {})
            assert set(dialled) <= {("127.0.0.1", site.port)}
    assert len(site.requests) == len(targets)


@pytest.mark.parametrize("fetch", [by_request, *HTTPX, by_requests])
async def test_no_credential_follows_a_redirect_to_another_origin(
    fetch: Fetch,
    make_egress: MakeEgress,
    names: Names,
    authority: Authority,
    trusted: dict[str, str],
    open_site: OpenSite,
) -> None:
    other = await open_site(answer_ok, authority.server_tls("other.example.com"))

    async def redirect(request: web.Request) -> web.Response:
        target = "/second" if request.path == "/first" else f"https://other.example.com:{other.port}/"
        return web.Response(status=307, headers={"Location": target})

    site = await open_site(redirect, authority.server_tls("api.example.com"))
    names.answers = {"api.example.com": [["127.0.0.1"]], "other.example.com": [["127.0.0.1"]]}
    egress = make_egress(f"api.example.com:{site.port}", f"other.example.com:{other.port}", **trusted)
    secrets = {"X-Api-Key": "canary", "Authorization": "Bearer canary", "Cookie": "s=canary", "X-Custom": "canary"}
    with egress.install():
        await fetch(egress, f"https://api.example.com:{site.port}/first", {**secrets, "Accept": "text/plain"})
    first, second = site.requests
    assert first.headers["X-Api-Key"] == second.headers["X-Api-Key"] == "canary"
    (arrived,) = other.requests
    assert "canary" not in str(arrived.headers)
    assert arrived.headers["Accept"] == "text/plain"
    assert arrived.headers["Host"] == f"other.example.com:{other.port}"


@pytest.mark.parametrize("fetch", CHECKED)
async def test_plain_http_is_refused_unless_opened(
    fetch: Fetch,
    make_egress: MakeEgress,
    names: Names,
    dials: Dials,
    open_site: OpenSite,
) -> None:
    site = await open_site(answer_ok)
    names.answers = {"api.example.com": [[PUBLIC]], "nas.lan": [["127.0.0.1"]]}
    egress = make_egress(f"nas.lan:{site.port}")
    with egress.install():
        for port in (80, 443):
            with refused_without_dialling(dials, "only over https"):
                await fetch(egress, f"http://api.example.com:{port}/", {})
        assert await fetch(egress, f"http://nas.lan:{site.port}/", {}) == b"here"


@pytest.mark.parametrize("fetch", ALL)
async def test_an_unusual_port_is_refused(fetch: Fetch, make_egress: MakeEgress, names: Names, dials: Dials) -> None:
    names.answers = {"api.example.com": [[PUBLIC]]}
    egress = make_egress()
    with egress.install(), refused_without_dialling(dials, "does not connect to port 6379"):
        await fetch(egress, "https://api.example.com:6379/", {})


async def test_a_client_that_skips_certificates_reaches_opened_places_only(
    make_egress: MakeEgress,
    names: Names,
    dials: Dials,
    authority: Authority,
    open_site: OpenSite,
) -> None:
    site = await open_site(answer_ok, authority.server_tls("unrelated.example.com"))
    names.answers = {"api.example.com": [[PUBLIC]]}
    egress = make_egress("127.0.0.1")

    def by_blocking_httpx(url: str) -> bytes:
        with httpx.Client(verify=False) as client:
            return client.get(url).content

    def by_unchecked_requests(url: str) -> bytes:
        with requests.Session() as session:
            return session.get(url, verify=False, timeout=5).content

    async def by_unchecked_httpx(url: str) -> bytes:
        async with httpx.AsyncClient(verify=False) as client:
            return (await client.get(url)).content

    async def by_unchecked_aiohttp(url: str) -> bytes:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as response:
            return await response.read()

    with egress.install():
        with refused_without_dialling(dials, "with a certificate that it can check"):
            await asyncio.to_thread(by_blocking_httpx, "https://api.example.com/")
        with refused_without_dialling(dials, "with a certificate that it can check"):
            await asyncio.to_thread(by_unchecked_requests, "https://api.example.com/")
        for unchecked in (by_unchecked_httpx, by_unchecked_aiohttp):
            with refused_without_dialling(dials, "with a certificate that it can check"):
                await unchecked("https://api.example.com/")
            assert await unchecked(f"https://127.0.0.1:{site.port}/") == b"here"


# ── size ────────────────────────────────────────────────────────────────────────────────────────

MIB = 1_048_576


@pytest.mark.parametrize("fetch", [by_request, *HTTPX])
@pytest.mark.parametrize("encoding", ["identity", "gzip", "gzip, gzip"])
async def test_an_answer_ends_at_25_mib_however_it_is_packed(
    fetch: Fetch,
    encoding: str,
    make_egress: MakeEgress,
    names: Names,
    open_site: OpenSite,
) -> None:
    async def send_much(request: web.Request) -> web.StreamResponse:
        size = int(request.query["mib"]) * MIB
        body = bytes(size)
        for _ in range(encoding.count("gzip")):
            body = gzip.compress(body, 9)
        headers = {} if encoding == "identity" else {"Content-Encoding": encoding}
        return web.Response(body=body, headers=headers)

    site = await open_site(send_much)
    names.answers = {"nas.lan": [["127.0.0.1"]]}
    egress = make_egress(f"nas.lan:{site.port}")
    with egress.install():
        if not (fetch is by_request and encoding == "gzip, gzip"):  # aiohttp unpacks one layer, httpx all
            assert len(await fetch(egress, f"http://nas.lan:{site.port}/?mib=24", {})) == 24 * MIB
            with pytest.raises(Exception, match=r"(?i)larger than 25 MiB"):
                await fetch(egress, f"http://nas.lan:{site.port}/?mib=40", {})


async def test_httpx_does_not_ask_for_packings_it_cannot_bound(
    make_egress: MakeEgress, names: Names, open_site: OpenSite
) -> None:
    site = await open_site(answer_ok)
    names.answers = {"nas.lan": [["127.0.0.1"]]}
    egress = make_egress(f"nas.lan:{site.port}")
    with egress.install():
        for fetch in HTTPX:
            await fetch(egress, f"http://nas.lan:{site.port}/", {})
    assert {request.headers["Accept-Encoding"] for request in site.requests} == {"gzip, deflate"}
