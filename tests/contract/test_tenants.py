"""T1, T2, T3: whatever belongs to another organization, kind or time is the same as what was never there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

import aiohttp
import pytest
from sqlalchemy import Executable, delete, insert, update

from parley.accounts.keys import token_digest
from parley.http import stream
from parley.storage.tables.accounts import api_keys, memberships, sessions
from parley.storage.tables.chats import chats as chat_table
from parley.storage.tables.chats import tool_results
from tests.contract.conftest import House, furnish
from tests.contract.surface import Route, routes_of
from tests.stage import STREAM_SECONDS, Client, Json, Stage, calls, says

MISSING = "99999999-9999-4999-8999-999999999999"
ASK = calls("ask_user_yes_no", {"message": "Go on?"})
PER_KEY, PER_ORGANIZATION = 3, 5
# Names of integrations, models and files, which are the installation's and not an organization's.
PUBLIC = {"name", "provider_id", "model_id"}
# What differs between any two answers.
VARYING = {"date", "x-ratelimit-remaining", "x-ratelimit-reset"}
LIMIT_SECONDS = 120.0
# It is served in front of the framework's routes, so it is the one that a list of them could lack.
LISTEN = "GET /assistant/chat/{chat_id}/listen/{run_id}"


@pytest.fixture(scope="module")
def settings_extra() -> dict[str, str]:
    """A server whose streams beat fast and are few."""
    return {
        "PARLEY_STREAM_HEARTBEAT_SECONDS": "0.1",
        "PARLEY_STREAMS_PER_KEY": str(PER_KEY),
        "PARLEY_STREAMS_PER_ORGANIZATION": str(PER_ORGANIZATION),
    }


async def person(stage: Stage, name: str) -> tuple[str, Client]:
    """A new member of the stage's organization, and a client with a key of theirs."""
    invited = await stage.client.post("/organizations/invite", {"invited_email": f"{name}@example.com"})
    assert invited.status == 200, invited.body
    way = {"invitation_token": invited.body["invitation"]["token"], "username": name}
    page = {"Sec-Fetch-Site": "same-origin"}
    async with aiohttp.ClientSession(stage.client.base_url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.post("/auth/session", json=way, headers=page) as signed_in:
            user = (await signed_in.json())["user"]
        async with browser.post(
            "/api-keys", json={"name": "mine", "rate_limit_per_minute": 1000}, headers=page
        ) as made:
            key = (await made.json())["key"]
    return user["id"], Client(stage.client.base_url, stage.client.session, key, stage.client.organization_id)


@pytest.fixture
async def intruder(stage: Stage) -> Client:
    """Somebody who has left the organization and owns another."""
    _, client = await person(stage, f"intruder-{uuid4().hex[:8]}")
    assert (await client.post("/auth/organizations/leave")).status == 200
    made = await client.post("/organizations", {"name": f"Other {uuid4().hex[:6]}"})
    client.organization_id = made.body["organization"]["id"]
    return client


async def possessions(stage: Stage) -> Mapping[str, str]:
    """One id of each kind that the organization has, under the names routes use for it."""
    turn = await stage.turn(ASK)
    credential = await stage.connect_github("ghp_theirs")
    invited = await stage.client.post("/organizations/invite", {"invited_email": f"{uuid4().hex}@example.com"})
    key = await stage.client.post("/api-keys", {"name": "theirs"})
    user, _ = await person(stage, f"member-{uuid4().hex[:8]}")
    base, document = await a_document(stage.client)
    api = await an_api(stage.client)
    result = str(uuid4())
    row = {"id": result, "chat_id": turn.chat_id, "run_id": turn.run_id, "value": {"secret": 1}, "created_at": 0}
    await stage.parley.store.write(lambda tx: tx.execute(insert(tool_results).values(row)))
    return {
        "chat_id": turn.chat_id,
        "composer_chat_id": turn.chat_id,
        "run_id": turn.run_id,
        "request_id": turn.question["request_id"],
        "composer_request_id": turn.question["request_id"],
        "result_id": result,
        "base_id": base,
        "document_id": document,
        "credential_id": credential,
        "api_name": api,
        "invitation_id": invited.body["invitation"]["id"],
        "key_id": key.body["id"],
        "user_id": user,
        "organization_id": stage.client.organization_id,
    }


def a_file() -> aiohttp.FormData:
    form = aiohttp.FormData()
    form.add_field("file", b"Theirs alone.", filename="theirs.txt", content_type="text/plain")
    return form


async def a_document(client: Client) -> tuple[str, str]:
    """A knowledge base and a document in it."""
    base = (await client.post("/knowledge-bases", {"name": "Theirs"})).body["id"]
    path = f"{client.base_url}/knowledge-bases/{base}/documents"
    async with client.session.post(path, data=a_file(), headers=client.headers) as answer:
        return base, (await answer.json())["id"]


async def an_api(client: Client) -> str:
    """The name of an imported API."""
    spec = {
        "openapi": "3.1.0",
        "info": {"title": "Theirs", "version": "1"},
        "servers": [{"url": "https://theirs.example"}],
        "paths": {"/x": {"get": {}}},
    }
    seen = await client.post("/integrations/openapi", {"spec": spec})
    made = await client.post("/integrations/openapi", {"spec": spec, "digest": seen.body["digest"]})
    return made.body["integration_name"]


def fitting(stage: Stage, route: Route) -> Json | None:
    """The route's body, with the stage's model where one is taken."""
    return {**route.body, "llm": stage.llm} if route.body and "/chat" in route.path else route.body


async def exact(client: Client, route: Route, ids: Mapping[str, str], body: Json | None) -> tuple[object, ...]:
    """Status, headers and bytes of an answer."""
    path = client.base_url + route.path.format_map({**dict.fromkeys(PUBLIC, "github"), **ids})
    timeout = aiohttp.ClientTimeout(total=10)
    data = a_file() if route.uploads else None
    async with client.session.request(
        route.method, path, json=body, data=data, headers=client.headers, timeout=timeout
    ) as answer:
        raw = await answer.read()
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in VARYING}
        return answer.status, headers, raw


