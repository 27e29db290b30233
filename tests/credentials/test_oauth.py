"""Signing in with OAuth: what it is bound to, what it stores, and everything it refuses (trust T11)."""

import base64
import hashlib
import secrets
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, select, update

from parley.base.errors import BadRequest, NotFound
from parley.credentials import Ended, Return, Secrets, SignIn
from parley.credentials.grants import authorization_url, challenge, is_from, snake_case
from parley.credentials.model import Source
from parley.integrations import OAuthConfig
from parley.storage.tables.accounts import memberships, users
from parley.storage.tables.credentials import credentials, oauth_states
from tests.credentials.world import CALLBACK, HERE, World

APP = Secrets({"client_id": "c", "client_secret": "s"})


def asks(world: World, integration_name: str = "hub", **more: object) -> SignIn:
    """A sign-in with the organization's own app."""
    app = Secrets({"client_id": world.server.client_id, "client_secret": world.server.client_secret})
    return SignIn(integration_name, CALLBACK, pooled=False, app=app, **more)  # pyright: ignore[reportArgumentType]


def query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


async def come_back(world: World, callback_url: str, **more: str) -> Ended:
    """What the callback route does with the browser's request."""
    brought = query(callback_url)
    known = {"state", "code", "error", "iss"}
    return await world.oauth.finish(
        Return(
            state=brought.get("state", ""),
            code=brought.get("code", ""),
            error=brought.get("error", ""),
            issuer=brought.get("iss", ""),
            extras={name: value for name, value in brought.items() if name not in known},
            **more,  # pyright: ignore[reportArgumentType]
        ),
        HERE,
    )


async def stored(world: World) -> int:
    return len((await world.store.read(lambda tx: tx.execute(select(credentials.c.id)))).all())


# ── the good end ────────────────────────────────────────────────────────────────────────────────


async def test_a_sign_in_ends_in_a_stored_credential_and_tells_the_chat(world: World) -> None:
    llm = {"integration_name": "openai", "provider_id": "openai", "model_id": "m"}
    started = await world.oauth.start(
        world.mine,
        asks(world, display_name="Team hub", make_default=True, chat_id="chat1", request_id="request1", llm=llm),
    )
    ended = await come_back(world, world.server.consent(started.authorization_url))
    assert (ended.status, ended.request_id, ended.trusted) == ("connected", "request1", True)
    [(flow, credential)] = world.heard.connected
    assert (flow.organization_id, flow.user_id) == (world.mine.organization_id, world.mine.user_id)
    assert (flow.chat_id, flow.request_id, flow.llm) == ("chat1", "request1", llm)
    assert (credential.display_name, credential.is_default, credential.auth_type) == ("Team hub", True, "oauth2")
    assert credential.metadata == {"scope": "read write", "oauth_app": "own"}
    assert credential.expires_at is not None and credential.expires_at > world.clock.now()
    usable = await world.credentials.resolve(world.mine.organization_id, "hub")
    assert usable is not None and world.server.is_live(usable.auth_data.text("access_token"))
    assert usable.auth_data.text("oauth_client_id") == world.server.client_id
    [created] = await world.credentials.audit(world.mine.organization_id, credential.credential_id)
    assert (created.user_id, created.source) == (world.mine.user_id, HERE)


async def test_the_authorization_url_says_everything_the_manifest_asks_for(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world))
    asked = query(started.authorization_url)
    assert started.authorization_url.startswith(world.server.authorization_url)
    assert asked["audience"] == "hub"
    assert (asked["response_type"], asked["client_id"]) == ("code", world.server.client_id)
    assert (asked["redirect_uri"], asked["scope"]) == (CALLBACK, "read write")
    assert (asked["access_type"], asked["prompt"]) == ("offline", "consent")
    assert asked["code_challenge_method"] == "S256" and len(asked["code_challenge"]) == 43
    assert asked["state"] == started.state
    assert world.server.client_secret not in started.authorization_url
    other = await world.oauth.start(world.mine, asks(world, scope="read only"))
    assert query(other.authorization_url)["scope"] == "read only"


