"""What OpenAPI tells of the surface beyond what the framework knows of its routes.

In the document only: as parameters and dependencies these would cost every request time, and the
event stream and the limits on bodies are answered before the framework is reached.
"""

from typing import Any

from fastapi import FastAPI

from parley.http.identity import IN_ORGANIZATION
from parley.http.schemas import EVENT, SENTENCES, Detail

LISTEN = "/assistant/chat/{chat_id}/listen/{run_id}"
DETAIL = {"application/json": {"schema": {"$ref": f"#/components/schemas/{Detail.__name__}"}}}
TEXT = {"type": "string"}
CURSOR = "The id of the last event that arrived; the stream goes on after it."
ORGANIZATION = {
    "name": "X-Organization-ID",
    "in": "header",
    "required": True,
    "schema": {"type": "string", "format": "uuid"},
    "description": "The organization you act in.",
}


def complete_document(app: FastAPI) -> None:
    """Add the organization's header, the limits on bodies and the event stream to the app's OpenAPI."""
    undescribed = app.openapi

    def described() -> dict[str, Any]:
        document = undescribed()
        if LISTEN not in document["paths"]:
            document["paths"][LISTEN] = {"get": _listen()}
            for operations in document["paths"].values():
                for operation in operations.values():
                    _complete(operation)
        return document

    app.openapi = described


def _complete(operation: dict[str, Any]) -> None:
    if any(IN_ORGANIZATION in scheme for scheme in operation.get("security", [])):
        operation["parameters"] = [*operation.get("parameters", []), ORGANIZATION]
    # A NUL in the address or a body past its limits is refused whatever the route takes.
    refused = (400, 408, 413) if "requestBody" in operation else (400,)
    for status in refused:
        operation["responses"].setdefault(str(status), _refusal(status))


def _refusal(status: int) -> dict[str, Any]:
    return {"description": SENTENCES[status], "content": DETAIL}


def _listen() -> dict[str, Any]:
    named = ("chat_id", "run_id")
    return {
        "tags": ["assistant"],
        "summary": "Listen",
        "description": "The events of a run, from its beginning or after a cursor, until it ends or asks.",
        "operationId": "listen",
        "security": [{IN_ORGANIZATION: []}],
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": TEXT} for name in named),
            {"name": "after", "in": "query", "required": False, "schema": TEXT, "description": CURSOR},
            {"name": "Last-Event-ID", "in": "header", "required": False, "schema": TEXT, "description": CURSOR},
        ],
        "responses": {
            "200": {"description": "Server-sent events", "content": {"text/event-stream": {"schema": EVENT}}},
            **{str(status): _refusal(status) for status in (400, 401, 403, 404, 429, 503)},
        },
    }
