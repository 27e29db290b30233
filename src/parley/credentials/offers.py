"""What can be connected: every integration and model provider, and what the operator pools for all.

Pooled means that the operator's environment holds it, under the names the manifest gives:

* a managed key (``modulex_key``): the variable of the integration's API-key schema, such as
  ``EXA_API_KEY``; for ``modulexai`` the model providers' usual variables (README decision 10);
* an OAuth app: the two variables of the OAuth schema that end in ``CLIENT_ID`` and
  ``CLIENT_SECRET``, such as ``GITHUB_OAUTH2_CLIENT_ID`` and ``GITHUB_OAUTH2_CLIENT_SECRET``.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from parley.base.errors import BadRequest, NotFound
from parley.credentials.fields import (
    WrongCredential,
    check_values,
    choose_schema,
    main_secret,
    named_values,
    spread,
    typed_in,
)
from parley.credentials.model import MANAGED, OAUTH, App, Credential, Opened, Secrets, Stored, Usable
from parley.integrations import (
    AuthSchema,
    Catalog,
    CredentialField,
    Integration,
    OAuthConfig,
    shown_fields,
)
from parley.llm import DEMO as DEMO_MODELS
from parley.llm import MANAGED as MANAGED_MODELS
from parley.llm import Models, Provider, credential_problem
from parley.storage import WriteTx


class UnknownIntegration(NotFound):
    """Integration not found"""

    def __init__(self, name: str) -> None:
        super().__init__(f"Integration '{name}' not found")


class WrongFormat(WrongCredential):
    """The key does not look like one of this provider."""


class ManagedNotOffered(BadRequest):
    """No managed credential is offered for this integration."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Values that fit a schema; ``secret`` is the one a hint is made of."""

    schema: AuthSchema
    opened: Opened
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Offer:
    """An integration or a model provider, seen from its credentials.

    ``provider`` is set for model providers; ``public`` services need no credential at all.
    """

    name: str
    display_name: str
    integration_type: str
    schemas: Sequence[AuthSchema]
    provider: Provider | None = None
    public: bool = False

    def schema(self, auth_type: str) -> AuthSchema | None:
        """How to connect with this type of credential; None where it is not offered."""
        return next((schema for schema in self.schemas if schema.auth_type == auth_type), None)


MCP_SERVER = "mcp_server"
_SERVER_URL = CredentialField(
    name="SERVER_URL",
    key="server_url",
    display_name="Server URL",
    description="The web address of the MCP server.",
    sample_format="https://mcp.example.com/mcp",
)
MCP_OFFER = Offer(
    name=MCP_SERVER,
    display_name="MCP server",
    integration_type="tool",
    schemas=(
        AuthSchema("custom", "Address and headers", "A server's address and the headers it wants.", (), (_SERVER_URL,)),
        AuthSchema(
            auth_type=OAUTH,
            display_name="Sign in",
            description="A server that asks for a sign-in.",
            fields=(_SERVER_URL,),
            oauth_config=OAuthConfig(auth_url="", token_url="", discovered=True),
        ),
    ),
)


type Room = Callable[[WriteTx, str], None]
"""Refuses one more credential where the organization's plan has no room, inside the transaction that adds it."""


def _any_number(_tx: WriteTx, _organization_id: str) -> None:
    """No plan limits how many there are."""


type FindOwn = Callable[[str, str], Awaitable[Integration | None]]
"""An API that an organization imported, by its name; None where there is none."""


async def _nothing_own(_organization_id: str, _name: str) -> Integration | None:
    """Nobody has imported anything."""
    return None


