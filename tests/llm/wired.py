"""Both adapters in front of a scripted provider, and how a reply ended."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from uuid import uuid4

import aiohttp

from parley.llm.anthropic_messages import AnthropicMessages
from parley.llm.exchange import Limits
from parley.llm.http_model import HttpModel
from parley.llm.openai_chat import OpenAIChat
from parley.llm.providers import Endpoint, find_provider
from parley.llm.vendors import VendorModel
from parley.testing.scripted_model import Recorded, ScriptedModel, ScriptedReply
from parley.turn.model import (
    Entry,
    Model,
    ModelError,
    Prompt,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
    UserEntry,
)

QUICK = Limits(
    connect_seconds=2.0,
    idle_seconds=10.0,
    reply_seconds=30.0,
    retries=3,
    backoff_seconds=0.004,
    retry_seconds=1.5,
    event_bytes=1 << 20,
    reply_bytes=4 << 20,
    text_characters=1 << 20,
)
SILENCE = replace(QUICK, idle_seconds=0.3)
LOOKUP = ToolSpec(
    "lookup", "Look something up.", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
)
WIRES = ("openai", "anthropic")


@dataclass
class Outcome:
    """How one reply ended, with everything that was streamed before."""

    text: str = ""
    thinking: str = ""
    deltas: list[TextDelta | ThinkingDelta] = field(default_factory=list[TextDelta | ThinkingDelta])
    reply: Reply | None = None
    error: ModelError | None = None

    def whole(self) -> Reply:
        assert self.error is None, self.error
        assert self.reply is not None
        return self.reply

    def failure(self) -> ModelError:
        assert self.error is not None
        assert self.reply is None
        return self.error


def prompt(*entries: Entry, tools: Sequence[ToolSpec] = (LOOKUP,)) -> Prompt:
    return Prompt("You are Parley.", entries or (UserEntry("Hello"),), tools)


async def outcome(model: Model, said: Prompt) -> Outcome:
    """Everything that one reply gives."""
    seen = Outcome()
    try:
        async with aclosing(model.reply(said)) as stream:
            async for part in stream:
                assert seen.reply is None, "a Reply is the last part"
                if isinstance(part, Reply):
                    seen.reply = part
                    continue
                seen.deltas.append(part)
                if isinstance(part, TextDelta):
                    seen.text += part.text
                else:
                    seen.thinking += part.text
    except ModelError as error:
        seen.error = error
    return seen


@dataclass
class Wired:
    """One wire format, one scripted key, models that use it."""

    wire: str
    provider: ScriptedModel
    session: aiohttp.ClientSession
    key: str = field(default_factory=lambda: f"test-{uuid4().hex}")

    def endpoint(self, base_url: str = "") -> Endpoint:
        found = find_provider(self.wire)
        assert found is not None
        url = self.provider.openai_url if self.wire == "openai" else self.provider.anthropic_url
        if self.wire == "vendors":
            url = self.provider.openai_url
        return Endpoint(found, base_url or url, self.key, 'the credential "Team key"')

    def model(self, limits: Limits = QUICK, base_url: str = "", model_id: str = "model-1") -> Model:
        endpoint = self.endpoint(base_url)
        if self.wire == "vendors":
            return VendorModel(endpoint, f"deepinfra/{model_id}", limits=limits)
        wire = (OpenAIChat if self.wire == "openai" else AnthropicMessages)(endpoint, model_id, limits=limits)
        return HttpModel(wire, endpoint, self.session, limits)

    async def script(self, *replies: ScriptedReply) -> None:
        await self.provider.script(self.key, *replies)

    async def ask(self, *replies: ScriptedReply, said: Prompt | None = None, limits: Limits = QUICK) -> Outcome:
        await self.script(*replies)
        return await outcome(self.model(limits), said or prompt())

    async def requests(self) -> list[Recorded]:
        return await self.provider.requests(self.key)


type MakeWired = Callable[[str], Wired]


def impatient(**changes: float) -> Limits:
    """The quick limits with some of them changed."""
    return replace(QUICK, **changes)  # pyright: ignore[reportArgumentType]