async def test_a_provider_without_pkce_and_with_basic_is_honoured(world: World) -> None:
    app = Secrets(
        {
            "client_id": world.server.client_id,
            "client_secret": world.server.client_secret,
            "developer_token": "dev1",
        }
    )
    started = await world.oauth.start(world.mine, SignIn("plain_hub", CALLBACK, pooled=False, app=app))
    assert "code_challenge" not in query(started.authorization_url)
    ended = await come_back(world, world.server.consent(started.authorization_url))
    assert ended.status == "connected"
    [form] = world.server.forms
    assert "code_verifier" not in form and "client_secret" not in form
    usable = await world.credentials.resolve(world.mine.organization_id, "plain_hub")
    assert usable is not None and usable.auth_data.text("developer_token") == "dev1"


async def test_the_operators_app_is_used_and_its_secret_stays_in_the_environment(world: World) -> None:
    world.environment |= {
        "PLAIN_HUB_OAUTH2_CLIENT_ID": world.server.client_id,
        "PLAIN_HUB_OAUTH2_CLIENT_SECRET": world.server.client_secret,
        "PLAIN_HUB_DEVELOPER_TOKEN": "pooled-dev",
    }
    started = await world.oauth.start(world.mine, SignIn("plain_hub", CALLBACK))
    ended = await come_back(world, world.server.consent(started.authorization_url))
    assert ended.status == "connected"
    usable = await world.credentials.resolve(world.mine.organization_id, "plain_hub")
    assert usable is not None
    assert usable.auth_data.text("developer_token") == "pooled-dev"
    assert world.server.client_secret not in [str(value) for value in usable.auth_data.values()]
    assert world.heard.connected[0][1].metadata["oauth_app"] == "pooled"


async def test_what_a_provider_says_beside_the_token_is_kept(world: World) -> None:
    world.server.extras = {"instance_url": "https://acme.hub.test", "teamId": "t1", "id_token": "x.y.z"}
    started = await world.oauth.start(world.mine, asks(world))
    await come_back(world, world.server.consent(started.authorization_url))
    usable = await world.credentials.resolve(world.mine.organization_id, "hub")
    assert usable is not None
    assert usable.auth_data.text("instance_url") == "https://acme.hub.test"
    assert usable.auth_data.text("team_id") == "t1"
    assert "id_token" not in usable.auth_data


async def test_what_a_provider_says_in_the_callback_is_kept_where_the_manifest_asks_for_it(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world))
    await come_back(world, f"{world.server.consent(started.authorization_url)}&realmId=42&access_token=evil&x=y")
    usable = await world.credentials.resolve(world.mine.organization_id, "hub")
    assert usable is not None
    assert usable.auth_data.text("realm_id") == "42"
    assert world.server.is_live(usable.auth_data.text("access_token")) and "x" not in usable.auth_data


async def test_an_app_among_the_typed_in_values_is_not_given_to_actions(world: World) -> None:
    values = Secrets({"HUB_OAUTH2_CLIENT_SECRET": "a-secret", "HUB_REALM_ID": "7"})
    started = await world.oauth.start(world.mine, asks(world, values=values))
    await come_back(world, world.server.consent(started.authorization_url))
    usable = await world.credentials.resolve(world.mine.organization_id, "hub")
    assert usable is not None and usable.auth_data.text("realm_id") == "7"
    assert "a-secret" not in [str(value) for value in usable.auth_data.values()]


async def test_a_provider_that_names_a_host_that_is_none_is_refused(world: World) -> None:
    world.server.extras = {"instance_url": "https://user@evil.test#x"}
    started = await world.oauth.start(world.mine, asks(world))
    ended = await come_back(world, world.server.consent(started.authorization_url))
    assert ended.status == "failed" and await stored(world) == 0


async def test_the_token_that_lives_for_ever_has_no_end(world: World) -> None:
    world.server.expires_in = None
    started = await world.oauth.start(world.mine, asks(world))
    await come_back(world, world.server.consent(started.authorization_url))
    assert world.heard.connected[0][1].expires_at is None


