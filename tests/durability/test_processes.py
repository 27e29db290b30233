"""Several processes, zombies, partitions, drains: one owner for each run, and no turn lost (durability §5, §6)."""

import asyncio
import signal
import time
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from sqlalchemy import delete, func, select

from parley.base.settings import read_settings
from parley.storage import open_store
from parley.storage.tables.chats import runs
from parley.storage.tables.credentials import credentials
from parley.testing.fake_github import FakeGitHub
from parley.testing.fault_proxy import fault_proxy
from parley.testing.provider_proxy import Answer as Given
from parley.testing.provider_proxy import Asked, ProviderProxy, json_answer
from parley.testing.scripted_wire import ScriptedReply
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import PATIENCE, Site, only_postgres, start
from tests.stage import Client, caller, calls, executes, says, shown_text

LONG_LEASE_SECONDS = 60.0
CREATE = executes("create_issue", {"owner": "octocat", "repo": "hello-world", "title": "Bug"})


async def test_any_process_serves_the_stream_of_a_run_that_another_executes(site: Site) -> None:
    only_postgres(site)
    first = await site.serve("api")
    second = await site.serve("api")
    await site.serve("worker")
    await site.furnish(first)
    pieces = [f"word{number} " for number in range(40)]
    await site.model.script(site.model_key, ScriptedReply(text=pieces, delay=0.02))
    async with (
        caller(first.base_url, site.key, ORGANIZATION) as one,
        caller(second.base_url, site.key, ORGANIZATION) as other,
    ):
        started = await start(site, one)
        transcripts: list[list[dict[str, Any]]] = []

        async def watch(client: Client) -> None:
            transcripts.append(await client.listen(started["chat_id"], started["run_id"]))

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for client in (one, other, one, other):
                group.create_task(watch(client))
    assert {shown_text(events) for events in transcripts} == {"".join(pieces)}
    assert await site.faults() == []


async def test_a_second_process_on_one_sqlite_file_is_refused(site: Site) -> None:
    if not site.environment["PARLEY_DATABASE_URL"].startswith("sqlite"):
        pytest.skip("PostgreSQL takes any number of processes")
    await site.serve()
    with pytest.raises(AssertionError, match="Another Parley is using"):
        await site.serve()
    with pytest.raises(AssertionError, match="PARLEY_DATABASE_URL"):
        await site.serve("worker")


async def test_sigterm_hands_a_streaming_turn_over_without_failing_it(site: Site) -> None:
    only_postgres(site)
    site.environment |= {"PARLEY_LEASE_SECONDS": f"{LONG_LEASE_SECONDS}"}
    front = await site.serve("api")
    leaving = await site.serve("worker")
    await site.furnish(front)
    words = [f"{number} " for number in range(60)]
    # The first owner does not get beyond a part of it, however long the second takes to start.
    await site.model.script(site.model_key, says(*words, barrier=uuid4().hex, barrier_after=20), says(*words))
    async with caller(front.base_url, site.key, ORGANIZATION) as client:
        started = await start(site, client)
        events: list[dict[str, Any]] = []
        handed: list[float] = []
        async with asyncio.timeout(PATIENCE):
            async for event in client.stream(started["chat_id"], started["run_id"]):
                events.append(event)
                kinds = [each["type"] for each in events]
                if "response_chunk" in kinds and not handed:
                    await site.serve("worker")
                    handed.append(time.monotonic())
                    leaving.signal(signal.SIGTERM)
                if kinds.count("metadata") == 2 and len(handed) == 1:
                    handed.append(time.monotonic())
    # Handed over, not left to its lease.
    assert handed[1] - handed[0] < LONG_LEASE_SECONDS / 2
    assert events[-1]["type"] == "done"
    assert events[-1]["data"].get("error") is None
    assert shown_text(events) == "".join(words)
    await leaving.gone()
    assert await site.faults() == []


async def test_a_stopped_process_that_wakes_up_after_its_lease_writes_nothing(site: Site, github: FakeGitHub) -> None:
    only_postgres(site)
    front = await site.serve("api")
    zombie = await site.serve("worker")
    await site.furnish(front)
    async with caller(front.base_url, site.key, ORGANIZATION) as client:
        await site.connect(client, "github", github.token)
        await site.model.script(site.model_key, CREATE, says("Told."), by_step=True)
        github.hold()
        started = await start(site, client)
        async with asyncio.timeout(PATIENCE):
            await github.held.wait()
        zombie.signal(signal.SIGSTOP)
        await site.serve("worker")
        events = await client.listen(started["chat_id"], started["run_id"])
        github.let_go()
        zombie.signal(signal.SIGCONT)
        output = next(event["data"]["output"] for event in events if event["type"] == "tool_result")
        assert output["error"] == "outcome_unknown"
        assert events[-1]["type"] == "done"
        again = await client.listen(started["chat_id"], started["run_id"])
        assert [event["type"] for event in again] == [event["type"] for event in events]
    assert len(github.created) <= 1
    assert await site.faults() == []


