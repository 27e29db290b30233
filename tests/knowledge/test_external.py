"""Bases whose passages are in Qdrant, Pinecone, Weaviate or MongoDB Atlas: bound, searched, cited (decision 0037)."""

from uuid import uuid4

import pytest

from tests.contract.conftest import House
from tests.knowledge.elsewhere import QUERY, Open
from tests.knowledge.shelf import find, make_base, read, upload
from tests.knowledge.test_tenants import other_team
from tests.stage import Stage, calls, says

PROVIDERS = ("qdrant", "pinecone", "weaviate", "old weaviate", "mongodb_atlas")
WITH_WORDS = ("weaviate", "old weaviate", "mongodb_atlas")


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_an_external_base_is_searched_where_it_is_on_every_route(
    stage: Stage, open_store: Open, kind: str
) -> None:
    elsewhere = await open_store(kind)
    base = await elsewhere.bind(stage.client)
    shown = (await stage.client.get(f"/knowledge-bases/{base}")).body
    assert (shown["provider_type"], shown["external_config"]["metric"].lower()) == (elsewhere.provider, "cosine")
    assert (shown["document_count"], shown["status"]) == (0, "active")

    (best, *_) = await find(stage.client, base, QUERY, "search")
    assert best["content"] == "The boiler is in the cellar behind the red door."
    assert (best["document_filename"], best["knowledge_base_id"]) == ("cellar.md", base)
    assert best["chunk_id"]
    assert 0.3 < best["score"] <= 1
    assert best["metadata"]["house"] == "north"
    assert "embedding" not in best["metadata"]

    (best, *_) = await find(stage.client, base, QUERY, "hybrid-search")
    assert best["document_filename"] == "cellar.md"
    assert best["semantic_score"] > 0.3
    assert best["keyword_score"] == (1.0 if kind in WITH_WORDS else 0.0)

    several = await stage.client.post("/knowledge-bases/search", {"knowledge_base_ids": [base], "query": QUERY})
    assert (several.status, several.body["matches"][0]["document_filename"]) == (200, "cellar.md")
    assert several.body["unsearched"] == []
    context = await stage.client.post(f"/knowledge-bases/{base}/retrieve-context", {"query": QUERY})
    assert "[cellar.md" in context.body["context"]


async def test_the_assistant_searches_both_kinds_of_bases_and_what_is_outside_taints(
    stage: Stage, open_store: Open
) -> None:
    elsewhere = await open_store("qdrant")
    outside = await elsewhere.bind(stage.client)
    inside = await make_base(stage.client)
    await read(stage.client, inside, "manual.md", b"The boiler has a red lever.")
    turn = await stage.turn(calls("search_knowledge", {"query": QUERY}), says("In the cellar."))
    result = turn.data("tool_result")
    assert {match["knowledge_base_id"] for match in result["output"]["matches"]} == {outside, inside}
    assert result["tainted"] is True
    turn = await stage.turn(
        calls("search_knowledge", {"query": QUERY, "knowledge_base_id": outside, "top_k": 1}), says("There.")
    )
    (match,) = turn.data("tool_result")["output"]["matches"]
    assert (match["document_filename"], match["metadata"]["page"]) == ("cellar.md", 3)


async def test_a_refused_credential_is_marked_and_a_new_one_takes_its_place(stage: Stage, open_store: Open) -> None:
    elsewhere = await open_store("weaviate")
    old = await elsewhere.connect(stage.client)
    base = await elsewhere.bind(stage.client, credential_id=old)
    elsewhere.shelf.key = f"key-{uuid4().hex}"
    assert (await stage.client.post(f"/knowledge-bases/{base}/search", {"query": QUERY})).status == 400
    events = (await stage.client.get(f"/credentials/{old}/audit")).body
    assert "marked_invalid" in {event["event_type"] for event in events}
    new = await elsewhere.connect(stage.client, api_key=elsewhere.shelf.key)
    moved = await stage.client.call("PUT", f"/knowledge-bases/{base}", {"credential_id": new})
    assert (moved.status, moved.body["credential_id"]) == (200, new)
    assert await find(stage.client, base, QUERY)
    assert (await stage.client.call("DELETE", f"/credentials/{new}")).status == 204
    gone = await stage.client.post(f"/knowledge-bases/{base}/search", {"query": QUERY})
    assert (gone.status, "no Weaviate credential" in gone.detail) == (400, True)


