"""The routes as OpenAPI tells them, and the smallest bodies they take."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.stage import Json, Stage

METHODS = {"get", "post", "put", "patch", "delete"}
WORDS = {"email": "somebody@example.com", "date-time": "2030-01-01T00:00:00Z"}
# What a schema cannot say.
FITTING = {
    "request_id": "99999999-9999-4999-8999-999999999999",
    "response": {"kind": "yes_no", "answer": True},
    "redirect_uri": "http://127.0.0.1/x",
    "title": "A title",
}


@dataclass(frozen=True, slots=True)
class Route:
    """One operation, and the smallest body it takes; None where it takes none. ``uploads``: it takes a file."""

    method: str
    path: str
    body: Json | None
    query: tuple[str, ...]
    uploads: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """The parameters in the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


async def routes_of(stage: Stage) -> list[Route]:
    """Every route of the running server."""
    document = (await stage.client.get("/openapi.json")).body
    return list(_routes(document))


def _routes(document: Json) -> Iterator[Route]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method not in METHODS:
                continue
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema")
            body = None if schema is None else _smallest(document, schema)
            names = [each["name"] for each in operation.get("parameters", []) if each["in"] == "query"]
            yield Route(method.upper(), path, body, tuple(names), "multipart/form-data" in content)


def _resolved(document: Json, schema: Json) -> Json:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _smallest(document: Json, schema: Json) -> Any:
    schema = _resolved(document, schema)
    fixed = [schema[word] for word in ("default", "const") if word in schema] + schema.get("enum", [])
    if fixed:
        return fixed[0]
    choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if choices and "properties" not in schema:
        return _smallest(document, choices[0])
    match schema.get("type"):
        case "object":
            required = schema.get("required", [])
            properties = schema.get("properties", {})
            return {name: FITTING.get(name) or _smallest(document, properties[name]) for name in required}
        case "array":
            return [_smallest(document, schema["items"])] * int(schema.get("minItems", 0))
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case _:
            return WORDS.get(schema.get("format", ""), "x" * max(3, int(schema.get("minLength", 1))))
