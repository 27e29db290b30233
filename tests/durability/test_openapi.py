"""A process dies while an API is imported, refreshed or asked: all or nothing, and no write twice (durability §4.5)."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from parley.testing.server import START_SECONDS
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import Site
from tests.stage import Client, Json, caller, executes, says


@dataclass(slots=True)
class Slow:
    """An API that says nothing to its first request."""

    origin: str = ""
    asked: list[str] = field(default_factory=list[str])
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.method)
        if len(self.asked) == 1:
            self.arrived.set()
            await asyncio.sleep(START_SECONDS)
        return web.json_response({"done": request.method})


@asynccontextmanager
async def slow_api() -> AsyncGenerator[Slow]:
    api = Slow()
    app = web.Application()
    app.router.add_route("*", "/thing", api.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        api.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield api
    finally:
        await runner.cleanup()


def document(origin: str) -> Json:
    methods = {method: {"operationId": f"{method}_thing"} for method in ("get", "post", "put")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Thing", "version": "1"},
        "servers": [{"url": origin}],
        "paths": {"/thing": methods},
    }


async def bring(client: Client, spec: Json, **headers: str) -> Json:
    seen = await client.post("/integrations/openapi", {"spec": spec})
    made = await client.post("/integrations/openapi", {"spec": spec, "digest": seen.body["digest"]}, **headers)
    assert made.status == 201, made.body
    return made.body


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_an_import_cut_off_by_a_kill_is_there_once_after_the_retry(site: Site, moment: str) -> None:
    spec = document("https://thing.example")
    doomed = await site.serve(crash=f"{moment}:ImportedApis.add:1", PARLEY_CRASH_ARMED="1")
    async with caller(doomed.base_url, site.key, ORGANIZATION) as client:
        with pytest.raises(aiohttp.ClientError):
            await bring(client, spec, Idempotency_Key="mine")
    await doomed.gone()
    second = await site.serve()
    async with caller(second.base_url, site.key, ORGANIZATION) as client:
        stored = (await client.get("/integrations/openapi")).body["total_count"]
        assert stored == (1 if moment == "after" else 0)
        made = await bring(client, spec, Idempotency_Key="mine")
        assert [action["reviewed"] for action in made["actions"]] == [True] * 3
        assert (await client.get("/integrations/openapi")).body["total_count"] == 1
    assert await site.faults() == []


@pytest.mark.parametrize(("action", "asked", "status"), [("get", 2, "ok"), ("put", 2, "ok"), ("post", 1, "error")])
async def test_a_request_cut_off_by_a_kill_is_repeated_only_where_http_makes_that_safe(
    site: Site, action: str, asked: int, status: str
) -> None:
    async with slow_api() as api:
        first = await site.serve()
        await site.furnish(first)
        async with caller(first.base_url, site.key, ORGANIZATION) as client:
            await bring(client, document(api.origin))
            await site.model.script(
                site.model_key, executes(f"{action}_thing", integration="api_thing"), says("Told."), by_step=True
            )
            started = (await client.post("/assistant/chat", {"message": "Go", "llm": site.llm})).body
            async with asyncio.timeout(START_SECONDS):
                await api.arrived.wait()
            first.signal(signal.SIGKILL)
            await first.gone()
        second = await site.serve()
        async with caller(second.base_url, site.key, ORGANIZATION) as client:
            events = await client.listen(started["chat_id"], started["run_id"])
    output = next(event["data"]["output"] for event in events if event["type"] == "tool_result")
    assert output["status"] == status, output
    assert (output.get("error") == "outcome_unknown") is (action == "post")
    assert len(api.asked) == asked
    assert await site.faults() == []
