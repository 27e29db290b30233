"""Published MCP servers, run as they come from the registries (issue 9, sentence 1)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.testing.ports import free_port, listens
from tests.mcp.conftest import INSTALLED, NPM
from tests.stage import Json, Stage, Turn, executes, says


async def connect(stage: Stage, url: str) -> Json:
    made = await stage.client.post("/credentials/mcp-server", {"server_url": url})
    assert made.status == 201, made.body
    return made.body


async def read_only(stage: Stage, row: Json, *names: str) -> None:
    """Say of tools that they only read."""
    path = f"/credentials/{row['credential_id']}/mcp-tools"
    tools = {each["name"]: each for each in (await stage.client.get(path)).body["tools"]}
    reviews = [{"name": name, "fingerprint": tools[name]["fingerprint"], "effect": "read"} for name in names]
    assert (await stage.client.call("PUT", path, {"reviews": reviews})).status == 200


def result_of(turn: Turn) -> Any:
    assert turn.types[-1] == "done", turn.events
    output = turn.data("tool_result")["output"]
    assert output["status"] == "ok", output
    return output["result"]


async def runs(stage: Stage, row: Json, name: str, arguments: Json) -> Any:
    integration = row["credentials_metadata"]["integration"]
    return result_of(await stage.turn(executes(name, arguments, integration=integration), says("Done.")))


@pytest.mark.parametrize(
    ("server", "tool", "arguments", "expected"),
    [
        ("everything", "get-sum", {"a": 40, "b": 2}, "42"),
        ("everything", "get-structured-content", {"location": "Chicago"}, "temperature"),
        ("everything", "get-tiny-image", {}, "image/png"),
        ("everything", "get-resource-links", {"count": 2}, "demo://resource/"),
        ("git", "git_branch", {"repo_path": str(INSTALLED.parent), "branch_type": "local"}, ""),
        ("time", "convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}, "21:00"),
        ("memory", "read_graph", {}, "entities"),
    ],
)
async def test_a_published_server_started_by_the_operator_answers(
    stage: Stage, server: str, tool: str, arguments: Json, expected: str
) -> None:
    row = await connect(stage, f"stdio:{server}")
    await read_only(stage, row, tool)
    assert expected in str(await runs(stage, row, tool, arguments))


async def test_the_filesystem_server_reads_what_it_may_and_nothing_else(stage: Stage, workplace: Path) -> None:
    row = await connect(stage, "stdio:files")
    await read_only(stage, row, "read_text_file")
    inside = await runs(stage, row, "read_text_file", {"path": str(workplace / "hello.txt")})
    assert "hello from a file" in str(inside)
    outside = await runs(stage, row, "read_text_file", {"path": "/etc/hostname"})
    assert outside["success"] is False


async def test_the_fetch_server_reports_its_own_failure_as_a_value(stage: Stage) -> None:
    row = await connect(stage, "stdio:fetch")
    await read_only(stage, row, "fetch")
    assert (await runs(stage, row, "fetch", {"url": "http://127.0.0.1:9/"}))["success"] is False


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("stdio:reserved", "no such program"),
        ("stdio:nothing", "no such program"),
        ("stdio:missing", "could not be started"),
        ("stdio:mute", "broke off|answered"),
    ],
)
async def test_a_program_that_is_not_there_or_not_for_this_organization_is_refused(
    stage: Stage, url: str, word: str
) -> None:
    refused = await stage.client.post("/credentials/mcp-server", {"server_url": url})
    assert refused.status == 400, refused.body
    assert any(each in refused.detail for each in word.split("|")), refused.detail


@asynccontextmanager
async def everything_over(transport: str) -> AsyncGenerator[str]:
    """The everything server as a web server on a free port; its address."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        str(NPM / "mcp-server-everything"), transport, env={"PORT": str(port), "PATH": "/usr/bin:/bin:/usr/local/bin"},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await listens(port)
        yield f"http://127.0.0.1:{port}/{'mcp' if transport == 'streamableHttp' else 'sse'}"
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(("transport", "name"), [("streamableHttp", "streamable_http"), ("sse", "sse")])
async def test_the_everything_server_answers_over_both_web_transports(stage: Stage, transport: str, name: str) -> None:
    async with everything_over(transport) as url:
        row = await connect(stage, url)
        assert row["credentials_metadata"]["transport"] == name
        await read_only(stage, row, "echo")
        assert await runs(stage, row, "echo", {"message": "over the wire"}) == {"text": "Echo: over the wire"}
