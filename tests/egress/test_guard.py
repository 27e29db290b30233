"""The decision of trust §2.4 (T7), apart from any client."""

import asyncio
import errno
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.base.settings import SettingsError
from parley.egress import Guard, Refused, Unreachable
from parley.egress.guard import MONGODB, MYSQL, POSTGRESQL, SQL_SERVER, parse_entry, plain_host, system_resolve
from parley.egress.proxies import read_proxies
from tests.egress.sites import HOSTILE, Names

PUBLIC = "93.184.216.34"
PUBLIC_6 = "2606:2800:220:1::1"


@pytest.fixture
def guard(names: Names) -> Guard:
    return Guard(resolve=names)


# ── where it leads ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", HOSTILE)
def test_a_hostile_destination_is_refused_before_it_is_looked_up(guard: Guard, names: Names, host: str) -> None:
    with pytest.raises(Refused):
        guard.check(host, 443)
    with pytest.raises(Refused):
        guard.vet_now(host, 443)
    assert names.asked == []


async def test_a_public_name_gives_the_addresses_that_were_vetted(guard: Guard, names: Names) -> None:
    names.answers = {"api.example.com": [[PUBLIC, PUBLIC_6]]}
    assert list(await guard.vet("API.Example.com.", 443)) == [PUBLIC, PUBLIC_6]
    assert list(guard.vet_now("api.example.com", 443)) == [PUBLIC, PUBLIC_6]
    assert names.asked == ["api.example.com"] * 2


async def test_a_public_address_needs_no_name_server(guard: Guard, names: Names) -> None:
    assert list(await guard.vet(PUBLIC, 443)) == [PUBLIC]
    assert list(await guard.vet(f"[{PUBLIC_6}]", 443)) == [PUBLIC_6]
    assert names.asked == []


@pytest.mark.parametrize(
    "private", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "64:ff9b::a00:5", "fe80::1%eth0"]
)
async def test_one_private_address_among_public_ones_refuses_the_name(guard: Guard, names: Names, private: str) -> None:
    for answer in ([private], [PUBLIC, private], [private, PUBLIC], [PUBLIC, PUBLIC_6, private]):
        names.answers = {"mixed.example.com": [answer]}
        with pytest.raises(Refused, match=r"mixed\.example\.com leads to a private network"):
            await guard.vet("mixed.example.com", 443)
        with pytest.raises(Refused, match=r"mixed\.example\.com leads to a private network"):
            guard.vet_now("mixed.example.com", 443)


async def test_a_name_that_changes_its_mind_is_looked_up_once_for_each_dial(guard: Guard, names: Names) -> None:
    names.answers = {"rebind.example.com": [[PUBLIC], ["127.0.0.1"]]}
    assert list(await guard.vet("rebind.example.com", 443)) == [PUBLIC]
    assert len(names.asked) == 1
    with pytest.raises(Refused):
        await guard.vet("rebind.example.com", 443)


@given(answers=st.lists(st.sampled_from([PUBLIC, PUBLIC_6, "127.0.0.1", "10.0.0.1", "::1"]), min_size=1, max_size=6))
def test_what_comes_back_from_a_vetting_is_public_to_the_last(answers: Sequence[str]) -> None:
    guard = Guard(resolve=lambda _host, _port: answers)
    try:
        assert set(guard.vet_now("any.example.com", 443)) <= {PUBLIC, PUBLIC_6}
    except Refused:
        assert not set(answers) <= {PUBLIC, PUBLIC_6}


async def test_a_name_that_does_not_exist_is_unreachable(guard: Guard, names: Names) -> None:
    names.answers = {"empty.example.com": [[]]}
    for name in ("typo.example.com", "empty.example.com"):
        with pytest.raises(Unreachable, match=f"{name} could not be found"):
            await guard.vet(name, 443)


async def test_a_name_server_that_hangs_is_not_waited_for() -> None:
    release = threading.Event()

    def hang(_host: str, _port: int) -> Sequence[str]:
        release.wait(30)
        return [PUBLIC]

    guard = Guard(resolve=hang, resolve_seconds=0.05)
    try:
        async with asyncio.timeout(20):
            with pytest.raises(Unreachable, match="could not be looked up in time"):
                await guard.vet("slow.example.com", 443)
    finally:
        release.set()
        guard.close()


