"""SIGKILL around every write of a turn that goes to the fall-back model: one answer, every call metered."""

import pytest
from sqlalchemy import select

from parley.base.settings import read_settings
from parley.storage import open_store
from parley.storage.tables.billing import model_usage
from parley.testing.scripted_wire import ScriptedReply
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import Server, Site
from tests.stage import Json, caller, new_model_key, says, shown_text

SECOND = {"integration_name": "anthropic", "provider_id": "anthropic", "model_id": "claude-sonnet-4-5"}
OVERLOADED = ScriptedReply(status=529, headers={"retry-after": "0"}, raw=b'{"error":{"code":"overloaded_error"}}')
# The note of the take-over is the first write of the run, its ending the second.
KILLS = [f"{moment}:RunJournal._commit:{number}" for moment in ("before", "after") for number in (1, 2)]


@pytest.mark.parametrize("crash", KILLS)
async def test_a_killed_take_over_is_made_again_and_answers_once(site: Site, crash: str) -> None:
    second_key = new_model_key()
    await site.model.script(site.model_key, OVERLOADED, by_step=True)
    slow = says("From ", "the second.", delay=0.06)
    await site.model.script(second_key, slow, by_step=True)
    doomed = await site.serve(crash=crash)
    await site.furnish(doomed)
    started = await begin(site, doomed, second_key)
    await doomed.gone()
    rescuer = await site.serve()
    async with caller(rescuer.base_url, site.key, ORGANIZATION) as client:
        events = await client.listen(started["chat_id"], started["run_id"])
        messages = (await client.get(f"/assistant/chat/{started['chat_id']}")).body["messages"]
    kinds = [event["type"] for event in events]
    assert kinds[-1] == "done"
    assert kinds.count("done") == 1
    assert "guidance" in kinds
    assert shown_text(events) == "From the second."
    assert [message["content"] for message in messages] == ["Do it", "From the second."]
    assert await site.faults() == []
    calls = await metered(site, started["run_id"])
    # What the killed process used and had not stored is the provider's to know; all that was stored is there once.
    assert len(calls) == len(set(calls))
    assert {model for model, *_ in calls} == {"gpt-4o", "claude-sonnet-4-5"}


async def begin(site: Site, server: Server, second_key: str) -> Json:
    async with caller(server.base_url, site.key, ORGANIZATION) as client:
        body = {
            "integration_name": "anthropic",
            "auth_data": {"api_key": second_key, "base_url": site.model.anthropic_url},
        }
        assert (await client.post("/credentials", body)).status == 201
        chosen = await client.call("PUT", "/organizations/settings/fallback-llm", {"fallback_llm": SECOND})
        assert chosen.status == 200, chosen.body
        answer = await client.post("/assistant/chat", {"message": "Do it", "llm": site.llm})
        assert answer.status == 200, answer.body
        return answer.body


async def metered(site: Site, run_id: str) -> list[tuple[str, int, int]]:
    """Every model call of a run: model, number, attempt."""
    store = open_store(read_settings(site.environment).store_url).across
    query = select(model_usage.c.model_id, model_usage.c.call, model_usage.c.attempt)
    try:
        rows = await store.read(lambda tx: tx.execute(query.where(model_usage.c.run_id == run_id)).all())
    finally:
        await store.close()
    return [(row[0], row[1], row[2]) for row in rows]
