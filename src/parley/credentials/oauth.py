"""The OAuth 2 dance: a sign-in begins here, comes back here, and ends in a stored credential (contract §7.1).

A state is 256 random bits, kept only as a hash, good once and for ten minutes. Its row binds the
organization, the person, the chat and its question, the integration, the redirect and the code
verifier, so that nothing the browser brings back decides any of them (trust T11).
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from parley.accounts import Caller
from parley.base.clock import DAY, SECOND, Clock
from parley.base.errors import BadRequest, Refusal
from parley.credentials import store as rows
from parley.credentials.credentials import shelve
from parley.credentials.fields import WrongCredential, belongs_to_app, check_values, named_values, typed_in
from parley.credentials.grants import (
    Grant,
    GrantError,
    TokenEndpoint,
    authorization_url,
    filled_in,
    is_from,
    snake_case,
)
from parley.credentials.model import (
    OAUTH,
    App,
    Credential,
    Draft,
    Flow,
    OAuthFailure,
    Opened,
    SealedFlow,
    Secrets,
    Source,
    Wish,
)
from parley.credentials.offers import Offer, Offers, UnknownIntegration
from parley.credentials.vault import FlowBroken, Vault
from parley.integrations import AuthSchema, CredentialField, OAuthConfig
from parley.storage import Store, WriteTx
from parley.storage.acting import act_for
from parley.turn.model import JsonObject

STATE_LIFE = 600 * SECOND
# An ended flow is kept for a day, so that a late callback can say that it is late.
REMEMBERED = DAY
# What some providers name only once the person has signed in, in the callback or with the token.
SAID_BY_PROVIDER = frozenset({"location_id", "realm_id"})

type OnConnected = Callable[[Flow, Credential], Awaitable[None]]
"""Told after a sign-in's credential is stored; to let the waiting chat go on."""
type OnFailed = Callable[[Flow, OAuthFailure, str], Awaitable[None]]
"""Told when a sign-in that can be trusted to be ours failed: the code (contract §5.3) and a sentence."""


type AskService = Callable[["SignIn", str], Awaitable["SignIn"]]
"""Completes a sign-in to a service that must be asked how to sign in; given the callback's URL."""


class NoOAuth(BadRequest):
    """The integration does not sign in with OAuth."""


