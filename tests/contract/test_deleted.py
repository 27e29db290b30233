"""T29: what is deleted for good stands in no row of the store any more; of chats, test_keeping tells."""

from uuid import uuid4

import pytest
from sqlalchemy import select

from parley.storage.tables.credentials import credentials
from tests.knowledge.shelf import ended, make_base, upload
from tests.stage import Stage

# SQLite's full text drops a deleted word from its own pages when it merges them: docs/security.md says so.
FULL_TEXT = "chunk_words_data"


async def test_t29_a_deleted_credential_leaves_no_sealed_secret_behind(stage: Stage) -> None:
    credential = await stage.connect_github(f"ghp_{uuid4().hex}")
    one = select(credentials.c.sealed).where(credentials.c.id == credential)
    sealed = repr(await stage.parley.store.read(lambda tx: tx.execute(one).scalar_one()))
    assert await stage.tables_with(sealed) == {"credentials"}
    assert (await stage.client.call("DELETE", f"/credentials/{credential}")).status == 204
    assert await stage.tables_with(sealed) == set()


@pytest.mark.parametrize("whole", [False, True], ids=["the document", "its whole base"])
async def test_t29_a_deleted_document_leaves_no_word_behind(stage: Stage, *, whole: bool) -> None:
    word, name = f"word{uuid4().hex}", f"{uuid4().hex}.txt"
    base = await make_base(stage.client)
    document = (await upload(stage.client, base, name, f"A {word} in it.".encode())).body["id"]
    assert (await ended(stage.client, base, document))["status"] == "completed"
    assert {"document_pieces", "chunks"} <= await stage.tables_with(word)
    assert "documents" in await stage.tables_with(name)
    place = f"/knowledge-bases/{base}"
    gone = await stage.client.call("DELETE", place if whole else f"{place}/documents/{document}")
    assert gone.status == 204, gone.body
    assert await stage.tables_with(word) - {FULL_TEXT} == await stage.tables_with(name) == set()
    # What reading it cost stays in the books, under a number that says nothing.
    assert await stage.tables_with(document) == {"ledger"}