def test_the_system_resolver_lists_each_address_once() -> None:
    found = system_resolve("localhost", 443)
    assert "127.0.0.1" in found or "::1" in found
    assert len(found) == len(set(found))


# ── how it is spelled ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("spelled", "plain"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("my_bucket.s3.amazonaws.com", "my_bucket.s3.amazonaws.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("ｅxample.com", "example.com"),
        ("8.8.8.8", "8.8.8.8"),
        ("[2606:2800:0220:0001::0001]", PUBLIC_6),
        ("2606:2800:220:1::1", PUBLIC_6),
    ],
)
def test_a_host_has_one_plain_form(spelled: str, plain: str) -> None:
    assert plain_host(spelled) == plain
    assert plain_host(plain) == plain


@pytest.mark.parametrize(
    "spelled",
    [
        "",
        ".",
        "..",
        "a..b",
        "example.com..",
        "-a.example.com",
        "a-.example.com",
        "a b.example.com",
        "a\n.example.com",
        "a\x00.example.com",
        "a/b",
        "a\\b",
        "a?b",
        "a#b",
        "a@b.com",
        "a:b",
        "a%2eb.com",
        "example.com:443",
        "[example.com]:443",
        "[8.8.8.8",
        "1.2.3",
        "1.2.3.4.5",
        "256.1.1.1",
        "08.8.8.8",
        "8.8.8.0x8",
        "2606::1%1",
        "[::1]]",
        "[example.com",
        "example.com]",
        "a" * 64 + ".com",
        ".".join(["a" * 60] * 5),
        "x" * 100_000,
        "é" * 100_000,
    ],
)
def test_a_host_that_two_readers_could_read_differently_is_refused(spelled: str) -> None:
    with pytest.raises(Refused, match="is not a plain host"):
        plain_host(spelled)


def test_a_bracketed_name_is_only_a_name() -> None:
    assert plain_host("[example.com]") == "example.com"


@given(st.text(max_size=60))
def test_whatever_passes_as_a_host_is_plain_ascii_without_delimiters(spelled: str) -> None:
    try:
        plain = plain_host(spelled)
    except Refused:
        return
    assert plain.isascii()
    assert plain == plain.lower()
    assert not set(plain) & set(" /\\?#@%[]")
    assert plain_host(plain) == plain


# ── ports and schemes ───────────────────────────────────────────────────────────────────────────


def test_web_ports_are_the_usual_ones(guard: Guard) -> None:
    for port in (80, 443, 6333, 8443):
        assert guard.check("example.com", port) == "example.com"
    for port in (0, 22, 25, 81, 442, 444, 5432, 6379, 8080, 9200, 11211, 65_535):
        with pytest.raises(Refused, match=f"does not connect to port {port} of example.com"):
            guard.check("example.com", port)


def test_each_kind_of_database_has_its_own_ports(guard: Guard) -> None:
    kinds = {
        POSTGRESQL: {5432, 5439, 6432, 6543, 25060, 25061, 26257},
        MYSQL: {3306, 4000, 25060},
        MONGODB: {27017, 27015, 27016, 10255, 10260},
        SQL_SERVER: {1433},
    }
    every = {port for ports in kinds.values() for port in ports} | {22, 80, 443, 6379, 27018}
    for own, ports in kinds.items():
        for port in ports:
            assert guard.check("db.example.com", port, own) == "db.example.com"
        for port in every - ports:
            with pytest.raises(Refused):
                guard.check("db.example.com", port, own)


def test_plain_http_and_unchecked_certificates_are_refused(guard: Guard) -> None:
    guard.check_url("https", "example.com", None)
    guard.check_url("wss", "example.com", None)
    for scheme in ("http", "ws"):
        with pytest.raises(Refused, match="only over https"):
            guard.check_url(scheme, "example.com", None)
        with pytest.raises(Refused, match="only over https"):
            guard.check_url(scheme, "example.com", 443)
    with pytest.raises(Refused, match="certificate"):
        guard.check_url("https", "example.com", None, verified=False)
    for scheme in ("ftp", "file", "gopher", "unix", ""):
        with pytest.raises(Refused, match="only opens http and https"):
            guard.check_url(scheme, "example.com", 443)


# ── what the operator opened ────────────────────────────────────────────────────────────────────


