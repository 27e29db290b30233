"""External stores that fail, lie, hang or echo secrets. What is asked of them does not depend on our own store."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from parley.testing.provider_proxy import ProviderProxy
from tests.conftest import STORES, fresh_database
from tests.contract.conftest import House, open_house
from tests.knowledge.elsewhere import QUERY, Open
from tests.knowledge.embedding_server import embedding_server
from tests.knowledge.external_stores import Fault
from tests.knowledge.shelf import find, make_base, read
from tests.stage import Stage, calls, says

PROVIDERS = ("qdrant", "pinecone", "weaviate", "old weaviate", "mongodb_atlas")


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory, proxy: ProviderProxy) -> AsyncIterator[House]:
    """One server on one store."""
    folder = tmp_path_factory.mktemp("house")
    async with fresh_database(STORES[0], folder, None) as url, AsyncExitStack() as stack:
        yield await open_house(stack, url, folder, proxy, {})


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_filters_are_made_by_the_store(stage: Stage, open_store: Open, kind: str) -> None:
    base = await (await open_store(kind)).bind(stage.client)
    found = await find(stage.client, base, QUERY, "search", filters={"house": "south"})
    assert {match["metadata"]["house"] for match in found} == {"south"}
    refused = await stage.client.post(f"/knowledge-bases/{base}/search", {"query": "x", "filters": {"$where": "1"}})
    assert (refused.status, "filters" in refused.detail) == (400, True)


FAULTS = {
    "refused key": (Fault(401, b"key"), 400, "does not accept the credential"),
    "gone": (Fault(404, b"{}"), 400, "no collection"),
    "too many": (Fault(429), 503, "no more questions"),
    "trouble": (Fault(500, b"<html>"), 503, "trouble of its own"),
    "nonsense": (Fault(200, b'{"result": 3}'), 503, "cannot be read"),
    "deep": (Fault(200, b"[" * 200_000), 503, "cannot be read"),
    "huge": (Fault(200, b" " * 9_000_000), 503, "larger than"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_store_that_fails_is_told_in_a_sentence_and_the_others_are_searched(
    stage: Stage, open_store: Open, name: str
) -> None:
    fault, status, sentence = FAULTS[name]
    elsewhere = await open_store("qdrant")
    broken = await elsewhere.bind(stage.client, "Broken")
    elsewhere.shelf.fault = fault
    alone = await stage.client.post(f"/knowledge-bases/{broken}/search", {"query": QUERY})
    assert (alone.status, sentence in alone.detail) == (status, True), alone.body
    inside = await make_base(stage.client)
    await read(stage.client, inside, "manual.md", b"The boiler has a red lever.")
    body = {"knowledge_base_ids": [broken, inside], "query": QUERY}
    both = await stage.client.post("/knowledge-bases/search", body)
    assert [match["knowledge_base_id"] for match in both.body["matches"]] == [inside]
    assert [one["knowledge_base_id"] for one in both.body["unsearched"]] == [broken]
    turn = await stage.turn(calls("search_knowledge", {"query": QUERY}), says("It has a red lever."))
    output = turn.data("tool_result")["output"]
    assert (output["status"], len(output["matches"])) == ("ok", 1)
    assert sentence in output["not_searched"][0]["error"]
    said = json.dumps([alone.body, both.body, output])
    assert elsewhere.shelf.key not in said


@pytest.mark.parametrize(("code", "status"), [(18, 400), (8000, 400), (31082, 400), (11600, 503)])
async def test_what_mongodb_refuses_is_told_in_a_sentence(
    stage: Stage, open_store: Open, code: int, status: int
) -> None:
    elsewhere = await open_store("mongodb_atlas")
    base = await elsewhere.bind(stage.client)
    elsewhere.shelf.fault = Fault(code)
    answer = await stage.client.post(f"/knowledge-bases/{base}/search", {"query": QUERY})
    assert (answer.status, answer.detail.endswith(".")) == (status, True), answer.body


async def test_a_store_that_never_answers_holds_nobody_up(stage: Stage, open_store: Open) -> None:
    bases = []
    for kind in ("weaviate", "mongodb_atlas"):
        elsewhere = await open_store(kind)
        bases.append(await elsewhere.bind(stage.client, kind))
        elsewhere.shelf.fault = Fault(hangs=True)
    answer = await stage.client.post("/knowledge-bases/search", {"knowledge_base_ids": bases, "query": QUERY})
    assert (answer.status, "again" in answer.detail) == (503, True), answer.body


async def test_a_store_that_echoes_the_key_shows_it_to_nobody(stage: Stage, open_store: Open) -> None:
    elsewhere = await open_store("pinecone")
    base = await elsewhere.bind(stage.client)
    for row in elsewhere.shelf.rows:
        row.payload |= {"text": f"{row.payload['text']} Api-Key: {elsewhere.shelf.key}", "key": elsewhere.shelf.key}
    found = await find(stage.client, base, QUERY)
    assert len(found) == 3
    assert elsewhere.shelf.key not in json.dumps(found)
    turn = await stage.turn(calls("search_knowledge", {"query": QUERY}), says("No."))
    assert elsewhere.shelf.key not in json.dumps(turn.events)


async def test_vectors_of_another_size_are_refused_with_both_sizes(stage: Stage, open_store: Open) -> None:
    elsewhere = await open_store("qdrant")
    async with embedding_server() as server:
        auth = {"api_key": server.key, "base_url": server.base_url}
        own = await stage.client.post("/credentials", {"integration_name": "openai", "auth_data": auth})
        model = {"integration_name": "openai", "model_id": "m", "credential_id": own.body["credential_id"]}
        credential = await elsewhere.connect(stage.client)
        refused = await elsewhere.ask_for(stage.client, credential_id=credential, embedding_config=model)
        assert (refused.status, "256" in refused.detail, "64" in refused.detail) == (400, True, True), refused.body
        base = await elsewhere.bind(stage.client, credential_id=credential)
        changed = await stage.client.call("PUT", f"/knowledge-bases/{base}", {"embedding_config": model})
        assert changed.status == 400
        server.status = 500
        down = await elsewhere.ask_for(stage.client, credential_id=credential, embedding_config=model)
        assert (down.status, "embedding model" in down.detail) == (503, True)
    assert (await stage.client.get(f"/knowledge-bases/{base}")).body["embedding_config"] == {}


async def test_a_private_address_is_not_searched(stage: Stage) -> None:
    body = {"integration_name": "qdrant", "auth_type": "custom", "auth_data": {"base_url": "https://10.0.0.5:6333"}}
    credential = (await stage.client.post("/credentials", body)).body["credential_id"]
    wish = {"provider_type": "qdrant", "credential_id": credential, "external_config": {"collection": "docs"}}
    refused = await stage.client.post("/knowledge-bases", {"name": "Inside", **wish})
    assert (refused.status, "private network" in refused.detail) == (400, True), refused.body