async def test_a_run_that_kills_its_worker_three_times_fails_and_the_pool_lives(site: Site) -> None:
    only_postgres(site)
    front = await site.serve("api")
    await site.furnish(front)
    await site.model.script(site.model_key, says("Never stored."), by_step=True)
    async with caller(front.base_url, site.key, ORGANIZATION) as client:
        started = await start(site, client)
        for _ in range(3):
            victim = await site.serve("worker", crash="before:RunJournal._commit:1", PARLEY_CRASH_ARMED="1")
            await victim.gone()
        await site.serve("worker")
        events = await client.listen(started["chat_id"], started["run_id"])
        assert [event["type"] for event in events][-2:] == ["error", "done"]
        status = (await client.get(f"/assistant/chat/{started['chat_id']}/status")).body["run_status"]
        assert (status["status"], status["reason"]) == ("failed", "crash_loop")
        after = await start(site, client, chat_id=started["chat_id"])
        done = await client.listen(after["chat_id"], after["run_id"])
        assert done[-1]["data"]["response"] == "Never stored."
    assert await site.faults() == []


async def test_cancel_works_without_a_live_owner_and_is_never_undone(site: Site) -> None:
    only_postgres(site)
    front = await site.serve("api")
    worker = await site.serve("worker")
    await site.furnish(front)
    await site.model.script(site.model_key, says("Half", " done", barrier="dead-owner", barrier_after=2))
    async with caller(front.base_url, site.key, ORGANIZATION) as client:
        started = await start(site, client)
        async for event in client.stream(started["chat_id"], started["run_id"]):
            if event["type"] == "response_chunk":
                break
        worker.signal(signal.SIGKILL)
        await worker.gone()
        cancelled = await client.post(f"/assistant/chat/{started['chat_id']}/cancel")
        assert cancelled.status == 200
        await site.serve("worker")
        events = await client.listen(started["chat_id"], started["run_id"])
        assert events[-1]["type"] == "cancelled"
        status = (await client.get(f"/assistant/chat/{started['chat_id']}/status")).body
        assert status["run_status"]["status"] == "cancelled"
    assert await site.faults() == []


async def test_a_partition_from_the_database_moves_the_run_and_no_effect_doubles(
    site: Site, github: FakeGitHub
) -> None:
    only_postgres(site)
    url = urlsplit(site.environment["PARLEY_DATABASE_URL"])
    front = await site.serve("api")
    await site.furnish(front)
    async with fault_proxy(url.hostname or "127.0.0.1", url.port or 5432) as between:
        cut_off = url._replace(netloc=f"{url.username}@127.0.0.1:{between.port}").geturl()
        await site.serve("worker", PARLEY_DATABASE_URL=cut_off)
        async with caller(front.base_url, site.key, ORGANIZATION) as client:
            await site.connect(client, "github", github.token)
            await site.model.script(site.model_key, CREATE, says("Told."), by_step=True)
            github.hold()
            started = await start(site, client)
            async with asyncio.timeout(PATIENCE):
                await github.held.wait()
            between.freeze()
            await site.serve("worker")
            github.let_go()
            events = await client.listen(started["chat_id"], started["run_id"])
            between.heal()
        assert events[-1]["type"] == "done"
        assert len(github.created) <= 1
    assert await site.faults() == []


async def test_the_cap_of_running_turns_holds_over_four_processes_and_is_fair(site: Site) -> None:
    only_postgres(site)
    site.environment["PARLEY_TURNS_PER_ORGANIZATION"] = "3"
    front = await site.serve("api")
    await site.furnish(front)
    for _ in range(4):
        await site.serve("worker")
    await site.model.script(site.model_key, ScriptedReply(text=["a", "b", "c"], delay=0.15), by_step=True)
    store = open_store(read_settings(site.environment).store_url).across
    most = 0
    try:
        async with caller(front.base_url, site.key, ORGANIZATION) as client:
            started = [await start(site, client) for _ in range(15)]
            counting = select(func.count()).select_from(runs).where(runs.c.status == "running")
            waiting = select(func.count()).select_from(runs).where(runs.c.status.in_(("queued", "running")))
            async with asyncio.timeout(2 * PATIENCE):
                while await store.read(lambda tx: tx.execute(waiting).scalar_one()):
                    most = max(most, await store.read(lambda tx: tx.execute(counting).scalar_one()))
            for each in started:
                events = await client.listen(each["chat_id"], each["run_id"])
                assert events[-1]["type"] == "done"
    finally:
        await store.close()
    assert most == 3
    assert await site.faults() == []


