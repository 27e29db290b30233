"""What a team would build instead: LangChain's agent with its SQLite saver behind FastAPI, streaming tokens.

Runs in an environment of its own (``bench/requirements-langchain.txt``); imports nothing of Parley.
"""
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import BaseModel

PROMPT = "You are a helpful assistant."
CREDENTIALS = os.environ["BENCH_CREDENTIALS"]


class Ask(BaseModel):
    message: str


@tool
def get_organization_credentials() -> str:
    """List the credentials this organization has, without any secret."""
    return CREDENTIALS


def _frame(kind: str, data: dict[str, str]) -> str:
    return f"data: {json.dumps({'type': kind, 'data': data})}\n\n"


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with AsyncSqliteSaver.from_conn_string(os.environ["BENCH_STORE"]) as saver:
        await saver.setup()
        model = ChatOpenAI(
            model="gpt-4o",
            base_url=os.environ["BENCH_MODEL_URL"],
            api_key=os.environ["BENCH_MODEL_KEY"],
            stream_usage=True,
        )
        app.state.agent = create_agent(model, [get_organization_credentials], system_prompt=PROMPT, checkpointer=saver)
        yield


app = FastAPI(lifespan=_lifespan)


@app.post("/chat")
async def chat(ask: Ask) -> StreamingResponse:
    thread = {"configurable": {"thread_id": str(uuid4())}}
    messages = {"messages": [{"role": "user", "content": ask.message}]}

    async def frames() -> AsyncGenerator[str]:
        async for message, _ in app.state.agent.astream(messages, thread, stream_mode="messages"):
            if isinstance(message, AIMessageChunk) and message.content:
                yield _frame("response_chunk", {"chunk": str(message.content)})
        yield _frame("done", {})

    return StreamingResponse(frames(), media_type="text/event-stream")


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(os.environ["BENCH_PORT"]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
