"""The models that Parley knows: names, limits and prices, shipped as data with their sources."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from parley.llm.providers import DEMO, MANAGED, Provider
from parley.turn.model import JsonObject, Usage

PRICE_UNIT_TOKENS = 1_000_000
MICRO_CREDITS_PER_CENT = 1_000_000
REPLY_TOKENS = 32_000
UNKNOWN_CONTEXT_TOKENS = 32_000

_DATE = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")


class LongPrices(msgspec.Struct, frozen=True):
    """Prices of a whole request whose input is above a threshold."""

    above_tokens: int
    input: int
    cached_input: int
    output: int


class Prices(msgspec.Struct, frozen=True, omit_defaults=True):
    """Micro-credits per million tokens; 100 credits are one dollar."""

    input: int
    cached_input: int
    output: int
    long: LongPrices | None = None


type Thinking = Literal["budget", "adaptive"]
"""How a model of Anthropic's format is asked to think: within a number of tokens, or as it sees fit."""


class CatalogueModel(msgspec.Struct, frozen=True):
    """One model of one provider. ``retires`` is the vendor's announced date, YYYY-MM-DD.

    ``thinking`` is None where there is no parameter to ask for it with.
    """

    id: str
    display_name: str
    context_tokens: int
    max_output_tokens: int | None
    supports_vision: bool
    retires: str | None
    prices: Prices
    thinking: Thinking | None = None


class Source(msgspec.Struct, frozen=True):
    """A package that the figures were taken from."""

    package: str
    version: str


class Catalogue(msgspec.Struct, frozen=True):
    """Every known model by provider, the newest first."""

    sources: tuple[Source, ...]
    price_unit: str
    models: Mapping[str, tuple[CatalogueModel, ...]]

    def of(self, provider: str) -> tuple[CatalogueModel, ...]:
        """The known models of a provider; none for servers that have their own."""
        return self.models.get(provider, ())

    def find(self, provider: str, model_id: str) -> CatalogueModel | None:
        """A known model. Dots and dashes in an id count as the same, and a dated version as its model."""
        wanted = _plain(model_id)
        undated = _DATE.sub("", wanted)
        ids = {_plain(model.id): model for model in self.of(provider)}
        return ids.get(wanted) or ids.get(undated)


@cache
def shipped_catalogue() -> Catalogue:
    """The catalogue in the package."""
    return msgspec.json.decode((files("parley.llm") / "models.json").read_bytes(), type=Catalogue)


def spelled(model: CatalogueModel, model_id: str) -> str:
    """The id as the provider spells it: ``claude-sonnet-4.6`` becomes ``claude-sonnet-4-6``, a dated version stays."""
    return model.id if _plain(model.id) == _plain(model_id) else model_id


def reply_tokens(model: CatalogueModel | None) -> int | None:
    """How long one reply may be, so that it ends and leaves room for the conversation; None for an unknown model."""
    if model is None or model.max_output_tokens is None:
        return None
    return min(model.max_output_tokens, REPLY_TOKENS, model.context_tokens // 4)


def cost_micro(model: CatalogueModel, usage: Usage) -> int:
    """What a model call costs, in micro-credits, rounded up."""
    prices = model.prices
    long = prices.long
    rates = long if long is not None and usage.input > long.above_tokens else prices
    fresh = usage.input - usage.cached
    total = fresh * rates.input + usage.cached * rates.cached_input + usage.output * rates.output
    return -(-total // PRICE_UNIT_TOKENS)


def model_entry(model: CatalogueModel) -> JsonObject:
    """A model on the wire (contract §11)."""
    return {
        "id": model.id,
        "name": model.id,
        "display_name": model.display_name,
        "description": _description(model),
        "context_length": model.context_tokens,
        "max_input_tokens": model.context_tokens,
        "max_output_tokens": model.max_output_tokens,
        "intelligence": None,
        "speed": None,
        "data_freshness": None,
        "supports_vision": model.supports_vision,
    }


def served_model(model_id: str) -> CatalogueModel:
    """An entry for a model that only its own server knows; it costs nothing here."""
    return CatalogueModel(model_id, model_id, UNKNOWN_CONTEXT_TOKENS, None, False, None, Prices(0, 0, 0))


def provider_entry(provider: Provider, models: tuple[CatalogueModel, ...], version: str) -> JsonObject:
    """A model provider's details on the wire, with its models and its form for a key (contract §11)."""
    return {
        "name": provider.name,
        "display_name": provider.display_name,
        "description": provider.description,
        "logo": None,
        "app_url": provider.key_url or None,
        "docs_url": provider.docs_url or None,
        "categories": ["AI Models"],
        "integration_type": "llm_provider",
        "version": version,
        "status": "active",
        "recommended": provider.recommended,
        "models": [model_entry(model) for model in models],
        "auth_schemas": [] if provider.name in (MANAGED, DEMO) else [_auth_schema(provider)],
    }


def _plain(model_id: str) -> str:
    return model_id.replace(".", "-")


def _description(model: CatalogueModel) -> str:
    said = f"{model.context_tokens:,} tokens of context"
    if model.prices.input or model.prices.output:
        said += f"; ${_dollars(model.prices.input)} in and ${_dollars(model.prices.output)} out per million tokens"
    return f"{said}; retires on {model.retires}" if model.retires else said


def _dollars(micro_credits: int) -> str:
    cents, fraction = divmod(micro_credits, MICRO_CREDITS_PER_CENT)
    dollars, cents = divmod(cents, 100)
    tenths = f"{fraction:06d}".rstrip("0")
    return f"{dollars}.{cents:02d}{tenths}" if cents or tenths else str(dollars)


def _auth_schema(provider: Provider) -> JsonObject:
    where = f"Make a key at {provider.key_url} and paste it here." if provider.key_url else "Use your server's key."
    return {
        "auth_type": "api_key",
        "display_name": "API key",
        "description": f"An API key for {provider.display_name}.",
        "setup_instructions": [where, "Give a base URL only if another server answers in the same format."],
        "setup_environment_variables": [
            {
                "name": "api_key",
                "display_name": "API key",
                "description": f"The key for {provider.display_name}.",
                "required": "keyless" not in provider.quirks,
                "sensitive": True,
                "about_url": provider.key_url or None,
            },
            {
                "name": "base_url",
                "display_name": "Base URL",
                "description": "The address of another server that speaks the same format.",
                "required": not provider.base_url,
                "sensitive": False,
                "sample_format": provider.base_url or "https://models.example.com/v1",
            },
        ],
    }
