"""One call of an imported API, and what came back as a value for the model."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec

from parley.egress import Egress, Refused, Response, Unreachable
from parley.integrations.openapi.model import Reached, Request
from parley.integrations.openapi.sending import Presented, prepare
from parley.integrations.results import ActionFailed, Invoked, Scrubber, plain
from parley.turn.model import JsonObject, JsonValue
from parley.turn.text import NOT_JSON

UNAUTHORIZED = 401
FIRST_ERROR = 400
MOST_DATA_BYTES = 750_000
TOLD_HEADERS = ("Location", "Link", "ETag", "Retry-After")
HEADER_CHARACTERS = 1_000
SMALL_BYTES = 64 * 1024
TEXTS = ("text/", "application/xml", "application/x-ndjson", "application/javascript", "application/x-www-form")


async def call(
    egress: Egress,
    reached: Reached,
    request: Request,
    arguments: Mapping[str, JsonValue],
    shown: Presented,
    secrets: Sequence[str],
    *,
    seconds: float,
    max_bytes: int,
) -> Invoked:
    """Send one request once; an error status is a value. Raises ActionFailed."""
    prepared = prepare(reached, request, arguments, shown)
    scrubber = Scrubber({*secrets, *(quote(secret, safe="") for secret in secrets)})
    try:
        response = await egress.request(
            prepared.method,
            prepared.url,
            headers=prepared.headers,
            data=prepared.body,
            seconds=seconds,
            max_bytes=max_bytes,
        )
    except Refused as refused:
        raise ActionFailed(scrubber.text(str(refused)), attempted=False) from None
    except Unreachable as trouble:
        more = (
            "" if request.method in ("get", "head") else " It may have happened all the same: look before trying again."
        )
        raise ActionFailed(f"{scrubber.text(str(trouble))}{more}", attempted=True) from None
    if len(response.body) <= SMALL_BYTES:
        value = plain(_value(response), scrubber)
    else:
        value = await asyncio.to_thread(lambda: plain(_value(response), scrubber))
    return Invoked(value, succeeded=response.status < FIRST_ERROR, unauthorized=response.status == UNAUTHORIZED)


def _value(response: Response) -> JsonObject:
    """``{status_code, body?}``; of an error ``{success: false, status_code, error}``. Bytes come as base64."""
    told: JsonObject = {"status_code": response.status}
    for name in TOLD_HEADERS:
        if name in response.headers:
            told[name.lower()] = response.headers[name][:HEADER_CHARACTERS]
    content = _content(response)
    if response.status >= FIRST_ERROR:
        said = content.get("body", content) if content else f"It answered {response.status}."
        return {"success": False, **told, "error": said}
    return {**told, **content}


def _content(response: Response) -> JsonObject:
    if not response.body:
        return {}
    kind, _, options = response.headers.get("Content-Type", "").lower().partition(";")
    kind = kind.strip()
    if kind.endswith(("/json", "+json")) or not kind:
        try:
            return {"body": msgspec.json.decode(response.body)}
        except NOT_JSON:
            return {"body": _decoded(response.body, options)}
    if kind.startswith(TEXTS) or kind.endswith("+xml"):
        return {"body": _decoded(response.body, options)}
    told: JsonObject = {"content_type": kind[:100], "size_bytes": len(response.body)}
    if len(response.body) > MOST_DATA_BYTES:
        return {**told, "note": "The bytes themselves are left out: they are too large for a conversation."}
    return {**told, "base64": base64.b64encode(response.body).decode()}


def _decoded(body: bytes, options: str) -> str:
    charset = options.partition("charset=")[2].partition(";")[0].strip(" \"'") or "utf-8"
    try:
        return body.decode(charset, errors="replace")
    except LookupError:
        return body.decode(errors="replace")
