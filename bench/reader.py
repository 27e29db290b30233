"""One adapter on its own: a process that asks a model for replies and reads them to their end.

An order names the wire format, the provider's address and key, and how many replies, how many at once.
"""

import asyncio
import time
from contextlib import aclosing

import aiohttp

from bench.child import Order, take_orders
from parley.llm.anthropic_messages import AnthropicMessages
from parley.llm.http_model import HttpModel
from parley.llm.openai_chat import OpenAIChat
from parley.llm.providers import Endpoint, find_provider
from parley.turn.model import Prompt, Reply, ToolSpec, UserEntry

LOOKUP = ToolSpec("lookup", "Look something up.", {"type": "object", "properties": {"q": {"type": "string"}}})
PROMPT = Prompt("You are Parley.", [UserEntry("Hello")], [LOOKUP])


async def _read(order: Order, session: aiohttp.ClientSession) -> int:
    """One reply; the characters of its text."""
    provider = find_provider(order["wire"])
    assert provider is not None
    endpoint = Endpoint(provider, order["url"], order["key"], "the bench's key")
    wire = OpenAIChat if order["wire"] == "openai" else AnthropicMessages
    async with aclosing(HttpModel(wire(endpoint, "model-1"), endpoint, session).reply(PROMPT)) as stream:
        async for part in stream:
            if isinstance(part, Reply):
                return len(part.text)
    raise AssertionError("a stream ended without its reply")


async def _carry_out(order: Order) -> Order:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        free = asyncio.Semaphore(order["at_once"])

        async def one() -> int:
            async with free:
                return await _read(order, session)

        cpu = time.process_time()
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(one()) for _ in range(order["replies"])]
        return {"cpu": time.process_time() - cpu, "characters": [task.result() for task in reading]}


if __name__ == "__main__":
    take_orders(_carry_out)