# ── failures a chat hears of ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "code"),
    [("access_denied", "oauth_denied"), ("server_error", "oauth_provider_error"), ("x", "oauth_provider_error")],
)
async def test_a_declined_sign_in_tells_the_chat_why(world: World, error: str, code: str) -> None:
    started = await world.oauth.start(world.mine, asks(world, chat_id="chat1", request_id="request1"))
    ended = await come_back(world, world.server.refuse(started.authorization_url, error))
    assert (ended.status, ended.request_id) == ("failed", "request1")
    [(flow, heard)] = world.heard.failed
    assert (flow.chat_id, heard) == ("chat1", code)
    assert await stored(world) == 0


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("down", "network_error"),
        ("garbage", "oauth_provider_error"),
        ("deep", "oauth_provider_error"),
        ("refuses", "oauth_provider_error"),
    ],
)
async def test_a_token_endpoint_that_fails_tells_the_chat_why(world: World, fault: str, code: str) -> None:
    started = await world.oauth.start(world.mine, asks(world, chat_id="chat1"))
    callback = world.server.consent(started.authorization_url)
    world.server.fault = fault  # pyright: ignore[reportAttributeAccessIssue]
    ended = await come_back(world, callback)
    assert ended.status == "failed"
    assert [heard for _, heard in world.heard.failed] == [code]
    assert await stored(world) == 0


async def test_a_late_callback_tells_the_chat_that_time_ran_out(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world, chat_id="chat1"))
    callback = world.server.consent(started.authorization_url)
    world.clock.advance(seconds=601)
    ended = await come_back(world, callback)
    assert ended.status == "failed" and "ten minutes" in ended.message
    assert [heard for _, heard in world.heard.failed] == ["timeout"]
    assert world.server.exchanges == 0 and await stored(world) == 0


async def test_an_issuer_that_is_another_server_is_refused(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world))
    callback = world.server.consent(started.authorization_url)
    ended = await come_back(world, f"{callback}&iss=https%3A%2F%2Fevil.example")
    assert ended.status == "failed" and world.server.exchanges == 0
    unreadable = await world.oauth.start(world.mine, asks(world, chat_id="chat1"))
    ended = await come_back(world, f"{world.server.consent(unreadable.authorization_url)}&iss=http%3A%2F%2F%5B")
    assert ended.status == "failed" and world.server.exchanges == 0
    assert [heard for _, heard in world.heard.failed][-1] == "oauth_provider_error"
    again = await world.oauth.start(world.mine, asks(world))
    callback = world.server.consent(again.authorization_url)
    assert (await come_back(world, f"{callback}&iss={world.server.origin}")).status == "connected"


async def test_a_callback_without_a_code_is_refused(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world))
    ended = await come_back(world, f"{CALLBACK}?state={started.state}")
    assert ended.status == "failed" and [heard for _, heard in world.heard.failed] == ["oauth_provider_error"]


# ── what nobody hears of ────────────────────────────────────────────────────────────────────────


async def nothing_happened(world: World, ended: Ended) -> None:
    assert (ended.status, ended.trusted, ended.request_id) == ("failed", False, None)
    assert world.server.exchanges == 0
    assert world.heard.connected == [] and world.heard.failed == []
    assert await stored(world) == 0


async def test_an_unknown_state_is_refused(world: World) -> None:
    await world.oauth.start(world.mine, asks(world))
    for state in ("", "x", secrets.token_urlsafe(32)):
        await nothing_happened(world, await come_back(world, f"{CALLBACK}?state={state}&code=c"))


async def test_a_state_is_good_once(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world))
    callback = world.server.consent(started.authorization_url)
    assert (await come_back(world, callback)).status == "connected"
    again = await come_back(world, callback)
    assert (again.status, again.trusted) == ("failed", False)
    assert await stored(world) == 1 and len(world.heard.connected) == 1


