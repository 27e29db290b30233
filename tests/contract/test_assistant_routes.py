"""The Assistant's endpoints, every status of their tables (contract §2)."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from parley.storage.tables.chats import chats as chat_table
from parley.testing.scripted_wire import ScriptedReply
from tests.stage import Stage, calls, says

MISSING = "f2b1c0de-1111-4222-8333-444455556666"
ANSWER = {
    "request_id": MISSING,
    "response": {"kind": "yes_no", "answer": True},
    "llm": {"integration_name": "openai", "provider_id": "openai", "model_id": "gpt-4o"},
}
BODIES: dict[tuple[str, str], Any] = {
    ("PATCH", "/assistant/chat/{id}"): {"title": "Taken over"},
    ("POST", "/assistant/chat/{id}/resume"): ANSWER,
}
CHAT_PATHS = [
    *BODIES,
    ("GET", "/assistant/chat/{id}/tool-results/2b1c0de0-1111-4222-8333-444455556666"),
    ("GET", "/assistant/chat/{id}"),
    ("GET", "/assistant/chat/{id}/status"),
    ("POST", "/assistant/chat/{id}/cancel"),
    ("DELETE", "/assistant/chat/{id}"),
    ("GET", "/assistant/chat/{id}/listen/2b1c0de0-1111-4222-8333-444455556666"),
]


@pytest.mark.parametrize("message", [[], {}, ["hi"], {"text": "hi"}, 3, True, None])
async def test_a_message_that_is_not_text_is_400(stage: Stage, message: Any) -> None:
    refused = await stage.client.post("/assistant/chat", {"message": message, "llm": stage.llm})
    assert refused.status == 400
    assert isinstance(refused.detail, str)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"message": "hi", "llm": {"integration_name": "openai"}}, 422),
        ({"message": "hi", "llm": "gpt-4o"}, 422),
        ({"message": "hi", "llm": {"integration_name": "openai", "provider_id": "openai", "model_id": ""}}, 422),
        ({"message": "   "}, 400),
        ({"message": "x" * 100_001}, 400),
        ({"message": "hi", "chat_id": "not-a-uuid"}, 404),
        ({"message": "hi", "chat_id": MISSING}, 404),
        ({"message": "hi", "llm": {"integration_name": "nobody", "provider_id": "x", "model_id": "y"}}, 400),
        ({"message": "hi", "llm": {"integration_name": "anthropic", "provider_id": "anthropic", "model_id": "x"}}, 400),
        (
            {
                "message": "hi",
                "llm": {
                    "integration_name": "openai",
                    "provider_id": "openai",
                    "model_id": "gpt-4o",
                    "credential_id": MISSING,
                },
            },
            400,
        ),
    ],
)
async def test_a_turn_that_cannot_begin_writes_nothing(stage: Stage, body: dict[str, Any], status: int) -> None:
    before = await stage.credits()
    refused = await stage.client.post("/assistant/chat", body)
    assert refused.status == status, refused.body
    assert (await stage.client.get("/assistant/chats")).body == {"items": [], "next_cursor": None}
    assert await stage.credits() == before


async def test_a_turn_costs_one_credit(stage: Stage) -> None:
    before = await stage.credits()
    await stage.turn(says("One."))
    assert await stage.credits() == before + 1_000_000


async def test_a_second_turn_while_one_runs_is_409_and_costs_nothing(stage: Stage) -> None:
    gate = uuid4().hex
    await stage.script(says("slow", barrier=gate))
    started = await stage.start()
    before = await stage.credits()
    refused = await stage.client.post(
        "/assistant/chat", {"message": "more", "chat_id": started["chat_id"], "llm": stage.llm}
    )
    assert refused.status == 409
    assert await stage.credits() == before
    await stage.model.release(gate)
    await stage.follow(started)


async def test_of_many_turns_at_once_on_one_chat_one_is_admitted(stage: Stage) -> None:
    first = await stage.turn(says("Hello."))
    before = await stage.credits()
    # Held until all have been answered: a turn that ended would make room for the next.
    await stage.script(says("Only one.", barrier=f"only one {first.chat_id}"))
    statuses: list[int] = []

    async def send() -> None:
        body = {"message": "now", "chat_id": first.chat_id, "llm": stage.llm}
        statuses.append((await stage.client.post("/assistant/chat", body)).status)

    async with asyncio.TaskGroup() as group:
        for _ in range(30):
            group.create_task(send())
    assert sorted(statuses) == [200] + [409] * 29
    assert await stage.credits() == before + 1_000_000
    await stage.model.release(f"only one {first.chat_id}")
    await stage.settled(first.chat_id)


@pytest.mark.parametrize(("method", "path"), CHAT_PATHS)
async def test_another_organizations_chat_is_byte_equal_to_a_missing_one(stage: Stage, method: str, path: str) -> None:
    turn = await stage.turn(says("Private."))
    made = await stage.client.post("/organizations", {"name": f"Other {uuid4().hex[:6]}"})
    stage.client.organization_id = made.body["organization"]["id"]
    foreign = await stage.client.call(method, path.format(id=turn.chat_id), BODIES.get((method, path)))
    missing = await stage.client.call(method, path.format(id=MISSING), BODIES.get((method, path)))
    malformed = await stage.client.call(method, path.format(id="x"), BODIES.get((method, path)))
    assert (foreign.status, foreign.body) == (404, missing.body)
    assert (malformed.status, malformed.body) == (404, missing.body)


@pytest.mark.parametrize(("method", "path"), CHAT_PATHS)
async def test_a_composer_chat_is_404_on_every_assistant_route(stage: Stage, method: str, path: str) -> None:
    turn = await stage.turn(says("Mine."))
    change = chat_table.update().where(chat_table.c.id == turn.chat_id).values(kind="composer")
    await stage.parley.store.write(lambda tx: tx.execute(change))
    assert (await stage.client.call(method, path.format(id=turn.chat_id), BODIES.get((method, path)))).status == 404
    resumed = await stage.client.post("/assistant/chat", {"message": "x", "chat_id": turn.chat_id, "llm": stage.llm})
    assert resumed.status == 404


async def test_the_list_shows_newest_first_in_pages(stage: Stage) -> None:
    ids = [(await stage.turn(says("."), message=f"Number {number}")).chat_id for number in range(5)]
    first = (await stage.client.get("/assistant/chats?limit=2")).body
    assert [item["id"] for item in first["items"]] == ids[:2:-1]
    second = (await stage.client.get(f"/assistant/chats?limit=2&cursor={first['next_cursor']}")).body
    third = (await stage.client.get(f"/assistant/chats?limit=2&cursor={second['next_cursor']}")).body
    assert [item["id"] for item in second["items"] + third["items"]] == ids[2::-1]
    assert third["next_cursor"] is None
    assert set(first["items"][0]) == {"id", "title", "created_at", "updated_at", "is_running", "awaiting_input"}
    found = (await stage.client.get("/assistant/chats?q=NUMBER 3")).body
    assert [item["id"] for item in found["items"]] == [ids[3]]


@pytest.mark.parametrize(
    ("query", "status"), [("limit=0", 422), ("limit=101", 422), ("limit=x", 422), ("cursor=x", 400)]
)
async def test_a_bad_page_is_refused(stage: Stage, query: str, status: int) -> None:
    assert (await stage.client.get(f"/assistant/chats?{query}")).status == status


async def test_the_title_is_the_first_fifty_characters_and_can_be_changed(stage: Stage) -> None:
    turn = await stage.turn(says("."), message="T" * 80)
    assert (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body["title"] == "T" * 50
    renamed = await stage.client.call("PATCH", f"/assistant/chat/{turn.chat_id}", {"title": " Better "})
    assert renamed.body["title"] == "Better"
    for bad in ("", "x" * 201):
        assert (await stage.client.call("PATCH", f"/assistant/chat/{turn.chat_id}", {"title": bad})).status == 400


@pytest.mark.parametrize("permanent", [False, True])
async def test_a_deleted_chat_is_gone_everywhere(stage: Stage, *, permanent: bool) -> None:
    turn = await stage.turn(says("Bye."))
    path = f"/assistant/chat/{turn.chat_id}"
    deleted = await stage.client.call("DELETE", f"{path}?permanent={str(permanent).lower()}")
    assert deleted.body == {"status": "deleted", "chat_id": turn.chat_id, "permanent": permanent}
    for after in (path, f"{path}/status", f"{path}/listen/{turn.run_id}"):
        assert (await stage.client.get(after)).status == 404
    assert (await stage.client.get("/assistant/chats")).body["items"] == []


async def test_deleting_a_running_chat_stops_its_turn_first(stage: Stage) -> None:
    await stage.script(says("never", barrier=uuid4().hex))
    started = await stage.start()
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:

        async def watch() -> None:
            async for event in stage.client.stream(started["chat_id"], started["run_id"]):
                events.append(event)
                if event["type"] == "metadata":
                    group.create_task(stage.client.call("DELETE", f"/assistant/chat/{started['chat_id']}"))

        group.create_task(watch())
    assert events[-1]["type"] == "cancelled"
    assert events[-1]["data"] == {"reason": "chat_deleted"}


async def test_status_tells_running_waiting_and_idle(stage: Stage) -> None:
    await stage.script(calls("ask_user_yes_no", {"message": "?"}))
    started = await stage.start()
    path = f"/assistant/chat/{started['chat_id']}/status"
    status = await stage.settled(started["chat_id"])
    assert status["awaiting_input"] is True
    assert status["run_status"]["status"] == "interrupted"
    assert status["running_id"] == started["run_id"]
    await stage.client.post(f"/assistant/chat/{started['chat_id']}/cancel")
    idle = (await stage.client.get(path)).body
    assert (idle["is_running"], idle["awaiting_input"], idle["running_id"]) == (False, False, None)
    assert idle["run_status"]["status"] == "cancelled"


async def test_a_retry_with_the_same_idempotency_key_gets_the_first_answer(stage: Stage) -> None:
    await stage.script(says("Once."))
    body = {"message": "Once please", "llm": stage.llm}
    before = await stage.credits()
    answers = [await stage.client.post("/assistant/chat", body, Idempotency_Key="k1") for _ in range(3)]
    assert {answer.body["run_id"] for answer in answers} == {answers[0].body["run_id"]}
    assert await stage.credits() == before + 1_000_000
    other = await stage.client.post("/assistant/chat", {**body, "message": "Other"}, Idempotency_Key="k1")
    assert other.status == 409
    await stage.settled(answers[0].body["chat_id"])


async def test_twenty_retries_at_once_start_one_turn(stage: Stage) -> None:
    await stage.script(says("Once."))
    before = await stage.credits()
    runs: set[str] = set()

    async def send() -> None:
        body = {"message": "Once please", "llm": stage.llm}
        answer = await stage.client.post("/assistant/chat", body, Idempotency_Key="k2")
        assert answer.status == 200, answer.body
        runs.add(answer.body["run_id"])

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(send())
    assert len(runs) == 1
    assert await stage.credits() == before + 1_000_000
    items = (await stage.client.get("/assistant/chats")).body["items"]
    await stage.settled(items[0]["id"])
    assert len(items) == 1


@pytest.mark.parametrize(
    "path", ["/assistant/chats/", "/v1/assistant/chats", "/v1/model", "/v1/chat", "/assistant/nope"]
)
async def test_trailing_slashes_and_versions_are_404(stage: Stage, path: str) -> None:
    assert (await stage.client.get(path)).status == 404


async def test_keys_are_accepted_in_both_headers_and_in_no_other(stage: Stage) -> None:
    client = stage.client
    organization = {"X-Organization-ID": client.organization_id}
    for headers, status in [
        ({"X-API-KEY": client.key, **organization}, 200),
        ({"Authorization": f"Bearer {client.key}", **organization}, 200),
        ({"X-Authorization": f"Bearer {client.key}", **organization}, 401),
        (organization, 401),
        ({"Authorization": f"Bearer {client.key}"}, 400),
        ({"Authorization": f"Bearer {client.key}", "X-Organization-ID": MISSING}, 403),
        ({"Authorization": "Bearer mx_live_wrong", **organization}, 401),
    ]:
        async with client.session.get(f"{client.base_url}/assistant/chats", headers=headers) as response:
            assert response.status == status, headers


async def test_a_failing_model_ends_with_error_then_done_and_the_chat_goes_on(stage: Stage) -> None:
    turn = await stage.turn(ScriptedReply(status=400, raw=b'{"error":{"message":"secret internals"}}'))
    assert turn.types[-2:] == ["error", "done"]
    assert turn.data("done")["error"] is True
    assert "secret internals" not in str(turn.events)
    status = (await stage.client.get(f"/assistant/chat/{turn.chat_id}/status")).body
    assert status["run_status"]["status"] == "failed"
    after = await stage.turn(says("Recovered."), chat_id=turn.chat_id)
    assert after.data("done")["response"] == "Recovered."