class Offers:
    """Everything that can be connected here."""

    def __init__(
        self,
        catalog: Catalog,
        models: Models,
        environment: Mapping[str, str],
        room: Room = _any_number,
        find_own: FindOwn = _nothing_own,
    ) -> None:
        self.room = room
        self._find_own = find_own
        self._catalog = catalog
        self._models = models
        self._environment = environment

    def find(self, name: str) -> Offer:
        """The service with this name. Raises UnknownIntegration."""
        offer = self._known(name)
        if offer is None:
            raise UnknownIntegration(name)
        return offer

    async def find_for(self, organization_id: str, name: str) -> Offer:
        """As ``find``, with the APIs that the organization imported. Raises UnknownIntegration."""
        offer = self._known(name)
        if offer is not None:
            return offer
        own = await self._find_own(organization_id, name)
        if own is None:
            raise UnknownIntegration(name)
        return _tool(own)

    def has(self, name: str) -> bool:
        """Whether there is a service with this name."""
        return self._known(name) is not None

    def _known(self, name: str) -> Offer | None:
        provider = self._models.find_provider(name)
        if provider is not None:
            return _model_provider(provider)
        if name == MCP_SERVER:
            return MCP_OFFER
        integration = self._catalog.find(name)
        return None if integration is None else _tool(integration)

    def pooled_app(self, schema: AuthSchema) -> App | None:
        """The operator's OAuth app for this schema, None unless both its variables are set."""
        found = [
            next((self._environment.get(field.name, "") for field in schema.fields if field.name.endswith(ending)), "")
            for ending in ("CLIENT_ID", "CLIENT_SECRET")
        ]
        return App(found[0], found[1]) if all(found) else None

    def pooled_key(self, offer: Offer) -> Secrets | None:
        """What the operator's managed key gives an action; None where it is not offered.

        Empty for a service that only needs to be reached, and for ``modulexai``, whose keys the
        model adapters read themselves.
        """
        if offer.schema(MANAGED) is None:
            return None
        if offer.name == MANAGED_MODELS:
            pooled = {provider.name for provider in self._models.providers()}
            return Secrets() if MANAGED_MODELS in pooled else None
        if offer.public:
            return Secrets()
        keyed = offer.schema("api_key")
        if keyed is None:
            return None
        values = {field.key: self._environment.get(field.name, "") for field in keyed.fields if field.required}
        return spread(keyed, Secrets(values)) if values and all(values.values()) else None

    def offers_managed(self, name: str) -> bool:
        """Whether a managed credential of this integration can be used on this server."""
        offer = self._known(name)
        return offer is not None and self.pooled_key(offer) is not None

    def require_pooled_key(self, offer: Offer) -> Secrets:
        """``pooled_key``, for a client that asks for it. Raises ManagedNotOffered."""
        key = self.pooled_key(offer)
        if key is None:
            raise ManagedNotOffered(
                f"This server has no managed key for {offer.display_name}. Connect your own account, "
                "or ask the operator to set the key in the server's environment."
            )
        return key

    def managed(self) -> Sequence[Offer]:
        """Every service that this server offers as managed, by name."""
        names = [integration.name for integration in self._catalog.integrations()]
        offers = [self.find(name) for name in (*names, MANAGED_MODELS)]
        return [offer for offer in offers if self.pooled_key(offer) is not None]

    def usable(self, stored: Stored, opened: Opened) -> Usable:
        """An opened credential with every value under each name that an integration may look for."""
        credential = stored.credential
        return Usable(
            credential_id=credential.credential_id,
            organization_id=credential.organization_id,
            integration_name=credential.integration_name,
            auth_type=credential.auth_type,
            auth_data=self._auth_data(stored, opened),
            managed=credential.managed,
            display_name=credential.display_name,
            is_valid=credential.is_valid,
            expires_at=credential.expires_at,
            version=credential.version,
        )

    def plain_fields(self, credential: Credential) -> frozenset[str]:
        """The names of a credential's values that may be seen, such as an address."""
        offer = self._known(credential.integration_name)
        return shown_fields(() if offer is None else offer.schemas)

    def _auth_data(self, stored: Stored, opened: Opened) -> Secrets:
        credential = stored.credential
        offer = self._known(credential.integration_name)
        if offer is None:  # no longer in the catalog: its values under their stored names
            return opened.auth_data
        if credential.managed:
            return self.pooled_key(offer) or Secrets()
        schema = offer.schema(credential.auth_type)
        if schema is None:
            return opened.auth_data
        if credential.auth_type == OAUTH and opened.app is None:
            return spread(schema, Secrets({**self._server_values(schema), **opened.auth_data}))
        return spread(schema, opened.auth_data)

    def _server_values(self, schema: AuthSchema) -> dict[str, str]:
        """What comes with the operator's app besides its id and secret, such as a developer token."""
        return {
            field.key: self._environment[field.name]
            for field in schema.fields
            if field.only_for_custom and field.inject_into_auth_data and self._environment.get(field.name)
        }


def checked(offer: Offer, auth_type: str | None, auth_data: Secrets, oauth_config: Secrets | None) -> Checked:
    """A new credential's values, in the shape in which they are sealed.

    Raises WrongCredential for an unfit type or a missing field, WrongFormat for a model provider's
    malformed key, UnsafeValue for a host that is none.
    """
    schema = choose_schema(offer.display_name, offer.schemas, auth_type, auth_data, oauth=oauth_config is not None)
    if schema.auth_type == MANAGED:
        if auth_data:
            raise WrongCredential("A managed credential takes no auth_data: the key is the server's.")
        return Checked(schema, Opened(Secrets()), "")
    values = named_values(schema, auth_data)
    app = None
    if schema.auth_type == OAUTH:
        app = _own_app(oauth_config)
        if not values.text("access_token"):
            raise WrongCredential("An OAuth credential needs auth_data.access_token, or start with oauth2/initiate.")
    check_values(offer.display_name, schema, values, asked=typed_in(schema))
    if offer.provider is not None:
        problem = credential_problem(offer.provider, values.text("api_key"), values.text("base_url"))
        if problem is not None:
            raise WrongFormat(problem)
    return Checked(schema, Opened(values, app), main_secret(schema, values))


def _own_app(oauth_config: Secrets | None) -> App | None:
    """The OAuth app that a client brings along with tokens; None for the operator's."""
    if oauth_config is None:
        return None
    client_id = oauth_config.text("client_id")
    if not client_id:
        raise WrongCredential("oauth_config needs the client_id of the OAuth app that the tokens belong to.")
    return App(client_id, oauth_config.text("client_secret"))


def _tool(integration: Integration) -> Offer:
    return Offer(
        name=integration.name,
        display_name=integration.display_name,
        integration_type="tool",
        schemas=integration.auth_schemas,
        public=integration.public,
    )


def _model_provider(provider: Provider) -> Offer:
    """A provider's key and base URL; the base URL frees the key of its format (README decision 11)."""
    if provider.name == MANAGED_MODELS:
        managed = AuthSchema(auth_type=MANAGED, display_name="Managed models", description=provider.description)
        return Offer(provider.name, provider.display_name, "llm_provider", (managed,), provider)
    if provider.name == DEMO_MODELS:
        return Offer(provider.name, provider.display_name, "llm_provider", (), provider)
    fields = (
        CredentialField(
            name="API_KEY",
            key="api_key",
            display_name="API key",
            description=f"A key of {provider.display_name}.",
            required="keyless" not in provider.quirks,
            sensitive=True,
        ),
        CredentialField(
            name="BASE_URL",
            key="base_url",
            display_name="Base URL",
            description="Where the models are served, when it is not the provider's own address.",
            required=not provider.base_url,
        ),
    )
    schema = AuthSchema(auth_type="api_key", display_name="API key", description=provider.description, fields=fields)
    return Offer(provider.name, provider.display_name, "llm_provider", (schema,), provider)
