"""The event stream as a raw ASGI response: few objects per open stream, many events per write (contract §4).

A disconnect ends the stream and nothing else: the run goes on, and the reader may come back with its
cursor (``Last-Event-ID`` or ``?after=``).
"""

import asyncio
import logging
from collections import Counter
from urllib.parse import parse_qs

from starlette.types import Message, Receive, Scope, Send

from parley.accounts import Caller
from parley.base.errors import Refusal, TooManyRequests
from parley.chats import Chats, check_run
from parley.http.errors import StoreUnavailable, refusal_response
from parley.http.identity import Identity
from parley.runs import Cursor, Tail, parse_cursor
from parley.storage import StoreAway
from parley.tools import ASSISTANT

HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
MEMBERSHIP_SECONDS = 30.0
RETRY_SECONDS = 5

log = logging.getLogger(__name__)
PREFIX, MIDDLE = "/assistant/chat/", "/listen/"


def listen_path(scope: Scope) -> tuple[str, str] | None:
    """``(chat id, run id)`` when the request is for ``/assistant/chat/{chat_id}/listen/{run_id}``."""
    path: str = scope["path"]
    if scope["type"] != "http" or not path.startswith(PREFIX):
        return None
    chat_id, middle, run_id = path.removeprefix(PREFIX).partition(MIDDLE)
    return (chat_id, run_id) if middle and chat_id and run_id and "/" not in chat_id + run_id else None


class TooManyStreams(TooManyRequests):
    """Too many streams are open at once. Close some, then open this one again."""

    def __init__(self) -> None:
        super().__init__(headers={"Retry-After": str(RETRY_SECONDS)})


class OnlyGet(Refusal):
    """Streams are read with GET"""

    status = 405

    def __init__(self) -> None:
        super().__init__(headers={"Allow": "GET"})


class Seats:
    """How many streams are open in this process, by key or session's person and by organization (trust T18)."""

    def __init__(self, per_key: int, per_organization: int) -> None:
        self._per_key = per_key
        self._per_organization = per_organization
        self._taken: Counter[str] = Counter()

    def take(self, caller: Caller) -> None:
        """One stream's place, to be given back by ``leave``. Raises TooManyStreams 429."""
        key, organization = _holders(caller)
        if self._taken[key] >= self._per_key or self._taken[organization] >= self._per_organization:
            raise TooManyStreams
        self._taken.update((key, organization))

    def leave(self, caller: Caller) -> None:
        """Give the place back."""
        self._taken.subtract(_holders(caller))
        self._taken += Counter()


def _holders(caller: Caller) -> tuple[str, str]:
    return f"key {caller.api_key_id or caller.user_id}", caller.organization_id


class Listeners:
    """The open streams of this process, by what let their readers in (trust T3, T17)."""

    def __init__(self) -> None:
        self._streams: dict[str, set[Tail]] = {}

    def enter(self, caller: Caller, tail: Tail) -> None:
        """Keep a stream in mind while it is open."""
        for each in _admitted_by(caller):
            self._streams.setdefault(each, set()).add(tail)

    def leave(self, caller: Caller, tail: Tail) -> None:
        """The stream has ended."""
        for each in _admitted_by(caller):
            self._streams[each].discard(tail)
            if not self._streams[each]:
                del self._streams[each]

    def end(self, changed_id: str) -> None:
        """End the streams of a key or a person: whoever still may comes back with their cursor."""
        for tail in tuple(self._streams.get(changed_id, ())):
            tail.subscriber.close()


def _admitted_by(caller: Caller) -> set[str]:
    return {caller.user_id, caller.api_key_id or caller.user_id}


class EventStreams:
    """Serves every open stream of this process."""

    def __init__(self, chats: Chats, identity: Identity) -> None:
        self._listeners = Listeners()
        identity.when_doubted(self._listeners.end)
        self._seats = Seats(chats.settings.streams_per_key, chats.settings.streams_per_organization)
        self._chats = chats
        self._identity = identity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ``listen`` request: 404 before any frame, else frames until the run ends."""
        path = listen_path(scope)
        if path is None:
            raise LookupError("not a listen request")
        if scope["method"] != "GET":
            await refusal_response(OnlyGet())(scope, receive, send)
            return
        chats, cursor, (chat_id, run_id) = self._chats, _cursor(scope), path
        try:
            caller = await self._admit(scope, chat_id, run_id)
        except Refusal as refusal:
            await refusal_response(refusal)(scope, receive, send)
            return
        tail = Tail(chats.store, chats.hub, run_id, cursor, chats.settings.stream_heartbeat_seconds)
        self._listeners.enter(caller, tail)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(_watch_disconnect(receive, tail))
                await self._send_frames(scope, chat_id, run_id, tail, send)
                watch.cancel()
        finally:
            self._listeners.leave(caller, tail)
            tail.close()
            self._seats.leave(caller)

    async def _admit(self, scope: Scope, chat_id: str, run_id: str) -> Caller:
        """The caller, who has a place from now on. Raises Refusals, also while the store is away."""
        try:
            caller = await self._identity.authenticate(scope)
            await check_run(self._chats, caller, ASSISTANT, chat_id, run_id)
        except StoreAway:
            raise StoreUnavailable from None
        self._seats.take(caller)
        return caller

    async def _send_frames(self, scope: Scope, chat_id: str, run_id: str, tail: Tail, send: Send) -> None:
        loop = asyncio.get_running_loop()
        checked = loop.time()
        while not tail.ended:
            try:
                frames = await tail.next()
                if loop.time() - checked > MEMBERSHIP_SECONDS:
                    checked = loop.time()
                    if not await self._still_allowed(scope, chat_id, run_id):
                        break
            except StoreAway as error:
                log.warning("a stream of run %s ends early (%s); its reader may come back", run_id, error)
                break
            if frames:
                await send({"type": "http.response.body", "body": frames, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _still_allowed(self, scope: Scope, chat_id: str, run_id: str) -> bool:
        """Whether the reader is still a member, the key still good, the chat still there (trust T3)."""
        try:
            caller = await self._identity.recheck(scope)
            await check_run(self._chats, caller, ASSISTANT, chat_id, run_id)
        except Refusal:
            return False
        return True


async def _watch_disconnect(receive: Receive, tail: Tail) -> None:
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            tail.subscriber.close()
            return


def _cursor(scope: Scope) -> Cursor:
    for name, value in scope["headers"]:
        if name == b"last-event-id":
            return parse_cursor(value.decode("latin-1"))
    query = parse_qs(scope["query_string"].decode("latin-1"))
    return parse_cursor(query["after"][0] if "after" in query else None)