async def test_after_a_restart_a_pending_question_is_whole_and_can_be_answered(site: Site) -> None:
    first = await site.serve()
    await site.furnish(first)
    question = calls("ask_user_yes_no", {"message": "Go on?"})
    await site.model.script(site.model_key, question, says("Went on."), by_step=True)
    async with caller(first.base_url, site.key, ORGANIZATION) as client:
        started = await start(site, client)
        async for event in client.stream(started["chat_id"], started["run_id"]):
            if event["type"] == "user_input_request":
                break
    first.signal(signal.SIGKILL)
    await first.gone()
    second = await site.serve()
    async with caller(second.base_url, site.key, ORGANIZATION) as client:
        detail = (await client.get(f"/assistant/chat/{started['chat_id']}")).body
        pending = detail["pending_user_input_request"]
        assert pending["message"] == "Go on?"
        body = {
            "request_id": pending["request_id"],
            "response": {"kind": "yes_no", "answer": True},
            "llm": site.llm,
        }
        resumed = await client.post(f"/assistant/chat/{started['chat_id']}/resume", body)
        assert resumed.status == 200
        events = await client.listen(started["chat_id"], resumed.body["run_id"])
        assert events[-1]["data"]["response"] == "Went on."
    assert await site.faults() == []


async def test_after_a_write_nobody_knows_of_the_model_hears_how_to_find_out_and_a_repeat_asks_first(
    site: Site, github: FakeGitHub
) -> None:
    doomed = await site.serve(crash="after:RunJournal._commit:2")
    await site.furnish(doomed)
    await site.model.script(site.model_key, CREATE, CREATE, says("Told."), by_step=True)
    async with caller(doomed.base_url, site.key, ORGANIZATION) as client:
        await site.connect(client, "github", github.token)
        started = await start(site, client)
        await doomed.gone()
    rescuer = await site.serve()
    async with caller(rescuer.base_url, site.key, ORGANIZATION) as client:
        events: list[dict[str, Any]] = []
        async for event in client.stream(started["chat_id"], started["run_id"]):
            events.append(event)
            if event["type"] in ("user_input_request", "done"):
                break
        outputs = [event["data"]["output"] for event in events if event["type"] == "tool_result"]
        assert [output["error"] for output in outputs] == ["outcome_unknown"]
        assert "Use list_issues to find out." in outputs[0]["message"]
        assert "Tell the user." in outputs[0]["message"]
        assert github.created == []
        # The model asks for exactly the same again: now a person decides.
        question = events[-1]["data"]
        assert events[-1]["type"] == "user_input_request"
        assert "may already have happened" in str(question)
        body = {
            "request_id": question["request_id"],
            "response": {"kind": "yes_no", "answer": True},
            "llm": site.llm,
        }
        resumed = await client.post(f"/assistant/chat/{started['chat_id']}/resume", body)
        assert resumed.status == 200, resumed.body
        await client.listen(started["chat_id"], resumed.body["run_id"])
    assert len(github.created) == 1
    assert await site.faults() == []


@pytest.mark.parametrize("crash", ["after:RunJournal._commit:2", "before:RunJournal._commit:3"])
async def test_an_action_that_takes_a_key_is_sent_again_with_the_same_one(
    site: Site, proxy: ProviderProxy, crash: str
) -> None:
    keys: list[str] = []

    async def incidents(asked: Asked) -> Given:
        assert isinstance(asked.json, dict)
        keys.append(str(asked.json["idempotency_key"]))
        return json_answer({"incident": {"id": "1"}})

    proxy.answer("api.incident.io", incidents)
    opened = {"severity_id": "1", "visibility": "public", "name": "Fire"}
    open_incident = executes("incidents_create", opened, integration="incidentio")
    await site.model.script(site.model_key, open_incident, says("Opened."), by_step=True)
    doomed = await site.serve(crash=crash)
    await site.furnish(doomed)
    async with caller(doomed.base_url, site.key, ORGANIZATION) as client:
        credential = {"integration_name": "incidentio", "auth_type": "api_key", "auth_data": {"api_key": "inc_key"}}
        assert (await client.post("/credentials", credential)).status == 201
        started = await start(site, client)
        await doomed.gone()
    rescuer = await site.serve()
    async with caller(rescuer.base_url, site.key, ORGANIZATION) as client:
        events = await client.listen(started["chat_id"], started["run_id"])
    (output,) = [event["data"]["output"] for event in events if event["type"] == "tool_result"]
    assert output["status"] == "ok"
    # Twice where the first process had sent it: a busy one may have lost its lease before.
    assert len(keys) <= 2
    assert len(set(keys)) == 1
    assert await site.faults() == []


