"""MCP programs that the operator configured, written with the official SDK and spoken to over their standard streams.

Programs as they come from the registries are tried in ``tests/mcp``, where they are installed.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_mcp_servers import connect_to, refresh, review, tools_of
from tests.stage import Json, Stage, executes, output_of, says

# Its tools are told by a file beside it, so that a test may change them.
PROGRAM = '''
import os
import sys
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("Shelf")


@server.tool()
def count(word: str) -> str:
    """Counts the letters of a word."""
    return f"{len(word)} letters, says {os.environ['SHELF_NAME']}"


@server.tool()
def variables() -> str:
    """Names the variables that this program was given."""
    return " ".join(os.environ)


@server.tool()
def fall() -> str:
    """Ends the program."""
    os._exit(3)


if Path(sys.argv[1]).exists():
    server.tool(name="more", description="Came later.")(count)
server.run()
'''
PRIVATE = "PARLEY_TEST_NAME_THAT_IS_THE_SERVERS"


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file whose presence gives the program another tool."""
    return tmp_path_factory.mktemp("programs") / "later"


@pytest.fixture(scope="module")
def settings_extra(later: Path) -> dict[str, str]:
    """A server whose operator has listed the program twice, once for another organization only."""
    program, listed = later.with_name("shelf.py"), later.with_name("servers.json")
    program.write_text(PROGRAM, encoding="utf-8")
    shelf = {"command": sys.executable, "args": [str(program), str(later)], "env": {"SHELF_NAME": "the shelf"}}
    reserved = {**shelf, "organizations": ["99999999-9999-4999-8999-999999999999"]}
    listed.write_text(json.dumps({"mcpServers": {"shelf": shelf, "reserved": reserved}}), encoding="utf-8")
    return {"PARLEY_MCP_SERVERS": str(listed)}


async def connect(stage: Stage) -> Json:
    return await connect_to(stage, server_url="stdio:shelf", display_name="Shelf")


async def run(stage: Stage, name: str, arguments: Json | None = None) -> Any:
    return output_of(await stage.turn(executes(name, arguments, integration="mcp_shelf"), says("Ok.")))


async def test_a_program_of_the_operators_is_connected_reviewed_and_run(stage: Stage) -> None:
    row = await connect(stage)
    assert row["credentials_metadata"]["transport"] == "stdio"
    assert set(await tools_of(stage, row)) == {"count", "variables", "fall"}
    asked = await stage.turn(executes("count", {"word": "shelf"}, integration="mcp_shelf"))
    assert asked.question["context"]["action_name"] == "count"
    await review(stage, row, count="read")
    ran = await run(stage, "count", {"word": "shelf"})
    assert ran["status"] == "ok", ran
    assert "5 letters, says the shelf" in json.dumps(ran["result"])


async def test_a_program_is_given_its_own_variables_and_none_of_the_servers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PRIVATE, "x")
    row = await connect(stage)
    await review(stage, row, variables="read")
    told = json.dumps((await run(stage, "variables"))["result"])
    assert "SHELF_NAME" in told
    assert PRIVATE not in told


async def test_a_program_that_ends_in_a_call_is_an_error_value_and_runs_again_for_the_next(stage: Stage) -> None:
    row = await connect(stage)
    await review(stage, row, fall="read", count="read")
    assert (await run(stage, "fall"))["status"] == "error"
    assert (await run(stage, "count", {"word": "on"}))["status"] == "ok"


async def test_looking_again_at_a_program_tells_what_is_new(stage: Stage, later: Path) -> None:
    row = await connect(stage)
    later.touch()
    try:
        assert (await refresh(stage, row))["changes"] == {
            "added": ["more"], "removed": [], "changed": [], "rejected": {},
        }  # fmt: skip
    finally:
        later.unlink()


@pytest.mark.parametrize("url", ["stdio:reserved", "stdio:nothing"])
async def test_a_program_of_nobody_or_of_other_organizations_is_no_program(stage: Stage, url: str) -> None:
    refused = await stage.client.post("/credentials/mcp-server", {"server_url": url})
    assert refused.status == 400, refused.body
    assert "no such program" in refused.detail