class NoApp(BadRequest):
    """There is no OAuth app to sign in with."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """What a client asks for (contract §7.1); ``pooled`` is its ``use_modulex_oauth``.

    ``browser`` is the secret of the browser's cookie, None for a client that is no browser.
    """

    integration_name: str
    redirect_uri: str
    pooled: bool = True
    app: Secrets = field(default_factory=Secrets)
    scope: str | None = None
    display_name: str | None = None
    make_default: bool = False
    values: Secrets = field(default_factory=Secrets)
    chat_id: str | None = None
    request_id: str | None = None
    llm: JsonObject | None = None
    browser: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Started:
    """Where to send the browser. ``redirect_uri`` is where the provider sends it back to."""

    authorization_url: str = field(repr=False)
    state: str = field(repr=False)
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class Return:
    """What the browser brings back. ``integration_name`` is the path's, None on the common path."""

    state: str = field(repr=False)
    code: str = field(default="", repr=False)
    error: str = ""
    issuer: str = ""
    integration_name: str | None = None
    browser: str | None = field(default=None, repr=False)
    extras: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Ended:
    """How a sign-in ended, for the page that closes itself. ``trusted`` is False for a state that is not ours."""

    status: Literal["connected", "failed"]
    message: str
    request_id: str | None = None
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears how a sign-in ended."""

    on_connected: OnConnected
    on_failed: OnFailed


class _Failed(Exception):
    """The sign-in failed in a way that the waiting chat may hear of."""

    def __init__(self, code: OAuthFailure, public: str) -> None:
        self.code: OAuthFailure = code
        self.public = public
        super().__init__(public)


class OAuth:
    """Sign-ins with OAuth. ``callback_url`` is the absolute URL of ``/credentials/oauth2/callback``."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        vault: Vault,
        offers: Offers,
        tokens: TokenEndpoint,
        callback_url: str,
        listeners: Listeners,
        ask_service: AskService,
    ) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault
        self._offers = offers
        self._tokens = tokens
        self._callback_url = callback_url
        self._on_connected = listeners.on_connected
        self._on_failed = listeners.on_failed
        self._ask_service = ask_service

    # ── away ────────────────────────────────────────────────────────────────────────────────────

    async def start(self, caller: Caller, asked: SignIn) -> Started:
        """Begin a sign-in.

        The provider always returns to this server, which alone holds the code verifier; the client's
        ``redirect_uri`` only chooses between the common and the integration's own callback. Raises
        UnknownIntegration, NoOAuth, NoApp, WrongCredential and UnsafeValue.
        """
        offer = await self._offers.find_for(caller.organization_id, asked.integration_name)
        schema, config = _oauth(offer)
        if config.discovered:
            asked = await self._ask_service(asked, self._callback_url)
        own, client_id = self._app(offer, schema, asked)
        values = self._values(offer, schema, asked)
        config = filled_in(config, values)
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(32) if config.use_pkce else None
        wish = Wish(
            app=own,
            verifier=verifier,
            scope=asked.scope if asked.scope is not None else " ".join(config.scopes),
            display_name=asked.display_name or offer.display_name,
            make_default=asked.make_default,
            values=values,
            browser=None if asked.browser is None else _hash(asked.browser),
        )
        flow = Flow(
            organization_id=caller.organization_id,
            user_id=caller.user_id,
            integration_name=offer.name,
            redirect_uri=self._redirect_uri(asked),
            chat_id=asked.chat_id,
            request_id=asked.request_id,
            llm=asked.llm,
        )
        await self._remember(flow, wish, state)
        url = authorization_url(
            config,
            client_id=client_id,
            redirect_uri=flow.redirect_uri,
            scope=wish.scope,
            state=state,
            verifier=verifier,
        )
        return Started(url, state, flow.redirect_uri)

    def _app(self, offer: Offer, schema: AuthSchema, asked: SignIn) -> tuple[App | None, str]:
        """The organization's own app, None for the pooled one, and the client id of whichever it is."""
        if not asked.pooled:
            app = App(asked.app.text("client_id"), asked.app.text("client_secret"))
            public = schema.oauth_config is not None and schema.oauth_config.discovered
            if not app.client_id or not (app.client_secret or public):
                raise NoApp("custom_oauth_config needs the client_id and the client_secret of your own OAuth app.")
            return app, app.client_id
        pooled = self._offers.pooled_app(schema)
        if pooled is None:
            names = " and ".join(field.name for field in schema.fields if belongs_to_app(schema, field))
            operator = f", or ask the operator to set {names}" if names else ""
            raise NoApp(
                f"This server has no OAuth app for {offer.display_name}. Bring your own with use_modulex_oauth=false "
                f"and custom_oauth_config{operator}."
            )
        return None, pooled.client_id

    def _values(self, offer: Offer, schema: AuthSchema, asked: SignIn) -> Secrets:
        """What was typed in, less the app itself: an action has no use for a client secret."""
        given = named_values(schema, {**asked.values, **(asked.app if not asked.pooled else {})})
        app = {each.key for each in schema.fields if belongs_to_app(schema, each)} | {"client_id", "client_secret"}
        extra = {each.key for each in _own_extras(schema)}
        values = Secrets({key: value for key, value in given.items() if key not in app - extra})
        wanted = [*typed_in(schema), *(_own_extras(schema) if not asked.pooled else [])]
        needed = [field for field in wanted if field.key not in SAID_BY_PROVIDER]
        check_values(offer.display_name, schema, values, asked=needed)
        return values

    def _redirect_uri(self, asked: SignIn) -> str:
        if not _is_web_address(asked.redirect_uri):
            raise WrongCredential(f"redirect_uri must be a web address, such as {self._callback_url}")
        own = f"{self._callback_url}/{asked.integration_name}"
        return own if asked.redirect_uri == own else self._callback_url

    async def _remember(self, flow: Flow, wish: Wish, state: str) -> None:
        now, state_hash = self._clock.now(), _hash(state)
        sealed = SealedFlow(flow, state_hash, self._vault.seal_flow(flow, wish, state_hash), now, now + STATE_LIFE)

        def work(tx: WriteTx) -> None:
            rows.forget_flows(tx, now - REMEMBERED)
            rows.add_flow(tx, sealed)

        await self._store.across.write(work)

    # ── and back ────────────────────────────────────────────────────────────────────────────────

    async def finish(self, back: Return, source: Source) -> Ended:
        """End a sign-in: check that it is ours, exchange the code, store the credential, tell the chat.

        A state that is unknown, used, from another browser or path, or whose person may no longer
        act for the organization stores nothing and tells nobody.
        """
        sealed, may_connect = await self._store.across.write(lambda tx: _take(tx, _hash(back.state)))
        if sealed is None:
            return _untrusted("This sign-in is unknown or was already used. Start it again.")
        try:
            flow, wish = self._vault.open_flow(sealed)
        except FlowBroken as refusal:
            return _untrusted(refusal.detail)
        act_for(flow.organization_id)
        if back.integration_name not in {None, flow.integration_name} or not _same_browser(wish, back):
            return _untrusted("This sign-in was started elsewhere. Finish it in the browser where you started it.")
        if not may_connect:
            return _untrusted("You may no longer connect accounts for this organization. Ask its owner.")
        try:
            if sealed.expires_at <= self._clock.now():
                raise _Failed("timeout", "The sign-in took longer than ten minutes. Start it again.")
            credential = await self._connect(flow, wish, back, source)
        except _Failed as failure:
            await self._on_failed(flow, failure.code, failure.public)
            return Ended("failed", failure.public, flow.request_id)
        await self._on_connected(flow, credential)
        return Ended("connected", f"{credential.display_name} is connected.", flow.request_id)

    async def _connect(self, flow: Flow, wish: Wish, back: Return, source: Source) -> Credential:
        try:
            offer = await self._offers.find_for(flow.organization_id, flow.integration_name)
            schema, config = _oauth(offer)
        except (UnknownIntegration, NoOAuth) as refusal:
            raise _Failed("unknown", refusal.detail) from None
        filled = filled_in(config, wish.values)
        app = wish.app or self._offers.pooled_app(schema)
        if back.issuer and not is_from(filled, back.issuer, templated=filled != config):
            raise _Failed("oauth_provider_error", f"Another server than {offer.display_name} answered the sign-in.")
        if back.error:
            raise _declined(offer, back.error)
        if not back.code or app is None:
            raise _Failed("oauth_provider_error", f"{offer.display_name} sent no sign-in code. Start it again.")
        try:
            grant = await self._tokens.exchange(
                filled, app, code=back.code, redirect_uri=flow.redirect_uri, verifier=wish.verifier
            )
        except GrantError as error:
            code: OAuthFailure = "network_error" if error.problem == "unreachable" else "oauth_provider_error"
            raise _Failed(code, error.public) from None
        draft = self._draft(flow, wish, offer, _auth_data(schema, wish, back, grant, app), grant)
        stored = self._vault.sealed(draft, self._clock.now())

        def work(tx: WriteTx) -> Credential:
            self._offers.room(tx, flow.organization_id)
            return shelve(tx, draft, stored, source)

        try:
            return await self._store.write(work)
        except Refusal as refusal:
            raise _Failed("unknown", refusal.detail) from None

    def _draft(self, flow: Flow, wish: Wish, offer: Offer, auth_data: Secrets, grant: Grant) -> Draft:
        return Draft(
            organization_id=flow.organization_id,
            user_id=flow.user_id,
            integration_name=offer.name,
            integration_type=offer.integration_type,
            auth_type=OAUTH,
            display_name=wish.display_name,
            opened=Opened(auth_data, wish.app),
            secret="",
            metadata={"scope": grant.scope or wish.scope, "oauth_app": "own" if wish.app else "pooled"},
            make_default=wish.make_default,
            expires_at=None if grant.seconds is None else self._clock.now() + grant.seconds * SECOND,
        )