async def test_the_state_in_the_store_is_a_hash_and_the_verifier_sealed(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world))
    [row] = (await world.store.read(lambda tx: tx.execute(select(oauth_states)))).all()
    assert row.state_hash == hashlib.sha256(started.state.encode()).digest()
    shown = repr(row)
    assert started.state not in shown and world.server.client_secret not in shown


async def test_a_state_moved_to_another_organization_is_refused(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world))
    callback = world.server.consent(started.authorization_url)
    theirs = world.theirs
    await world.store.write(
        lambda tx: tx.execute(
            update(oauth_states).values(organization_id=theirs.organization_id, user_id=theirs.user_id)
        )
    )
    await nothing_happened(world, await come_back(world, callback))


async def test_another_browser_cannot_finish_a_sign_in(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world, browser="cookie1"))
    await nothing_happened(world, await come_back(world, world.server.consent(started.authorization_url)))
    started = await world.oauth.start(world.mine, asks(world, browser="cookie1"))
    other = await come_back(world, world.server.consent(started.authorization_url), browser="cookie2")
    await nothing_happened(world, other)
    started = await world.oauth.start(world.mine, asks(world, browser="cookie1"))
    same = await come_back(world, world.server.consent(started.authorization_url), browser="cookie1")
    assert same.status == "connected"


async def test_the_callback_of_another_integration_is_refused(world: World) -> None:
    wish = asks(world)
    own = SignIn("hub", f"{CALLBACK}/hub", pooled=False, app=wish.app)
    started = await world.oauth.start(world.mine, own)
    assert started.redirect_uri == f"{CALLBACK}/hub"
    callback = world.server.consent(started.authorization_url)
    await nothing_happened(world, await come_back(world, callback, integration_name="plain_hub"))
    started = await world.oauth.start(world.mine, own)
    callback = world.server.consent(started.authorization_url)
    assert (await come_back(world, callback, integration_name="hub")).status == "connected"


async def test_a_removed_member_cannot_finish(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world))
    callback = world.server.consent(started.authorization_url)
    await world.store.write(
        lambda tx: tx.execute(delete(memberships).where(memberships.c.user_id == world.mine.user_id))
    )
    await nothing_happened(world, await come_back(world, callback))


async def test_a_person_who_was_switched_off_cannot_finish(world: World) -> None:
    started = await world.oauth.start(world.mine, asks(world))
    callback = world.server.consent(started.authorization_url)
    await world.store.write(lambda tx: tx.execute(update(users).values(is_active=False)))
    await nothing_happened(world, await come_back(world, callback))


async def test_a_stolen_code_is_worth_nothing_without_the_verifier(world: World) -> None:
    victim = await world.oauth.start(world.mine, asks(world))
    code = query(world.server.consent(victim.authorization_url))["code"]
    thief = await world.oauth.start(world.theirs, asks(world))
    ended = await come_back(world, f"{CALLBACK}?state={thief.state}&code={code}")
    assert ended.status == "failed" and world.server.exchanges == 0


async def test_ended_states_are_forgotten_after_a_day(world: World) -> None:
    await world.oauth.start(world.mine, asks(world))
    world.clock.advance(days=1.1)
    await world.oauth.start(world.mine, asks(world))
    rows = (await world.store.read(lambda tx: tx.execute(select(oauth_states)))).all()
    assert len(rows) == 1


