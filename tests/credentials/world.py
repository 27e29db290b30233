"""Two organizations, a catalog of invented integrations, and everything of credentials around one store."""

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sqlalchemy import insert, update

from parley.accounts import Caller
from parley.base.clock import Clock
from parley.base.ids import new_id
from parley.credentials import (
    Credential,
    Credentials,
    Flow,
    Listeners,
    NewCredential,
    OAuth,
    OAuthFailure,
    Offers,
    Prober,
    Refresher,
    Secrets,
    Source,
    TokenEndpoint,
    Vault,
)
from parley.credentials.mcp import ServerSignIn
from parley.egress import Egress
from parley.integrations import AuthSchema, Catalog, CredentialField, Integration, OAuthConfig, Probe
from parley.integrations.index import FORMAT, BasicAuth, Index, summarized
from parley.keyring import Keyring
from parley.llm import Models, Sessions, shipped_catalogue
from parley.storage import Store, WriteTx
from parley.storage.tables.accounts import memberships, organizations, users
from parley.storage.tables.credentials import credentials as credential_rows
from parley.testing.oauth_server import OAuthServer

CALLBACK = "http://parley.test/credentials/oauth2/callback"
HERE = Source("203.0.113.7", "test-agent/1")


def fake_key(prefix: str = "sk-") -> str:
    """A key of a real one's shape that was never anybody's."""
    return f"{prefix}fake{secrets.token_hex(20)}"


def new_keyring() -> Keyring:
    return Keyring({"k1": secrets.token_bytes(32)})


@dataclass
class Heard:
    """What a waiting chat would have been told."""

    connected: list[tuple[Flow, Credential]] = field(default_factory=list[tuple[Flow, Credential]])
    failed: list[tuple[Flow, OAuthFailure]] = field(default_factory=list[tuple[Flow, OAuthFailure]])

    async def on_connected(self, flow: Flow, credential: Credential) -> None:
        self.connected.append((flow, credential))

    async def on_failed(self, flow: Flow, code: OAuthFailure, message: str) -> None:
        assert message
        self.failed.append((flow, code))


@dataclass
class World:
    """Everything, and the ``mine``/``theirs`` callers of two organizations."""

    store: Store
    clock: Clock
    keyring: Keyring
    environment: dict[str, str]
    vault: Vault
    offers: Offers
    egress: Egress
    refresher: Refresher
    credentials: Credentials
    oauth: OAuth
    heard: Heard
    server: OAuthServer
    mine: Caller
    theirs: Caller

    async def connect(
        self,
        integration_name: str = "hub",
        values: Mapping[str, str] | None = None,
        *,
        caller: Caller | None = None,
        auth_type: str | None = None,
        display_name: str | None = None,
        make_default: bool = False,
    ) -> Credential:
        """A stored credential, by default a token of the hub's that was made up."""
        if values is None:
            values = {"token": fake_key("tok_")} if integration_name == "hub" else {}
        new = NewCredential(
            integration_name,
            auth_data=Secrets(dict(values)),
            auth_type=auth_type,
            display_name=display_name,
            make_default=make_default,
        )
        return await self.credentials.create(caller or self.mine, new, HERE)

    async def sign_in(self, *, lives: int | None = 3600) -> Credential:
        """A stored OAuth grant of the local server's, whose access token lives so many seconds."""
        access_token, refresh_token = self.server.grant()
        new = NewCredential(
            "hub",
            auth_data=Secrets({"access_token": access_token, "refresh_token": refresh_token}),
            oauth_config=Secrets({"client_id": self.server.client_id, "client_secret": self.server.client_secret}),
            expires_at=None if lives is None else self.clock.now() + lives * 1_000_000,
        )
        return await self.credentials.create(self.mine, new, HERE)

    async def set_columns(self, credential: Credential, **values: object) -> None:
        """Change a row behind everyone's back."""
        where = credential_rows.c.id == credential.credential_id
        await self.store.write(lambda tx: tx.execute(update(credential_rows).where(where).values(**values)))