WRONG = {
    "qdrant": ({"collection": "nothing"}, "no collection 'nothing'"),
    "pinecone": ({"collection": "nothing"}, "no index 'nothing'"),
    "weaviate": ({"collection": "Nothing"}, "no class 'Nothing'"),
    "mongodb_atlas": ({"index": "nothing"}, "no vector search index 'nothing'"),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_a_base_that_could_not_be_searched_is_not_made(stage: Stage, open_store: Open, kind: str) -> None:
    elsewhere = await open_store(kind)
    nobody = await elsewhere.ask_for(stage.client)
    assert (nobody.status, "credential" in nobody.detail) == (400, True)
    await elsewhere.connect(stage.client)
    changed, sentence = WRONG[kind]
    refused = await elsewhere.ask_for(stage.client, external_config={**elsewhere.config, **changed})
    assert (refused.status, sentence in refused.detail) == (400, True), refused.body
    for name in ("../collections", "a/b", "docs?x=1", "a\nb"):
        odd = await elsewhere.ask_for(stage.client, external_config={**elsewhere.config, "collection": name})
        assert odd.status == 400, name
    unknown = await elsewhere.ask_for(stage.client, external_config={**elsewhere.config, "host": "evil.example.com"})
    assert unknown.status == 422
    assert (await stage.client.get("/knowledge-bases")).body == []
    assert elsewhere.shelf.told == []


async def test_documents_of_an_external_base_are_not_ours_to_change(stage: Stage, open_store: Open) -> None:
    elsewhere = await open_store("qdrant")
    base = await elsewhere.bind(stage.client)
    refused = await upload(stage.client, base, "a.txt", b"Hello")
    assert (refused.status, "external store" in refused.detail) == (409, True)
    assert (await stage.client.get(f"/knowledge-bases/{base}/documents")).body == []
    renamed = await stage.client.call("PUT", f"/knowledge-bases/{base}", {"name": "New", "description": "Ours"})
    assert (renamed.status, renamed.body["name"]) == (200, "New")
    assert (await stage.client.post(f"/knowledge-bases/{base}/archive")).body["status"] == "archived"
    assert (await stage.client.call("DELETE", f"/knowledge-bases/{base}")).status == 204
    assert len(elsewhere.shelf.rows) == 3
    ours = await stage.client.post("/knowledge-bases", {"name": "Ours", "external_config": {"collection": "docs"}})
    assert ours.status == 400


async def test_another_organization_reaches_neither_the_base_nor_the_account(
    stage: Stage, house: House, open_store: Open
) -> None:
    elsewhere = await open_store("qdrant")
    credential = await elsewhere.connect(stage.client)
    base = await elsewhere.bind(stage.client, credential_id=credential)
    stranger = await other_team(house, stage.client)
    for kind in ("search", "hybrid-search", "retrieve-context"):
        assert (await stranger.post(f"/knowledge-bases/{base}/{kind}", {"query": QUERY})).status == 404
    several = await stranger.post("/knowledge-bases/search", {"knowledge_base_ids": [base], "query": QUERY})
    assert several.status == 404
    assert (await stranger.call("PUT", f"/knowledge-bases/{base}", {"external_config": elsewhere.config})).status == 404
    borrowed = await elsewhere.ask_for(stranger, credential_id=credential)
    assert (borrowed.status, "no Qdrant credential" in borrowed.detail) == (400, True)
    assert elsewhere.shelf.told == []
