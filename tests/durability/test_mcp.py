"""A process dies while an MCP server works: a read runs again, all else is told as unknown (durability §4.5)."""

import signal

import pytest

from parley.testing.mcp_server import mcp_server
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import Site
from tests.stage import caller, executes, says


@pytest.mark.parametrize(("effect", "calls", "status"), [("read", 2, "ok"), ("write", 1, "error")])
async def test_a_call_cut_off_by_a_kill_is_repeated_only_where_it_reads(
    site: Site, effect: str, calls: int, status: str
) -> None:
    async with mcp_server() as server:
        first = await site.serve()
        await site.furnish(first)
        async with caller(first.base_url, site.key, ORGANIZATION) as client:
            made = await client.post("/credentials/mcp-server", {"server_url": server.url, "display_name": "Box"})
            assert made.status == 201, made.body
            path = f"/credentials/{made.body['credential_id']}/mcp-tools"
            tool = (await client.get(path)).body["tools"][0]
            review = {"name": tool["name"], "fingerprint": tool["fingerprint"], "effect": effect}
            assert (await client.call("PUT", path, {"reviews": [review]})).status == 200
            server.fault = "hangs_in_call"
            await site.model.script(
                site.model_key, executes(tool["name"], integration="mcp_box"), says("Told."), by_step=True
            )
            started = (await client.post("/assistant/chat", {"message": "Go", "llm": site.llm})).body
            await server.arrived.wait()
            first.signal(signal.SIGKILL)
            await first.gone()
        server.fault = None
        second = await site.serve()
        async with caller(second.base_url, site.key, ORGANIZATION) as client:
            events = await client.listen(started["chat_id"], started["run_id"])
    output = next(event["data"]["output"] for event in events if event["type"] == "tool_result")
    assert output["status"] == status
    assert (output.get("error") == "outcome_unknown") is (effect == "write")
    assert len(server.calls) == calls
    assert await site.faults() == []
