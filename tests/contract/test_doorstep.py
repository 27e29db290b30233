"""Who is over a rate hears so before the framework; who is not, and every route no rate governs, notices nothing."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from ipaddress import ip_network
from uuid import uuid4

import aiohttp
import pytest
from starlette.types import Message, Scope

from parley.accounts import RateReached
from parley.base.clock import SECOND, Clock
from parley.http import doorstep
from parley.http.doorstep import KEEP_SECONDS, Addresses, Doorstep, Refused
from parley.http.identity import EVERY_DOOR, Over
from parley.storage import Store, open_store
from parley.storage.windows import Windows
from parley.testing.scripted_model import ScriptedModel
from tests.billing.office import put_on
from tests.contract.conftest import House, billed
from tests.contract.test_billing import add_admin
from tests.stage import Answer, Client, Stage, caller, new_model_key

LIMIT = 40
ADDRESSES = ip_network("9.0.0.0/8").hosts()
LOOKS = "/billing/wallet"


@pytest.fixture(scope="module")
def settings_extra(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> dict[str, str]:
    return {
        **billed(tmp_path_factory.mktemp("plans"), model, new_model_key()),
        "PARLEY_REQUESTS_PER_ADDRESS": str(LIMIT),
        "PARLEY_TRUSTED_PROXIES": "127.0.0.1",
    }


@pytest.fixture(autouse=True)
def every_request_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is: a count that took too long would let requests pass, for seconds."""
    monkeypatch.setattr(doorstep, "COUNT_SECONDS", 60.0)


async def from_address(stage: Stage, address: str, path: str, method: str = "GET", **headers: str) -> Answer:
    """A request that nobody signed, which a trusted proxy passes on from an address."""
    client = Client(stage.client.base_url, stage.client.session, "", "")
    said = {"X-Forwarded-For": address, **headers}
    async with client.session.request(method, client.base_url + path, headers=said) as response:
        return Answer(response.status, await response.json(), lower(response.headers))


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def new_address() -> str:
    """An address that no other test has; of ten thousand drawn at random two would be the same."""
    return str(next(ADDRESSES))


async def busy(stage: Stage) -> tuple[Client, Answer]:
    """A new organization on a plan of five requests a minute for each person, all taken; and the first refusal."""
    made = await stage.client.post("/organizations", {"name": "Busy"})
    client = Client(stage.client.base_url, stage.client.session, stage.client.key, made.body["organization"]["id"])
    await stage.parley.store.write(put_on(client.organization_id, "busy"))
    answers = [await client.get(LOOKS) for _ in range(6)]
    assert [answer.status for answer in answers] == [200] * 5 + [429]
    return client, answers[-1]


# ── callers ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_refusal_from_memory_is_the_doors_own_byte_for_byte(stage: Stage) -> None:
    client, first = await busy(stage)
    for path in (LOOKS, "/assistant/chats", f"/assistant/chat/{uuid4()}/listen/{uuid4()}"):
        again = await client.get(path)
        assert (again.status, again.body) == (429, first.body)
        one, other = lower(again.headers), lower(first.headers)
        volatile = {"date", "retry-after"}
        assert {name: one[name] for name in one.keys() - volatile} == {
            name: other[name] for name in other.keys() - volatile
        }
        assert 1 <= int(one["retry-after"]) <= int(other["retry-after"])


async def test_routes_that_no_rate_of_the_plan_governs_stay_open(stage: Stage) -> None:
    client, _ = await busy(stage)
    assert (await client.get("/auth/me")).status == 200
    assert (await client.get("/system/health")).status == 200
    assert (await client.get("/nowhere")).status == 404
    assert (await client.get(LOOKS)).status == 429


async def test_another_organization_person_or_key_of_the_same_server_notices_nothing(stage: Stage) -> None:
    client, refused = await busy(stage)
    assert refused.body["detail"]["key"] == "api_user"
    assert (await stage.client.get(LOOKS)).status == 200
    other_key = await add_admin(stage.parley, client.organization_id)
    async with caller(client.base_url, other_key, client.organization_id) as admin:
        assert (await admin.get(LOOKS)).status == 200
    assert (await client.get(LOOKS)).status == 429


async def test_an_admin_over_the_rate_still_hears_first_that_a_route_is_the_owners(stage: Stage) -> None:
    client, _ = await busy(stage)
    key = await add_admin(stage.parley, client.organization_id)
    async with caller(client.base_url, key, client.organization_id) as admin:
        assert [(await admin.get(LOOKS)).status for _ in range(7)] == [200] * 5 + [429] * 2
        assert (await admin.call("PATCH", LOOKS, {"overage": True})).status == 403


