"""The Assistant's endpoints (contract §2); its event stream is in ``http/stream.py``."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Query
from pydantic import BaseModel, Field

from parley.accounts import Caller
from parley.base.clock import iso
from parley.base.errors import BadRequest
from parley.chats import (
    Chats,
    Opened,
    cancel_turn,
    chat_state,
    delete_chat,
    erase_chat,
    list_chats,
    open_chat,
    parse_answer,
    rename_chat,
    resume_turn,
    start_turn,
    whole_result,
    wire_status,
)
from parley.equipment import LlmChoice
from parley.http.identity import Identity
from parley.http.schemas import NOT_FOUND, SENTENCES, Detail, Malformed, described
from parley.runs import Chat
from parley.storage.once import once_key, run_once
from parley.tools import ASSISTANT

# An answer is held to its kind by the route itself, which says so in one sentence.
UNFIT: dict[int | str, dict[str, Any]] = {422: {"model": Malformed | Detail, "description": SENTENCES[422]}}


class MessageNotText(BadRequest):
    """message must be a JSON string: the Assistant takes text only."""


class LlmMissing(BadRequest):
    """llm is required to resume: the run is rebuilt with it."""


class LlmConfig(BaseModel):
    """Which model to use (contract §2.1)."""

    integration_name: str = Field(min_length=1, max_length=100)
    provider_id: str = Field(min_length=1, max_length=100)
    model_id: str = Field(min_length=1, max_length=200)
    credential_id: str | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)

    def choice(self) -> LlmChoice:
        """The same as the chats know it."""
        return LlmChoice(self.integration_name, self.provider_id, self.model_id, self.credential_id, self.temperature)


class ChatRequest(BaseModel):
    """Start or continue a turn. A ``message`` that is not a string answers 400, not 422."""

    message: Any
    chat_id: str | None = None
    llm: LlmConfig | None = None


class ResumeRequest(BaseModel):
    """Answer a question."""

    request_id: str
    response: dict[str, Any]
    llm: LlmConfig | None = None


class TitleRequest(BaseModel):
    """Rename a chat."""

    title: str


class Running(BaseModel):
    """A turn that has begun, and where its events are."""

    status: str
    chat_id: str
    run_id: str
    thread_id: str
    stream_url: str


class ChatSummary(BaseModel):
    """One chat in a list."""

    id: str
    title: str
    created_at: str
    updated_at: str
    is_running: bool
    awaiting_input: bool


class ChatPage(BaseModel):
    """Some chats, newest first."""

    items: list[ChatSummary]
    next_cursor: str | None


class Message(BaseModel):
    """What a person or the Assistant said."""

    id: str
    role: str
    content: str
    thinking: str | None
    run_id: str | None
    running_status: str | None
    created_at: str


class ChatDetail(BaseModel):
    """A chat with its messages and its open question."""

    id: str
    title: str
    running_id: str | None
    pending_user_input_request: dict[str, Any] | None
    created_at: str
    updated_at: str
    messages: list[Message]


class RunStatus(BaseModel):
    """The newest run of a chat."""

    run_id: str
    status: str
    started_at: str
    updated_at: str
    error: str | None
    reason: str | None


class ChatStatus(BaseModel):
    """Whether a chat is busy."""

    chat_id: str
    is_running: bool
    awaiting_input: bool
    pending_request_id: str | None
    running_id: str | None
    run_status: RunStatus | None


class Stopped(BaseModel):
    """A turn that was stopped."""

    status: str
    chat_id: str
    run_id: str


class WholeResult(BaseModel):
    """What a tool gave, uncut: any JSON."""

    result_id: str
    result: Any


class Deleted(BaseModel):
    """A chat that was deleted."""

    status: str
    chat_id: str
    permanent: bool


def routes(identity: Identity, chats: Chats) -> APIRouter:
    """The Assistant's routes; every one is scoped to chats of kind ``assistant``."""
    router = APIRouter(prefix="/assistant", tags=["assistant"])
    _turn_routes(router, identity, chats)
    _chat_routes(router, identity, chats)
    return router


def _turn_routes(router: APIRouter, identity: Identity, chats: Chats) -> None:
    admin = Depends(identity.admin)
    key_header = Header(alias="Idempotency-Key", max_length=255)

    @router.post("/chat", response_model=Running, responses=described(402, 404, 409, 410))
    async def start(
        body: Annotated[ChatRequest, Body()],
        caller: Annotated[Caller, admin],
        idempotency_key: Annotated[str | None, key_header] = None,
    ) -> dict[str, Any]:
        """Start or continue a turn."""
        if not isinstance(body.message, str):
            raise MessageNotText
        message: str = body.message
        llm = body.llm.choice() if body.llm else None
        once = once_key(caller.organization_id, "assistant/chat", idempotency_key, body.model_dump())

        async def first() -> dict[str, object]:
            started = await start_turn(chats, caller, ASSISTANT, message, chat_id=body.chat_id, llm=llm, once=once)
            return started.as_json()

        return _running("running", await run_once(chats.store, once, first))

    @router.post("/chat/{chat_id}/resume", response_model=Running, responses=UNFIT | described(402, 404, 409, 410))
    async def resume(
        chat_id: str,
        body: Annotated[ResumeRequest, Body()],
        caller: Annotated[Caller, admin],
        idempotency_key: Annotated[str | None, key_header] = None,
    ) -> dict[str, Any]:
        """Answer the chat's open question; the turn goes on as a new run."""
        answer = parse_answer(body.response)
        if body.llm is None:
            raise LlmMissing
        llm = body.llm.choice()
        once = once_key(caller.organization_id, f"resume/{chat_id[:40]}", idempotency_key, body.model_dump())

        async def first() -> dict[str, object]:
            started = await resume_turn(
                chats,
                caller,
                ASSISTANT,
                chat_id=chat_id,
                request_id=body.request_id,
                answer=answer,
                llm=llm,
                once=once,
            )
            return started.as_json()

        return _running("resuming", await run_once(chats.store, once, first))

    @router.post("/chat/{chat_id}/cancel", response_model=Stopped, responses=described(404, 409))
    async def cancel(chat_id: str, caller: Annotated[Caller, admin]) -> dict[str, Any]:
        """Stop the chat's turn, running or waiting."""
        run_id = await cancel_turn(chats, caller, ASSISTANT, chat_id)
        return {"status": "cancelled", "chat_id": chat_id, "run_id": run_id}


