"""External stores on this machine, each speaking its own wire: Qdrant, Pinecone, Weaviate, MongoDB Atlas.

They rank by the same vectors and words, so that one test can ask all of them the same.
"""

import asyncio
import re
import struct
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import bson
import numpy as np

from parley.knowledge.embedding.static_model import StaticModel
from parley.testing.connections import connections_served
from parley.testing.provider_proxy import Answer, Asked, json_answer

DIMENSION = 256
ROWS = (
    ("1f0c7a52-0000-4000-8000-000000000001", "The boiler is in the cellar behind the red door.", "cellar.md", "north"),
    ("1f0c7a52-0000-4000-8000-000000000002", "Everybody has thirty days of holiday in a year.", "holidays.md", "south"),
    ("1f0c7a52-0000-4000-8000-000000000003", "Invoices are paid within fourteen days.", "invoices.md", "south"),
)
OP_MSG = 2013
AUTHENTICATION_FAILED = 18


@dataclass(slots=True)
class Row:
    id: str
    payload: dict[str, Any]
    vector: Any


@dataclass(slots=True)
class Fault:
    """How a store misbehaves: a status, a body, or never answering at all."""

    status: int = 0
    body: bytes = b""
    hangs: bool = False


@dataclass(slots=True)
class Shelf:
    """What every fake holds. ``fault`` is how searches fail; ``told`` what was searched with."""

    key: str
    rows: list[Row] = field(default_factory=list[Row])
    fault: Fault | None = None
    told: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def nearest(
        self, vector: Sequence[float], count: int, wanted: Mapping[str, Sequence[Any]]
    ) -> list[tuple[Row, float]]:
        found = [(row, float(np.dot(row.vector, np.array(vector)))) for row in self.rows if _has(row, wanted)]
        return sorted(found, key=lambda pair: -pair[1])[:count]

    def with_words(self, text: str, count: int) -> list[tuple[Row, float]]:
        asked = set(re.findall(r"\w+", text.lower()))
        scored = [(row, float(len(asked & set(re.findall(r"\w+", row.payload["text"].lower()))))) for row in self.rows]
        return sorted((pair for pair in scored if pair[1]), key=lambda pair: -pair[1])[:count]

    async def failing(self) -> Answer | None:
        if self.fault is None:
            return None
        if self.fault.hangs:
            await asyncio.Event().wait()
        return Answer(self.fault.status, self.fault.body)


def said(value: Any, status: int = 200) -> Answer:
    """An answer in JSON."""
    return json_answer(value, status)


def _has(row: Row, wanted: Mapping[str, Sequence[Any]]) -> bool:
    return all(row.payload.get(name) in values for name, values in wanted.items())


def new_shelf(key: str) -> Shelf:
    """Three passages with the vectors of the built-in model."""
    vectors = StaticModel().embed([text for _, text, _, _ in ROWS])
    rows = [
        Row(identity, {"text": text, "source": source, "house": house, "page": 3, "embedding": [0.5] * 400}, vector)
        for (identity, text, source, house), vector in zip(ROWS, vectors, strict=True)
    ]
    return Shelf(key, rows)


@dataclass(slots=True)
class FakeQdrant:
    """``/collections/{name}`` and its points; the one collection is ``docs``."""

    shelf: Shelf

    async def __call__(self, asked: Asked) -> Answer:
        if asked.headers.get("api-key") != self.shelf.key:
            return said({"status": {"error": f"Forbidden: {asked.headers.get('api-key')}"}}, 401)
        if not asked.path.startswith("/collections/docs"):
            return said({"status": {"error": "Not found: Collection doesn't exist!"}}, 404)
        if asked.method == "GET":
            vectors = {"size": DIMENSION, "distance": "Cosine"}
            return said({"result": {"status": "green", "config": {"params": {"vectors": vectors}}}, "status": "ok"})
        if (failing := await self.shelf.failing()) is not None:
            return failing
        body: Any = asked.json
        self.shelf.told.append(body)
        must = body.get("filter", {}).get("must", [])
        found = self.shelf.nearest(body["query"], body["limit"], {one["key"]: one["match"]["any"] for one in must})
        points = [{"id": row.id, "version": 1, "score": score, "payload": row.payload} for row, score in found]
        return said({"result": {"points": points}, "status": "ok", "time": 0.001})


