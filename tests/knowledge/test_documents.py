"""From a file to a passage that is found (contract §12)."""

from tests.knowledge.shelf import find, make_base, read, upload
from tests.stage import Stage

HANDBOOK = b"""# Handbook

Welcome to the team. This is where everything is written down.

## Holidays

Everybody has thirty days off a year. Ask your lead two weeks ahead.

## Expenses

Receipts go to the finance mailbox within a month. Train tickets are paid in second class.
"""


async def test_an_uploaded_document_is_read_and_its_passages_are_found(stage: Stage) -> None:
    base = await make_base(stage.client, chunking_config={"chunk_size": 32, "chunk_overlap": 0})
    document = await read(stage.client, base, "handbook.md", HANDBOOK)
    assert (document["status"], document["error_message"]) == ("completed", None)
    assert document["chunk_count"] >= 3
    for kind in ("search", "hybrid-search"):
        best = (await find(stage.client, base, "How much vacation do I get?", kind))[0]
        assert "thirty days off" in best["content"], kind
        assert best["document_filename"] == "handbook.md"
        assert best["metadata"]["headings"] == ["Handbook", "Holidays"]


async def test_the_same_bytes_again_are_the_same_document(stage: Stage) -> None:
    base = await make_base(stage.client)
    first = await read(stage.client, base, "handbook.md", HANDBOOK)
    again = await upload(stage.client, base, "copy.md", HANDBOOK)
    assert (again.status, again.body["id"]) == (201, first["id"])
    assert len((await stage.client.get(f"/knowledge-bases/{base}/documents")).body) == 1