def _chat_routes(router: APIRouter, identity: Identity, chats: Chats) -> None:
    admin = Depends(identity.admin)

    @router.get("/chats", response_model=ChatPage, responses=described())
    async def page(
        caller: Annotated[Caller, admin],
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        cursor: str | None = None,
        q: Annotated[str | None, Query(max_length=200)] = None,
    ) -> dict[str, Any]:
        """The caller's own chats, newest first; ``q`` searches their titles."""
        found = await list_chats(chats, caller, ASSISTANT, limit=limit, cursor=cursor, search=q)
        return {
            "items": [_summary(chat, waits=chat.id in found.waiting) for chat in found.chats],
            "next_cursor": found.next_cursor,
        }

    @router.get("/chat/{chat_id}", response_model=ChatDetail, responses=NOT_FOUND)
    async def detail(chat_id: str, caller: Annotated[Caller, admin]) -> dict[str, Any]:
        """The chat with its messages and its open question."""
        return _detail(await open_chat(chats, caller, ASSISTANT, chat_id))

    @router.patch("/chat/{chat_id}", response_model=ChatSummary, responses=NOT_FOUND)
    async def rename(
        chat_id: str, body: Annotated[TitleRequest, Body()], caller: Annotated[Caller, admin]
    ) -> dict[str, Any]:
        """Give the chat another title."""
        renamed = await rename_chat(chats, caller, ASSISTANT, chat_id, body.title)
        state = await chat_state(chats, caller, ASSISTANT, chat_id)
        return _summary(renamed, waits=state.request_id is not None)

    @router.get("/chat/{chat_id}/status", response_model=ChatStatus, responses=NOT_FOUND)
    async def status(chat_id: str, caller: Annotated[Caller, admin]) -> dict[str, Any]:
        """Whether the chat runs, waits for an answer, or rests."""
        state = await chat_state(chats, caller, ASSISTANT, chat_id)
        latest = state.latest
        return {
            "chat_id": chat_id,
            "is_running": state.running_id is not None and state.request_id is None,
            "awaiting_input": state.request_id is not None,
            "pending_request_id": state.request_id,
            "running_id": state.running_id,
            "run_status": None
            if latest is None
            else {
                "run_id": latest.id,
                "status": wire_status(latest.status),
                "started_at": iso(latest.created_at),
                "updated_at": iso(latest.updated_at),
                "error": latest.error,
                "reason": latest.reason,
            },
        }

    @router.get("/chat/{chat_id}/tool-results/{result_id}", response_model=WholeResult, responses=NOT_FOUND)
    async def result(chat_id: str, result_id: str, caller: Annotated[Caller, admin]) -> Any:
        """A tool's whole result, where the stream carries it cut (its ``result_id``)."""
        return {"result_id": result_id, "result": await whole_result(chats, caller, ASSISTANT, chat_id, result_id)}

    @router.delete("/chat/{chat_id}", response_model=Deleted, responses=NOT_FOUND)
    async def delete(chat_id: str, caller: Annotated[Caller, admin], *, permanent: bool = False) -> dict[str, Any]:
        """Delete the chat; ``permanent`` removes everything said in it, also of a chat that was deleted before."""
        forget = erase_chat if permanent else delete_chat
        await forget(chats, caller, ASSISTANT, chat_id)
        return {"status": "deleted", "chat_id": chat_id, "permanent": permanent}


def _running(status: str, started: dict[str, object]) -> dict[str, Any]:
    chat_id, run_id = started["chat_id"], started["run_id"]
    return {
        "status": status,
        "chat_id": chat_id,
        "run_id": run_id,
        "thread_id": chat_id,
        "stream_url": f"/assistant/chat/{chat_id}/listen/{run_id}",
    }


def _summary(chat: Chat, *, waits: bool) -> dict[str, Any]:
    return {
        "id": chat.id,
        "title": chat.title,
        "created_at": iso(chat.created_at),
        "updated_at": iso(chat.updated_at),
        "is_running": chat.running_id is not None and not waits,
        "awaiting_input": waits,
    }


def _detail(opened: Opened) -> dict[str, Any]:
    chat = opened.chat
    return {
        "id": chat.id,
        "title": chat.title,
        "running_id": opened.running_id,
        "pending_user_input_request": opened.question,
        "created_at": iso(chat.created_at),
        "updated_at": iso(chat.updated_at),
        "messages": [
            {
                "id": message.id,
                "role": message.role,
                "content": message.content,
                "thinking": message.thinking,
                "run_id": message.run_id,
                "running_status": message.running_status,
                "created_at": iso(message.created_at),
            }
            for message in opened.messages
        ],
    }
