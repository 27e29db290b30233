"""More vendors through any-llm, an optional extra: ``pip install parley[vendors]`` (decision 0018).

Slower than the adapters of our own, and only for vendors whose whole access is an API key: what is
missing the library takes from the environment, which is the operator's and not the organization's.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from importlib import import_module
from typing import Any

import msgspec

from parley.llm import failures
from parley.llm.exchange import Limits
from parley.llm.failures import Problem
from parley.llm.http_model import Decoder
from parley.llm.openai_chat import OpenAIChat
from parley.llm.providers import Endpoint
from parley.turn.model import ModelError, Prompt, ReplyPart, Usage

KEYED_VENDORS = frozenset(
    {
        "cerebras",
        "cohere",
        "dashscope",
        "deepinfra",
        "fireworks",
        "huggingface",
        "minimax",
        "moonshot",
        "nebius",
        "perplexity",
        "sambanova",
        "together",
        "zai",
    }
)
STATUSES: Mapping[str, int] = {
    "AuthenticationError": 401,
    "ContentFilterError": 400,
    "ContextLengthExceededError": 413,
    "GatewayTimeoutError": 504,
    "InsufficientFundsError": 402,
    "InvalidRequestError": 400,
    "ModelNotFoundError": 404,
    "RateLimitError": 429,
}
"""What the library's own errors stand for; every other one is a provider that does not work."""

LOAD_SECONDS = 60.0

logger = logging.getLogger(__name__)


class VendorModel:
    """Fulfils ``turn.model.Model`` for a model id of ``vendor/model``. Serves one run.

    On this side of the library requests and chunks have the OpenAI form, so the same code makes and reads them.
    """

    def __init__(
        self, endpoint: Endpoint, model_id: str, *, temperature: float | None = None, limits: Limits | None = None
    ) -> None:
        self._vendor, _, self._model = model_id.partition("/")
        self._endpoint = endpoint
        self._limits = limits or Limits()
        self._wire = OpenAIChat(endpoint, self._model, temperature=temperature, limits=self._limits)
        self._decoder: Decoder | None = None

    async def reply(self, prompt: Prompt) -> AsyncGenerator[ReplyPart]:
        """Stream one reply (``turn.model.Model``)."""
        self._decoder = None
        body = self._wire.request(prompt, frozenset()).body
        decoder = self._wire.decoder(prompt, len(body))
        client: Any = None
        try:
            client = await self._bounded(lambda: asyncio.to_thread(self._open), LOAD_SECONDS)
            parameters = msgspec.json.decode(body)
            chunks = await self._bounded(lambda: client.acompletion(**parameters), self._limits.idle_seconds)
            self._decoder = decoder
            async with aclosing(self._read(chunks, decoder)) as parts:
                async for part in parts:
                    yield part
            whole = decoder.reply()
        except ModelError as error:
            error.usage = self.partial_usage()
            error.text = self._decoder.text() if self._decoder else ""
            raise
        finally:
            await _close(getattr(client, "client", None))
        yield whole

    def partial_usage(self) -> Usage:
        """Tokens of the present call so far; nothing before the provider accepted it."""
        return self._decoder.usage() if self._decoder else Usage()

    def _open(self) -> Any:
        """The library's client; the library itself takes seconds to load, once."""
        return import_module("any_llm").AnyLLM.create(
            self._vendor,
            api_key=self._endpoint.api_key,
            api_base=self._endpoint.base_url or None,
            unified_exceptions=True,
        )

    async def _read(self, chunks: Any, decoder: Decoder) -> AsyncGenerator[ReplyPart]:
        """The parts of the reply, chunk by chunk. Raises ModelError."""
        deadline = time.monotonic() + self._limits.reply_seconds
        async with aclosing(chunks):
            while not decoder.finished:
                chunk = await self._bounded(lambda: anext(chunks, None), self._limits.idle_seconds)
                if time.monotonic() > deadline:
                    raise failures.oversized(self._endpoint)
                try:
                    if chunk is None:
                        decoder.end()
                    else:
                        decoder.take([chunk.model_dump_json(exclude_none=True).encode()])
                except ModelError:
                    for part in decoder.fresh():
                        yield part
                    raise
                for part in decoder.fresh():
                    yield part

    async def _bounded[T](self, ask: Callable[[], Awaitable[T]], seconds: float) -> T:
        """One step of the library, which may take so long. Raises ModelError for whatever it raises."""
        try:
            async with asyncio.timeout(seconds):
                return await ask()
        except TimeoutError:
            raise failures.silent(self._endpoint, seconds) from None
        except ImportError:
            sentence = f"{self._vendor} needs a package of its own here: any-llm-sdk[{self._vendor}]. Ask the operator."
            raise ModelError("request", sentence) from None
        except Exception as error:  # a dozen vendors' libraries, each with errors of its own
            name = type(error).__name__
            logger.warning("%s did not answer: %s", self._vendor, name)
            problem = Problem(STATUSES.get(name, 500), text=str(error)[:2_000])
            raise failures.error_for(problem, self._endpoint, self._model) from error


async def _close(client: Any) -> None:
    """Let go of the vendor library's connections, where it has a way to."""
    close = getattr(client, "close", None)
    closing = close() if callable(close) else None
    if isinstance(closing, Awaitable):
        await closing