async def test_T1_a_foreign_id_is_byte_equal_to_a_missing_one_on_every_route(stage: Stage, intruder: Client) -> None:
    theirs = await possessions(stage)
    nowhere = dict.fromkeys(theirs, MISSING)
    probed: set[str] = set()
    for route in await routes_of(stage):
        for name in route.named:
            if name in PUBLIC:
                continue
            body = fitting(stage, route)
            assert name in theirs, f"{route}: say in possessions() what a foreign {name} is"
            # Whatever else the path names is foreign too, or the intruder's own organization.
            for rest in ({**theirs, "organization_id": intruder.organization_id}, nowhere):
                foreign = await exact(intruder, route, {**rest, name: theirs[name]}, body)
                missing = await exact(intruder, route, {**rest, name: MISSING}, body)
                assert foreign == missing, route
                assert foreign[0] == 404 or name == "organization_id", (route, foreign)
            probed.add(str(route))
    assert len(probed) >= 20 and LISTEN in probed
    async with asyncio.timeout(60):
        assert (await stage.client.get(f"/assistant/chat/{theirs['chat_id']}/status")).body["is_running"] is False
    assert (await stage.client.get(f"/credentials/{theirs['credential_id']}")).status == 200


async def test_T1_a_foreign_id_in_a_body_is_byte_equal_to_a_missing_one(
    house: House, stage: Stage, intruder: Client
) -> None:
    theirs = await possessions(stage)
    own = await (await furnish(house, intruder, stage.model)).turn(ASK)
    document = (await stage.client.get("/openapi.json")).body
    probed: set[tuple[str, str]] = set()
    for route in await routes_of(stage):
        for name, field in _ids_in_body(document, route):
            assert name in theirs, f"{route}: say in possessions() what a foreign {name} is"
            if name == "organization_id":
                continue
            mine = {"chat_id": own.chat_id, "credential_id": theirs["credential_id"], "key_id": theirs["key_id"]}
            answers = [
                await exact(intruder, route, {**theirs, **mine}, _with(fitting(stage, route) or {}, field, value))
                for value in (theirs[name], MISSING)
            ]
            assert answers[0] == answers[1], (route, name)
            assert answers[0][0] in (400, 404, 410, 422), (route, name, answers[0])
            probed.add((str(route), name))
    assert {name for _, name in probed} >= {"chat_id", "credential_id", "request_id"}


