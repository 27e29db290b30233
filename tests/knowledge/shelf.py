"""Putting documents into bases over HTTP, and waiting until they are read."""

import asyncio
import io
import json
from typing import Any

import aiohttp

from tests.stage import Answer, Client

WAIT_SECONDS = 40.0
ENDED = {"completed", "failed"}


async def make_base(client: Client, name: str = "Handbook", **more: Any) -> str:
    """A new base's id."""
    made = await client.post("/knowledge-bases", {"name": name, **more})
    assert made.status == 201, made.body
    return made.body["id"]


async def upload(
    client: Client, base_id: str, filename: str, data: bytes, metadata: dict[str, Any] | None = None
) -> Answer:
    """Upload a file; what the server said."""
    form = aiohttp.FormData()
    form.add_field("file", io.BytesIO(data), filename=filename, content_type="application/octet-stream")
    if metadata is not None:
        form.add_field("metadata", json.dumps(metadata))
    async with client.session.post(
        f"{client.base_url}/knowledge-bases/{base_id}/documents",
        data=form,
        headers=client.headers,
        timeout=aiohttp.ClientTimeout(total=60),
    ) as response:
        text = await response.text()
        return Answer(response.status, json.loads(text) if text else None, dict(response.headers))


async def read(client: Client, base_id: str, filename: str, data: bytes, **more: Any) -> dict[str, Any]:
    """Upload a file and wait until it is read, or failed; the document."""
    taken = await upload(client, base_id, filename, data, **more)
    assert taken.status == 201, taken.body
    return await ended(client, base_id, taken.body["id"])


async def ended(client: Client, base_id: str, document_id: str) -> dict[str, Any]:
    """The document once nobody works on it."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            found = await client.get(f"/knowledge-bases/{base_id}/documents/{document_id}")
            if found.body["status"] in ENDED:
                return found.body
            await asyncio.sleep(0.05)


async def find(client: Client, base_id: str, query: str, kind: str = "hybrid-search", **more: Any) -> list[Any]:
    """The matches of a search."""
    found = await client.post(f"/knowledge-bases/{base_id}/{kind}", {"query": query, **more})
    assert found.status == 200, found.body
    return found.body["matches"]
