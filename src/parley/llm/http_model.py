"""A model behind HTTP: one wire format, one endpoint, one reply at a time."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Protocol

import aiohttp

from parley.llm import failures
from parley.llm.exchange import EventStream, Exchange, Limits, Request
from parley.llm.failures import ParameterRefused
from parley.llm.providers import Endpoint
from parley.turn.model import ModelError, Prompt, Reply, ReplyPart, TextDelta, ThinkingDelta, Usage

CHARACTERS_PER_TOKEN = 4
# More than the window of any model.
MOST_TOKENS = 20_000_000
# What the record of a tool call has room for; what a model makes up may be longer.
TOOL_NAME_CHARACTERS = 60
CALL_ID_CHARACTERS = 255


class Decoder(Protocol):
    """What one reply amounts to so far. Knows bytes and meaning, no connection."""

    finished: bool

    def take(self, events: Sequence[bytes]) -> None:
        """Read these events. Raises ModelError for an error or garbage in the stream."""
        ...

    def fresh(self) -> list[ReplyPart]:
        """The text and thinking since the last time, also when an error came in their midst."""
        ...

    def end(self) -> None:
        """The stream ended: finishes the reply, or raises ModelError if it is not whole."""
        ...

    def reply(self) -> Reply:
        """The whole reply. Raises ModelError if the provider declined."""
        ...

    def usage(self) -> Usage:
        """The provider's figures as far as it gave them, else estimates."""
        ...

    def text(self) -> str:
        """The answer's text so far."""
        ...


class WireFormat(Protocol):
    """How one family of providers is spoken to. Fulfilled by ``OpenAIChat`` and ``AnthropicMessages``."""

    def request(self, prompt: Prompt, refused: frozenset[str]) -> Request:
        """The request for one reply, without the optional parameters that were refused."""
        ...

    def decoder(self, prompt: Prompt, sent_bytes: int) -> Decoder:
        """What reads the answer to a request of this size."""
        ...


class HttpModel:
    """Fulfils ``turn.model.Model``. Serves one run: a reply must end before the next one is asked for."""

    def __init__(
        self, wire: WireFormat, endpoint: Endpoint, session: aiohttp.ClientSession, limits: Limits | None = None
    ) -> None:
        self._wire = wire
        self._endpoint = endpoint
        self._exchange = Exchange(session, endpoint, limits or Limits())
        self._refused: frozenset[str] = frozenset()
        self._decoder: Decoder | None = None

    async def reply(self, prompt: Prompt) -> AsyncGenerator[ReplyPart]:
        """Stream one reply (``turn.model.Model``)."""
        self._decoder = None
        try:
            stream, decoder = await self._open(prompt)
            async with stream:
                while not decoder.finished:
                    try:
                        decoder.take(await stream.events())
                        if stream.ended and not decoder.finished:
                            decoder.end()
                    except ModelError:
                        for part in decoder.fresh():
                            yield part
                        raise
                    for part in decoder.fresh():
                        yield part
                await stream.drain()
            whole = replace(decoder.reply(), usage=self.partial_usage())
        except ModelError as error:
            error.usage = self.partial_usage()
            error.text = self._decoder.text() if self._decoder else ""
            raise
        yield whole

    def partial_usage(self) -> Usage:
        """Tokens of the present call so far; nothing before the provider accepted it."""
        return _believable(self._decoder.usage()) if self._decoder else Usage()

    async def _open(self, prompt: Prompt) -> tuple[EventStream, Decoder]:
        """Ask, leaving out what this endpoint turns out not to know."""
        while True:
            request = self._wire.request(prompt, self._refused)
            try:
                stream = await self._exchange.open(request)
            except ParameterRefused as refusal:
                self._refused |= {refusal.parameter}
                continue
            self._decoder = self._wire.decoder(prompt, len(request.body))
            return stream, self._decoder


class Pieces:
    """Text and thinking as they arrive, merged into one delta for each run of the same kind."""

    __slots__ = ("_endpoint", "_fresh", "_kind", "_left", "_parts", "text", "thinking")

    def __init__(self, endpoint: Endpoint, limits: Limits) -> None:
        self.text: list[str] = []
        self.thinking: list[str] = []
        self._endpoint = endpoint
        self._left = limits.text_characters
        self._kind: type[TextDelta | ThinkingDelta] = TextDelta
        self._fresh: list[str] = []
        self._parts: list[ReplyPart] = []

    def add(self, kind: type[TextDelta] | type[ThinkingDelta], piece: str) -> None:
        """Take a piece. Raises ModelError once there is more than any honest reply has."""
        piece = storable(piece)
        if kind is not self._kind:
            self._turn()
            self._kind = kind
        self._fresh.append(piece)
        (self.text if kind is TextDelta else self.thinking).append(piece)
        self._left -= len(piece)
        if self._left < 0:
            raise failures.oversized(self._endpoint)

    def fresh(self) -> list[ReplyPart]:
        """The deltas since the last time."""
        self._turn()
        parts, self._parts = self._parts, []
        return parts

    def _turn(self) -> None:
        if self._fresh:
            self._parts.append(self._kind("".join(self._fresh)))
            self._fresh.clear()


def _believable(usage: Usage) -> Usage:
    """The figures as far as any model can reach: a made-up number must neither be billed nor break the store."""
    given, output = min(usage.input, MOST_TOKENS), min(usage.output, MOST_TOKENS)
    return Usage(given, output, min(usage.cached, given), exact=usage.exact)


def storable(text: str, most: int | None = None) -> str:
    """The text as every store can keep it: without NUL characters, at most ``most`` characters long."""
    return text.replace("\0", "")[:most]


def said_tokens(figure: int | None) -> int:
    """A provider's figure as one that can be added up and stored: it may be missing, negative or absurd."""
    return min(max(0, figure or 0), MOST_TOKENS)


def estimated_tokens(characters: int) -> int:
    """About how many tokens a text has; used only where the provider says nothing."""
    return -(-characters // CHARACTERS_PER_TOKEN)
