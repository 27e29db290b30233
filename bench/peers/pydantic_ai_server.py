"""The other thing a team would build: a pydantic-ai agent behind FastAPI that keeps each chat's messages in a row.

The library keeps nothing itself; this does what its manual shows: all messages as JSON, once the run is over.
Runs in an environment of its own (``requirements/peers-pydantic-ai.lock``); imports nothing of Parley.
"""
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false, reportUnknownParameterType=false

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic_ai import Agent
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessagesTypeAdapter,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResultEvent

from bench.peers.peer_app import CONNECTIONS, PROMPT, Ask, create_issue, frame, get_organization_credentials, serve

PROVIDER = OpenAIProvider(base_url=os.environ["BENCH_MODEL_URL"], api_key=os.environ["BENCH_MODEL_KEY"])
agent = Agent(
    OpenAIChatModel("gpt-4o", provider=PROVIDER),
    system_prompt=PROMPT,
    tools=[get_organization_credentials, create_issue],
)


def _said(event: AgentStreamEvent) -> str:
    """The text that an event of a run brings."""
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with asyncpg.create_pool(os.environ["BENCH_STORE"], min_size=1, max_size=CONNECTIONS) as pool:
        await pool.execute("CREATE TABLE IF NOT EXISTS chats (thread_id text PRIMARY KEY, messages jsonb NOT NULL)")
        app.state.pool = pool
        yield


app = FastAPI(lifespan=_lifespan)


@app.post("/chat")
async def chat(ask: Ask) -> StreamingResponse:
    async def frames() -> AsyncGenerator[str]:
        pool = app.state.pool
        kept = await pool.fetchval("SELECT messages FROM chats WHERE thread_id = $1", ask.thread_id)
        history = ModelMessagesTypeAdapter.validate_json(kept) if kept else None
        async with agent.run_stream_events(ask.message, message_history=history) as events:
            async for event in events:
                if text := _said(event):
                    yield frame("response_chunk", {"chunk": text})
                if isinstance(event, AgentRunResultEvent):
                    await pool.execute(
                        "INSERT INTO chats VALUES ($1, $2) ON CONFLICT (thread_id) DO UPDATE SET messages = $2",
                        ask.thread_id,
                        event.result.all_messages_json().decode(),
                    )
        yield frame("done", {})

    return StreamingResponse(frames(), media_type="text/event-stream")


@app.get("/finished/{thread_id}")
async def finished(thread_id: str) -> bool:
    """Whether the chat has its answer; nothing is kept before that."""
    return await app.state.pool.fetchval("SELECT EXISTS (SELECT 1 FROM chats WHERE thread_id = $1)", thread_id)


if __name__ == "__main__":
    serve(app)