async def test_an_entry_with_a_port_opens_that_port_only(names: Names) -> None:
    guard = Guard(["nas.lan:8080", "[fd00::5]:9000"], resolve=names)
    names.answers = {"nas.lan": [["10.0.0.5"]]}
    guard.check_url("http", "NAS.lan", 8080, verified=False)
    guard.check_url("http", "[fd00::5]", 9000)
    assert list(await guard.vet("nas.lan", 8080)) == ["10.0.0.5"]
    for host, port in (("nas.lan", 443), ("nas.lan", 80), ("fd00::5", 9001), ("other.lan", 8080), ("10.0.0.5", 8080)):
        with pytest.raises(Refused):
            guard.check(host, port)


async def test_an_entry_without_a_port_opens_every_port_of_that_name(names: Names) -> None:
    guard = Guard(["127.0.0.1", "::1", "intra.example.com"], resolve=names)
    names.answers = {"intra.example.com": [["10.0.0.5", PUBLIC]]}
    for port in (1, 80, 27124, 65_535):
        guard.check_url("http", "127.0.0.1", port)
        guard.check_url("https", "[::1]", port, verified=False)
        assert list(await guard.vet("intra.example.com", port)) == ["10.0.0.5", PUBLIC]
    with pytest.raises(Refused):
        guard.check("sub.intra.example.com", 8080)
    with pytest.raises(Refused):
        guard.check("127.0.0.2", 443)


async def test_one_more_place_can_be_opened_later(names: Names) -> None:
    guard = Guard(resolve=names)
    names.answers = {"model.lan": [["10.0.0.7"]]}
    guard.open("Model.LAN", 11434)
    guard.check_url("http", "model.lan", 11434)
    assert list(await guard.vet_web("model.lan", 11434)) == ["10.0.0.7"]
    with pytest.raises(Refused):
        guard.check("model.lan", 443)


async def test_a_name_does_not_borrow_the_opening_of_the_address_it_leads_to(names: Names) -> None:
    guard = Guard(["127.0.0.1:443"], resolve=names)
    names.answers = {"evil.example.com": [["127.0.0.1"]]}
    with pytest.raises(Refused):
        await guard.vet("evil.example.com", 443)


@pytest.mark.parametrize(
    ("entry", "parsed"),
    [
        ("nas.lan", ("nas.lan", None)),
        ("NAS.lan:1", ("nas.lan", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65_535)),
        ("::1", ("::1", None)),
        ("[::1]", ("::1", None)),
        ("[::1]:443", ("::1", 443)),
    ],
)
def test_entries_of_the_setting_are_read(entry: str, parsed: tuple[str, int | None]) -> None:
    assert parse_entry(entry) == parsed


@pytest.mark.parametrize(
    "entry", ["", "*", "*.lan", "http://nas.lan", "nas.lan:", "nas.lan:0", "nas.lan:65536", "10.0.0.0/8", "a:b"]
)
def test_an_entry_that_is_no_host_stops_the_start(entry: str) -> None:
    with pytest.raises(SettingsError, match="PARLEY_ALLOW_PRIVATE_HOSTS"):
        Guard([entry])


def test_a_refusal_names_the_entry_that_would_open_the_place(guard: Guard) -> None:
    with pytest.raises(Refused, match=r"add nas\.lan:443 to PARLEY_ALLOW_PRIVATE_HOSTS\."):
        guard.check("nas.lan", 443)
    with pytest.raises(Refused, match=r"add \[fd00::5\]:443 to PARLEY_ALLOW_PRIVATE_HOSTS"):
        guard.check("fd00::5", 443)


def test_a_refusal_does_not_tell_which_address_a_name_leads_to(guard: Guard, names: Names) -> None:
    names.answers = {"wiki.example.com": [["10.77.66.55"]]}
    with pytest.raises(Refused) as refusal:
        guard.vet_now("wiki.example.com", 443)
    assert "10.77" not in str(refusal.value)


# ── drivers in native code ──────────────────────────────────────────────────────────────────────


def test_a_native_driver_reaches_only_hosts_whose_operator_is_known(names: Names) -> None:
    guard = Guard(["sql.lan:1433"], resolve=names)
    names.answers = {
        "acme.database.windows.net": [[PUBLIC]],
        "inner.database.windows.net": [["10.0.0.5"]],
        "evil.example.com": [[PUBLIC]],
    }
    suffixes = (".database.windows.net",)
    guard.vet_native("acme.database.windows.net", 1433, SQL_SERVER, suffixes)
    guard.vet_native("sql.lan", 1433, SQL_SERVER, suffixes)
    for host in ("evil.example.com", "inner.database.windows.net", "evildatabase.windows.net", PUBLIC, "127.0.0.1"):
        with pytest.raises(Refused):
            guard.vet_native(host, 1433, SQL_SERVER, suffixes)