def integrations(server: OAuthServer) -> Sequence[Integration]:
    """Offers that do not exist, pointed at the local server."""
    oauth = AuthSchema(
        auth_type="oauth2",
        display_name="Sign in",
        description="",
        fields=(
            _field("HUB_OAUTH2_CLIENT_ID", "client_id", only_for_custom=True),
            _field("HUB_OAUTH2_CLIENT_SECRET", "client_secret", sensitive=True, only_for_custom=True),
            _field("HUB_REALM_ID", "realm_id", required=False, inject_into_auth_data=True),
        ),
        test_endpoint=Probe(
            url=server.me_url, headers={"Authorization": "Bearer {access_token}"}, response_fields=("login",)
        ),
        oauth_config=OAuthConfig(
            auth_url=f"{server.authorization_url}?audience=hub",
            token_url=server.token_url,
            scopes=("read", "write"),
            access_type="offline",
            prompt="consent",
        ),
    )
    bearer = AuthSchema(
        auth_type="bearer_token",
        display_name="Token",
        description="",
        fields=(_field("HUB_TOKEN", "token", sensitive=True),),
        test_endpoint=Probe(
            url=server.me_url, headers={"Authorization": "Bearer {bearer_token}"}, response_fields=("login",)
        ),
    )
    return (
        _integration("hub", oauth, bearer),
        _integration("plain_hub", _without_pkce(oauth, server)),
        _integration("instances", _templated(server)),
        _integration("desk", _desk()),
        _integration("seeker", _seeker(server), AuthSchema("modulex_key", "Managed", "")),
        _integration("vault_db", _database()),
        _integration("mailer", _mailer(server)),
        _public("library", AuthSchema("modulex_key", "Open to all", "")),
    )


def _public(name: str, schema: AuthSchema) -> Integration:
    return Integration(name=name, display_name=name.title(), description="", auth_schemas=(schema,), public=True)


def _integration(name: str, *schemas: AuthSchema) -> Integration:
    return Integration(name=name, display_name=name.replace("_", " ").title(), description="", auth_schemas=schemas)


def _field(
    name: str,
    key: str,
    *,
    required: bool = True,
    sensitive: bool = False,
    only_for_custom: bool = False,
    inject_into_auth_data: bool = False,
) -> CredentialField:
    return CredentialField(
        name=name,
        key=key,
        display_name=key.replace("_", " "),
        description="",
        required=required,
        sensitive=sensitive,
        only_for_custom=only_for_custom,
        inject_into_auth_data=inject_into_auth_data,
    )


def _without_pkce(oauth: AuthSchema, server: OAuthServer) -> AuthSchema:
    """Like a provider that refuses PKCE and wants the client's secret in a Basic header."""
    config = OAuthConfig(
        auth_url=server.authorization_url, token_url=server.token_url, token_auth_method="basic", use_pkce=False
    )
    fields = (
        _field("PLAIN_HUB_OAUTH2_CLIENT_ID", "client_id", only_for_custom=True),
        _field("PLAIN_HUB_OAUTH2_CLIENT_SECRET", "client_secret", sensitive=True, only_for_custom=True),
        _field("PLAIN_HUB_DEVELOPER_TOKEN", "developer_token", only_for_custom=True, inject_into_auth_data=True),
    )
    return AuthSchema("oauth2", "Sign in", "", fields=fields, oauth_config=config)


def _templated(server: OAuthServer) -> AuthSchema:
    """Like ServiceNow, whose sign-in is on the customer's own host."""
    config = OAuthConfig(
        auth_url="https://{instance_name}.instances.test/authorize",
        token_url="https://{instance_name}.instances.test/token",
    )
    fields = (
        _field("INSTANCES_CLIENT_ID", "client_id"),
        _field("INSTANCES_CLIENT_SECRET", "client_secret", sensitive=True),
        _field("INSTANCES_INSTANCE_NAME", "instance_name"),
    )
    assert server.origin
    return AuthSchema("oauth2", "Sign in", "", fields=fields, oauth_config=config)


