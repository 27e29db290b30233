"""Managed models, own keys, a local Ollama: what is offered, who pays, and what happens when a model goes (issue 7)."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedReply, ScriptedUsage
from tests.conftest import STORES, fresh_database
from tests.contract.conftest import ORGANIZATION, House, furnish, open_house
from tests.stage import Client, Json, Stage, caller, faults, new_model_key, says

MANAGED = {"integration_name": "modulexai", "provider_id": "openai", "model_id": "gpt-4o"}
LOCAL = {"integration_name": "ollama", "provider_id": "ollama", "model_id": "scripted"}


@dataclass(frozen=True, slots=True)
class Place:
    """A store, and what the operator of its servers has pooled."""

    url: str
    folder: Path
    proxy: ProviderProxy
    model: ScriptedModel
    pooled_key: str

    @property
    def pool(self) -> dict[str, str]:
        return {"OPENAI_API_KEY": self.pooled_key, "OPENAI_BASE_URL": self.model.openai_url}

    async def serve(self, stack: AsyncExitStack, **environment: str) -> House:
        """A server of its own on the store."""
        folder = self.folder / uuid4().hex
        keyring = {"PARLEY_DATA_DIR": str(self.folder / "data")}  # the next server must read what this one sealed
        return await open_house(stack, self.url, folder, self.proxy, {**keyring, **environment})


@pytest.fixture(params=STORES)
async def place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    postgres_template: str | None,
    proxy: ProviderProxy,
    model: ScriptedModel,
) -> AsyncIterator[Place]:
    async with fresh_database(str(request.param), tmp_path, postgres_template) as url:
        yield Place(url, tmp_path, proxy, model, new_model_key())


async def listed(client: Client) -> dict[str, list[Json]]:
    """The usable models by integration."""
    found: dict[str, list[Json]] = {}
    for entry in (await client.get("/organizations/llms")).body["active_llms"]:
        found.setdefault(entry["integration_name"], []).append(entry)
    return found


async def test_managed_models_and_a_local_ollama_are_offered_and_gone_once_the_operator_takes_them_away(
    place: Place,
) -> None:
    async with AsyncExitStack() as stack:
        house = await place.serve(stack, **place.pool, OLLAMA_HOST=place.model.url)
        client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
        offered = await listed(client)
        assert set(offered) == {"modulexai", "ollama"}
        managed = [entry["id"] for entry in offered["modulexai"]]
        assert "gpt-4o" in managed
        assert "scripted" in managed
        assert [entry["id"] for entry in offered["ollama"]] == ["scripted"]
        assert not [each for each in managed if each.startswith("claude")], "no key of Anthropic's is pooled"
        chosen = await client.call("PUT", "/organizations/settings/composer-llm", MANAGED)
        assert chosen.status == 200
        key = house.key
    async with AsyncExitStack() as stack:
        house = await place.serve(stack, OLLAMA_HOST="")
        client = await stack.enter_async_context(caller(house.base_url, key, ORGANIZATION))
        assert set(await listed(client)) == {"demo"}
        for llm, says_what in ((None, "does not offer gpt-4o"), (MANAGED, "does not offer gpt-4o"), (LOCAL, "API key")):
            body = {"message": "Hi", **({"llm": llm} if llm else {})}
            refused = await client.post("/assistant/chat", body)
            assert refused.status == 400, refused.body
            assert says_what in refused.detail
            assert "Choose another model" in refused.detail or "choose another model" in refused.detail
        assert (await client.get("/assistant/chats")).body["items"] == []
        assert await faults(house.parley) == []


async def test_managed_models_cost_credits_and_own_keys_and_local_models_none(place: Place) -> None:
    async with AsyncExitStack() as stack:
        house = await place.serve(stack, **place.pool, OLLAMA_HOST=place.model.url)
        client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
        stage = await furnish(house, client, place.model)
        usage = ScriptedUsage(10_000, 1_000)
        for llm, key in ((MANAGED, place.pooled_key), (stage.llm, stage.model_key), (LOCAL, "")):
            await place.model.script(key, says("Hello.", usage=usage))
            stage.llm, stage.model_key = llm, key
            turn = await stage.follow(await stage.start())
            assert turn.data("done")["response"] == "Hello."
        report = (await client.get("/billing/usage")).body
        paid = {(line["integration_name"], line["paid_by"]) for line in report["models"]}
        assert paid == {("modulexai", "credits"), ("openai", "own_key"), ("ollama", "own_key")}
        charged = {line["integration_name"]: line["credits"] for line in report["spending"] if line["kind"] == "model"}
        assert set(charged) == {"modulexai"}
        assert charged["modulexai"] > 0
        assert await faults(house.parley) == []


async def test_a_managed_model_that_is_down_costs_nothing_and_its_fallback_is_paid_for_as_ever(place: Place) -> None:
    async with AsyncExitStack() as stack:
        house = await place.serve(stack, **place.pool)
        client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
        stage = await furnish(house, client, place.model)
        own = stage.llm
        down = ScriptedReply(status=503, headers={"retry-after": "0"}, raw=b"{}")
        answer = says("Hello.", usage=ScriptedUsage(10_000, 1_000))
        for chosen, fallback, failing, answering in (
            (MANAGED, own, place.pooled_key, stage.model_key),
            (own, MANAGED, stage.model_key, place.pooled_key),
        ):
            saved = await client.call("PUT", "/organizations/settings/fallback-llm", {"fallback_llm": fallback})
            assert saved.status == 200, saved.body
            await place.model.script(failing, *[down] * 4)
            await place.model.script(answering, answer)
            stage.llm = chosen
            turn = await stage.follow(await stage.start())
            assert turn.types == ["metadata", "guidance", "response_chunk", "done"]
            report = (await client.get("/billing/usage")).body
            paid = [line for line in report["spending"] if line["kind"] == "model" and line["credits"]]
            assert bool(paid) == (fallback is MANAGED)
        assert await faults(house.parley) == []


async def test_a_key_that_stops_working_is_named_and_a_model_nobody_has_is_refused(stage: Stage) -> None:
    turn = await stage.turn(ScriptedReply(status=401, raw=b'{"error":{"code":"invalid_api_key"}}'))
    assert turn.types == ["metadata", "error", "done"]
    assert 'did not accept the credential "Scripted"' in turn.data("error")["message"]
    unknown = [
        ({**stage.llm, "integration_name": "nobody"}, "no such model provider"),
        ({**MANAGED, "model_id": "gpt-9"}, "does not offer gpt-9"),
        ({**stage.llm, "integration_name": "anthropic"}, "Anthropic needs an API key"),
        ({**stage.llm, "credential_id": str(uuid4())}, "not a credential of this organization"),
    ]
    for llm, says_what in unknown:
        refused = await stage.client.post("/assistant/chat", {"message": "Hi", "llm": llm})
        assert refused.status == 400, refused.body
        assert says_what in refused.detail


async def test_a_model_the_catalogue_dropped_is_refused_at_the_usual_address(stage: Stage) -> None:
    key = {"api_key": "sk-" + "a" * 40}
    made = await stage.client.post("/credentials", {"integration_name": "openai", "auth_data": key})
    assert made.status == 201, made.body
    llm = {**stage.llm, "model_id": "gpt-3", "credential_id": made.body["credential_id"]}
    refused = await stage.client.post("/assistant/chat", {"message": "Hi", "llm": llm})
    assert refused.status == 400
    assert "OpenAI does not offer gpt-3" in refused.detail


async def test_shown_models_are_the_organizations_choice_until_it_is_reset(stage: Stage) -> None:
    path = "/organizations/settings/llm-model-visibility"
    models = [{"id": "gpt-4o", "display_name": "Our model"}]
    shown = await stage.client.call("PUT", path, {"integration_name": "openai", "models": models})
    assert shown.body == {"llm_model_visibility": {"openai": models}}
    settings = (await stage.client.get("/organizations/settings")).body
    assert settings["llm_model_visibility"] == {"openai": models}
    reset = await stage.client.call("PUT", path, {"integration_name": "openai", "models": []})
    assert reset.body == {"llm_model_visibility": {}}