def _take(tx: WriteTx, state_hash: bytes) -> tuple[SealedFlow | None, bool]:
    """The flow, used up with this, and whether its person still acts for its organization."""
    sealed = rows.take_flow(tx, state_hash)
    return sealed, sealed is not None and rows.may_connect(tx, sealed.flow.organization_id, sealed.flow.user_id)


def _oauth(offer: Offer) -> tuple[AuthSchema, OAuthConfig]:
    schema = offer.schema(OAUTH)
    if schema is None or schema.oauth_config is None:
        raise NoOAuth(f"{offer.display_name} does not sign in with OAuth. Save a credential for it instead.")
    return schema, schema.oauth_config


def _is_web_address(text: str) -> bool:
    try:
        return urlsplit(text).scheme in {"http", "https"}
    except ValueError:
        return False


def _own_extras(schema: AuthSchema) -> list[CredentialField]:
    """What an organization's own app needs besides its id and secret, such as a developer token."""
    return [field for field in schema.fields if field.only_for_custom and field.inject_into_auth_data]


def _auth_data(schema: AuthSchema, wish: Wish, back: Return, grant: Grant, app: App) -> Secrets:
    """Everything an integration may read: what was typed in, what the provider said, the tokens."""
    declared = {field.key for field in schema.fields}
    said = {snake_case(name): value for name, value in back.extras.items()}
    data = {key: value for key, value in said.items() if key in declared & SAID_BY_PROVIDER}
    data |= {**grant.extras, **wish.values, "oauth_client_id": app.client_id, "access_token": grant.access_token}
    if grant.refresh_token is not None:
        data["refresh_token"] = grant.refresh_token
    return Secrets(data)


def _declined(offer: Offer, error: str) -> _Failed:
    if error in {"access_denied", "user_denied", "user_cancelled_login", "user_cancelled_authorize"}:
        return _Failed("oauth_denied", f"Access to {offer.display_name} was not granted.")
    return _Failed("oauth_provider_error", f"{offer.display_name} ended the sign-in with an error. Start it again.")


def _same_browser(wish: Wish, back: Return) -> bool:
    return wish.browser is None or hmac.compare_digest(wish.browser, _hash(back.browser or ""))


def _untrusted(message: str) -> Ended:
    return Ended("failed", message, trusted=False)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