# ── behind a proxy ──────────────────────────────────────────────────────────────────────────────


async def test_the_proxy_is_dialled_without_being_public_and_is_no_target(names: Names) -> None:
    proxies = read_proxies({"HTTPS_PROXY": "http://proxy.lan:3128", "http_proxy": "10.0.0.9:80"})
    guard = Guard(resolve=names, proxies=proxies)
    names.answers = {"proxy.lan": [["10.0.0.9"]]}
    assert list(await guard.vet_web("proxy.lan", 3128)) == ["10.0.0.9"]
    assert list(guard.vet_web_now("10.0.0.9", 80)) == ["10.0.0.9"]
    with pytest.raises(Refused):
        guard.vet_web_now("10.0.0.8", 80)
    for host, port in (("proxy.lan", 3128), ("proxy.lan", 443), ("10.0.0.9", 80)):
        with pytest.raises(Refused):
            guard.check_url("https", host, port)
        with pytest.raises(Refused):
            await guard.vet(host, port, POSTGRESQL)


def test_a_proxy_with_a_public_name_is_no_target_either(names: Names) -> None:
    guard = Guard(resolve=names, proxies=read_proxies({"HTTPS_PROXY": "http://proxy.example.com:443"}))
    with pytest.raises(Refused, match="is the proxy itself"):
        guard.check_url("https", "proxy.example.com", None)


def test_the_proxy_variables_are_read_as_curl_reads_them() -> None:
    proxies = read_proxies(
        {
            "https_proxy": "first.example.com:1",
            "HTTPS_PROXY": "second.example.com:2",
            "NO_PROXY": ".lan, one.example.com,a.b:8443",
        }
    )
    chosen = proxies.for_target("https", "api.example.com", None)
    assert chosen is not None
    assert (chosen.host, chosen.port) == ("first.example.com", 1)
    assert proxies.for_target("http", "api.example.com", None) is None
    assert proxies.for_target("https", "a.b", None) is not None
    for host, port in (
        ("nas.lan", None),
        ("one.example.com", 443),
        ("x.one.example.com", 1),
        ("a.b", 8443),
        ("127.0.0.1", 1),
    ):
        assert proxies.for_target("https", host, port) is None
    everywhere = read_proxies({"ALL_PROXY": "http://p.example.com", "no_proxy": ""})
    assert everywhere.includes("p.example.com", 80)
    assert everywhere.for_target("http", "x.example.com", None) is not None
    assert read_proxies({"HTTPS_PROXY": "p:1", "NO_PROXY": "*"}).for_target("https", "x.example.com", None) is None


@pytest.mark.parametrize("value", ["socks5://p:1080", "http://", "http://p:99999", "http://[::"])
def test_a_proxy_that_cannot_be_used_stops_the_start(value: str) -> None:
    for name in ("HTTPS_PROXY", "http_proxy", "ALL_PROXY"):
        with pytest.raises(SettingsError, match=f"^{name} "):
            read_proxies({name: value})


# ── what is said and asked ──────────────────────────────────────────────────────────────────────


class Asked:
    """A resolver that notes what it was asked, for which port and on whose thread."""

    def __init__(self, *answers: str) -> None:
        self.answers = answers
        self.seen: list[tuple[str, int]] = []
        self.threads: list[str] = []

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.seen.append((host, port))
        self.threads.append(threading.current_thread().name)
        return self.answers


async def test_a_name_is_looked_up_for_the_port_that_is_dialled_on_a_thread_of_the_guard() -> None:
    asked = Asked(PUBLIC)
    guard = Guard(resolve=asked)
    await guard.vet("a.example.com", 8443)
    await guard.vet_web("b.example.com", 443)
    assert asked.threads and all(name.startswith("parley-dns") for name in asked.threads)
    guard.vet_now("c.example.com", 8443)
    guard.vet_web_now("d.example.com", 8443)
    await guard.vet("e.example.com", 5432, POSTGRESQL)
    wanted = [("a", 8443), ("b", 443), ("c", 8443), ("d", 8443), ("e", 5432)]
    assert asked.seen == [(f"{name}.example.com", port) for name, port in wanted]


