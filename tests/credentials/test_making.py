"""Making, changing and showing credentials."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Table, insert

from parley.base.errors import BadRequest, Conflict, NotFound
from parley.base.ids import new_id
from parley.credentials import NewCredential, Secrets
from parley.credentials.fields import UnsafeValue, WrongCredential, check_host_fields, is_base_url
from parley.storage import WriteTx
from parley.storage.tables.accounts import audit_log
from parley.storage.tables.chats import chats, runs, tool_calls
from parley.storage.tables.columns import Json
from tests.credentials.world import HERE, World, fake_key

KEY = fake_key()


# ── which type it is ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("integration_name", "auth_data", "auth_type"),
    [
        ("desk", {"api_key": KEY, "domain": "acme"}, "api_key"),
        ("hub", {"token": KEY}, "bearer_token"),
        ("hub", {"bearer_token": KEY}, "bearer_token"),
        ("hub", {"access_token": KEY}, "bearer_token"),
        ("hub", {"HUB_TOKEN": KEY}, "bearer_token"),
        ("vault_db", {"host": "db.example.com", "password": KEY}, "custom"),
        ("vault_db", {"VAULT_DB_HOST": "db.example.com", "vault_db_password": KEY}, "custom"),
        ("openai", {"api_key": KEY}, "api_key"),
    ],
)
async def test_the_type_is_inferred_from_the_values(
    world: World, integration_name: str, auth_data: dict[str, str], auth_type: str
) -> None:
    credential = await world.connect(integration_name, auth_data)
    assert credential.auth_type == auth_type


async def test_an_access_token_with_an_oauth_config_is_a_sign_in(world: World) -> None:
    credential = await world.sign_in()
    assert credential.auth_type == "oauth2" and credential.masked == "OAuth2"


@pytest.mark.parametrize(
    ("integration_name", "auth_type", "auth_data", "says"),
    [
        ("hub", "api_key", {"api_key": KEY}, "oauth2, bearer_token"),
        ("hub", None, {}, "auth_type"),
        ("hub", "oauth2", {"refresh_token": KEY}, "access_token"),
        ("desk", None, {"api_key": KEY}, "domain"),
        ("desk", None, {"domain": "acme"}, "api key"),
        ("seeker", "modulex_key", {"api_key": KEY}, "no auth_data"),
        ("seeker", "modulex_key", {}, "no managed key"),
        ("openai", None, {"api_key": "not-a-key"}, "does not look like"),
        ("azure", None, {"api_key": KEY}, "base url"),
        ("demo", None, {"api_key": KEY}, "none"),
        ("hub", None, {"token": "two\nlines"}, "line break"),
        ("hub", None, {"token": "x" * 40_000}, "longer"),
        ("hub", None, {f"field{number}": "x" for number in range(70)}, "at most"),
    ],
)
async def test_what_does_not_fit_is_refused_with_a_sentence_that_helps(
    world: World, integration_name: str, auth_type: str | None, auth_data: dict[str, str], says: str
) -> None:
    new = NewCredential(integration_name, auth_data=Secrets(auth_data), auth_type=auth_type)
    with pytest.raises(BadRequest) as refusal:
        await world.credentials.create(world.mine, new, HERE)
    assert says in refusal.value.detail.lower() or says in refusal.value.detail
    assert KEY not in refusal.value.detail
    assert await world.credentials.list(world.mine.organization_id) == []


async def test_an_unknown_integration_is_not_found(world: World) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await world.connect("nowhere", {"api_key": KEY})


async def test_a_base_url_frees_the_key_of_its_format(world: World) -> None:
    credential = await world.connect("openai", {"api_key": "anything", "base_url": "https://models.example.com/v1"})
    usable = await world.credentials.resolve(world.mine.organization_id, "openai", credential.credential_id)
    assert usable is not None and usable.auth_data["base_url"] == "https://models.example.com/v1"


async def test_a_private_key_keeps_its_lines(world: World) -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nZmFrZQ==\n-----END PRIVATE KEY-----"
    await world.connect("vault_db", {"host": "db.example.com", "password": pem})
    usable = await world.credentials.resolve(world.mine.organization_id, "vault_db")
    assert usable is not None and usable.auth_data["password"] == pem


# ── hosts ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "domain",
    ["evil.example/", "evil.example#", "a.b", "@evil", "a b", "a\\b", "", "-a", "a" * 64, "evil?x=", "[::1]", "a:80"],
)
async def test_a_subdomain_cannot_break_out_of_its_host(world: World, domain: str) -> None:
    with pytest.raises((UnsafeValue, WrongCredential)):
        await world.connect("desk", {"domain": domain, "api_key": KEY})


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pw@host.example",
        "https://host.example#x",
        "https://host.example?x=1",
        "https://host.example/../x",
        "ftp://host.example",
        "https://",
        "https://host example",
        "https://host.example\\@evil",
        "https://host.example:0",
        "https://ho%73t.example",
        "javascript:alert(1)",
        "//host.example",
    ],
)
async def test_a_base_url_that_parsers_may_read_differently_is_refused(world: World, url: str) -> None:
    with pytest.raises(UnsafeValue, match="base_url"):
        await world.connect("vault_db", {"host": "db.example.com", "password": KEY, "base_url": url})


@pytest.mark.parametrize(
    "url", ["https://host.example", "https://host.example:6333", "http://127.0.0.1:8080/v1", "https://[2001:db8::1]/x"]
)
def test_a_plain_base_url_passes(url: str) -> None:
    assert is_base_url(url)


@given(st.text(max_size=80))
def test_whatever_passes_as_a_label_stays_one_label(text: str) -> None:
    try:
        check_host_fields("subdomain", text)
    except UnsafeValue:
        return
    assert not set(text) & set("./\\@:?#%[] \t\r\n")


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("mongodb+srv://user:p%40ss@cluster.example.net/db?retryWrites=true", True),
        ("mongodb://a.example:27017,b.example:27017/", True),
        ("http://cluster.example.net", False),
        ("mongodb://exa mple", False),
    ],
)
def test_connection_strings_name_hosts(text: str, *, passes: bool) -> None:
    if passes:
        check_host_fields("connection_string", text)
    else:
        with pytest.raises(UnsafeValue):
            check_host_fields("connection_string", text)


# ── defaults ────────────────────────────────────────────────────────────────────────────────────


async def test_a_credential_is_the_default_only_when_asked(world: World) -> None:
    assert not (await world.connect()).is_default
    assert (await world.connect(make_default=True)).is_default


async def test_a_new_default_takes_the_place_of_the_old_one(world: World) -> None:
    first = await world.connect(make_default=True)
    other = await world.connect("desk", {"domain": "acme", "api_key": KEY}, make_default=True)
    second = await world.connect(make_default=True)
    defaults = [
        credential.credential_id
        for group in await world.credentials.list(world.mine.organization_id)
        for credential in group.credentials
        if credential.is_default
    ]
    assert sorted(defaults) == sorted([second.credential_id, other.credential_id])
    assert first.credential_id not in defaults


async def test_a_reconnected_account_replaces_a_default_that_is_no_longer_accepted(world: World) -> None:
    old = await world.connect(make_default=True)
    usable = await world.credentials.resolve(world.mine.organization_id, "hub")
    assert usable is not None
    await world.credentials.mark_invalid(usable, "401")
    new = await world.connect()
    assert new.is_default
    assert not (await world.credentials.get(world.mine.organization_id, old.credential_id))[0].is_default


async def test_twenty_callers_at_once_leave_one_default(world: World) -> None:
    made = [await world.connect() for _ in range(5)]
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            credential_id = made[number % 5].credential_id
            group.create_task(world.credentials.set_default(world.mine, credential_id, HERE))
            group.create_task(world.connect(make_default=True))
    [listed] = await world.credentials.list(world.mine.organization_id, limit=500)
    assert listed.total_count == 25
    assert sum(credential.is_default for credential in listed.credentials) == 1


# ── changing and deleting ───────────────────────────────────────────────────────────────────────


async def test_names_and_metadata_change_and_nothing_else(world: World) -> None:
    before = await world.connect()
    world.clock.advance(seconds=5)
    after = await world.credentials.update(
        world.mine, before.credential_id, display_name="Team", metadata={"owner": "ops"}, source=HERE
    )
    assert (after.display_name, after.metadata) == ("Team", {"owner": "ops"})
    assert after.updated_at > before.updated_at
    assert (after.created_at, after.masked, after.auth_type) == (before.created_at, before.masked, before.auth_type)


async def test_a_deleted_credential_is_gone_and_its_audit_stays(world: World) -> None:
    credential = await world.connect()
    await world.credentials.delete(world.mine, credential.credential_id, HERE)
    with pytest.raises(NotFound):
        await world.credentials.get(world.mine.organization_id, credential.credential_id)
    with pytest.raises(NotFound):
        await world.credentials.delete(world.mine, credential.credential_id, HERE)
    events = await world.credentials.audit(world.mine.organization_id, credential.credential_id)
    assert [event.event_type for event in events] == ["deleted", "created"]


async def test_every_change_is_in_both_audits_with_who_and_from_where(world: World) -> None:
    credential = await world.connect()
    for step in range(3):
        world.clock.advance(seconds=1)
        match step:
            case 0:
                await world.credentials.set_default(world.mine, credential.credential_id, HERE)
            case 1:
                await world.credentials.update(
                    world.mine, credential.credential_id, display_name="X", metadata=None, source=HERE
                )
            case _:
                await world.credentials.test(world.mine, credential.credential_id, HERE)
    events = await world.credentials.audit(world.mine.organization_id, credential.credential_id)
    assert [event.event_type for event in events] == ["tested", "updated", "set_default", "created"]
    assert {event.user_id for event in events} == {world.mine.user_id}
    assert {event.source for event in events} == {HERE}
    assert events[1].changes == {"display_name": {"old": "Hub", "new": "X"}}
    logged = await world.store.read(lambda tx: tx.execute(audit_log.select()).all())
    assert len(logged) == 4 and {row.category for row in logged} == {"CREDENTIALS"}


async def test_nothing_to_change_writes_no_audit(world: World) -> None:
    credential = await world.connect()
    await world.credentials.update(
        world.mine, credential.credential_id, display_name=credential.display_name, metadata=None, source=HERE
    )
    assert len(await world.credentials.audit(world.mine.organization_id, credential.credential_id)) == 1


# ── two organizations ───────────────────────────────────────────────────────────────────────────


async def test_another_organizations_credential_is_like_a_missing_one(world: World) -> None:
    theirs = await world.connect(caller=world.theirs)
    organization_id, credentials = world.mine.organization_id, world.credentials

    async def refusals(credential_id: str) -> list[str]:
        said: list[str] = []
        for attempt in (
            credentials.get(organization_id, credential_id),
            credentials.usage(organization_id, credential_id),
            credentials.audit(organization_id, credential_id),
            credentials.update(world.mine, credential_id, display_name="x", metadata=None, source=HERE),
            credentials.set_default(world.mine, credential_id, HERE),
            credentials.test(world.mine, credential_id, HERE),
            credentials.delete(world.mine, credential_id, HERE),
            world.refresher.refresh(world.mine, credential_id, HERE),
        ):
            with pytest.raises(NotFound) as refusal:
                await attempt
            said.append(refusal.value.detail)
        return said

    assert await refusals(theirs.credential_id) == await refusals(new_id())
    assert await credentials.resolve(organization_id, "hub", theirs.credential_id) is None
    assert await credentials.resolve(organization_id, "hub") is None
    assert await credentials.list(organization_id) == []


# ── lists ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_page_counts_everything_and_shows_its_part(world: World) -> None:
    for _ in range(3):
        world.clock.advance(seconds=1)
        await world.connect()
    world.clock.advance(seconds=1)
    await world.connect("desk", {"domain": "acme", "api_key": KEY})
    await world.sign_in()
    groups = {
        group.integration_name: group
        for group in await world.credentials.list(world.mine.organization_id, limit=2, offset=1)
    }
    assert {name: group.total_count for name, group in groups.items()} == {"hub": 4, "desk": 1}
    assert list(groups["hub"].auth_types) == ["bearer_token", "oauth2"]
    assert sum(len(group.credentials) for group in groups.values()) == 2
    [tokens] = await world.credentials.list(
        world.mine.organization_id, integration_name="hub", auth_type="bearer_token"
    )
    newest_first = [credential.created_at for credential in tokens.credentials]
    assert len(newest_first) == 3 and newest_first == sorted(newest_first, reverse=True)


# ── managed ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_managed_credential_needs_the_operators_key_and_comes_once(world: World) -> None:
    world.environment["SEEKER_API_KEY"] = KEY
    managed = await world.connect("seeker", auth_type="modulex_key")
    assert managed.managed and managed.masked == "Managed"
    with pytest.raises(Conflict):
        await world.connect("seeker", auth_type="modulex_key")
    usable = await world.credentials.resolve(world.mine.organization_id, "seeker")
    assert usable is not None and usable.managed and usable.auth_data["api_key"] == KEY


async def test_offers_are_what_the_operator_pools_and_what_is_open_to_all(world: World) -> None:
    offered = await world.credentials.managed_offers(world.mine.organization_id)
    assert [(offer.name, held) for offer, held in offered] == [("library", False)]
    world.environment["SEEKER_API_KEY"] = KEY
    assert await world.credentials.add_managed(world.mine, "seeker", HERE) is not None
    assert await world.credentials.add_managed(world.mine, "seeker", HERE) is None
    offered = await world.credentials.managed_offers(world.mine.organization_id)
    assert {offer.name: held for offer, held in offered} == {"library": False, "seeker": True}


# ── usage ───────────────────────────────────────────────────────────────────────────────────────


def filled(table: Table, **values: object) -> dict[str, object]:
    """A row of a table that is not ours: what matters here, and empty values for the rest."""
    empty: dict[type, object] = {int: 0, str: "", bool: False, dict: {}}
    for column in table.c:
        if column.name not in values and not column.nullable:
            values[column.name] = {} if isinstance(column.type, Json) else empty[column.type.python_type]
    return values


async def add_calls(world: World, credential_id: str, calls: list[dict[str, object]]) -> None:
    chat_id, run_id, organization_id = new_id(), new_id(), world.mine.organization_id
    ours = {"organization_id": organization_id, "user_id": world.mine.user_id}

    def work(tx: WriteTx) -> None:
        tx.execute(insert(chats).values(filled(chats, id=chat_id, kind="assistant", **ours)))
        tx.execute(insert(runs).values(filled(runs, id=run_id, chat_id=chat_id, status="completed", **ours)))
        for step, call in enumerate(calls):
            row = filled(
                tool_calls,
                run_id=run_id,
                step=step,
                chat_id=chat_id,
                organization_id=organization_id,
                credential_id=credential_id,
                **call,
            )
            tx.execute(insert(tool_calls).values(row))

    await world.store.write(work)


async def test_usage_counts_the_actions_that_ran_in_the_period(world: World) -> None:
    credential = await world.connect()
    ran: dict[str, object] = {"status": "done", "succeeded": True, "action_name": "list", "started_at": 100}
    await add_calls(
        world,
        credential.credential_id,
        [
            ran,
            {**ran, "started_at": 200},
            {**ran, "succeeded": False, "action_name": "create", "started_at": 300},
            {**ran, "status": "unknown", "succeeded": None, "action_name": "create", "started_at": 300},
            {**ran, "status": "not_run", "succeeded": None},
            {**ran, "status": "started", "succeeded": None},
            {**ran, "started_at": 9_000},
        ],
    )
    usage = await world.credentials.usage(world.mine.organization_id, credential.credential_id, since=100, until=300)
    assert (usage.total_calls, usage.successful_calls, usage.failed_calls, usage.success_rate) == (4, 2, 2, 0.5)
    assert usage.action_breakdown == {"create": 2, "list": 2}


async def test_an_unused_credential_has_a_success_rate_of_zero(world: World) -> None:
    credential = await world.connect()
    usage = await world.credentials.usage(world.mine.organization_id, credential.credential_id)
    assert (usage.total_calls, usage.success_rate) == (0, 0.0)
