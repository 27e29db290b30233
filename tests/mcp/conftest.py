"""A Parley whose operator has configured published MCP servers, where they are installed."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from parley.testing.provider_proxy import ProviderProxy
from tests.conftest import fresh_database
from tests.contract.conftest import House, model, model_port, open_house, proxy, stage

__all__ = ["model", "model_port", "proxy", "stage"]

INSTALLED = Path(__file__).parents[2] / ".mcp-servers"
NPM, PYTHON = INSTALLED / "node_modules" / ".bin", INSTALLED / "python" / "bin"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the servers may see."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "hello.txt").write_text("hello from a file")
    return folder


@pytest.fixture(scope="module")
async def house(
    tmp_path_factory: pytest.TempPathFactory, proxy: ProviderProxy, workplace: Path
) -> AsyncIterator[House]:
    if not NPM.is_dir() or not PYTHON.is_dir():
        pytest.skip("the published MCP servers are not installed: make mcp-servers")
    folder = tmp_path_factory.mktemp("house")
    servers = {
        "everything": {"command": str(NPM / "mcp-server-everything"), "display_name": "Everything"},
        "files": {"command": str(NPM / "mcp-server-filesystem"), "args": [str(workplace)]},
        "memory": {
            "command": str(NPM / "mcp-server-memory"),
            "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")},
        },
        "git": {"command": str(PYTHON / "mcp-server-git"), "args": ["--repository", str(INSTALLED.parent)]},
        "time": {"command": str(PYTHON / "mcp-server-time"), "args": ["--local-timezone", "UTC"]},
        "fetch": {"command": str(PYTHON / "mcp-server-fetch")},
        "reserved": {"command": "true", "organizations": ["99999999-9999-4999-8999-999999999999"]},
        "missing": {"command": "/nonexistent/mcp-server"},
        "mute": {"command": "true"},
    }
    listed = folder / "servers.json"
    listed.write_text(json.dumps({"mcpServers": servers}))
    async with fresh_database("sqlite", folder, None) as url, AsyncExitStack() as stack:
        yield await open_house(stack, url, folder, proxy, {"PARLEY_MCP_SERVERS": str(listed)})
