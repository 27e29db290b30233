"""A small stage for stories over HTTP: a running Parley, a scripted model, a fake GitHub, and one caller."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
from sqlalchemy import func, select, text

from parley.base.clock import Clock
from parley.billing.verify import billing_faults
from parley.chats.verify import chat_faults
from parley.storage import ReadTx
from parley.storage.tables.billing import ledger
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedCall, ScriptedReply
from parley.wiring import Parley

type Json = dict[str, Any]
STREAM_SECONDS = 30.0
ENDS = {"done", "cancelled", "interrupted", "run_resumed"}


@dataclass(slots=True)
class Answer:
    """What the server said."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def detail(self) -> str:
        return str(self.body["detail"])


@dataclass(slots=True)
class Client:
    """One key in one organization, speaking plain HTTP; without a key, the session in the cookies of ``session``."""

    base_url: str
    session: aiohttp.ClientSession
    key: str
    organization_id: str
    extra: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def headers(self) -> dict[str, str]:
        shown = {"Authorization": f"Bearer {self.key}"} if self.key else {"Sec-Fetch-Site": "same-origin"}
        return {**shown, "X-Organization-ID": self.organization_id, **self.extra}

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(
            method,
            self.base_url + path,
            json=body,
            headers={**self.headers, **names},
            timeout=aiohttp.ClientTimeout(total=20),
        ) as response:
            said = await response.text()
            parsed = json.loads(said) if said else None
            return Answer(response.status, parsed, dict(response.headers))

    async def get(self, path: str) -> Answer:
        return await self.call("GET", path)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.call("POST", path, body, **headers)

    async def listen(self, chat_id: str, run_id: str, after: str | None = None) -> list[Json]:
        """Every event until the server closes the stream."""
        return [event async for event in self.stream(chat_id, run_id, after)]

    async def stream(self, chat_id: str, run_id: str, after: str | None = None) -> AsyncIterator[Json]:
        """Events as they come, heartbeats included; each has its ``id`` under ``_id``."""
        path = f"{self.base_url}/assistant/chat/{chat_id}/listen/{run_id}"
        query = f"?after={after}" if after else ""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=STREAM_SECONDS)
        async with self.session.get(path + query, headers=self.headers, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            cursor = None
            async for line in response.content:
                said = line.decode().rstrip("\n")
                if said.startswith("id: "):
                    cursor = said.removeprefix("id: ")
                elif said.startswith("data: "):
                    yield {**json.loads(said.removeprefix("data: ")), "_id": cursor}


@dataclass(slots=True)
class Stage:
    """One running Parley with everything around it."""

    parley: Parley
    clock: Clock
    client: Client
    model: ScriptedModel
    model_key: str
    llm: Json

    async def script(self, *replies: ScriptedReply) -> None:
        """What the model says next."""
        await self.model.script(self.model_key, *replies)

    async def sent(self) -> list[Any]:
        """The bodies of the model requests so far."""
        return [request.body for request in await self.model.requests(self.model_key)]

    async def start(self, message: str = "Do it", chat_id: str | None = None) -> Json:
        """Begin a turn; it must be accepted."""
        body = {"message": message, "llm": self.llm, **({"chat_id": chat_id} if chat_id else {})}
        answer = await self.client.post("/assistant/chat", body)
        assert answer.status == 200, answer.body
        return answer.body

    async def turn(self, *replies: ScriptedReply, message: str = "Do it", chat_id: str | None = None) -> "Turn":
        """Script, begin and follow a turn to where its stream closes or pauses."""
        await self.script(*replies)
        started = await self.start(message, chat_id)
        return await self.follow(started)

    async def follow(self, started: Json) -> "Turn":
        """Follow a turn until it ends or asks."""
        events: list[Json] = []
        async for event in self.client.stream(started["chat_id"], started["run_id"]):
            events.append(event)
            if event["type"] == "user_input_request":
                await self.settled(started["chat_id"])
                break
        return Turn(started["chat_id"], started["run_id"], events)

    async def settled(self, chat_id: str) -> Json:
        """The chat's status once nothing runs in it."""
        async with asyncio.timeout(STREAM_SECONDS):
            while True:
                status = (await self.client.get(f"/assistant/chat/{chat_id}/status")).body
                if not status["is_running"]:
                    return status
                await asyncio.sleep(0.01)

    async def resume(self, turn: "Turn", response: Json, **headers: str) -> Answer:
        """Answer the question a turn ended with."""
        body = {"request_id": turn.question["request_id"], "response": response, "llm": self.llm}
        return await self.client.post(f"/assistant/chat/{turn.chat_id}/resume", body, **headers)

    async def credits(self) -> int:
        """Micro-credits that turns have cost so far; not negative."""
        work = select(func.coalesce(func.sum(ledger.c.amount_micro), 0)).where(ledger.c.kind == "turn")
        return abs(int(await self.parley.store.read(lambda tx: tx.execute(work).scalar_one())))

    async def tables_with(self, word: str) -> set[str]:
        """The tables of the store of which some row holds the word."""
        stored = await self.parley.store.read(everything)
        return {name for name, rows in stored.items() if word in rows}

    async def connect_github(self, token: str) -> str:
        """Give the organization a GitHub credential; its id."""
        body = {"integration_name": "github", "auth_type": "bearer_token", "auth_data": {"token": token}}
        answer = await self.client.post("/credentials", body)
        assert answer.status == 201, answer.body
        return answer.body["credential_id"]


@dataclass(slots=True)
class Turn:
    """A turn as its stream told it."""

    chat_id: str
    run_id: str
    events: list[Json]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events if event["type"] != "heartbeat"]

    @property
    def text(self) -> str:
        return "".join(event["data"]["chunk"] for event in self.events if event["type"] == "response_chunk")

    def data(self, kind: str) -> Json:
        """The data of the first event of a type."""
        return next(event["data"] for event in self.events if event["type"] == kind)

    def every(self, kind: str) -> list[Json]:
        return [event["data"] for event in self.events if event["type"] == kind]

    @property
    def question(self) -> Json:
        return self.data("user_input_request")


