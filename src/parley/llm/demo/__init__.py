"""The built-in demo model: fixed rules, no intelligence, so that a newcomer sees real turns at once.

It reads the conversation since the last message and picks the next step from it, so a turn goes on
after a pause or a restart like any other (README decision 12).
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from uuid import uuid4

import msgspec

from parley.llm.demo.reading import said
from parley.llm.demo.rules import Use, next_move
from parley.llm.http_model import estimated_tokens
from parley.llm.providers import DEMO
from parley.turn.model import Prompt, Reply, ReplyPart, TextDelta, ToolCall, Usage

DEMO_MODEL_ID = "demo"
LABEL = "**Demo model** (fixed rules, no intelligence): "
PACE_SECONDS = 0.012


class DemoModel:
    """Fulfils ``turn.model.Model`` by matching words."""

    def __init__(self, pace_seconds: float = PACE_SECONDS) -> None:
        self._pace_seconds = pace_seconds
        self._usage = Usage()

    async def reply(self, prompt: Prompt) -> AsyncGenerator[ReplyPart]:
        """Stream one reply (``turn.model.Model``)."""
        given = len(prompt.system) + sum(len(said(entry)) for entry in prompt.entries)
        self._usage = Usage(input=estimated_tokens(given), exact=False)
        move = next_move(prompt.entries, frozenset(tool.name for tool in prompt.tools))
        if isinstance(move, Use):
            arguments = msgspec.json.encode(move.arguments).decode()
            self._spend(len(arguments))
            call = ToolCall(f"demo_{uuid4().hex[:20]}", move.tool, arguments)
            yield Reply(text="", calls=[call], usage=self._usage, provider=DEMO)
            return
        text = LABEL + move.text
        for piece in re.findall(r"\S+\s*|\s+", text):
            self._spend(len(piece))
            yield TextDelta(piece)
            await asyncio.sleep(self._pace_seconds)
        yield Reply(text=text, usage=self._usage, provider=DEMO)

    def partial_usage(self) -> Usage:
        """Tokens so far, estimated: this model has no tokens of its own."""
        return self._usage

    def _spend(self, characters: int) -> None:
        tokens = estimated_tokens(characters)
        self._usage = Usage(self._usage.input, self._usage.output + tokens, exact=False)
