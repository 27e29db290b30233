"""T29: what is deleted for good stands in no row of the store any more."""

import json
from uuid import uuid4

import aiohttp
import pytest
from sqlalchemy import select

from parley.storage import ReadTx
from parley.storage.tables.columns import metadata
from parley.storage.tables.credentials import credentials
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import ProviderProxy
from tests.stage import Stage, calls, executes, says

CUT_AFTER = 8_000


async def rows(stage: Stage) -> str:
    """Every row of every table, as one text."""

    def work(tx: ReadTx) -> dict[str, list[list[object]]]:
        return {table.name: [list(row) for row in tx.execute(select(table))] for table in metadata.sorted_tables}

    return json.dumps(await stage.parley.store.read(work), default=repr)


async def test_t29_a_chat_deleted_for_good_leaves_no_word_behind(stage: Stage, proxy: ProviderProxy) -> None:
    asked, answered, said, done, title = (f"{name}-{uuid4().hex}" for name in ("ask", "answer", "say", "do", "title"))
    github = FakeGitHub("ghp_deleted")
    proxy.answer("api.github.com", github)
    await stage.connect_github(github.token)
    act = executes("get_repository", {"owner": done, "repo": "x" * CUT_AFTER}, id="call_2")
    turn = await stage.turn(calls("ask_user_free_text", {"message": f"Which? {asked}"}), act, says(said), message=title)
    answer = {"kind": "free_text", "text": answered}
    resumed = await stage.resume(turn, answer)
    assert resumed.status == 200, resumed.body
    events = await stage.client.listen(turn.chat_id, resumed.body["run_id"])
    assert events[-1]["type"] == "done"
    words = (asked, answered, said, done, title, turn.chat_id)
    before = await rows(stage)
    assert [word for word in words if word not in before] == []

    gone = await stage.client.call("DELETE", f"/assistant/chat/{turn.chat_id}?permanent=true")
    assert gone.status == 200, gone.body
    after = await rows(stage)
    assert [word for word in words[:-1] if word in after] == []


async def test_t29_a_chat_deleted_in_the_middle_of_a_turn_leaves_no_word_behind(stage: Stage) -> None:
    said, barrier = f"say-{uuid4().hex}", uuid4().hex
    await stage.script(says(said, " and more", barrier=barrier, barrier_after=2))
    started = await stage.start()
    async for event in stage.client.stream(started["chat_id"], started["run_id"]):
        if event["type"] == "response_chunk":
            break
    gone = await stage.client.call("DELETE", f"/assistant/chat/{started['chat_id']}?permanent=true")
    assert gone.status == 200, gone.body
    await stage.model.release(barrier)
    await stage.model.dropped(stage.model_key)
    await stage.parley.drain()
    assert said not in await rows(stage)


async def test_t29_a_deleted_credential_leaves_no_sealed_secret_behind(stage: Stage) -> None:
    credential = await stage.connect_github(f"ghp_{uuid4().hex}")
    one = select(credentials.c.sealed).where(credentials.c.id == credential)
    sealed = await stage.parley.store.read(lambda tx: tx.execute(one).scalar_one())
    told = json.dumps(repr(sealed))[1:-1]
    assert told in await rows(stage)
    assert (await stage.client.call("DELETE", f"/credentials/{credential}")).status == 204
    assert told not in await rows(stage)


@pytest.mark.parametrize("whole", [False, True], ids=["the document", "its whole base"])
async def test_t29_a_deleted_document_leaves_no_word_behind(stage: Stage, *, whole: bool) -> None:
    word, name = f"word-{uuid4().hex}", f"{uuid4().hex}.txt"
    base = (await stage.client.post("/knowledge-bases", {"name": "Papers"})).body["id"]
    form = aiohttp.FormData()
    form.add_field("file", f"A {word} in it.".encode(), filename=name, content_type="text/plain")
    path = f"/knowledge-bases/{base}/documents"
    async with stage.client.session.post(
        stage.client.base_url + path, data=form, headers=stage.client.headers
    ) as answer:
        document = (await answer.json())["id"]
    kept = await rows(stage)
    assert name in kept
    gone = await stage.client.call("DELETE", f"/knowledge-bases/{base}" if whole else f"{path}/{document}")
    assert gone.status == 204, gone.body
    left = await rows(stage)
    assert name not in left and word not in left and document not in left