async def test_a_refused_window_opens_at_its_end_and_not_before(stage: Stage) -> None:
    client, refused = await busy(stage)
    left = int(lower(refused.headers)["retry-after"])
    stage.clock.advance(seconds=left - 30)
    assert (await client.get(LOOKS)).status == 429
    stage.clock.advance(seconds=30)
    assert (await client.get(LOOKS)).status == 200


async def test_a_keys_own_rate_is_refused_from_memory_on_every_door_and_a_revoked_key_is_401_again(
    stage: Stage,
) -> None:
    made = (await stage.client.post("/api-keys", {"name": "slow", "rate_limit_per_minute": 1})).body
    async with caller(stage.client.base_url, made["key"], stage.client.organization_id) as slow:
        assert (await slow.get(LOOKS)).status == 200
        refusals = [await slow.get(path) for path in (LOOKS, LOOKS, "/auth/me", "/api-keys")]
        assert [(each.status, each.body) for each in refusals] == [(429, {"detail": "API key rate limit exceeded"})] * 4
        assert (await slow.get("/system/health")).status == 200
        revoked = await stage.client.call("DELETE", f"/api-keys/{made['id']}")
        assert revoked.status == 200, revoked.body
        # What is remembered is a second old at most.
        async with asyncio.timeout(30):
            while (await slow.get(LOOKS)).status == 429:
                await asyncio.sleep(0.05)
        assert (await slow.get(LOOKS)).status == 401


async def test_nothing_is_charged_or_written_by_a_refused_turn(stage: Stage) -> None:
    client, _ = await busy(stage)
    for _ in range(5):
        assert (await client.post("/assistant/chat", {"message": "Hi", "llm": stage.llm})).status == 429
    stage.clock.advance(seconds=61)
    assert (await client.get("/assistant/chats")).body["items"] == []
    assert (await client.get("/billing/ledger")).body["items"] == []


# ── addresses ───────────────────────────────────────────────────────────────────────────────────


async def test_an_address_that_nobody_is_known_from_has_so_many_requests_a_minute(stage: Stage) -> None:
    address = new_address()
    answers = [await from_address(stage, address, "/nowhere") for _ in range(LIMIT + 1)]
    assert [answer.status for answer in answers] == [404] * LIMIT + [429]
    refused = answers[-1]
    assert set(refused.body) == {"detail"}
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert (refused.headers["x-ratelimit-limit"], refused.headers["x-ratelimit-remaining"]) == (str(LIMIT), "0")
    for path, method in (("/system/health", "GET"), ("/subscriptions/webhook", "POST"), ("/auth/session", "POST")):
        assert (await from_address(stage, address, path, method)).status == 429
    assert (await from_address(stage, new_address(), "/nowhere")).status == 404
    stage.clock.advance(seconds=61)
    assert (await from_address(stage, address, "/nowhere")).status == 404


async def test_a_key_that_counts_is_heard_however_busy_its_address_is(stage: Stage) -> None:
    address = new_address()
    async with asyncio.timeout(60):
        while (await from_address(stage, address, "/system/health")).status != 429:
            pass
    stage.client.extra = {"X-Forwarded-For": address}
    assert (await stage.client.get(LOOKS)).status == 200
    assert (await stage.client.get("/system/health")).status == 429


@pytest.mark.parametrize("name", ["Authorization", "X-API-KEY", "Cookie"])
async def test_a_made_up_credential_does_not_hide_an_address(stage: Stage, name: str) -> None:
    address, made_up = new_address(), {"Authorization": "Bearer x", "X-API-KEY": "x", "Cookie": "parley-session=x"}
    async with asyncio.timeout(60):
        while (await from_address(stage, address, "/nowhere", **{name: made_up[name]})).status != 429:
            pass
    assert (await from_address(stage, address, "/nowhere")).status == 429


async def test_all_addresses_of_one_ipv6_network_count_as_one(stage: Stage) -> None:
    network = f"2a00:{uuid4().hex[:4]}:{uuid4().hex[:4]}:1"
    for number in range(LIMIT):
        assert (await from_address(stage, f"{network}::{number:x}", "/nowhere")).status == 404
    assert (await from_address(stage, f"{network}:ffff::1", "/nowhere")).status == 429


