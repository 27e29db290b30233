"""Managed knowledge passes the gate of the plan (contract §9.3, §12)."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from tests.conftest import fresh_database
from tests.contract.conftest import ORGANIZATION, furnish, open_house
from tests.knowledge.shelf import make_base, read, upload
from tests.stage import Stage, caller, calls, says

PLANS = """
default_plan = "small"
[[plans]]
slug = "small"
name = "Small"
monthly_credits = 3
quotas = { knowledge_bases = 1, documents = 2 }
[[models]]
match = ""
input = 1
cached = 1
output = 1
[knowledge]
ingest_per_1000_tokens = 0.5
retrieval = 1
"""


@pytest.fixture(params=["sqlite", "postgresql"])
async def small(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    postgres_template: str | None,
    proxy: ProviderProxy,
    model: ScriptedModel,
) -> AsyncIterator[Stage]:
    """A Parley whose plan has room for one base, two documents and three searches."""
    plans = tmp_path / "plans.toml"
    plans.write_text(PLANS)
    async with fresh_database(str(request.param), tmp_path, postgres_template) as url, AsyncExitStack() as stack:
        house = await open_house(stack, url, tmp_path, proxy, {"PARLEY_PLANS_FILE": str(plans)})
        client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
        yield await furnish(house, client, model)


async def test_the_plan_limits_bases_documents_and_searches(small: Stage) -> None:
    client = small.client
    base = await make_base(client)
    second = await client.post("/knowledge-bases", {"name": "One more"})
    assert second.status == 403
    assert (second.body["layer"], second.body["key"], second.body["limit"]) == ("quota", "knowledge_bases", 1)
    for name in ("a.txt", "b.txt"):
        assert (await read(client, base, name, f"Door {name} stays shut.".encode()))["status"] == "completed"
    third = await upload(client, base, "c.txt", b"Door c stays shut.")
    assert (third.status, third.body["layer"], third.body["key"]) == (403, "quota", "documents")
    assert len((await client.get(f"/knowledge-bases/{base}/documents")).body) == 2
    paths = (f"/knowledge-bases/{base}/search", f"/knowledge-bases/{base}/hybrid-search")
    statuses = [(await client.post(path, {"query": "door"})).status for path in paths]
    assert statuses == [200, 200]
    refused = await client.post(paths[0], {"query": "door"})
    assert (refused.status, refused.body["layer"]) == (402, "credit")
    assert set(refused.body) == {"code", "layer", "key", "current", "limit", "reason"}


async def test_a_search_that_cannot_be_paid_is_told_to_the_model(small: Stage) -> None:
    base = await make_base(small.client)
    await read(small.client, base, "a.txt", b"The door stays shut.")
    turn = await small.turn(
        calls("search_knowledge", {"query": "door"}),
        calls("search_knowledge", {"query": f"door {uuid4().hex}"}, id="call_2"),
        says("Done."),
    )
    statuses = [result["output"]["status"] for result in turn.every("tool_result")]
    assert statuses[0] == "ok"
    assert statuses[1] == "credit_limit"