async def test_sigterm_ends_streams_so_that_they_go_on_elsewhere(site: Site) -> None:
    only_postgres(site)
    leaving, staying = await site.serve("api"), await site.serve("api")
    await site.serve("worker")
    await site.furnish(staying)
    pieces = [f"{number} " for number in range(40)]
    held = uuid4().hex
    await site.model.script(site.model_key, ScriptedReply(text=pieces, barrier=held, barrier_after=10))
    events: list[dict[str, Any]] = []
    async with (
        caller(leaving.base_url, site.key, ORGANIZATION) as one,
        caller(staying.base_url, site.key, ORGANIZATION) as other,
    ):
        started = await start(site, one)
        # It ends by itself, whole: an end that is cut off raises.
        async for event in one.stream(started["chat_id"], started["run_id"]):
            if not events:
                leaving.signal(signal.SIGTERM)
            events.append(event)
        assert events[-1]["type"] != "done"
        await leaving.gone()
        await site.model.release(held)
        events += await other.listen(started["chat_id"], started["run_id"], events[-1]["_id"])
    assert events[-1]["type"] == "done"
    assert shown_text(events) == "".join(pieces)
    assert await site.faults() == []


async def test_a_write_nobody_knows_of_stays_one_when_its_credential_is_gone(site: Site, github: FakeGitHub) -> None:
    doomed = await site.serve(crash="after:RunJournal._commit:2")
    await site.furnish(doomed)
    await site.model.script(site.model_key, CREATE, says("Told."), by_step=True)
    async with caller(doomed.base_url, site.key, ORGANIZATION) as client:
        await site.connect(client, "github", github.token)
        started = await start(site, client)
        await doomed.gone()
    store = open_store(read_settings(site.environment).store_url).across
    gone = delete(credentials).where(credentials.c.integration_name == "github")
    await store.write(lambda tx: tx.execute(gone))
    await store.close()
    rescuer = await site.serve()
    async with caller(rescuer.base_url, site.key, ORGANIZATION) as client:
        events = await client.listen(started["chat_id"], started["run_id"])
    (output,) = [event["data"]["output"] for event in events if event["type"] == "tool_result"]
    assert output["error"] == "outcome_unknown"
    assert "Check in the service" in output["message"]
    assert await site.faults() == []


async def test_a_small_organization_does_not_wait_behind_a_large_ones_backlog(site: Site) -> None:
    site.environment |= {"PARLEY_TURNS_PER_PROCESS": "2", "PARLEY_LEASE_SECONDS": "15"}
    server = await site.serve()
    await site.furnish(server)
    held = uuid4().hex
    await site.model.script(site.model_key, says("a", "b", barrier=held), by_step=True)
    async with caller(server.base_url, site.key, ORGANIZATION) as large:
        small_id = (await large.post("/organizations", {"name": "Small"})).body["organization"]["id"]
        async with caller(server.base_url, site.key, small_id) as small:
            credential = {
                "integration_name": "openai",
                "auth_data": {"api_key": site.model_key, "base_url": site.model.openai_url},
            }
            assert (await small.post("/credentials", credential)).status == 201
            backlog = [await start(site, large) for _ in range(12)]
            own = await start(site, small)
            await site.model.release(held)
            events = await small.listen(own["chat_id"], own["run_id"])
            assert events[-1]["type"] == "done"
            for each in backlog:
                assert (await large.listen(each["chat_id"], each["run_id"]))[-1]["type"] == "done"
    assert await site.faults() == []
    store = open_store(read_settings(site.environment).store_url).across
    begun = list(await store.read(lambda tx: tx.execute(select(runs.c.id).order_by(runs.c.started_at)).scalars()))
    await store.close()
    # Two held the two places, and one more was the large one's turn at most.
    assert begun.index(own["run_id"]) <= 3