def output_of(turn: Turn) -> Any:
    """What the first tool call of a turn came to; the turn must have ended well."""
    assert turn.types[-1] == "done", turn.events
    assert "error" not in turn.types, turn.events
    return turn.data("tool_result")["output"]


def says(*pieces: str, **more: Any) -> ScriptedReply:
    """A reply of text only."""
    return ScriptedReply(text=list(pieces), **more)


def calls(name: str, arguments: Json | str | None = None, *, text: str = "", id: str = "call_1") -> ScriptedReply:  # noqa: A002
    """A reply that asks for one tool."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ScriptedReply(text=[text] if text else [], calls=[ScriptedCall(name, raw, id)])


def executes(action: str, parameters: Json | None = None, *, integration: str = "github", **more: Any) -> ScriptedReply:
    """A reply that runs one action."""
    arguments = {"integration_name": integration, "tool_name": action, "parameters": parameters or {}}
    return calls("execute_integration_tool", arguments, **more)


@asynccontextmanager
async def caller(base_url: str, key: str, organization_id: str) -> AsyncGenerator[Client]:
    """A client with connections of its own."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield Client(base_url, session, key, organization_id)


def shown_text(events: list[Json]) -> str:
    """The text a watcher shows: `metadata` in mid-run starts the unfinished reply over (durability §4.7)."""
    settled, unfinished = "", ""
    for event in events:
        match event["type"]:
            case "response_chunk":
                unfinished += event["data"]["chunk"]
            case "metadata":
                unfinished = ""
            case "tool_call":
                settled, unfinished = settled + unfinished, ""
            case _:
                pass
    return settled + unfinished


def everything(tx: ReadTx) -> dict[str, str]:
    """The rows of every table of the store, whoever made it, as one text a table."""
    if tx.dialect.name == "sqlite":
        names = text("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'")
    else:
        names = text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return {
        name: "\n".join(repr(tuple(row)) for row in tx.execute(text(f'SELECT * FROM "{name}"')))
        for name in list(tx.execute(names).scalars())
    }


async def faults(parley: Parley) -> list[str]:
    """What ``parley verify`` would say of the store."""
    chats = await parley.store.read(chat_faults)
    money = await parley.store.read(lambda tx: billing_faults(tx, parley.plans))
    return [*chats, *money]


def new_model_key() -> str:
    return f"sk-scripted-{uuid4().hex}"