@dataclass(slots=True)
class FakePinecone:
    """The control plane and the one index ``docs`` at its own host."""

    shelf: Shelf
    host: str = "docs-abc123.svc.aped-4627.pinecone.io"

    async def __call__(self, asked: Asked) -> Answer:
        if asked.headers.get("api-key") != self.shelf.key:
            return Answer(401, b"Unauthorized")
        assert asked.headers["x-pinecone-api-version"] == "2026-04"
        if asked.host == "api.pinecone.io":
            if asked.path != "/indexes/docs":
                return said({"error": {"code": "NOT_FOUND", "message": "Resource not found"}, "status": 404}, 404)
            return said(
                {"name": "docs", "metric": "cosine", "dimension": DIMENSION, "host": self.host, "vector_type": "dense"}
            )
        if (failing := await self.shelf.failing()) is not None:
            return failing
        body: Any = asked.json
        self.shelf.told.append(body)
        wanted = {name: values["$in"] for name, values in body.get("filter", {}).items()}
        found = self.shelf.nearest(body["vector"], body["topK"], wanted)
        matches = [{"id": row.id, "score": score, "values": [], "metadata": row.payload} for row, score in found]
        return said({"matches": matches, "namespace": body.get("namespace", ""), "usage": {"readUnits": 1}})


@dataclass(slots=True)
class FakeWeaviate:
    """The class ``Docs``; ``modern`` servers have the Search API, the others GraphQL only."""

    shelf: Shelf
    modern: bool = True

    async def __call__(self, asked: Asked) -> Answer:
        if asked.headers.get("authorization") != f"Bearer {self.shelf.key}":
            return said({"code": 401, "message": "unauthorized"}, 401)
        if asked.path.startswith("/v1/schema/"):
            return self._schema(asked.path.removeprefix("/v1/schema/"))
        if (failing := await self.shelf.failing()) is not None:
            return failing
        body: Any = asked.json
        if asked.path == "/v1/graphql":
            return self._graphql(body["query"])
        if not self.modern:
            return Answer(404)
        self.shelf.told.append(body)
        where = body.get("where", {}).get("operands", [])
        if asked.path == "/v1/search/Docs/near-vector":
            found = self.shelf.nearest(body["vector"], body["limit"], _where(where))
            return self._results([(row, {"distance": 1 - score}) for row, score in found])
        assert asked.path == "/v1/search/Docs/bm25"
        return self._results(
            [(row, {"score": score}) for row, score in self.shelf.with_words(body["query"], body["limit"])]
        )

    def _schema(self, name: str) -> Answer:
        if name != "Docs":
            return Answer(404)
        properties = [{"name": each, "dataType": ["text"]} for each in ("text", "source", "house")]
        properties.append({"name": "embedding", "dataType": ["number[]"]})
        return said({"class": name, "vectorIndexConfig": {"distance": "cosine"}, "properties": properties})

    def _results(self, found: list[tuple[Row, dict[str, float]]]) -> Answer:
        results = [{"id": row.id, "properties": _plain(row), "metadata": dict(metadata)} for row, metadata in found]
        return said({"results": results, "tookMs": 3})

    def _graphql(self, query: str) -> Answer:
        self.shelf.told.append({"graphql": query})
        limit = int(re.findall(r"limit: (\d+)", query)[0])
        if near := re.search(r"nearVector: \{vector: \[([^]]*)\]", query):
            vector = [float(number) for number in near.group(1).split(",")]
            wanted = {
                name: [value]
                for name, value in re.findall(r'path: \["(\w+)"\], operator: Equal, valueText: "(\w+)"', query)
            }
            found = [
                (row, {"distance": 1 - score, "score": None})
                for row, score in self.shelf.nearest(vector, limit, wanted)
            ]
        else:
            (text,) = re.findall(r'bm25: \{query: "([^"]*)"\}', query)
            found = [
                (row, {"distance": None, "score": str(score)}) for row, score in self.shelf.with_words(text, limit)
            ]
        objects = [{**_plain(row), "_additional": {"id": row.id, **more}} for row, more in found]
        return said({"data": {"Get": {"Docs": objects}}})