async def test_the_proxy_is_looked_up_for_its_own_port() -> None:
    asked = Asked("10.0.0.1")
    guard = Guard(resolve=asked, proxies=read_proxies({"HTTPS_PROXY": "http://proxy.lan:3128"}))
    assert await guard.vet_web("proxy.lan", 3128) == ("10.0.0.1",)
    assert guard.vet_web_now("proxy.lan", 3128) == ("10.0.0.1",)
    assert asked.seen == [("proxy.lan", 3128)] * 2


async def test_a_place_that_is_open_at_one_port_leads_anywhere_at_that_port_only() -> None:
    guard = Guard(["nas.lan:8443"], resolve=Asked("10.0.0.1"))
    assert guard.vet_now("nas.lan", 8443) == ("10.0.0.1",)
    assert await guard.vet("nas.lan", 8443) == ("10.0.0.1",)
    with pytest.raises(Refused, match=r"add nas\.lan:443 to"):
        guard.vet_now("nas.lan", 443)


@pytest.mark.parametrize("kind", [Refused, Unreachable])
def test_what_did_not_come_about_is_an_oserror_with_a_number_and_a_sentence(kind: type[Refused | Unreachable]) -> None:
    raised = kind("Not there.")
    assert isinstance(raised, OSError)
    assert raised.args == (errno.EACCES if kind is Refused else errno.EHOSTUNREACH, "Not there.")
    assert (raised.errno, raised.strerror, str(raised)) == (*raised.args, "Not there.")


def test_each_refusal_says_what_is_allowed_and_what_to_ask_for() -> None:
    guard = Guard(resolve=Asked("10.0.0.1"))
    ask = "If this place is meant, ask the operator of Parley to add"
    cases = [
        (
            lambda: guard.check("a.example.com", 99),
            f"Parley does not connect to port 99 of a.example.com, only to 80, 443, 6333, 8443. {ask} a.example.com:99",
        ),
        (
            lambda: guard.check_url("http", "a.example.com", 443),
            f"Parley connects to a.example.com only over https. Use an https:// address. {ask} a.example.com:443",
        ),
        (
            lambda: guard.check_url("https", "a.example.com", None, verified=False),
            f"Parley connects to a.example.com only with a certificate that it can check. {ask} a.example.com:443",
        ),
        (
            lambda: guard.vet_native("db.example.com", 1433, SQL_SERVER, (".windows.net",)),
            f"Parley connects to db.example.com only if its operator says so. {ask} db.example.com:1433",
        ),
        (
            lambda: guard.vet_now("a.example.com", 8443),
            f"a.example.com leads to a private network, and Parley does not connect there. {ask} a.example.com:8443",
        ),
    ]
    for call, said in cases:
        with pytest.raises(Refused) as refused:
            call()
        assert str(refused.value) == f"{said} to PARLEY_ALLOW_PRIVATE_HOSTS."
    with pytest.raises(Refused) as other:
        guard.check_url("gopher" * 10, "a.example.com", None)
    assert str(other.value) == f"Parley only opens http and https addresses, not {ascii('gopher' * 10)[:40]}."


async def test_closing_does_not_wait_for_a_name_server_that_hangs() -> None:
    begun, ends = threading.Event(), threading.Event()

    def hang(_host: str, _port: int) -> Sequence[str]:
        begun.set()
        ends.wait(60)
        return (PUBLIC,)

    guard = Guard(resolve=hang, resolve_seconds=60)
    looking = asyncio.get_running_loop().create_task(_vetted(guard))
    try:
        await asyncio.to_thread(begun.wait, 30)
        guard.close()
        assert not ends.is_set()
    finally:
        ends.set()
    assert await looking == (PUBLIC,)


async def _vetted(guard: Guard) -> Sequence[str]:
    return await guard.vet("slow.example.com", 443)


def test_the_longest_host_there_can_be_is_one() -> None:
    start = ".".join(["a" * 63] * 3)
    longest = f"{start}.{'a' * 57}.com"
    assert len(longest) == 253
    assert plain_host(longest) == plain_host(f"{longest}.") == longest
    with pytest.raises(Refused):
        plain_host(f"{start}.{'a' * 58}.com")
