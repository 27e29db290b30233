"""Keeping chats and letting them go: export, erasing without a trace, retention (issue 9, sentence 6)."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest
from sqlalchemy import func, select, update

from parley.chats.upkeep import sweep
from parley.runs.chat_store import append_message
from parley.storage import WriteTx
from parley.storage.tables.accounts import audit_log
from parley.storage.tables.chats import chats, idempotency_keys, messages, questions, runs, transcript
from parley.testing.fake_github import FakeGitHub
from tests.contract.conftest import House
from tests.stage import Json, Stage, Turn, caller, calls, executes, says

CREATE = {"owner": "octocat", "repo": "hello-world"}


async def exported(stage: Stage, chat_id: str, form: str) -> str:
    url = f"{stage.client.base_url}/assistant/chat/{chat_id}/export?format={form}"
    async with stage.client.session.get(url, headers=stage.client.headers) as response:
        assert response.status == 200, await response.text()
        ending = "md" if form == "markdown" else form
        assert response.headers["Content-Disposition"] == f'attachment; filename="chat-{chat_id}.{ending}"'
        return await response.text()


async def eventful(stage: Stage, github: FakeGitHub, word: str) -> Turn:
    """A turn that says, thinks, does, asks and is answered, with the word in all of it."""
    await stage.connect_github(github.token)
    asked = await stage.turn(
        executes("create_issue", {**CREATE, "title": f"{word} title"}, text=f"{word} before"),
        calls("ask_user_free_text", {"message": f"{word} question"}, id="call_2"),
        message=f"{word} message",
    )
    await stage.script(says(f"{word} ", "after", thinking=[f"{word} thought"]))
    answer = {"kind": "free_text", "text": f"{word} answer"}
    resumed = await stage.resume(asked, answer, Idempotency_Key=f"{word}-key")
    assert resumed.status == 200, resumed.body
    return await stage.follow(resumed.body)


# ── export ──────────────────────────────────────────────────────────────────────────────────────


async def test_an_export_tells_what_was_said_done_asked_and_answered(stage: Stage, github: FakeGitHub) -> None:
    turn = await eventful(stage, github, "plum")
    document = json.loads(await exported(stage, turn.chat_id, "json"))
    assert document["format"] == "parley-chat-1"
    assert document["chat"]["id"] == turn.chat_id
    first, last = document["messages"][0], document["messages"][-1]
    assert (first["role"], first["content"]) == ("human", "plum message")
    assert last["content"].endswith("plum after")
    (done,) = [each for each in first["actions"] if each["integration_name"] == "github"]
    assert (done["action_name"], done["status"]) == ("create_issue", "done")
    assert done["input"]["parameters"]["title"] == "plum title"
    assert done["output"]["status"] == "ok"
    (question,) = first["questions"]
    assert (question["outcome"], question["answer"]["text"]) == ("answered", "plum answer")

    page = await exported(stage, turn.chat_id, "markdown")
    assert page.startswith("# plum message\n")
    for line in ("**github · create_issue** (done)", "**Asked** (answered)", "plum answer", "plum after"):
        assert line in page


async def test_an_export_has_the_whole_of_a_result_that_the_conversation_cut(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    github.repositories = [f"repository-{number:04}-{'x' * 60}" for number in range(400)]
    turn = await stage.turn(executes("list_repositories"), says("Many."))
    assert "result_id" in turn.data("tool_result")["output"]
    document = json.loads(await exported(stage, turn.chat_id, "json"))
    (done,) = document["messages"][0]["actions"]
    assert github.repositories[-1] in json.dumps(done["output"])


async def test_an_export_has_none_of_the_organizations_secrets(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(says(f"It is {github.token}."), message=f"My keys: {stage.model_key} and {github.token}")
    for form in ("json", "markdown"):
        document = await exported(stage, turn.chat_id, form)
        assert "My keys" in document
        assert stage.model_key not in document
        assert github.token not in document


async def test_a_long_chat_is_exported_whole_and_in_order(stage: Stage) -> None:
    turn = await stage.turn(says("Hello."))
    said = [f"word {number} " + "~" * 2_000 for number in range(1_000)]

    def fill(tx: WriteTx) -> None:
        for number, words in enumerate(said):
            append_message(tx, turn.chat_id, role="system", content=words, run_id=None, now=number)

    await stage.parley.store.write(fill)
    document = json.loads(await exported(stage, turn.chat_id, "json"))
    assert [each["content"] for each in document["messages"]] == ["Do it", "Hello.", *said]
    page = await exported(stage, turn.chat_id, "markdown")
    assert [page.count(words) for words in said] == [1] * len(said)


async def test_nothing_in_a_chat_closes_its_fence_in_markdown(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    turn = await stage.turn(executes("create_issue", {**CREATE, "title": "````\n# Not a heading"}), says("."))
    page = await exported(stage, turn.chat_id, "markdown")
    assert "`````json\n" in page


async def test_a_chat_of_nobody_or_of_others_cannot_be_exported(stage: Stage, house: House) -> None:
    turn = await stage.turn(says("Mine."))
    for form in ("json", "markdown"):
        path = f"/assistant/chat/{turn.chat_id}/export?format={form}"
        async with caller(house.base_url, house.key, stage.client.organization_id) as other:
            made = await other.post("/organizations", {"name": f"Other {uuid4().hex[:8]}"})
            other.organization_id = made.body["organization"]["id"]
            foreign = await other.get(path)
            missing = await other.get(path.replace(turn.chat_id, str(uuid4())))
            assert (foreign.status, foreign.body) == (missing.status, missing.body) == (404, missing.body)
    assert (await stage.client.get(f"/assistant/chat/{turn.chat_id}/export?format=pdf")).status == 422


async def test_an_export_breaks_off_where_its_chat_is_erased(stage: Stage) -> None:
    turn = await stage.turn(says("."))

    def fill(tx: WriteTx) -> None:
        for number in range(2_000):
            append_message(tx, turn.chat_id, role="system", content="~" * 20_000, run_id=None, now=number)

    await stage.parley.store.write(fill)
    with pytest.raises(aiohttp.ClientPayloadError):
        await read_while_it_is_erased(stage, turn.chat_id)


async def read_while_it_is_erased(stage: Stage, chat_id: str) -> None:
    url = f"{stage.client.base_url}/assistant/chat/{chat_id}/export"
    async with stage.client.session.get(url, headers=stage.client.headers) as response:
        await response.content.readexactly(1_000)
        gone = await stage.client.call("DELETE", f"/assistant/chat/{chat_id}?permanent=true")
        assert gone.status == 200
        await response.read()


# ── erasing ─────────────────────────────────────────────────────────────────────────────────────


def files_with(stage: Stage, word: str) -> Iterator[Path]:
    """Every file of the store and of the data folder, byte by byte."""
    folder = stage.parley.settings.data_dir
    for path in [*folder.rglob("*"), *folder.parent.glob("parley.db*")]:
        if path.is_file() and word.encode() in path.read_bytes():
            yield path


async def everywhere(stage: Stage, word: str) -> list[str]:
    """The tables and the files that hold the word."""
    return [*await stage.tables_with(word), *(path.name for path in files_with(stage, word))]


@pytest.mark.parametrize("hidden_first", [False, True])
async def test_an_erased_chat_leaves_nothing_but_what_it_cost(
    stage: Stage, github: FakeGitHub, caplog: pytest.LogCaptureFixture, *, hidden_first: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    word = f"canary{uuid4().hex}"
    kept = await stage.turn(says("Another chat."), message="stays")
    turn = await eventful(stage, github, word)
    github.repositories = [f"{word}-{number:04}-{'x' * 60}" for number in range(400)]
    cut = await stage.turn(executes("list_repositories"), says("Many."), chat_id=turn.chat_id)
    assert "result_id" in cut.data("tool_result")["output"]
    holding = {"messages", "transcript", "run_events", "tool_calls", "tool_results", "questions"}
    assert holding <= set(await everywhere(stage, word))
    spent = await stage.credits()
    path = f"/assistant/chat/{turn.chat_id}"
    if hidden_first:
        assert (await stage.client.call("DELETE", path)).status == 200
        assert (await stage.client.get(path)).status == 404
    erased = await stage.client.call("DELETE", f"{path}?permanent=true")
    assert erased.body == {"status": "deleted", "chat_id": turn.chat_id, "permanent": True}
    # The key that a client chose is its own; no answer and no trace of what was said stands under it.
    left = await everywhere(stage, f"{word} ")
    assert left == []
    assert await everywhere(stage, word) in ([], ["idempotency_keys"], ["idempotency_keys", "parley.db"])
    assert word not in caplog.text
    assert await stage.credits() == spent
    assert (await stage.client.get(f"/assistant/chat/{kept.chat_id}")).status == 200
    assert (await stage.client.call("DELETE", f"{path}?permanent=true")).status == 404


async def test_erasing_is_told_in_the_audit_log_without_content(stage: Stage) -> None:
    word = f"canary{uuid4().hex}"
    turn = await stage.turn(says("."), message=word)
    await stage.client.call("DELETE", f"/assistant/chat/{turn.chat_id}?permanent=true")
    logs = (await stage.client.get("/dashboard/logs?operation=chat_erased")).body
    assert turn.chat_id in json.dumps(logs)
    assert word not in json.dumps(logs)


async def test_a_retry_of_a_request_whose_chat_is_erased_does_nothing(stage: Stage) -> None:
    await stage.script(says("Once."))
    body: Json = {"message": "Only once", "llm": stage.llm}
    first = await stage.client.post("/assistant/chat", body, Idempotency_Key="k-1")
    await stage.settled(first.body["chat_id"])
    before = await stage.credits()
    await stage.client.call("DELETE", f"/assistant/chat/{first.body['chat_id']}?permanent=true")
    again = await stage.client.post("/assistant/chat", body, Idempotency_Key="k-1")
    assert again.status == 409
    assert await stage.credits() == before
    assert (await stage.client.get("/assistant/chats")).body["items"] == []
    organization = stage.client.organization_id
    query = select(idempotency_keys.c.fingerprint).where(idempotency_keys.c.organization_id == organization)
    assert set(await stage.parley.store.read(lambda tx: tx.execute(query).scalars().all())) == {"erased"}


async def test_of_two_who_erase_one_chat_at_once_one_does(stage: Stage) -> None:
    turn = await stage.turn(says("."))
    path = f"/assistant/chat/{turn.chat_id}?permanent=true"
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(stage.client.call("DELETE", path)) for _ in range(2)]
    assert sorted(task.result().status for task in both) == [200, 404]


async def test_erasing_a_running_chat_stops_its_turn_and_leaves_nothing(stage: Stage) -> None:
    word = f"canary{uuid4().hex}"
    await stage.script(says(f"{word} ", "never", barrier=uuid4().hex, barrier_after=2))
    started = await stage.start(word)
    async for event in stage.client.stream(started["chat_id"], started["run_id"]):
        if event["type"] == "response_chunk":
            break
    erased = await stage.client.call("DELETE", f"/assistant/chat/{started['chat_id']}?permanent=true")
    assert erased.status == 200
    async with asyncio.timeout(20):
        assert stage.parley.chats.worker is not None
        while stage.parley.chats.worker.running:
            await asyncio.sleep(0.05)
    assert await everywhere(stage, word) == []


# ── retention ───────────────────────────────────────────────────────────────────────────────────


async def test_retention_is_the_owners_choice_and_stands_in_the_audit_log(stage: Stage) -> None:
    assert (await stage.client.get("/organizations/settings")).body["chat_retention_days"] is None
    for bad in (0, -1, 36_501, "x", 1.5):
        refused = await stage.client.call("PUT", "/organizations/settings/retention", {"chat_retention_days": bad})
        assert refused.status == 422
    chosen = await stage.client.call("PUT", "/organizations/settings/retention", {"chat_retention_days": 30})
    assert (chosen.status, chosen.body) == (200, {"chat_retention_days": 30})
    assert (await stage.client.get("/organizations/settings")).body["chat_retention_days"] == 30
    query = select(audit_log.c.detail).where(
        audit_log.c.operation == "chat_retention_changed",
        audit_log.c.organization_id == stage.client.organization_id,
    )
    assert await stage.parley.store.read(lambda tx: tx.execute(query).scalars().all()) == [{"chat_retention_days": 30}]


async def age(stage: Stage, chat_ids: list[str], days: int) -> None:
    """As if nothing had been said in these chats for some days."""
    then = stage.clock.now() - days * 86_400_000_000
    await stage.parley.store.write(
        lambda tx: tx.execute(update(chats).where(chats.c.id.in_(chat_ids)).values(updated_at=then))
    )


async def test_chats_past_their_days_are_erased_and_no_others(stage: Stage, house: House, model: object) -> None:
    word = f"canary{uuid4().hex}"
    old = [(await stage.turn(says(f"{word} reply"), message=f"{word} old")).chat_id for _ in range(3)]
    hidden, young = old[2], await stage.turn(says("New."), message="young")
    waiting = await stage.turn(calls("ask_user_yes_no", {"message": "?"}), message="waits")
    await stage.client.call("DELETE", f"/assistant/chat/{hidden}")
    await age(stage, [*old, waiting.chat_id], 8)
    await age(stage, [young.chat_id], 6)

    await sweep(stage.parley.chats)
    assert (await stage.client.get(f"/assistant/chat/{old[0]}")).status == 200, "without a setting all are kept"
    await stage.client.call("PUT", "/organizations/settings/retention", {"chat_retention_days": 7})
    await sweep(stage.parley.chats)
    assert [(await stage.client.get(f"/assistant/chat/{each}")).status for each in old] == [404] * 3
    for kept in (young, waiting):
        assert (await stage.client.get(f"/assistant/chat/{kept.chat_id}")).status == 200
    assert await everywhere(stage, word) == []
    logs = (await stage.client.get("/dashboard/logs?operation=chats_outdated")).body
    assert "3 chats without a word for 7 days were erased" in json.dumps(logs)
    await stage.client.post(f"/assistant/chat/{waiting.chat_id}/cancel")


async def test_retention_erases_many_chats_in_batches(stage: Stage) -> None:
    made = await stage.turn(says("."))
    (template,) = await stage.parley.store.read(
        lambda tx: tx.execute(select(chats).where(chats.c.id == made.chat_id)).mappings().all()
    )
    copies = [{**template, "id": str(uuid4()), "updated_at": 1} for _ in range(150)]
    await stage.parley.store.write(lambda tx: tx.execute(chats.insert(), copies))
    await stage.client.call("PUT", "/organizations/settings/retention", {"chat_retention_days": 1})
    async with asyncio.TaskGroup() as group:
        # Two processes may sweep at once.
        for _ in range(2):
            group.create_task(sweep(stage.parley.chats))
    mine = chats.c.organization_id == stage.client.organization_id
    query = select(func.count()).select_from(chats).where(mine)
    assert await stage.parley.store.read(lambda tx: tx.execute(query).scalar_one()) == 1
    tally = select(audit_log.c.detail).where(
        audit_log.c.operation == "chats_outdated", audit_log.c.organization_id == stage.client.organization_id
    )
    told = await stage.parley.store.read(lambda tx: tx.execute(tally).scalars().all())
    assert sum(each["chats"] for each in told) == 150


async def test_what_hangs_on_a_chat_goes_with_it(stage: Stage) -> None:
    turn = await stage.turn(calls("ask_user_yes_no", {"message": "?"}))
    await stage.client.call("DELETE", f"/assistant/chat/{turn.chat_id}?permanent=true")
    for table in (messages, transcript, runs, questions):
        query = select(func.count()).select_from(table).where(table.c.chat_id == turn.chat_id)
        assert await stage.parley.store.read(lambda tx, query=query: tx.execute(query).scalar_one()) == 0