def _ids_in_body(document: Json, route: Route) -> list[tuple[str, tuple[str, ...]]]:
    """The ids in a body, and where they stand."""
    if route.body is None:
        return []
    operation = document["paths"][route.path][route.method.lower()]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return [(place[-1], place) for place in _id_places(document, schema, ())]


def _id_places(document: Json, schema: Json, above: tuple[str, ...]) -> list[tuple[str, ...]]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    found: list[tuple[str, ...]] = []
    for choice in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        found += _id_places(document, choice, above)
    for name, inner in schema.get("properties", {}).items():
        if name.endswith("_id") and name not in PUBLIC:
            found.append((*above, name))
        elif len(above) < 2:
            found += _id_places(document, inner, (*above, name))
    return list(dict.fromkeys(found))


LLM = {"integration_name": "openai", "provider_id": "openai", "model_id": "gpt-4o"}
ANSWER = {"kind": "credential_added", "integration_name": "github", "auth_type": "bearer_token"}


def _with(body: Json, place: tuple[str, ...], value: str) -> Json:
    head, *rest = place
    if not rest:
        return {**body, head: value}
    inner: Json = {"llm": LLM, "response": ANSWER, "composer_llm_config": LLM}.get(head, {})
    return {**body, head: _with(inner, tuple(rest), value)}


async def test_T2_a_composer_chat_is_byte_equal_to_a_missing_one_on_every_assistant_route(stage: Stage) -> None:
    theirs = dict(await possessions(stage))
    change = update(chat_table).where(chat_table.c.id == theirs["chat_id"]).values(kind="composer")
    await stage.parley.store.write(lambda tx: tx.execute(change))
    probed: set[str] = set()
    for route in await routes_of(stage):
        if not route.path.startswith("/assistant") or "chat_id" not in route.named:
            continue
        body = fitting(stage, route)
        composer = await exact(stage.client, route, theirs, body)
        assert composer[0] == 404, route
        assert composer == await exact(stage.client, route, {**theirs, "chat_id": MISSING}, body), route
        probed.add(str(route))
    assert len(probed) >= 7 and LISTEN in probed


# ── streams that lose their reader's right ──────────────────────────────────────────────────────

type Act = Callable[[], Awaitable[object]]


@asynccontextmanager
async def silent_turn(stage: Stage, asker: Client) -> AsyncGenerator[tuple[Json, str]]:
    """A turn that says nothing more until its barrier is released, which happens at the end; both."""
    barrier = uuid4().hex
    await stage.script(says("Wait ", "for it", barrier=barrier, barrier_after=2))
    begun = await asker.post("/assistant/chat", {"message": "Go", "llm": stage.llm})
    assert begun.status == 200, begun.body
    yield begun.body, barrier
    await stage.model.release(barrier)


@pytest.fixture
async def silent(stage: Stage) -> AsyncIterator[Json]:
    """A turn that goes on until the test is over."""
    async with silent_turn(stage, stage.client) as (started, _):
        yield started
    await stage.settled(started["chat_id"])