# ── what cannot begin ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (SignIn("hub", CALLBACK), "HUB_OAUTH2_CLIENT_ID and HUB_OAUTH2_CLIENT_SECRET"),
        (SignIn("hub", CALLBACK, pooled=False), "client_secret"),
        (SignIn("hub", CALLBACK, pooled=False, app=Secrets({"client_id": "c"})), "client_secret"),
        (SignIn("desk", CALLBACK), "does not sign in"),
        (
            SignIn("hub", "javascript:alert(1)", pooled=False, app=Secrets({"client_id": "c", "client_secret": "s"})),
            "redirect_uri",
        ),
        (
            SignIn("instances", CALLBACK, pooled=False, app=Secrets({"client_id": "c", "client_secret": "s"})),
            "instance_name",
        ),
        (
            SignIn("plain_hub", CALLBACK, pooled=False, app=Secrets({"client_id": "c", "client_secret": "s"})),
            "developer_token",
        ),
    ],
)
async def test_what_cannot_begin_says_what_to_do(world: World, wish: SignIn, says: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        await world.oauth.start(world.mine, wish)
    assert says in refusal.value.detail
    assert (await world.store.read(lambda tx: tx.execute(select(oauth_states)))).all() == []


async def test_an_unknown_integration_cannot_begin(world: World) -> None:
    with pytest.raises(NotFound):
        await world.oauth.start(world.mine, SignIn("nowhere", CALLBACK))


@pytest.mark.parametrize("name", ["evil.example/", "a.b", "x#", "dev@evil", "https://evil.example"])
async def test_a_templated_host_takes_one_label_only(world: World, name: str) -> None:
    wish = SignIn("instances", CALLBACK, pooled=False, app=APP, values=Secrets({"INSTANCES_INSTANCE_NAME": name}))
    with pytest.raises(BadRequest):
        await world.oauth.start(world.mine, wish)


async def test_a_templated_host_is_filled_in(world: World) -> None:
    wish = SignIn("instances", CALLBACK, pooled=False, app=APP, values=Secrets({"INSTANCES_INSTANCE_NAME": "dev123"}))
    started = await world.oauth.start(world.mine, wish)
    assert started.authorization_url.startswith("https://dev123.instances.test/authorize?")


async def test_the_provider_is_sent_to_this_server_whatever_the_client_says(world: World) -> None:
    wish = asks(world)
    elsewhere = SignIn("hub", "https://app.example.com/callback", pooled=False, app=wish.app)
    started = await world.oauth.start(world.mine, elsewhere)
    assert query(started.authorization_url)["redirect_uri"] == started.redirect_uri == CALLBACK


# ── small parts ─────────────────────────────────────────────────────────────────────────────────


def test_the_challenge_is_that_of_the_standards_example() -> None:
    assert challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@given(st.text(max_size=200))
def test_every_value_survives_the_authorization_url(text: str) -> None:
    config = OAuthConfig(auth_url="https://id.example/authorize?a=1", token_url="https://id.example/token")
    url = authorization_url(
        config, client_id=f"c{text}", redirect_uri=CALLBACK, scope=f"s{text}", state="x", verifier=None
    )
    if not text.isprintable():
        return
    assert query(url)["client_id"] == f"c{text}" and query(url)["scope"] == f"s{text}"


@pytest.mark.parametrize(
    ("issuer", "templated", "ours"),
    [
        ("https://login.example.com", False, True),
        ("https://acme.example.com", False, True),
        ("https://acme.example.com", True, False),
        ("https://login.example.com.evil.net", False, False),
        ("https://com", False, False),
        ("", False, False),
    ],
)
def test_an_issuer_is_known_by_its_host(issuer: str, *, templated: bool, ours: bool) -> None:
    config = OAuthConfig(auth_url="https://login.example.com/a", token_url="https://api.example.com/t")
    assert is_from(config, issuer, templated=templated) is ours


def test_names_are_read_as_integrations_write_them() -> None:
    assert [snake_case(name) for name in ("realmId", "instance_url", "ID")] == ["realm_id", "instance_url", "id"]


async def test_the_basic_header_carries_the_app(world: World) -> None:
    started = await world.oauth.start(
        world.mine,
        SignIn(
            "plain_hub",
            CALLBACK,
            pooled=False,
            app=Secrets({"client_id": world.server.client_id, "client_secret": "wrong", "developer_token": "d"}),
        ),
    )
    ended = await come_back(world, world.server.consent(started.authorization_url))
    assert ended.status == "failed" and "invalid_client" in ended.message
    assert base64.b64encode(b"wrong").decode() not in ended.message
    assert Source().ip_address is None
