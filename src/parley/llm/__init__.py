"""Language models: wire adapters, the model catalogue, the demo provider."""

from parley.llm.catalogue import (
    Catalogue,
    CatalogueModel,
    cost_micro,
    model_entry,
    provider_entry,
    shipped_catalogue,
)
from parley.llm.choose import (
    CredentialNeeded,
    LlmConfig,
    LlmCredential,
    Models,
    Sessions,
    UnknownModel,
    UnknownProvider,
    find_ollama,
    operator_addresses,
    served_models,
)
from parley.llm.exchange import Limits
from parley.llm.providers import DEMO, MANAGED, PROVIDERS, Provider, credential_problem, find_provider

__all__ = [
    "DEMO",
    "MANAGED",
    "PROVIDERS",
    "Catalogue",
    "CatalogueModel",
    "CredentialNeeded",
    "Limits",
    "LlmConfig",
    "LlmCredential",
    "Models",
    "Provider",
    "Sessions",
    "UnknownModel",
    "UnknownProvider",
    "cost_micro",
    "credential_problem",
    "find_ollama",
    "find_provider",
    "model_entry",
    "operator_addresses",
    "provider_entry",
    "served_models",
    "shipped_catalogue",
]