@pytest.fixture
async def two_processes(store_url: str, store: Store) -> AsyncIterator[list[Addresses]]:
    """Two counters on one database, as two processes have them."""
    second = open_store(store_url).across
    yield [Addresses(Windows(each, Clock(), "address", seconds=60), LIMIT) for each in (store, second)]
    await second.close()


async def test_an_addresss_requests_are_counted_over_all_processes(two_processes: list[Addresses]) -> None:
    scope: Scope = {"client": ("9.9.9.9", 1)}
    passed = 0
    for number in range(4 * LIMIT):
        try:
            await two_processes[number % 2].take(scope)
            passed += 1
        except RateReached:
            continue
    assert passed == LIMIT


@pytest.mark.parametrize(("rest_seconds", "asked"), [(600.0, 1), (0.0, 3)], ids=["within it", "after it"])
async def test_a_store_that_does_not_answer_lets_unknown_callers_pass_and_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rest_seconds: float, asked: int
) -> None:
    monkeypatch.setattr(doorstep, "REST_SECONDS", rest_seconds)
    gone = open_store("postgresql://postgres@127.0.0.1:1/nowhere")
    addresses = Addresses(Windows(gone, Clock(), "address", seconds=60), 1)
    for _ in range(3):
        await addresses.take({"client": ("9.9.9.9", 1)})
    await gone.close()
    assert caplog.text.count("requests of unknown callers are not counted now") == asked


# ── the memory itself ───────────────────────────────────────────────────────────────────────────


def over(clock: Clock, seconds: float = 30) -> Over:
    refusal = RateReached("Over", resets_at=clock.now() + int(seconds * SECOND), headers={"Retry-After": "30"})
    return Over(refusal, EVERY_DOOR, in_organization=False)


def named(key: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {key}".encode()}


def test_the_memory_holds_so_many_refusals_and_no_key() -> None:
    clock = Clock()
    refused = Refused(clock, most=10)
    for number in range(50):
        refused.keep(named(f"key-{number}"), over(clock))
    assert len(refused) == 10
    assert refused.find(named("key-49")) and not refused.find(named("key-1"))
    assert "key-49" not in repr(vars(refused))
    refused.keep({}, over(clock))
    assert len(refused) == 10


async def test_a_refusal_is_forgotten_at_its_end_and_after_a_second() -> None:
    clock = Clock()
    refused = Refused(clock)
    refused.keep(named("a"), over(clock, seconds=30))
    assert refused.find(named("a"))
    clock.advance(seconds=30)
    assert not refused.find(named("a"))
    refused.keep(named("b"), over(clock, seconds=3_000))
    await asyncio.sleep(KEEP_SECONDS * 1.1)
    assert not refused.find(named("b"))
    assert len(refused) == 0


async def test_a_refusal_says_the_seconds_that_are_left() -> None:
    clock = Clock()
    refused, sent = Refused(clock), list[Message]()
    refused.keep(named("a"), over(clock, seconds=30))

    async def send(message: Message) -> None:
        sent.append(message)

    clock.advance(seconds=12)
    (known, *_) = refused.find(named("a"))
    await known.give(send, clock.now())
    assert dict(sent[0]["headers"])[b"retry-after"] == b"18"


# These answer a refusal in their own protocol's shape, so they refuse by themselves (decision 0029).
BEYOND_THE_DOORS = {"/v1/chat/completions", "/v1/models", "/v1/models/{name}"}


async def test_every_route_of_the_server_is_behind_the_door_it_says(house: House) -> None:
    """What the doors know is what OpenAPI says: a route with a scheme has a door, another has none."""
    doorstep = house.parley.app
    assert isinstance(doorstep, Doorstep)
    async with aiohttp.ClientSession() as session, session.get(f"{house.base_url}/openapi.json") as response:
        paths = (await response.json())["paths"]
    seen = 0
    for path, operations in paths.items():
        for method, operation in operations.items():
            place = path.replace("{", "").replace("}", "")
            door = doorstep.doors.before({"type": "http", "method": method.upper(), "path": place})
            schemes = {name for scheme in operation.get("security", []) for name in scheme}
            if path in BEYOND_THE_DOORS:
                assert schemes, (method, path)
                assert door is None, (method, path)
                continue
            assert bool(schemes) == (door is not None), (method, path)
            assert ("API key in an organization" in schemes) == (door in ("admin", "owner")), (method, path)
            seen += 1
    assert paths.keys() >= BEYOND_THE_DOORS
    assert seen > 50
