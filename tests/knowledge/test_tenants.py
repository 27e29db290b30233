"""What is not yours is not there, on every route; and who may do what at all (contract §1, §12)."""

from uuid import uuid4

import pytest

from tests.conftest import STORES
from tests.contract.conftest import House
from tests.knowledge.shelf import find, make_base, read, upload
from tests.stage import Client, Stage, caller

ROUTES = (
    ("GET", "/knowledge-bases/{base}", None),
    ("PUT", "/knowledge-bases/{base}", {"name": "Mine now"}),
    ("POST", "/knowledge-bases/{base}/archive", None),
    ("GET", "/knowledge-bases/{base}/documents", None),
    ("GET", "/knowledge-bases/{base}/documents/{document}", None),
    ("GET", "/knowledge-bases/{base}/documents/{document}/status", None),
    ("GET", "/knowledge-bases/{base}/documents/{document}/chunks", None),
    ("POST", "/knowledge-bases/{base}/documents/{document}/retry", None),
    ("POST", "/knowledge-bases/{base}/search", {"query": "boiler"}),
    ("POST", "/knowledge-bases/{base}/hybrid-search", {"query": "boiler"}),
    ("POST", "/knowledge-bases/{base}/retrieve-context", {"query": "boiler"}),
    ("POST", "/knowledge-bases/search", {"query": "boiler", "knowledge_base_ids": ["{base}"]}),
    ("DELETE", "/knowledge-bases/{base}/documents/{document}", None),
    ("DELETE", "/knowledge-bases/{base}", None),
)
# Tried by themselves: a file in a form, and what has no id of anybody's in it.
UPLOAD = {("POST", "/knowledge-bases/{base}/documents")}
OF_NOBODY = {
    ("GET", "/knowledge-bases"),
    ("POST", "/knowledge-bases"),
    ("GET", "/knowledge-bases/stats"),
    ("GET", "/knowledge-bases/info/supported-file-types"),
}
LIMITS = (
    ("POST", "/knowledge-bases", {"name": ""}, 422),
    ("POST", "/knowledge-bases", {"name": "x" * 256}, 422),
    ("POST", "/knowledge-bases", {"name": "x", "chunking_config": {"chunk_size": 3}}, 400),
    ("POST", "/knowledge-bases", {"name": "x", "embedding_config": {"integration_name": "no", "model_id": "m"}}, 400),
    ("GET", "/knowledge-bases?limit=0", None, 422),
    ("GET", "/knowledge-bases?limit=501", None, 422),
    ("POST", "/knowledge-bases/{base}/search", {"query": "x", "top_k": 51}, 422),
    ("POST", "/knowledge-bases/{base}/search", {"query": "x", "min_score": 2}, 422),
    ("POST", "/knowledge-bases/{base}/search", {"query": " "}, 422),
    ("POST", "/knowledge-bases/{base}/retrieve-context", {"query": "x", "max_tokens": 99}, 422),
    ("POST", "/knowledge-bases/{base}/retrieve-context", {"query": "x", "max_tokens": 10001}, 422),
    ("GET", "/knowledge-bases/{base}/documents/{document}/chunks?limit=501", None, 422),
)


def put_in(value: object, base: str, document: str) -> object:
    """The ids in the places that are kept for them."""
    if isinstance(value, str):
        return value.replace("{base}", base).replace("{document}", document)
    if isinstance(value, dict):
        return {name: put_in(each, base, document) for name, each in value.items()}
    return [put_in(each, base, document) for each in value] if isinstance(value, list) else value


async def other_team(house: House, client: Client) -> Client:
    """The same key in an organization of its own."""
    made = await client.post("/organizations", {"name": f"Other {uuid4().hex[:8]}"})
    return Client(client.base_url, client.session, house.key, made.body["organization"]["id"])


async def test_a_foreign_base_is_as_missing_as_one_that_never_was(stage: Stage, house: House) -> None:
    base = await make_base(stage.client)
    document = (await read(stage.client, base, "a.txt", b"The boiler is in the cellar."))["id"]
    stranger = await other_team(house, stage.client)
    for method, path, body in ROUTES:
        foreign = await stranger.call(method, str(put_in(path, base, document)), put_in(body, base, document))
        nothing = str(uuid4())
        missing = await stranger.call(method, str(put_in(path, nothing, nothing)), put_in(body, nothing, nothing))
        assert (foreign.status, foreign.body) == (missing.status, missing.body), path
        assert foreign.status == 404, path
    refused = await upload(stranger, base, "b.txt", b"Mine")
    assert refused.status == 404
    assert (await stranger.get("/knowledge-bases")).body == []
    assert (await stranger.get("/knowledge-bases/stats")).body["total_documents"] == 0
    assert (await find(stage.client, base, "boiler"))[0]["document_id"] == document


