"""What the peers' servers share: what they are asked, the tools of their agents, their frames, how they are served.

Runs in a peer's own environment; imports nothing of Parley.
"""
# pyright: reportMissingImports=false

import json
import os

import httpx2
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

PROMPT = "You are a helpful assistant."
CONNECTIONS = 15
"""As many as a Parley process holds."""


class Ask(BaseModel):
    """A message in a thread."""

    thread_id: str
    message: str


def get_organization_credentials() -> str:
    """List the credentials this organization has, without any secret."""
    return os.environ["BENCH_CREDENTIALS"]


async def create_issue(title: str) -> str:
    """Create an issue in the hello-world repository."""
    async with httpx2.AsyncClient() as client:
        answer = await client.post(
            "https://api.github.com/repos/octocat/hello-world/issues",
            json={"title": title},
            headers={"Authorization": f"Bearer {os.environ['BENCH_GITHUB_TOKEN']}"},
        )
        answer.raise_for_status()
        return answer.text


def frame(kind: str, data: dict[str, str]) -> str:
    """One server-sent event."""
    return f"data: {json.dumps({'type': kind, 'data': data})}\n\n"


def serve(app: FastAPI) -> None:
    """Serve on ``BENCH_PORT`` until the process is ended."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(os.environ["BENCH_PORT"]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
