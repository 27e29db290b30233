"""From an LLM config (contract §2.1) to a model, and what there is to choose from."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
import msgspec

from parley.base.errors import BadRequest
from parley.llm import failures
from parley.llm.anthropic_messages import AnthropicMessages, thinking_wish
from parley.llm.catalogue import Catalogue, CatalogueModel, provider_entry, reply_tokens, served_model, spelled
from parley.llm.demo import DEMO_MODEL_ID, DemoModel
from parley.llm.exchange import Limits
from parley.llm.http_model import HttpModel, WireFormat
from parley.llm.openai_chat import OpenAIChat
from parley.llm.providers import (
    DEMO,
    MANAGED,
    OLLAMA,
    PROVIDERS,
    Endpoint,
    Provider,
    clean_base_url,
    find_provider,
    key_headers,
    pooled_endpoint,
)
from parley.llm.vendors import KEYED_VENDORS, VendorModel
from parley.turn.model import JsonObject, Model, ModelError
from parley.turn.text import NOT_JSON

PROBE_SECONDS = 0.3
LIST_SECONDS = 10.0
LIST_BYTES = 8 << 20
ENTRY_VERSION = "1.0.0"

MANAGED_PROVIDER = Provider(
    name=MANAGED,
    display_name="Managed models",
    description="The models of this server's operator; no key of your own is needed.",
    wire="openai",
    base_url="",
    key_variables=(),
    base_url_variables=(),
    recommended=True,
)
DEMO_PROVIDER = Provider(
    name=DEMO,
    display_name="Demo (no intelligence)",
    description="Fixed rules that show how a turn works. It understands nothing; connect a model for real answers.",
    wire="openai",
    base_url="",
    key_variables=(),
    base_url_variables=(),
)
DEMO_MODEL = CatalogueModel(
    id=DEMO_MODEL_ID,
    display_name="Demo (no intelligence)",
    context_tokens=1_000_000,
    max_output_tokens=4_000,
    supports_vision=False,
    retires=None,
    prices=served_model(DEMO_MODEL_ID).prices,
)


class UnknownProvider(BadRequest):
    """There is no such model provider. Choose one from the list of providers."""


class UnknownModel(BadRequest):
    """The model is not offered. Choose one from the provider's list."""


class CredentialNeeded(BadRequest):
    """The provider needs an API key. Save one for it, or choose another model."""


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """Which model to use (contract §2.1). ``temperature`` is 0 to 2; None leaves it to the provider."""

    integration_name: str
    provider_id: str
    model_id: str
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class LlmCredential:
    """An organization's own access to a provider (README decision 11)."""

    api_key: str = field(repr=False)
    base_url: str | None = None
    display_name: str = ""


@dataclass(frozen=True, slots=True)
class Sessions:
    """How models are reached: at addresses that an organization gave, and at the operator's own."""

    tenant: aiohttp.ClientSession
    operator: aiohttp.ClientSession