def _plain(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.payload.items() if isinstance(value, str)}


def _where(operands: Sequence[Any]) -> dict[str, list[Any]]:
    wanted: dict[str, list[Any]] = {}
    for operand in operands:
        for one in operand.get("operands", [operand]):
            wanted.setdefault(one["path"][0], []).append(one["valueText"])
    return wanted


@dataclass(slots=True)
class FakeMongo:
    """One member of a cluster with the collection ``kb.docs``, in MongoDB's wire protocol."""

    shelf: Shelf
    port: int = 0

    @property
    def connection_string(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size, request, _, code = struct.unpack("<iiii", await reader.readexactly(16))
            body = await reader.readexactly(size - 16)
            # The first question of a connection comes in the old frame, everything else in the new one.
            command = bson.decode(body[5:]) if code == OP_MSG else bson.decode(body[body.index(b"\x00", 4) + 9 :])
            answer = await self._answer(command)
            if code == OP_MSG:
                message = struct.pack("<I", 0) + b"\x00" + bson.encode(answer)
                head = struct.pack("<iiii", 16 + len(message), 1, request, OP_MSG)
            else:
                message = struct.pack("<iqii", 8, 0, 0, 1) + bson.encode(answer)
                head = struct.pack("<iiii", 16 + len(message), 1, request, 1)
            writer.write(head + message)
            await writer.drain()

    async def _answer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        name = next(iter(command))
        if name.lower() in {"hello", "ismaster"}:
            return {
                "ok": 1.0,
                "helloOk": True,
                "isWritablePrimary": True,
                "ismaster": True,
                "maxBsonObjectSize": 16_777_216,
                "maxMessageSizeBytes": 48_000_000,
                "maxWriteBatchSize": 100_000,
                "minWireVersion": 0,
                "maxWireVersion": 21,
            }
        if name == "saslStart":
            return _mongo_error(AUTHENTICATION_FAILED, "bad auth : authentication failed")
        if name != "aggregate":
            return {"ok": 1.0}
        if command["$db"] != "kb" or command["aggregate"] != "docs":
            return _batch(command, [])
        stage = command["pipeline"][0]
        if "$listSearchIndexes" in stage:
            fields = [{"type": "vector", "path": "embedding", "numDimensions": DIMENSION, "similarity": "cosine"}]
            return _batch(
                command,
                [
                    {"name": "meaning", "type": "vectorSearch", "latestDefinition": {"fields": fields}},
                    {"name": "words", "type": "search", "latestDefinition": {"mappings": {"dynamic": True}}},
                ],
            )
        return await self._search(command, stage)

    async def _search(self, command: Mapping[str, Any], stage: Mapping[str, Any]) -> dict[str, Any]:
        if self.shelf.fault is not None:
            if self.shelf.fault.hangs:
                await asyncio.Event().wait()
            return _mongo_error(self.shelf.fault.status, "no")
        self.shelf.told.append(dict(stage))
        if "$vectorSearch" in stage:
            asked = stage["$vectorSearch"]
            wanted = {name: values["$in"] for name, values in asked.get("filter", {}).items()}
            found = [
                (row, (1 + score) / 2)
                for row, score in self.shelf.nearest(asked["queryVector"], asked["limit"], wanted)
            ]
        else:
            found = self.shelf.with_words(stage["$search"]["text"]["query"], 50)
        rows = [{"_id": row.id, "document": _stored(row), "score": score} for row, score in found]
        return _batch(command, rows)


def _stored(row: Row) -> dict[str, Any]:
    return {"_id": row.id, **{name: value for name, value in row.payload.items() if name != "embedding"}}


def _batch(command: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    place = f"{command['$db']}.{command['aggregate']}"
    return {"ok": 1.0, "cursor": {"id": bson.Int64(0), "ns": place, "firstBatch": rows}}


def _mongo_error(code: int, message: str) -> dict[str, Any]:
    return {"ok": 0.0, "code": code, "codeName": "Error", "errmsg": message}


@asynccontextmanager
async def mongo_server(shelf: Shelf) -> AsyncGenerator[FakeMongo]:
    """Serve until the block ends."""
    fake = FakeMongo(shelf)
    async with connections_served(fake.serve) as fake.port:
        yield fake
