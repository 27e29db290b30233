"""SIGKILL before and after every commit of a turn: nothing lost, nothing twice (durability §6.1, trust §3.1).

An outside witness, the fake GitHub, counts effects. ``PARLEY_CRASH_SEEDS`` asks for more rounds.
"""

import os
from typing import Any

import aiohttp
import pytest

from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedReply
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import Server, Site
from tests.stage import Client, caller, executes, says, shown_text

ROUNDS = int(os.environ.get("PARLEY_CRASH_SEEDS", "1"))
CREATE = {"owner": "octocat", "repo": "hello-world", "title": "Bug"}
CLOSE = {"owner": "octocat", "repo": "hello-world", "issue_number": 7, "state": "closed"}


def slowly(reply: ScriptedReply, *pieces: str) -> ScriptedReply:
    """The reply with text that takes longer than a flush of the journal."""
    reply.text, reply.delay = list(pieces), 0.1
    return reply


ACTIONS: dict[str, ScriptedReply] = {
    "read": slowly(executes("list_repositories"), "Look", "ing."),
    "idempotent": slowly(executes("update_issue", CLOSE), "Clos", "ing."),
    "write": slowly(executes("create_issue", CREATE), "Creat", "ing."),
}
# Every transaction of a turn, by where its work is written.
EVERY = ["Chats.commit:1", "Worker._claim:1", "Flusher._store_rows:1", *[f"RunJournal._commit:{n}" for n in (1, 2, 3)]]
POINTS = {
    "read": EVERY,
    "idempotent": [*EVERY, "RunJournal._commit:4"],
    "write": [*EVERY, "RunJournal._commit:4"],
}
KILLS = [
    (effect, f"{moment}:{point}")
    for effect, points in POINTS.items()
    for point in points
    for moment in ("before", "after")
]


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize(("effect", "crash"), KILLS)
async def test_a_killed_server_loses_no_turn_and_repeats_no_effect(
    site: Site, github: FakeGitHub, effect: str, crash: str, number: int
) -> None:
    del number
    await site.model.script(site.model_key, ACTIONS[effect], says("All done."), by_step=True)
    doomed = await site.serve(crash=crash)
    await site.furnish(doomed)
    started = await begin(site, doomed, github)
    await doomed.gone()
    rescuer = await site.serve()
    async with caller(rescuer.base_url, site.key, ORGANIZATION) as client:
        if started is None:
            # The answer never came: the same key finds the turn, or starts it.
            started = (await client.post("/assistant/chat", request(site), Idempotency_Key="kill")).body
        events = await client.listen(started["chat_id"], started["run_id"])
        detail = (await client.get(f"/assistant/chat/{started['chat_id']}")).body
    check_ending(events, detail)
    check_effects(github, effect, events)
    assert await site.faults() == []


def check_ending(events: list[dict[str, Any]], detail: dict[str, Any]) -> None:
    kinds = [event["type"] for event in events]
    assert kinds[-1] == "done"
    assert kinds.count("done") == 1
    assert events[-1]["data"].get("error") is None
    assert detail["running_id"] is None
    assert [message["role"] for message in detail["messages"]] == ["human", "ai"]
    assert shown_text(events) in ("Looking.All done.", "Closing.All done.", "Creating.All done."), events


def check_effects(github: FakeGitHub, effect: str, events: list[dict[str, Any]]) -> None:
    """A write happened once, or at most once and everybody is told that nobody knows."""
    results = [event["data"]["output"] for event in events if event["type"] == "tool_result"]
    assert len(results) == 1
    if effect != "write":
        assert results[0]["status"] == "ok", results[0]
        return
    if results[0]["status"] == "ok":
        assert len(github.created) == 1
    else:
        assert results[0]["error"] == "outcome_unknown"
        assert len(github.created) <= 1


def request(site: Site) -> dict[str, Any]:
    return {"message": "Do it", "llm": site.llm}


async def begin(site: Site, server: Server, github: FakeGitHub) -> dict[str, Any] | None:
    """Start the turn; None when the server died before it answered."""
    async with caller(server.base_url, site.key, ORGANIZATION) as client:
        await site.connect(client, "github", github.token)
        return await _post(client, site)


async def _post(client: Client, site: Site) -> dict[str, Any] | None:
    try:
        answer = await client.post("/assistant/chat", request(site), Idempotency_Key="kill")
    except aiohttp.ClientError:
        return None
    assert answer.status == 200, answer.body
    return answer.body
