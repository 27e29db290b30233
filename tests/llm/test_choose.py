"""From a config and a credential to a model; what is offered and what it costs."""

import asyncio
from contextlib import aclosing

import aiohttp
import msgspec
import pytest

from parley.llm import (
    DEMO,
    MANAGED,
    PROVIDERS,
    CredentialNeeded,
    LlmConfig,
    LlmCredential,
    Models,
    Sessions,
    UnknownModel,
    UnknownProvider,
    cost_micro,
    credential_problem,
    find_ollama,
    find_provider,
    model_entry,
    operator_addresses,
    served_models,
    shipped_catalogue,
)
from parley.llm.catalogue import reply_tokens, served_model
from parley.llm.demo import DemoModel
from parley.llm.http_model import HttpModel
from parley.llm.providers import clean_base_url
from parley.testing.scripted_model import ScriptedModel, ScriptedReply
from parley.turn.model import Model, ModelError, Reply, Usage
from tests.llm.wired import QUICK, WIRES, MakeWired, Wired, outcome, prompt

FAKE_KEY = "sk-" + "a" * 24


@pytest.fixture
def models(session: aiohttp.ClientSession) -> Models:
    return Models(shipped_catalogue(), {}, Sessions(session, session), limits=QUICK)


def pooled(session: aiohttp.ClientSession, ollama: tuple[str, ...] = (), **environment: str) -> Models:
    return Models(shipped_catalogue(), environment, Sessions(session, session), ollama, QUICK)


async def said(model: Model) -> Reply:
    async with aclosing(model.reply(prompt())) as stream:
        parts = [part async for part in stream]
    assert isinstance(parts[-1], Reply)
    return parts[-1]


# ── bringing one's own key ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wire", WIRES)
async def test_an_own_key_with_a_base_url_reaches_that_server_with_any_model_id(
    wired_as: MakeWired, models: Models, wire: str
) -> None:
    wired = wired_as(wire)
    await wired.script(ScriptedReply(text=["hello"]))
    credential = LlmCredential(wired.key, wired.endpoint().base_url, "Team key")
    model = models.open(LlmConfig(wire, wire, "anything-goes"), credential)
    assert (await said(model)).text == "hello"
    assert (await wired.requests())[0].body["model"] == "anything-goes"


async def test_a_failing_credential_is_named(wired: Wired, models: Models) -> None:
    await wired.script(ScriptedReply(status=401, raw=b"{}"))
    credential = LlmCredential(wired.key, wired.endpoint().base_url, "Team key")
    model = models.open(LlmConfig(wired.wire, wired.wire, "m"), credential)
    assert isinstance(model, HttpModel)
    assert 'the credential "Team key"' in (await outcome(model, prompt())).failure().public


async def test_what_cannot_be_opened_is_a_refusal_that_helps(models: Models) -> None:
    key = LlmCredential(FAKE_KEY)
    with pytest.raises(UnknownProvider):
        models.open(LlmConfig("nobody", "nobody", "m"), key)
    with pytest.raises(UnknownModel, match="does not offer gpt-1"):
        models.open(LlmConfig("openai", "openai", "gpt-1"), key)
    with pytest.raises(CredentialNeeded, match="OpenAI needs an API key"):
        models.open(LlmConfig("openai", "openai", "gpt-4o"), None)
    with pytest.raises(CredentialNeeded):
        models.open(LlmConfig("openai", "openai", "gpt-4o"), LlmCredential(" "))
    with pytest.raises(CredentialNeeded, match="characters"):
        models.open(LlmConfig("openai", "openai", "gpt-4o"), LlmCredential("sk-a\nb"))
    with pytest.raises(CredentialNeeded):
        models.open(LlmConfig("azure", "azure", "mine"), key)
    with pytest.raises(UnknownModel):
        models.open(LlmConfig(MANAGED, "openai", "gpt-4o"), None)


@pytest.mark.parametrize("model_id", ["gpt-4o", "gpt-4o-2024-08-06", "gpt-5.5", "gpt-5-5"])
async def test_known_models_and_their_dated_versions_open_at_the_usual_address(models: Models, model_id: str) -> None:
    assert isinstance(models.open(LlmConfig("openai", "openai", model_id), LlmCredential(FAKE_KEY)), HttpModel)


async def test_a_router_takes_models_the_catalogue_does_not_know(models: Models) -> None:
    assert models.open(LlmConfig("openrouter", "openrouter", "vendor/new"), LlmCredential(FAKE_KEY))


# ── managed ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("provider_id", ["openai", MANAGED])
async def test_a_managed_model_uses_the_operators_key(
    wired_as: MakeWired, session: aiohttp.ClientSession, provider_id: str
) -> None:
    wired = wired_as("openai")
    await wired.script(ScriptedReply(text=["managed"]))
    models = pooled(session, OPENAI_API_KEY=wired.key, OPENAI_BASE_URL=wired.provider.openai_url)
    assert (await said(models.open(LlmConfig(MANAGED, provider_id, "gpt-4o"), None))).text == "managed"


