"""Model providers as data: wire format, addresses, keys and the ways each one is peculiar.

Whatever speaks a known wire format works through ``base_url`` without being listed here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

MANAGED = "modulexai"
DEMO = "demo"
OLLAMA = "ollama"
VENDORS = "vendors"
BARE_HOST_SLASHES = 2
ANTHROPIC_VERSION = "2023-06-01"

type Wire = Literal["openai", "anthropic", "vendors"]

type Quirk = Literal[
    "no_parallel_tool_calls",  # refuses the parameter parallel_tool_calls
    "no_stream_options",  # refuses stream_options, and reports usage anyway
    "max_completion_tokens",  # the reply's limit goes by this name, not max_tokens
    "thought_signatures",  # tool calls carry extra_content that must come back unchanged
    "reasoning_replay",  # messages with tool calls must carry their reasoning_content
    "nine_character_ids",  # tool-call ids are nine letters or digits
    "assistant_after_tool",  # a user message may not follow a tool message
    "api_key_header",  # the key goes in the header api-key
    "keyless",  # works without a key
]


@dataclass(frozen=True, slots=True)
class Provider:
    """One vendor or server of models.

    ``base_url`` is empty where there is no usual address; ``base_path`` completes an address that is
    a bare host. The variables are those an operator sets for the pooled key, the usual name first.
    ``closed_list`` says that the catalogue names every model there is at the usual address.
    """

    name: str
    display_name: str
    description: str
    wire: Wire
    base_url: str
    key_variables: tuple[str, ...]
    base_url_variables: tuple[str, ...]
    base_path: str = ""
    key_pattern: str = ""
    key_url: str = ""
    docs_url: str = ""
    recommended: bool = False
    closed_list: bool = False
    quirks: frozenset[Quirk] = frozenset()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is reached and with which key.

    ``key_name`` is how people know the key, such as ``the credential "Team"`` or ``OPENAI_API_KEY``.
    """

    provider: Provider
    base_url: str
    api_key: str = field(repr=False)
    key_name: str


def _installed_vendors() -> tuple[Provider, ...]:
    """What the optional extra ``vendors`` adds; finding it does not load it."""
    if find_spec("any_llm") is None:
        return ()
    return (
        Provider(
            name=VENDORS,
            display_name="Other vendors",
            description="A dozen more vendors through any-llm; the model id is vendor/model, such as cohere/command-a.",
            wire="vendors",
            base_url="",
            key_variables=(),
            base_url_variables=(),
            docs_url="https://docs.mozilla.ai/any-llm/",
            quirks=frozenset({"no_parallel_tool_calls"}),
        ),
    )