class Models:
    """Every model that can be used here.

    ``environment`` holds the operator's pooled keys under the providers' usual names;
    ``ollama_models`` is what ``find_ollama`` found; ``thinking_tokens`` is how much a model that thinks
    may think in one reply, 0 for not at all.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        environment: Mapping[str, str],
        sessions: Sessions,
        ollama_models: Sequence[str] = (),
        limits: Limits | None = None,
        thinking_tokens: int = 0,
    ) -> None:
        self._catalogue = catalogue
        self._thinking_tokens = thinking_tokens
        self._sessions = sessions
        self._limits = limits or Limits()
        self._ollama_models = tuple(ollama_models)
        self._pooled: dict[str, Endpoint] = {}
        for provider in PROVIDERS:
            endpoint = pooled_endpoint(provider, environment)
            if endpoint is not None:
                self._pooled[provider.name] = endpoint
        if ollama_models and OLLAMA not in self._pooled:
            self._pooled[OLLAMA] = ollama_endpoint(environment)

    def providers(self) -> tuple[Provider, ...]:
        """What to offer: the managed one where the operator pooled models, else the demo; then every provider."""
        first = MANAGED_PROVIDER if self.of(MANAGED) else DEMO_PROVIDER
        return (first, *PROVIDERS)

    def entries(self) -> list[JsonObject]:
        """Every offered provider with its models, in the wire form of contract §11."""
        return [provider_entry(provider, self.of(provider.name), ENTRY_VERSION) for provider in self.providers()]

    def find_provider(self, name: str) -> Provider | None:
        """A provider by its wire name, the managed and the demo one included; None where there is none."""
        special = {MANAGED: MANAGED_PROVIDER, DEMO: DEMO_PROVIDER}
        return special.get(name) or find_provider(name)

    def needs_credential(self, provider_name: str) -> bool:
        """Whether an organization must bring its own key for this provider."""
        return provider_name not in (MANAGED, DEMO) and not (provider_name == OLLAMA and OLLAMA in self._pooled)

    def of(self, provider_name: str) -> tuple[CatalogueModel, ...]:
        """The models to show for a provider; for the managed one those of every pooled key."""
        if provider_name == DEMO:
            return (DEMO_MODEL,)
        if provider_name == OLLAMA:
            return tuple(served_model(model_id) for model_id in self._ollama_models)
        if provider_name == MANAGED:
            return tuple(model for models in self.pooled().values() for model in models)
        return self._catalogue.of(provider_name)

    def pooled(self) -> Mapping[str, tuple[CatalogueModel, ...]]:
        """The managed provider's models, by the provider whose key of the operator's serves them."""
        return {name: self.of(name) for name in self._pooled}

    def facts(self, config: LlmConfig) -> CatalogueModel:
        """Limits and prices of the chosen model; cautious figures where only its own server knows it."""
        if config.integration_name == DEMO:
            return DEMO_MODEL
        name = config.integration_name
        if name == MANAGED:
            name = self._managed_endpoint(config).provider.name
        return self._catalogue.find(name, config.model_id) or served_model(config.model_id)

    def suggested(self) -> LlmConfig:
        """What a new organization starts with: a managed model, else the demo."""
        for name in self._pooled:
            models = self.of(name)
            if models:
                return LlmConfig(MANAGED, name, models[0].id)
        return LlmConfig(DEMO, DEMO, DEMO_MODEL_ID)

    def open(self, config: LlmConfig, credential: LlmCredential | None) -> Model:
        """The model to use for one run.

        Raises UnknownProvider, UnknownModel or CredentialNeeded. An id that the catalogue does not
        know is passed on where a base URL leads elsewhere.
        """
        if config.integration_name == DEMO:
            return DemoModel()
        if config.integration_name == MANAGED:
            return self._http_model(config, self._managed_endpoint(config), self._sessions.operator)
        provider = find_provider(config.integration_name)
        if provider is None:
            raise UnknownProvider
        if credential is not None:
            return self._http_model(config, self.own_endpoint(provider, credential), self._sessions.tenant)
        if self.needs_credential(provider.name):
            raise CredentialNeeded(
                f"{provider.display_name} needs an API key. Save a credential for it, or choose another model."
            )
        return self._http_model(config, self._pooled[provider.name], self._sessions.operator)

    def own_endpoint(self, provider: Provider, credential: LlmCredential) -> Endpoint:
        """Where an organization's credential leads. Raises CredentialNeeded when it cannot be used."""
        name = f'the credential "{credential.display_name}"' if credential.display_name else "the API key"
        base_url = clean_base_url(provider, credential.base_url) if credential.base_url else provider.base_url
        key = credential.api_key.strip()
        if provider.wire == "vendors":  # each has its vendor's own address; a missing key would become the operator's
            complete = bool(key)
        else:
            complete = bool(base_url and (key or "keyless" in provider.quirks or credential.base_url))
        if not complete:
            raise CredentialNeeded(f"{name} lacks what {provider.display_name} needs. Edit it and save it again.")
        if not key.isprintable() or not key.isascii():
            raise CredentialNeeded(f"The key in {name} has characters no key has. Copy it again and save it.")
        return Endpoint(provider, base_url, key, name)

    def _managed_endpoint(self, config: LlmConfig) -> Endpoint:
        """The pooled key that serves this model: by the provider's name, else whoever lists the model."""
        named = self._pooled.get(config.provider_id)
        if named is not None:
            return named
        for name, endpoint in self._pooled.items():
            if self._catalogue.find(name, config.model_id) or config.model_id in [m.id for m in self.of(name)]:
                return endpoint
        raise UnknownModel(f"This server does not offer {config.model_id}. Choose another model.")

    def _http_model(self, config: LlmConfig, endpoint: Endpoint, session: aiohttp.ClientSession) -> Model:
        provider = endpoint.provider
        if provider.wire == "vendors":
            return self._vendor_model(config, endpoint)
        known = self._catalogue.find(provider.name, config.model_id)
        elsewhere = endpoint.base_url != provider.base_url
        if known is None and not elsewhere and provider.closed_list:
            raise UnknownModel(f"{provider.display_name} does not offer {config.model_id} here. Choose another model.")
        model_id = config.model_id if known is None or elsewhere else spelled(known, config.model_id)
        wire = self._wire(endpoint, model_id, known, config.temperature)
        return HttpModel(wire, endpoint, session, self._limits)

    def _vendor_model(self, config: LlmConfig, endpoint: Endpoint) -> Model:
        vendor, _, name = config.model_id.partition("/")
        if vendor not in KEYED_VENDORS or not name:
            raise UnknownModel(f"Write the model as vendor/model, with one of {', '.join(sorted(KEYED_VENDORS))}.")
        return VendorModel(endpoint, config.model_id, temperature=config.temperature, limits=self._limits)

    def _wire(
        self, endpoint: Endpoint, model_id: str, known: CatalogueModel | None, temperature: float | None
    ) -> WireFormat:
        most = reply_tokens(known)
        if endpoint.provider.wire != "anthropic":
            return OpenAIChat(endpoint, model_id, max_output_tokens=most, temperature=temperature, limits=self._limits)
        return AnthropicMessages(
            endpoint,
            model_id,
            max_output_tokens=most,
            temperature=temperature,
            thinking=thinking_wish(known and known.thinking, self._thinking_tokens, most),
            limits=self._limits,
        )