async def test_a_dotted_model_id_finds_its_provider_and_its_spelling(
    wired_as: MakeWired, session: aiohttp.ClientSession
) -> None:
    models = pooled(session, OPENAI_API_KEY=FAKE_KEY, ANTHROPIC_API_KEY=FAKE_KEY)
    config = LlmConfig(MANAGED, MANAGED, "claude-sonnet-4.6")
    assert models.facts(config).id == "claude-sonnet-4-6"
    assert models.open(config, None)


async def test_managed_models_are_those_of_the_pooled_keys(session: aiohttp.ClientSession) -> None:
    models = pooled(session, ANTHROPIC_API_KEY=FAKE_KEY)
    assert models.of(MANAGED) == shipped_catalogue().of("anthropic")
    assert models.providers()[0].name == MANAGED
    assert models.suggested() == LlmConfig(MANAGED, "anthropic", models.of(MANAGED)[0].id)
    assert not models.needs_credential(MANAGED)
    assert models.needs_credential("anthropic")


async def test_without_any_key_the_demo_is_offered_and_plainly_named(models: Models) -> None:
    assert models.providers()[0].name == DEMO
    assert models.suggested() == LlmConfig(DEMO, DEMO, "demo")
    assert isinstance(models.open(models.suggested(), None), DemoModel)
    assert "no intelligence" in models.providers()[0].display_name
    assert models.of(MANAGED) == ()


async def test_a_found_ollama_is_managed_and_needs_no_key(
    provider: ScriptedModel, session: aiohttp.ClientSession
) -> None:
    environment = {"OLLAMA_HOST": provider.url.removeprefix("http://")}
    found = await find_ollama(environment, session)
    assert found == ("scripted",)
    models = pooled(session, found, **environment)
    assert models.suggested() == LlmConfig(MANAGED, "ollama", "scripted")
    assert not models.needs_credential("ollama")
    assert models.open(LlmConfig("ollama", "ollama", "scripted"), None)
    assert models.facts(models.suggested()) == served_model("scripted")


def test_the_operators_addresses_are_whole_urls_and_name_a_local_ollama_in_any_case() -> None:
    environment = {"OPENAI_API_KEY": FAKE_KEY, "OPENAI_BASE_URL": "http://gateway.example.com:4000/v1/"}
    local = "http://127.0.0.1:11434/v1"
    assert operator_addresses(environment) == ("http://gateway.example.com:4000/v1", local)
    assert operator_addresses({"OLLAMA_HOST": "0.0.0.0:11434"}) == (local,)


async def test_no_ollama_is_known_within_the_bound(session: aiohttp.ClientSession) -> None:
    left = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client leaves
        writer.close()
        left.set()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(20):
        assert await find_ollama({"OLLAMA_HOST": host}, session) == ()
    async with asyncio.timeout(20):
        await left.wait()
    server.close()


@pytest.mark.parametrize("wire", WIRES)
async def test_the_served_models_are_listed(wired_as: MakeWired, wire: str) -> None:
    wired = wired_as(wire)
    assert await served_models(wired.endpoint(), wired.session) == ("scripted",)


async def test_a_server_without_a_model_list_is_a_clear_error(wired: Wired) -> None:
    with pytest.raises(ModelError):
        await served_models(wired.endpoint(wired.provider.url + "/requests?key=x&"), wired.session)


# ── the catalogue ───────────────────────────────────────────────────────────────────────────────


def test_the_catalogue_names_its_sources_and_has_models_with_prices() -> None:
    catalogue = shipped_catalogue()
    assert {source.package for source in catalogue.sources} == {"litellm", "genai-prices"}
    for provider in ("openai", "anthropic", "gemini", "xai", "groq", "mistral", "deepseek", "openrouter"):
        assert find_provider(provider) is not None
        assert catalogue.of(provider)
        for model in catalogue.of(provider):
            assert model.context_tokens >= 8_000
            assert model.prices.cached_input <= model.prices.input <= model.prices.output
            limit = reply_tokens(model)
            assert limit is not None
            assert 0 < limit <= model.context_tokens // 4
    assert catalogue.of("azure") == ()


def test_costs_are_whole_micro_credits_and_rounded_up() -> None:
    known = shipped_catalogue().find("openai", "gpt-4o")
    assert known is not None
    assert cost_micro(known, Usage(1_000_000, 100_000, 400_000)) == 150_000_000 + 50_000_000 + 100_000_000
    assert cost_micro(known, Usage(1, 0, 0)) == 250
    assert cost_micro(known, Usage()) == 0