PROVIDERS: tuple[Provider, ...] = (
    Provider(
        name="openai",
        closed_list=True,
        display_name="OpenAI",
        description="GPT models from OpenAI, or any server that speaks its chat completions format.",
        wire="openai",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        base_url_variables=("OPENAI_BASE_URL",),
        key_pattern=r"sk-[a-zA-Z0-9\-_]{20,}",
        key_url="https://platform.openai.com/api-keys",
        docs_url="https://platform.openai.com/docs",
        recommended=True,
        quirks=frozenset({"max_completion_tokens"}),
    ),
    Provider(
        name="anthropic",
        closed_list=True,
        display_name="Anthropic",
        description="Claude models from Anthropic, or any server that speaks its messages format.",
        wire="anthropic",
        base_url="https://api.anthropic.com",
        key_variables=("ANTHROPIC_API_KEY",),
        base_url_variables=("ANTHROPIC_BASE_URL",),
        key_pattern=r"sk-ant-[a-zA-Z0-9\-_]{20,}",
        key_url="https://platform.claude.com/settings/keys",
        docs_url="https://platform.claude.com/docs",
        recommended=True,
    ),
    Provider(
        name="gemini",
        closed_list=True,
        display_name="Google Gemini",
        description="Gemini models from Google.",
        wire="openai",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url_variables=("GEMINI_BASE_URL",),
        key_pattern=r"AIza[0-9A-Za-z\-_]{35}",
        key_url="https://aistudio.google.com/apikey",
        docs_url="https://ai.google.dev/gemini-api/docs",
        recommended=True,
        quirks=frozenset({"no_parallel_tool_calls", "thought_signatures"}),
    ),
    Provider(
        name="xai",
        closed_list=True,
        display_name="xAI",
        description="Grok models from xAI.",
        wire="openai",
        base_url="https://api.x.ai/v1",
        key_variables=("XAI_API_KEY",),
        base_url_variables=("XAI_BASE_URL",),
        key_pattern=r"xai-[a-zA-Z0-9\-_]{20,}",
        key_url="https://console.x.ai",
        docs_url="https://docs.x.ai",
    ),
    Provider(
        name="groq",
        closed_list=True,
        display_name="Groq",
        description="Open models on Groq's fast inference service.",
        wire="openai",
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        base_url_variables=("GROQ_BASE_URL",),
        key_pattern=r"gsk_[a-zA-Z0-9]{20,}",
        key_url="https://console.groq.com/keys",
        docs_url="https://console.groq.com/docs",
        quirks=frozenset({"max_completion_tokens"}),
    ),
    Provider(
        name="mistral",
        closed_list=True,
        display_name="Mistral",
        description="Mistral, Ministral and Codestral models from Mistral AI.",
        wire="openai",
        base_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        base_url_variables=("MISTRAL_BASE_URL",),
        key_url="https://console.mistral.ai/api-keys",
        docs_url="https://docs.mistral.ai",
        quirks=frozenset({"no_stream_options", "nine_character_ids", "assistant_after_tool"}),
    ),
    Provider(
        name="deepseek",
        closed_list=True,
        display_name="DeepSeek",
        description="DeepSeek models from DeepSeek.",
        wire="openai",
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        base_url_variables=("DEEPSEEK_BASE_URL",),
        key_pattern=r"sk-[a-zA-Z0-9]{20,}",
        key_url="https://platform.deepseek.com/api_keys",
        docs_url="https://api-docs.deepseek.com",
        quirks=frozenset({"no_parallel_tool_calls", "reasoning_replay"}),
    ),
    Provider(
        name="openrouter",
        display_name="OpenRouter",
        description="Hundreds of models from many vendors behind one key.",
        wire="openai",
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        base_url_variables=("OPENROUTER_BASE_URL",),
        key_pattern=r"sk-or-[a-zA-Z0-9\-_]{20,}",
        key_url="https://openrouter.ai/settings/keys",
        docs_url="https://openrouter.ai/docs",
    ),
    Provider(
        name="azure",
        display_name="Azure OpenAI",
        description="Your own model deployments on Azure; the model id is the deployment's name.",
        wire="openai",
        base_url="",
        key_variables=("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
        base_url_variables=("AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"),
        base_path="/openai/v1",
        key_url="https://ai.azure.com",
        docs_url="https://learn.microsoft.com/azure/ai-foundry/openai",
        quirks=frozenset({"max_completion_tokens", "api_key_header"}),
    ),
    Provider(
        name=OLLAMA,
        display_name="Ollama",
        description="Open models on your own machine.",
        wire="openai",
        base_url="http://127.0.0.1:11434/v1",
        key_variables=("OLLAMA_API_KEY",),
        base_url_variables=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        base_path="/v1",
        key_url="https://ollama.com/download",
        docs_url="https://docs.ollama.com",
        quirks=frozenset({"no_parallel_tool_calls", "keyless"}),
    ),
    Provider(
        name="vllm",
        display_name="vLLM",
        description="Open models on your own vLLM server.",
        wire="openai",
        base_url="",
        key_variables=("VLLM_API_KEY",),
        base_url_variables=("VLLM_BASE_URL",),
        docs_url="https://docs.vllm.ai",
        quirks=frozenset({"keyless"}),
    ),
    *_installed_vendors(),
)


def find_provider(name: str) -> Provider | None:
    """The provider with this wire name, None where there is none."""
    return next((provider for provider in PROVIDERS if provider.name == name), None)


def credential_problem(provider: Provider, api_key: str, base_url: str | None) -> str | None:
    """Why a credential cannot be used, as a sentence that says what to do; None where it looks usable.

    With a ``base_url`` the key's format is not checked (README decision 11, contract §11).
    """
    if base_url:
        if not re.match(r"https?://[^\s/]", base_url):
            return "The base URL must start with http:// or https:// and name a host."
        return None
    if not provider.base_url and provider.wire != "vendors":
        return f"{provider.display_name} has no usual address. Give the base URL of your server."
    if not api_key.strip():
        return None if "keyless" in provider.quirks else f"Give an API key for {provider.display_name}."
    if provider.key_pattern and not re.fullmatch(provider.key_pattern, api_key):
        return (
            f"This does not look like an API key of {provider.display_name}. "
            f"Copy it again from {provider.key_url}, or give a base URL if another server uses it."
        )
    return None


def pooled_endpoint(provider: Provider, environment: Mapping[str, str]) -> Endpoint | None:
    """The operator's own access to a provider, from the usual variables (README decision 10).

    None where the operator set neither a key nor, for a provider that needs no key, an address.
    """
    key_variable = next((name for name in provider.key_variables if environment.get(name)), "")
    given = next((environment[name] for name in provider.base_url_variables if environment.get(name)), "")
    if not key_variable and not (given and "keyless" in provider.quirks):
        return None
    base_url = clean_base_url(provider, given) if given else provider.base_url
    if not base_url:
        return None
    return Endpoint(provider, base_url, environment.get(key_variable, ""), key_variable or "the server's settings")


def key_headers(endpoint: Endpoint) -> dict[str, str]:
    """The headers that carry the endpoint's key."""
    key = endpoint.api_key
    if endpoint.provider.wire == "anthropic":
        return {"x-api-key": key, "anthropic-version": ANTHROPIC_VERSION}
    if "api_key_header" in endpoint.provider.quirks:
        return {"api-key": key}
    return {"Authorization": f"Bearer {key}"} if key else {}


def clean_base_url(provider: Provider, base_url: str) -> str:
    """A base URL in the one form that the adapters join paths to.

    A bare ``host:port`` (the usual form of OLLAMA_HOST) becomes a URL. The official Anthropic client
    takes addresses with and without ``/v1``, so both are understood.
    """
    cleaned = base_url.strip().rstrip("/")
    if "://" not in cleaned:
        cleaned = f"http://{cleaned}"
    cleaned = cleaned.replace("//0.0.0.0", "//127.0.0.1")
    if provider.base_path and cleaned.count("/") == BARE_HOST_SLASHES:
        return cleaned + provider.base_path
    return cleaned.removesuffix("/v1") if provider.wire == "anthropic" else cleaned
