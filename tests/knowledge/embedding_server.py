"""An OpenAI-compatible embeddings endpoint on this machine: words become places in a vector."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from aiohttp import web

DIMENSION = 64


@dataclass(slots=True)
class EmbeddingServer:
    """What it was asked, and how it answers."""

    base_url: str = ""
    key: str = "sk-embedding-0123456789abcdef"
    status: int = 200
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "bad key"}}, status=401)
        body = await request.json()
        self.asked.append(body)
        if self.status != 200:
            return web.json_response({"error": {"message": "down"}}, status=self.status)
        data = [{"index": number, "embedding": vector_of(text)} for number, text in enumerate(body["input"])]
        return web.json_response({"data": list(reversed(data)), "model": body["model"]})


def vector_of(text: str) -> list[float]:
    vector = [0.0] * DIMENSION
    for word in text.lower().split():
        vector[crc32(word.strip(".,?").encode()) % DIMENSION] += 1.0
    return vector


@asynccontextmanager
async def embedding_server() -> AsyncGenerator[EmbeddingServer]:
    """Serve until the block ends."""
    server = EmbeddingServer()
    app = web.Application()
    app.router.add_post("/v1/embeddings", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server.base_url = f"http://127.0.0.1:{port}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()