def operator_addresses(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Where ``Sessions.operator`` must be let through to: the pooled providers and a local Ollama."""
    pooled = [pooled_endpoint(provider, environment) for provider in PROVIDERS]
    addresses = [endpoint.base_url for endpoint in pooled if endpoint is not None]
    return tuple(dict.fromkeys([*addresses, ollama_endpoint(environment).base_url]))


class _Served(msgspec.Struct):
    id: str


class _ServedList(msgspec.Struct):
    data: list[_Served]


def ollama_endpoint(environment: Mapping[str, str]) -> Endpoint:
    """Where a local Ollama is expected, whether or not it answers."""
    provider = find_provider(OLLAMA)
    assert provider is not None
    pooled = pooled_endpoint(provider, environment)
    return pooled or Endpoint(provider, provider.base_url, "", "the server's settings")


async def find_ollama(environment: Mapping[str, str], session: aiohttp.ClientSession) -> tuple[str, ...]:
    """The models of a local Ollama, none where it does not answer within 300 ms."""
    try:
        return await served_models(ollama_endpoint(environment), session, seconds=PROBE_SECONDS)
    except ModelError:
        return ()


async def served_models(
    endpoint: Endpoint, session: aiohttp.ClientSession, *, seconds: float = LIST_SECONDS
) -> tuple[str, ...]:
    """The ids of the models that an endpoint serves; costs nothing, so it tests a key as well.

    Raises ModelError.
    """
    path = "/v1/models" if endpoint.provider.wire == "anthropic" else "/models"
    try:
        async with (
            asyncio.timeout(seconds),
            session.get(endpoint.base_url + path, headers=key_headers(endpoint), allow_redirects=False) as response,
        ):
            body = await response.content.read(LIST_BYTES)
            while len(body) < LIST_BYTES and not response.content.at_eof():
                body += await response.content.readany()
    except TimeoutError:
        raise failures.silent(endpoint, seconds) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise failures.unreachable(endpoint) from error
    if response.status != 200:
        raise failures.error_for(failures.read_problem(response.status, body), endpoint, "its models")
    try:
        return tuple(model.id for model in msgspec.json.decode(body, type=_ServedList).data)
    except NOT_JSON:
        raise failures.garbled(endpoint) from None
