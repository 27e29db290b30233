"""Binding bases to external stores on this machine."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from parley.testing.provider_proxy import ProviderProxy
from tests.knowledge.external_stores import FakePinecone, FakeQdrant, FakeWeaviate, Shelf, mongo_server, new_shelf
from tests.stage import Answer, Client

QUERY = "Where can I find the boiler?"


@dataclass(slots=True)
class Elsewhere:
    """A store that answers, and what a base needs to be bound to it."""

    provider: str
    shelf: Shelf
    auth_data: dict[str, str]
    config: dict[str, str]

    async def connect(self, client: Client, **auth: str) -> str:
        """A credential's id."""
        body = {"integration_name": self.provider, "auth_type": "custom", "auth_data": {**self.auth_data, **auth}}
        made = await client.post("/credentials", body)
        assert made.status == 201, made.body
        return made.body["credential_id"]

    async def ask_for(self, client: Client, name: str = "Elsewhere", **more: Any) -> Answer:
        wish = {"name": name, "provider_type": self.provider, "external_config": self.config, **more}
        return await client.post("/knowledge-bases", wish)

    async def bind(self, client: Client, name: str = "Elsewhere", **more: Any) -> str:
        """A base's id, with a credential of its own unless one is given."""
        if "credential_id" not in more:
            more["credential_id"] = await self.connect(client)
        made = await self.ask_for(client, name, **more)
        assert made.status == 201, made.body
        return made.body["id"]


type Open = Callable[[str], Awaitable[Elsewhere]]


async def open_elsewhere(kind: str, proxy: ProviderProxy, stack: AsyncExitStack) -> Elsewhere:
    """A store of a kind until the stack unwinds; every one has an address and a key of its own."""
    shelf, place = new_shelf(f"key-{uuid4().hex}"), f"{uuid4().hex[:8]}.example.com"
    names = {"text_field": "text", "source_field": "source"}
    match kind:
        case "qdrant":
            proxy.answer(place, FakeQdrant(shelf))
            auth = {"base_url": f"https://{place}:6333", "api_key": shelf.key}
            return Elsewhere("qdrant", shelf, auth, {"collection": "docs", **names})
        case "pinecone":
            host = f"docs-{uuid4().hex[:8]}.svc.aped-4627.pinecone.io"
            fake = FakePinecone(shelf, host)
            proxy.answer("api.pinecone.io", fake)
            proxy.answer(host, fake)
            return Elsewhere("pinecone", shelf, {"api_key": shelf.key}, {"collection": "docs", **names})
        case "mongodb_atlas":
            mongo = await stack.enter_async_context(mongo_server(shelf))
            fields = {"vector_field": "embedding", "index": "meaning", "text_index": "words"}
            config = {"database": "kb", "collection": "docs", **fields, **names}
            return Elsewhere(kind, shelf, {"connection_string": mongo.connection_string}, config)
        case _:
            proxy.answer(place, FakeWeaviate(shelf, modern=kind == "weaviate"))
            auth = {"base_url": f"https://{place}", "api_key": shelf.key}
            return Elsewhere("weaviate", shelf, auth, {"collection": "Docs", **names})