def _desk() -> AuthSchema:
    """Like Freshdesk: a subdomain and a key."""
    fields = (_field("DESK_DOMAIN", "domain"), _field("DESK_API_KEY", "api_key", sensitive=True))
    return AuthSchema(
        "api_key",
        "API key",
        "",
        fields=fields,
        test_endpoint=Probe(url="https://{domain}.desk.test/api", headers={"Authorization": "{api_key}"}),
    )


def _seeker(server: OAuthServer) -> AuthSchema:
    return AuthSchema(
        "api_key",
        "API key",
        "",
        fields=(_field("SEEKER_API_KEY", "api_key", sensitive=True),),
        test_endpoint=Probe(
            url=server.me_url, headers={"Authorization": "Bearer {api_key}"}, response_fields=("login",)
        ),
    )


def _database() -> AuthSchema:
    """Like MySQL: a raw host, and a test endpoint that is only the vendor's home page."""
    fields = (
        _field("VAULT_DB_HOST", "host"),
        _field("VAULT_DB_PORT", "port", required=False),
        _field("VAULT_DB_PASSWORD", "password", sensitive=True),
        _field("VAULT_DB_BASE_URL", "base_url", required=False),
    )
    return AuthSchema("custom", "Login", "", fields=fields, test_endpoint=Probe(url="https://vendor.test/"))


def _mailer(server: OAuthServer) -> AuthSchema:
    """Like Mailgun: Basic with a literal user name."""
    return AuthSchema(
        "api_key",
        "API key",
        "",
        fields=(_field("MAILER_API_KEY", "api_key", sensitive=True),),
        test_endpoint=Probe(url=f"{server.origin}/basic", auth=BasicAuth("api", "MAILER_API_KEY")),
    )


async def add_person(store: Store, slug: str) -> Caller:
    """An organization and its owner."""
    organization_id, user_id = new_id(), new_id()

    def work(tx: WriteTx) -> None:
        tx.execute(
            insert(organizations).values(
                id=organization_id, name=slug, slug=slug, domain=None, is_active=True, settings={}, created_at=0
            )
        )
        tx.execute(
            insert(users).values(
                id=user_id,
                email=f"{slug}@example.com",
                username=slug,
                platform_role="USER",
                is_active=True,
                created_at=0,
            )
        )
        tx.execute(
            insert(memberships).values(organization_id=organization_id, user_id=user_id, role="owner", joined_at=0)
        )

    await store.write(work)
    return Caller(user_id, f"{slug}@example.com", slug, organization_id, "owner", None)


def catalog_of(*described: Integration) -> Catalog:
    return Catalog(Index(FORMAT, "0", {}, tuple(summarized(integration, ()) for integration in described)))


@asynccontextmanager
async def open_world(
    store: Store, server: OAuthServer, *, people: tuple[Caller, Caller], keyring: Keyring, clock: Clock
) -> AsyncGenerator[World]:
    """One process's worth of credentials over a store; a second one is a second process."""
    environment: dict[str, str] = {}
    egress = Egress((server.place,), {})
    models = Models(shipped_catalogue(), {}, Sessions(egress.tenant_session(), egress.session()))
    offers = Offers(catalog_of(*integrations(server)), models, environment)
    vault, tokens, heard = Vault(keyring), TokenEndpoint(egress), Heard()
    refresher = Refresher(store, clock, vault=vault, offers=offers, tokens=tokens)
    world = World(
        store=store,
        clock=clock,
        keyring=keyring,
        environment=environment,
        vault=vault,
        offers=offers,
        egress=egress,
        refresher=refresher,
        credentials=Credentials(
            store,
            clock,
            vault=vault,
            offers=offers,
            prober=Prober(egress, models),
            refresher=refresher,
        ),
        oauth=OAuth(
            store,
            clock,
            vault=vault,
            offers=offers,
            tokens=tokens,
            callback_url=CALLBACK,
            listeners=Listeners(heard.on_connected, heard.on_failed),
            ask_service=ServerSignIn(egress),
        ),
        heard=heard,
        server=server,
        mine=people[0],
        theirs=people[1],
    )
    try:
        yield world
    finally:
        await egress.close()