@asynccontextmanager
async def signed_in(stage: Stage, **way: str) -> AsyncGenerator[Client]:
    """A browser with a session in the stage's organization."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        page = Client(stage.client.base_url, browser, "", stage.client.organization_id)
        opened = await page.post("/auth/session", way)
        assert opened.status == 200, opened.body
        yield page


def doing(client: Client, method: str, path: str, body: Json | None = None) -> Act:
    """A request that has to succeed."""

    async def act() -> None:
        answer = await client.call(method, path, body)
        assert answer.status == 200, answer.body

    return act


@pytest.fixture
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends a stream in time is then the word of what was done, and not the look from time to time."""
    monkeypatch.setattr(stream, "MEMBERSHIP_SECONDS", 10 * LIMIT_SECONDS)


async def ends_after(reader: Client, run: Json, act: Act) -> None:
    """The reader's stream is open until something is done, and then closes in the middle of the turn."""
    kinds: list[str] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        async for event in reader.stream(run["chat_id"], run["run_id"]):
            kinds.append(event["type"])
            if kinds.count("heartbeat") == 5 and kinds[-1] == "heartbeat":
                await act()
    assert kinds.count("heartbeat") >= 5 and "done" not in kinds


@pytest.mark.usefixtures("no_second_look")
async def test_T3_the_stream_of_somebody_who_was_removed_ends_at_once(stage: Stage) -> None:
    user, member = await person(stage, f"leaving-{uuid4().hex[:8]}")
    async with silent_turn(stage, member) as (run, _):
        path = f"/organizations/{stage.client.organization_id}/users/{user}"
        await ends_after(member, run, doing(stage.client, "DELETE", path))


@pytest.mark.usefixtures("no_second_look")
async def test_T3_the_stream_of_a_session_that_is_signed_out_ends_at_once(stage: Stage, silent: Json) -> None:
    async with signed_in(stage, api_key=stage.client.key) as page:
        await ends_after(page, silent, doing(page, "DELETE", "/auth/session"))
        assert (await page.get("/auth/me")).status == 401


@pytest.mark.usefixtures("no_second_look")
async def test_T3_the_streams_of_the_other_sessions_end_at_once_with_the_password(stage: Stage) -> None:
    name, first, second = f"careful-{uuid4().hex[:8]}", uuid4().hex, uuid4().hex
    invited = await stage.client.post("/organizations/invite", {"invited_email": f"{name}@example.com"})
    token = invited.body["invitation"]["token"]
    async with (
        signed_in(stage, invitation_token=token, username=name, password=first) as page,
        signed_in(stage, email=f"{name}@example.com", password=first) as elsewhere,
        silent_turn(stage, page) as (run, _),
    ):
        change = {"current_password": first, "new_password": second}
        await ends_after(elsewhere, run, doing(page, "PUT", "/auth/password", change))
        assert (await elsewhere.get("/auth/me")).status == 401
        assert (await page.get("/auth/me")).status == 200


@pytest.mark.usefixtures("no_second_look")
async def test_T17_revoking_a_key_ends_its_streams_at_once_and_no_others(stage: Stage) -> None:
    made = (await stage.client.post("/api-keys", {"name": "short"})).body
    other = Client(stage.client.base_url, stage.client.session, made["key"], stage.client.organization_id)
    async with silent_turn(stage, stage.client) as (run, barrier), AsyncExitStack() as stack:
        still = await _open(stack, stage.client, run)
        await ends_after(other, run, doing(stage.client, "DELETE", f"/api-keys/{made['id']}"))
        await stage.model.release(barrier)
        async with asyncio.timeout(STREAM_SECONDS):
            told = await still.text()
    # Another key's stream tells the turn to its end.
    assert '"type":"done"' in told