def test_long_requests_cost_their_own_price() -> None:
    known = shipped_catalogue().find("openai", "gpt-5.5")
    assert known is not None
    assert known.prices.long is not None
    below, above = known.prices.long.above_tokens, known.prices.long.above_tokens + 1
    assert cost_micro(known, Usage(below)) < cost_micro(known, Usage(above)) / 1.9


def test_a_model_on_the_wire_has_every_field_of_the_contract() -> None:
    known = shipped_catalogue().of("anthropic")[0]
    assert set(model_entry(known)) == {
        "id",
        "name",
        "display_name",
        "description",
        "context_length",
        "max_input_tokens",
        "max_output_tokens",
        "intelligence",
        "speed",
        "data_freshness",
        "supports_vision",
    }
    assert "$4 in and $20 out" in str(model_entry(known)["description"])


async def test_providers_on_the_wire_have_their_models_and_a_form_for_a_key(models: Models) -> None:
    entries = {str(entry["name"]): entry for entry in models.entries()}
    assert set(entries) == {DEMO, *(provider.name for provider in PROVIDERS)}
    openai = msgspec.to_builtins(entries["openai"])
    assert openai["integration_type"] == "llm_provider"
    assert openai["models"][0]["id"]
    names = [field["name"] for field in openai["auth_schemas"][0]["setup_environment_variables"]]
    assert names == ["api_key", "base_url"]
    assert entries[DEMO]["auth_schemas"] == []


# ── keys and addresses ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("provider", "key", "base_url", "usable"),
    [
        ("openai", FAKE_KEY, None, True),
        ("openai", "sk-short", None, False),
        ("openai", "anything", "http://127.0.0.1:9/v1", True),
        ("openai", "", "https://models.example.com", True),
        ("openai", FAKE_KEY, "ftp://models.example.com", False),
        ("openai", "", None, False),
        ("xai", "xai-" + "b" * 24, None, True),
        ("gemini", "AIza" + "c" * 35, None, True),
        ("gemini", "AIza" + "c" * 34, None, False),
        ("azure", "k", None, False),
        ("azure", "k", "https://mine.example.com", True),
        ("ollama", "", None, True),
        ("vllm", "", "http://gpu.example.com:8000/v1", True),
    ],
)
def test_a_keys_format_is_checked_unless_there_is_a_base_url(
    provider: str, key: str, base_url: str | None, usable: bool
) -> None:
    found = find_provider(provider)
    assert found is not None
    problem = credential_problem(found, key, base_url)
    assert (problem is None) == usable
    assert not key or problem is None or key not in problem


@pytest.mark.parametrize(
    ("provider", "given", "expected"),
    [
        ("openai", "http://h:1/v1/", "http://h:1/v1"),
        ("openai", "http://h:1", "http://h:1"),
        ("anthropic", "http://h:1/v1", "http://h:1"),
        ("anthropic", "http://h:1/", "http://h:1"),
        ("ollama", "0.0.0.0:11434", "http://127.0.0.1:11434/v1"),
        ("ollama", "http://h:1", "http://h:1/v1"),
        ("ollama", "http://h:1/v1", "http://h:1/v1"),
        ("azure", "https://mine.example.com/", "https://mine.example.com/openai/v1"),
        ("azure", "https://mine.example.com/openai/v1", "https://mine.example.com/openai/v1"),
    ],
)
def test_a_base_url_has_one_form(provider: str, given: str, expected: str) -> None:
    found = find_provider(provider)
    assert found is not None
    assert clean_base_url(found, given) == expected


def test_keys_do_not_show_in_a_credentials_repr() -> None:
    assert FAKE_KEY not in repr(LlmCredential(FAKE_KEY))


async def test_organizations_addresses_and_the_operators_go_through_their_own_sessions(wired_as: MakeWired) -> None:
    wired = wired_as("openai")
    await wired.script(ScriptedReply(text=["a"]), ScriptedReply(text=["b"]))
    environment = {"OPENAI_API_KEY": wired.key, "OPENAI_BASE_URL": wired.provider.openai_url}
    async with (
        aiohttp.ClientSession(headers={"x-via": "tenant"}) as tenant,
        aiohttp.ClientSession(headers={"x-via": "operator"}) as operator,
    ):
        models = Models(shipped_catalogue(), environment, Sessions(tenant=tenant, operator=operator), limits=QUICK)
        await said(models.open(LlmConfig(MANAGED, "openai", "gpt-4o"), None))
        own = LlmCredential(wired.key, wired.provider.openai_url)
        await said(models.open(LlmConfig("openai", "openai", "gpt-4o"), own))
    assert [request.headers["x-via"] for request in await wired.requests()] == ["operator", "tenant"]
