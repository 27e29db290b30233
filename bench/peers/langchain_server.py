"""What a team would build instead: LangChain's agent with a saver behind FastAPI, streaming tokens.

``BENCH_STORE`` is a PostgreSQL URL or the path of an SQLite file. Runs in an environment of its own
(``requirements/peers-langchain.lock``); imports nothing of Parley.
"""
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from bench.peers.peer_app import CONNECTIONS, PROMPT, Ask, create_issue, frame, get_organization_credentials, serve

STORE = os.environ["BENCH_STORE"]


class Again(BaseModel):
    thread_id: str


@asynccontextmanager
async def _saver() -> AsyncGenerator[BaseCheckpointSaver[str]]:
    """The saver of the store, set up."""
    if not STORE.startswith("postgresql://"):
        async with AsyncSqliteSaver.from_conn_string(STORE) as saver:
            await saver.setup()
            yield saver
        return
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(STORE, min_size=1, max_size=CONNECTIONS, kwargs=options) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with _saver() as saver:
        model = ChatOpenAI(
            model="gpt-4o",
            base_url=os.environ["BENCH_MODEL_URL"],
            api_key=os.environ["BENCH_MODEL_KEY"],
            stream_usage=True,
        )
        tools = [get_organization_credentials, create_issue]
        app.state.agent = create_agent(model, tools, system_prompt=PROMPT, checkpointer=saver)
        yield


app = FastAPI(lifespan=_lifespan)


def _thread(thread_id: str) -> dict[str, dict[str, str]]:
    return {"configurable": {"thread_id": thread_id}}


@app.post("/chat")
async def chat(ask: Ask) -> StreamingResponse:
    messages = {"messages": [{"role": "user", "content": ask.message}]}
    return _streamed(messages, ask.thread_id)


@app.post("/again")
async def again(ask: Again) -> StreamingResponse:
    """Go on with a thread from where its last checkpoint left it."""
    return _streamed(None, ask.thread_id)


def _streamed(messages: dict[str, list[dict[str, str]]] | None, thread_id: str) -> StreamingResponse:
    async def frames() -> AsyncGenerator[str]:
        async for message, _ in app.state.agent.astream(messages, _thread(thread_id), stream_mode="messages"):
            if isinstance(message, AIMessageChunk) and message.content:
                yield frame("response_chunk", {"chunk": str(message.content)})
        yield frame("done", {})

    return StreamingResponse(frames(), media_type="text/event-stream")


@app.get("/finished/{thread_id}")
async def finished(thread_id: str) -> bool:
    """Whether the last message of the thread, as it is kept, is an answer and nothing is left to do."""
    state = await app.state.agent.aget_state(_thread(thread_id))
    messages = state.values.get("messages", [])
    return bool(messages) and not state.next and isinstance(messages[-1], AIMessage)


if __name__ == "__main__":
    serve(app)
