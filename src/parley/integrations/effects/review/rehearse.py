"""Running an action without a network: what it would send, and nothing else.

httpx answers from a script, every other way out is closed, waiting takes no time. Only the review
of the effect table uses this; it replaces parts of httpx, so never import it in a server.
"""

import asyncio
import socket
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, override

import httpx
from httpx._transports import default as transports
from langchain_core.tools import StructuredTool

from parley.integrations import transport

SECONDS = 5.0
OFFLINE_HOST = "anything.example"


class Answers(StrEnum):
    """How the pretended provider answers."""

    EMPTY = "an empty object"
    OBJECT = "an object that has every key"
    TEXT = "a URL that has every key too"
    LIST = "a list of such objects"
    MISSING = "404"


@dataclass(frozen=True, slots=True)
class Sent:
    """One request an action made; ``path`` is as it goes over the wire, without the query."""

    method: str
    host: str
    path: str


@dataclass(slots=True)
class Stage:
    """A rehearsal in progress: what has been sent, and how it is answered."""

    answers: Answers = Answers.EMPTY
    sent: list[Sent] = field(default_factory=list[Sent])

    def take(self, request: httpx.Request) -> httpx.Response:
        """Note the request and answer it."""
        path = request.url.raw_path.decode("ascii", "replace").partition("?")[0]
        self.sent.append(Sent(request.method, request.url.host, path))
        status = httpx.codes.NOT_FOUND if self.answers is Answers.MISSING else httpx.codes.OK
        return httpx.Response(status, json={}, request=request)

    def value(self) -> object:
        """What ``response.json()`` gives."""
        match self.answers:
            case Answers.OBJECT:
                return AnyObject()
            case Answers.TEXT:
                return AnyText()
            case Answers.LIST:
                return [AnyObject()]
            case Answers.EMPTY | Answers.MISSING:
                return {}


class _AnyMembers:
    """Every member there could be, each of the same kind."""

    def _member(self) -> Any:
        return type(self)()

    def __getitem__(self, key: object) -> Any:
        return self._member()

    def get(self, _key: object, _default: object = None) -> Any:
        return self._member()

    def __iter__(self) -> Iterator[Any]:
        return iter((self._member(),))

    def items(self) -> Any:
        return [("key", self._member())]

    def values(self) -> Any:
        return [self._member()]

    def keys(self) -> Any:
        return ["key"]

    def __len__(self) -> int:
        return 1

    def __int__(self) -> int:
        return 1

    def __float__(self) -> float:
        return 1.0


class AnyObject(_AnyMembers, dict[str, Any]):
    """A JSON object that has every key."""

    @override
    def __iter__(self) -> Iterator[Any]:
        return iter(("key",))

    @override
    def __format__(self, format_spec: str) -> str:
        return "anything"

    @override
    def __str__(self) -> str:
        return "anything"

    def __getattr__(self, name: str) -> Any:
        """Methods of a text, such as ``strip``."""
        return getattr("anything", name)


class AnyText(_AnyMembers, str):
    """The text of an address that has the members of an object too, and can be sent on as JSON."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return super().__new__(cls, f"https://{OFFLINE_HOST}")


@contextmanager
def offline() -> Generator[Stage]:
    """Within it, actions reach the stage instead of a network."""
    stage = Stage()
    transport.install()
    with ExitStack() as closing:
        for owner, name, replacement in _replacements(stage):
            closing.enter_context(_replaced(owner, name, replacement))
        yield stage


async def rehearse(stage: Stage, tool: StructuredTool, arguments: Mapping[str, object]) -> list[Sent]:
    """What the action sends when called so; at most five seconds. How it ends does not matter."""
    stage.sent.clear()
    with suppress(Exception):  # an action that fails on pretended data has still shown what it sends
        async with asyncio.timeout(SECONDS):
            await tool.ainvoke(dict(arguments))
    return list(stage.sent)


def _replacements(stage: Stage) -> list[tuple[Any, str, object]]:
    async def handle_async(_self: object, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return stage.take(request)

    def handle(_self: object, request: httpx.Request) -> httpx.Response:
        request.read()
        return stage.take(request)

    def value(_self: object, **_options: object) -> object:
        return stage.value()

    def refuse(*_arguments: object, **_options: object) -> object:
        raise OSError("a rehearsal has no network")

    sleep = asyncio.sleep

    async def at_once(_seconds: float, result: object = None) -> object:
        await sleep(0)
        return result

    def wait(_seconds: float) -> None:
        return

    return [
        (transports.AsyncHTTPTransport, "handle_async_request", handle_async),
        (transports.HTTPTransport, "handle_request", handle),
        (httpx.Response, "json", value),
        (socket.socket, "connect", refuse),
        (socket, "getaddrinfo", refuse),
        (socket, "create_connection", refuse),
        (asyncio, "sleep", at_once),
        (time, "sleep", wait),
    ]


@contextmanager
def _replaced(owner: Any, name: str, replacement: object) -> Generator[None]:
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
