"""A new house integration that works: a manifest, two actions of a small web service, and a test of them."""

from pathlib import Path

import msgspec

from parley.integrations.house.folders import ACTIONS, MANIFEST, UnfitFolder, name_problem
from parley.turn.model import JsonObject

CODE = '''"""What the Assistant can do with {title}. One async function for each action of manifest.json."""

from typing import Any
from urllib.parse import quote

import httpx

SECONDS = 20.0


def _client(auth_data: dict[str, Any]) -> httpx.AsyncClient:
    """A client for the address and with the key of the credential; neither ever comes from the model."""
    return httpx.AsyncClient(
        base_url=auth_data["base_url"],
        headers={{"Authorization": f"Bearer {{auth_data['api_key']}}"}},
        timeout=SECONDS,
    )


async def list_items(auth_data: dict[str, Any], limit: int = 20) -> dict[str, Any]:
    """The newest items."""
    async with _client(auth_data) as client:
        answer = await client.get("/items", params={{"limit": limit}})
        answer.raise_for_status()
        return {{"items": answer.json()}}


async def rename_item(auth_data: dict[str, Any], item_id: str, title: str) -> dict[str, Any]:
    """Give an item another title."""
    async with _client(auth_data) as client:
        answer = await client.put(f"/items/{{quote(item_id, safe='')}}", json={{"title": title}})
        answer.raise_for_status()
        return {{"item": answer.json()}}
'''

TEST = '''"""Run with: python -m pytest {name}"""

import asyncio
import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

SPEC = importlib.util.spec_from_file_location("{name}_actions", Path(__file__).with_name("actions.py"))
assert SPEC is not None and SPEC.loader is not None
actions = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(actions)


class Service(BaseHTTPRequestHandler):
    """Answers as {title} would."""

    def do_GET(self) -> None:
        self.answer([{{"id": "1", "title": "First"}}])

    def do_PUT(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({{"id": self.path.rpartition("/")[2], **sent}})

    def answer(self, value: Any) -> None:
        known = self.headers["Authorization"] == "Bearer the-key"
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def auth_data() -> Iterator[dict[str, str]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {{"api_key": "the-key", "base_url": f"http://127.0.0.1:{{server.server_port}}"}}
    server.shutdown()
    server.server_close()


def test_items_are_listed(auth_data: dict[str, str]) -> None:
    assert asyncio.run(actions.list_items(auth_data)) == {{"items": [{{"id": "1", "title": "First"}}]}}


def test_an_item_is_renamed(auth_data: dict[str, str]) -> None:
    found = asyncio.run(actions.rename_item(auth_data, "a/b", "New"))
    assert found == {{"item": {{"id": "a%2Fb", "title": "New"}}}}
'''


def make_sample(root: Path, name: str) -> Path:
    """Write the folder of a new integration. Raises UnfitFolder for a name that is none, or taken."""
    if problem := name_problem(name):
        raise UnfitFolder(problem)
    folder = root / name
    title = name.replace("_", " ").title()
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UnfitFolder(f"{folder} is there already. Choose another name, or delete it.") from None
    manifest = msgspec.json.format(msgspec.json.encode(_manifest(name, title)), indent=2)
    (folder / MANIFEST).write_bytes(manifest + b"\n")
    (folder / ACTIONS).write_text(CODE.format(title=title), encoding="utf-8")
    (folder / f"test_{name}.py").write_text(TEST.format(name=name, title=title), encoding="utf-8")
    return folder


def _manifest(name: str, title: str) -> JsonObject:
    prefix = name.upper()
    return {
        "name": name,
        "display_name": title,
        "description": f"The items of {title}.",
        "author": "Us",
        "version": "1.0.0",
        "categories": ["house"],
        "actions": [
            {
                "name": "list_items",
                "description": "List the newest items.",
                "parameters": {
                    "limit": {"type": "integer", "description": "How many, at most.", "default": 20, "required": False}
                },
            },
            {
                "name": "rename_item",
                "description": "Give an item another title.",
                "parameters": {
                    "item_id": {"type": "string", "description": "The item's id.", "required": True},
                    "title": {"type": "string", "description": "Its new title.", "required": True},
                },
            },
        ],
        "auth_schemas": [
            {
                "auth_type": "api_key",
                "display_name": "API key",
                "description": f"A key of {title}, and where it answers.",
                "setup_environment_variables": [
                    {
                        "name": f"{prefix}_API_KEY",
                        "display_name": "API key",
                        "description": "The key.",
                        "sensitive": True,
                    },
                    {
                        "name": f"{prefix}_BASE_URL",
                        "display_name": "Address",
                        "description": "Where it answers.",
                        "sample_format": "https://items.example.com",
                    },
                ],
                "test_endpoint": None,
            }
        ],
        "effects": {
            "list_items": "read",
            "rename_item": {"effect": "write", "idempotent": True, "overwrites": True, "escaped_paths": ["item_id"]},
        },
    }
