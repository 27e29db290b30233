"""What is generated when the documentation is built: the routes from OpenAPI, and the list of decisions."""

import asyncio
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from parley.base.settings import read_settings
from parley.testing.server import served

HERE = Path(__file__).parent
METHODS = ("get", "post", "put", "patch", "delete")


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """A page as it is built: mkdocs calls this for each."""
    match page.file.src_uri:
        case "api.md":
            return markdown.replace("<!-- routes -->", "\n".join(_routes(asyncio.run(openapi()))))
        case "decisions/index.md":
            return markdown.replace("<!-- decisions -->", "\n".join(_decisions()))
        case _:
            return markdown


async def openapi() -> Any:
    """The document of a server that is started for it, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PARLEY_DATA_DIR": folder, "PARLEY_PORT": "0", "PARLEY_ALLOW_PRIVATE_HOSTS": "127.0.0.1"}
        settings = read_settings({**environment, "OLLAMA_HOST": "http://127.0.0.1:9"})
        async with (
            served(settings) as (_, url),
            aiohttp.ClientSession() as session,
            session.get(f"{url}/openapi.json") as answer,
        ):
            return await answer.json()


def _routes(document: Any) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method in METHODS:
            if method in operations:
                operation = operations[method]
                tag = operation.get("tags", ["other"])[0]
                by_tag.setdefault(tag, []).extend(_operation(method, path, operation))
    for tag, lines in sorted(by_tag.items()):
        yield f"## {tag}\n"
        yield from lines


def _operation(method: str, path: str, operation: Any) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`\n"
    if operation.get("description"):
        yield f"{operation['description']}\n"
    given = [each for each in operation.get("parameters", []) if each["in"] in ("query", "path")]
    if given:
        names = (f"`{each['name']}`{'' if each.get('required') else ' (optional)'}" for each in given)
        yield f"Parameters: {', '.join(names)}\n"
    content = operation.get("requestBody", {}).get("content", {})
    for kind, body in content.items():
        yield f"Body ({kind}): `{_name(body['schema'])}`\n"
    answers = sorted(operation["responses"])
    yield f"Answers: {', '.join(answers)}\n"


def _name(schema: Any) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2] or str(schema.get("title") or schema.get("type", "any"))


def _decisions() -> Iterator[str]:
    for path in sorted((HERE / "decisions").glob("0*.md")):
        first = path.read_text(encoding="utf-8").splitlines()[0]
        yield f"- [{re.sub(r'^#+ ', '', first)}]({path.name})"
