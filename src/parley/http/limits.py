"""Limits on a request before any work is done for it (trust T19)."""

import asyncio
import json
import re
from collections.abc import Mapping
from itertools import accumulate

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1_048_576
MOST_DEPTH = 64
BODY_SECONDS = 60.0
DRAIN_BYTES = 16 * MOST_BYTES
DRAIN_SECONDS = 5.0

_STRING = re.compile(rb'(?s)"(?:[^"\\]|\\.)*+"?')
_BRACKETS = b"[]{}"
_OTHERS = bytes(set(range(256)) - set(_BRACKETS))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_HALF = re.compile(rb"(?i)\\ud[89a-f]")

TOO_LARGE = "The request is larger than {limit} bytes. Send less at a time."
TOO_DEEP = f"The JSON is nested more than {MOST_DEPTH} levels deep. Send it flatter."
NOT_TEXT = "The request holds a NUL character or half a character, which cannot be stored. Send plain text."
TOO_SLOW = "The request did not arrive in time. Send it again."


class BodyLimits:
    """Refuses bodies over 1 MiB, JSON nested over 64 levels, and text that no store can hold.

    ``uploads`` maps the beginning of a path to the most bytes that a multipart body may have there;
    such a body is counted as it streams, every other one is read whole before the route is called.
    """

    def __init__(self, app: ASGIApp, uploads: Mapping[str, int] | None = None) -> None:
        self._app = app
        self._uploads = uploads or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
            await _refuse(scope, receive, send, 400, NOT_TEXT)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if length == b"0" and b"transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        kind = headers.get(b"content-type", b"").lower()
        upload = self._upload(scope["path"], kind)
        limit = upload or MOST_BYTES
        if not length.isdigit() or int(length) > limit:
            await _refuse(scope, receive, send, 413, TOO_LARGE.format(limit=limit))
        elif upload is not None:
            await _Counted(self._app, limit)(scope, receive, send)
        else:
            await self._whole(scope, receive, send, kind)

    def _upload(self, path: str, kind: bytes) -> int | None:
        if not kind.startswith(b"multipart/form-data"):
            return None
        return next((most for start, most in self._uploads.items() if path.startswith(start)), None)

    async def _whole(self, scope: Scope, receive: Receive, send: Send, kind: bytes) -> None:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read(receive)
        except TimeoutError:
            await _refuse(scope, receive, send, 408, TOO_SLOW)
            return
        except _Gone:
            return
        except _TooLarge:
            await _refuse(scope, receive, send, 413, TOO_LARGE.format(limit=MOST_BYTES))
            return
        # Whatever it calls itself: some routes read JSON under any name.
        fault = None if kind.startswith(b"multipart/") else json_fault(body)
        if fault is not None:
            await _refuse(scope, receive, send, 400, fault)
            return
        await self._app(scope, _replayed(body, receive), send)


def json_fault(body: bytes) -> str | None:
    """Why a JSON body may not go on, as a sentence; None when it may. A body that is not JSON is left to the route."""
    if body.count(b"[") + body.count(b"{") > MOST_DEPTH and _depth(body) > MOST_DEPTH:
        return TOO_DEEP
    if _NUL.search(body):
        return NOT_TEXT
    if _HALF.search(body):
        try:
            json.dumps(json.loads(body), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return NOT_TEXT
        except ValueError:
            return None
    return None


def _depth(body: bytes) -> int:
    brackets = _STRING.sub(b"", body).translate(None, _OTHERS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


class _TooLarge(Exception):
    pass


class _Gone(Exception):
    pass


async def _read(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _Gone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > MOST_BYTES:
            raise _TooLarge
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


class _Counted:
    """Passes a large body through, and answers 413 in the route's place once it is over the limit."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0
        started = False

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            return {"type": "http.disconnect"} if size > self._limit else message

        async def unless_over(message: Message) -> None:
            nonlocal started
            if size <= self._limit:
                started = True
                await send(message)

        await self._app(scope, counted, unless_over)
        if size > self._limit and not started:
            await _refuse(scope, receive, send, 413, TOO_LARGE.format(limit=self._limit))


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, detail: str) -> None:
    await _drain(receive)
    # What is left of the body is not wanted, so neither is the connection it comes on.
    response = JSONResponse({"detail": detail}, status, {"Connection": "close"})
    await response(scope, receive, send)


async def _drain(receive: Receive) -> None:
    """Take in some of a body that is not wanted: most clients read an answer only once they have sent theirs."""
    size = 0
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while size < DRAIN_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return