@pytest.fixture
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams ask again, five times a second, whether their readers still may."""
    monkeypatch.setattr(stream, "MEMBERSHIP_SECONDS", 0.2)


def unannounced(stage: Stage, change: Executable) -> Act:
    """Rows that change without a word to this process, as where another one changes them."""

    async def act() -> None:
        await stage.parley.store.write(lambda tx: tx.execute(change))

    return act


@pytest.mark.usefixtures("frequent_looks")
async def test_T3_the_stream_of_somebody_whom_another_process_removed_ends(stage: Stage) -> None:
    user, member = await person(stage, f"leaving-{uuid4().hex[:8]}")
    async with silent_turn(stage, member) as (run, _):
        await ends_after(member, run, unannounced(stage, delete(memberships).where(memberships.c.user_id == user)))


@pytest.mark.usefixtures("frequent_looks")
async def test_T3_the_stream_of_a_session_that_another_process_ended_ends(stage: Stage, silent: Json) -> None:
    async with signed_in(stage, api_key=stage.client.key) as page:
        (cookie,) = page.session.cookie_jar
        over = delete(sessions).where(sessions.c.token_hash == token_digest(cookie.value))
        await ends_after(page, silent, unannounced(stage, over))


@pytest.mark.usefixtures("frequent_looks")
async def test_T17_the_streams_of_a_key_that_another_process_revoked_end(stage: Stage, silent: Json) -> None:
    made = (await stage.client.post("/api-keys", {"name": "short"})).body
    other = Client(stage.client.base_url, stage.client.session, made["key"], stage.client.organization_id)
    revoked = update(api_keys).where(api_keys.c.id == made["id"]).values(revoked_at=stage.clock.now())
    await ends_after(other, silent, unannounced(stage, revoked))


async def test_T18_streams_are_capped_by_key_and_by_organization(stage: Stage, silent: Json) -> None:
    first, second, third = [await _key(stage) for _ in range(3)]
    async with AsyncExitStack() as stack:
        opened = [await _open(stack, first, silent) for _ in range(PER_KEY)]
        assert [each.status for each in opened] == [200] * PER_KEY
        over = await _open(stack, first, silent)
        assert over.status == 429 and int(over.headers["Retry-After"]) > 0
        assert "open at once" in (await over.json())["detail"]
        more = [await _open(stack, second, silent) for _ in range(PER_ORGANIZATION - PER_KEY)]
        assert {each.status for each in more} == {200}
        assert (await _open(stack, third, silent)).status == 429
        opened[0].close()
        async with asyncio.timeout(60):
            while (await _open(stack, third, silent)).status == 429:
                await asyncio.sleep(0.02)


async def _key(stage: Stage) -> Client:
    made = (await stage.client.post("/api-keys", {"name": "another", "rate_limit_per_minute": 1000})).body
    return Client(stage.client.base_url, stage.client.session, made["key"], stage.client.organization_id)


async def _open(stack: AsyncExitStack, client: Client, run: Json) -> aiohttp.ClientResponse:
    path = f"{client.base_url}/assistant/chat/{run['chat_id']}/listen/{run['run_id']}"
    return await stack.enter_async_context(client.session.get(path, headers=client.headers))


async def test_T3_a_callback_for_somebody_who_left_connects_nothing(stage: Stage) -> None:
    """The sign-in itself is in test_credentials_oauth; here the person goes while the browser is away."""
    user, member = await person(stage, f"gone-{uuid4().hex[:8]}")
    body = {
        "integration_name": "github",
        "redirect_uri": f"{stage.client.base_url}/credentials/oauth2/callback",
        "use_modulex_oauth": False,
        "custom_oauth_config": {"client_id": "id", "client_secret": "secret"},
    }
    began = await member.post("/credentials/oauth2/initiate", body)
    assert began.status == 200, began.body
    path = f"/organizations/{stage.client.organization_id}/users/{user}"
    assert (await stage.client.call("DELETE", path)).status == 200
    state = began.body["state"]
    url = f"{stage.client.base_url}/credentials/oauth2/callback?code=x&state={state}"
    async with stage.client.session.get(url) as page:
        text = await page.text()
    assert "may no longer connect" in text
    assert (await stage.client.get("/credentials?integration_name=github")).body["credentials"] == []