async def test_every_route_of_knowledge_is_in_the_list_that_strangers_try(stage: Stage) -> None:
    described = (await stage.client.get("/openapi.json")).body["paths"]
    served = {
        (method.upper(), path.replace("{base_id}", "{base}").replace("{document_id}", "{document}"))
        for path, methods in described.items()
        if path.startswith("/knowledge-bases")
        for method in methods
    }
    tried = {(method, path) for method, path, _ in ROUTES} | UPLOAD | OF_NOBODY
    assert served == tried


async def test_no_key_is_401_and_the_list_of_file_types_is_public(stage: Stage) -> None:
    async with caller(stage.client.base_url, "mx_live_nobody", stage.client.organization_id) as nobody:
        for method, path, body in ROUTES:
            answer = await nobody.call(method, str(put_in(path, str(uuid4()), str(uuid4()))), body)
            assert answer.status == 401, path
        public = await nobody.get("/knowledge-bases/info/supported-file-types")
    assert public.status == 200
    assert public.body["max_file_size_bytes"] == 52_428_800
    assert public.body["supported_types"] == [
        "pdf", "docx", "doc", "txt", "md", "html", "csv", "json", "xlsx", "pptx",
    ]  # fmt: skip


async def test_what_is_outside_its_range_is_refused(stage: Stage) -> None:
    base = await make_base(stage.client)
    for method, path, body, status in LIMITS:
        answer = await stage.client.call(
            method, str(put_in(path, base, str(uuid4()))), put_in(body, base, str(uuid4()))
        )
        assert answer.status == status, (path, body, answer.body)


async def test_an_archived_base_can_be_searched_but_not_changed(stage: Stage) -> None:
    base = await make_base(stage.client)
    document = await read(stage.client, base, "a.txt", b"The boiler is in the cellar.")
    archived = await stage.client.post(f"/knowledge-bases/{base}/archive")
    assert (archived.status, archived.body["status"]) == (200, "archived")
    assert (await upload(stage.client, base, "b.txt", b"More")).status == 409
    assert len(await find(stage.client, base, "boiler")) == 1
    assert document["status"] == "completed"
    assert [one["id"] for one in (await stage.client.get("/knowledge-bases?status=archived")).body] == [base]


async def test_files_that_cannot_be_taken_leave_nothing(stage: Stage) -> None:
    base = await make_base(stage.client)
    refused = await upload(stage.client, base, "program.exe", b"MZ")
    assert refused.status == 400
    assert "pdf, docx" in refused.detail
    assert (await upload(stage.client, base, "big.txt", b"x" * (50 * 1024 * 1024 + 1))).status == 413
    failed = await read(stage.client, base, "empty.txt", b"")
    assert (failed["status"], failed["error_message"]) == ("failed", "The file is empty.")
    retried = await stage.client.post(f"/knowledge-bases/{base}/documents/{failed['id']}/retry")
    assert (retried.status, retried.body["status"]) == (200, "pending")
    assert len((await stage.client.get(f"/knowledge-bases/{base}/documents")).body) == 1


async def test_erasing_a_document_erases_its_passages(stage: Stage) -> None:
    base = await make_base(stage.client)
    document = await read(stage.client, base, "a.txt", b"The boiler is in the cellar.")
    kept = await read(stage.client, base, "b.txt", b"The boiler has a red lever.")
    assert {match["document_id"] for match in await find(stage.client, base, "boiler")} == {document["id"], kept["id"]}
    erased = await stage.client.call("DELETE", f"/knowledge-bases/{base}/documents/{document['id']}?delete_file=true")
    assert erased.status == 204
    for kind in ("search", "hybrid-search"):
        assert [match["document_id"] for match in await find(stage.client, base, "boiler", kind)] == [kept["id"]]
    totals = (await stage.client.get("/knowledge-bases/stats")).body
    assert (totals["knowledge_base_count"], totals["total_documents"], totals["total_chunks"]) == (1, 1, 1)
    assert (await stage.client.call("DELETE", f"/knowledge-bases/{base}?delete_files=true")).status == 204
    assert (await stage.client.get("/knowledge-bases")).body == []


@pytest.mark.parametrize("kind", STORES[:1])
async def test_filters_narrow_a_search_to_documents(stage: Stage, kind: str) -> None:
    base = await make_base(stage.client)
    await read(stage.client, base, "a.txt", b"The boiler is in the cellar.", metadata={"house": "north"})
    south = await read(stage.client, base, "b.txt", b"The boiler is in the attic.", metadata={"house": "south"})
    for wanted in ({"house": "south"}, {"filename": "b.txt"}, {"document_id": [south["id"]]}):
        found = await find(stage.client, base, "Where is the boiler?", filters=wanted)
        assert [match["document_id"] for match in found] == [south["id"]], wanted
