"""What front ends that speak OpenAI's chat API ask: a turn, and what models there are (docs/decisions/0025).

Such a front end sends the whole conversation with every request and knows no chat ids. A conversation
is recognised by what was said in it so far; one that is not known begins a new chat with its history.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sqlalchemy import select
from starlette.responses import StreamingResponse

from parley.accounts import Caller
from parley.base.errors import BadRequest, NotFound, Refusal
from parley.chats import Chats, resume_turn, start_turn
from parley.chats.answers import AnswerRefused
from parley.chats.plain import Happened, answer_in_words, follow, question_in_words
from parley.equipment import LlmChoice
from parley.http.identity import IN_ORGANIZATION, Identity
from parley.http.schemas import EVENT, SENTENCES, Detail
from parley.llm import MANAGED
from parley.runs import chat_store, question_store
from parley.runs.run_store import run_usage
from parley.storage import ReadTx, WriteTx
from parley.storage.once import forget_key
from parley.storage.tables.chats import idempotency_keys
from parley.tools import ASSISTANT
from parley.tools.spec import argument_schema
from parley.turn.model import AssistantEntry, Entry, JsonObject, UserEntry

ROUTE = "v1/conversation"
DEFAULT_MODELS = frozenset({"", "parley", "default", "assistant"})
MOST_MESSAGES = 2_000
WHOLE_SECONDS = 600.0
SSE_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
ORGANIZATION, OPENAI_ORGANIZATION = b"x-organization-id", b"openai-organization"
CODES = {
    400: ("invalid_request_error", "invalid_request"),
    401: ("authentication_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("permission_error", "not_allowed"),
    404: ("invalid_request_error", "not_found"),
    409: ("invalid_request_error", "conflict"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
AGAIN = "I did not understand that as an answer. Nothing has happened yet."
RESTARTED = "\n\n(The server was restarted; the reply begins again.)\n\n"


FAILURES = (400, 401, 402, 403, 404, 409, 410, 429, 500, 503, 504)


class NotUnderstood(BadRequest):
    """The request is not one of OpenAI's chat completions that Parley can answer."""


class NoSuchModel(NotFound):
    """The organization has no such model. GET /v1/models lists those it has."""


class Part(msgspec.Struct):
    """A part of a message; only text is taken."""

    type: str = "text"
    text: str = ""


class Message(msgspec.Struct):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        """What it says. Raises NotUnderstood for pictures and sounds."""
        if isinstance(self.content, list):
            if any(part.type != "text" for part in self.content):
                raise NotUnderstood("Parley takes text only here, no pictures, sounds or files.")
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(msgspec.Struct):
    """Whether the last chunk tells the tokens."""

    include_usage: bool = False


class Wish(msgspec.Struct):
    """The parts of a request that Parley reads; others, such as sampling settings, change nothing here."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=MOST_MESSAGES)]
    model: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    n: int | None = None


class SaidOut(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChoiceOut(BaseModel):
    """The one answer."""

    index: int
    message: SaidOut
    logprobs: None
    finish_reason: Literal["stop"]


class TokensOut(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionOut(BaseModel):
    """A whole answer, as OpenAI's API gives it."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChoiceOut]
    usage: TokensOut


class ModelOut(BaseModel):
    """A name that a completion takes as ``model``. Parley does not know when it was made, so ``created`` is 0."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str


class ModelsOut(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelOut]


class FaultOut(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class Failed(BaseModel):
    """A refusal in OpenAI's shape."""

    error: FaultOut


@dataclass(frozen=True, slots=True)
class Going:
    """What a request has led to: a run to follow, or a sentence that is the whole answer."""

    chat_id: str
    run_id: str
    sentence: str = ""


class Completions:
    """Answers completions with turns."""

    def __init__(self, chats: Chats, identity: Identity) -> None:
        self._chats = chats
        self._identity = identity

    async def answer(self, request: Request) -> Response:
        """The response, whole or streamed; a refusal in OpenAI's shape."""
        try:
            caller = await self._identity.authenticate(_named(request.scope))
            wish = _wish(await request.body())
            going = await self._begin(caller, wish)
        except Refusal as refusal:
            return _refused(refusal)
        told = Telling(self._chats, caller, wish, going)
        if wish.stream:
            return StreamingResponse(told.chunks(), media_type="text/event-stream", headers=SSE_HEADERS)
        return await told.whole()

    async def models(self, request: Request, wanted: str | None = None) -> Response:
        """Every model the organization can name, or the wanted one; a refusal in OpenAI's shape."""
        try:
            caller = await self._identity.authenticate(_named(request.scope))
            names = ["parley", *await self._chats.llms.names(caller.organization_id)]
            if wanted is not None and wanted not in names:
                raise NoSuchModel
        except Refusal as refusal:
            return _refused(refusal)
        found = [ModelOut(id=name, owned_by=name.partition("/")[0]) for name in names if wanted in (None, name)]
        shown = ModelsOut(data=found) if wanted is None else found[0]
        return _json(shown.model_dump())

    async def _begin(self, caller: Caller, wish: Wish) -> Going:
        """Continue the chat that this conversation is, answer its question, or begin a chat."""
        spoken = [(each.role, each.text) for each in wish.messages if each.role in ("user", "assistant")]
        if not spoken or spoken[-1][0] != "user":
            raise NotUnderstood("The last message must be the user's.")
        said, choice = spoken[-1][1], _choice(wish)
        chat_id = await self._chats.store.read(lambda tx: _known(tx, caller, spoken[:-1]))
        if chat_id is None:
            before = _history(wish)
            started = await start_turn(self._chats, caller, ASSISTANT, said, chat_id=None, llm=choice, before=before)
            return Going(started.chat_id, started.run_id)
        now = self._chats.clock.now()
        question = await self._chats.store.read(lambda tx: question_store.open_question(tx, chat_id, now))
        if question is None:
            started = await start_turn(self._chats, caller, ASSISTANT, said, chat_id=chat_id, llm=choice)
            return Going(started.chat_id, started.run_id)
        return await self._resume(caller, chat_id, question, said, choice)

    async def _resume(self, caller: Caller, chat_id: str, question: Any, said: str, choice: LlmChoice | None) -> Going:
        again = question_in_words(question.payload, self._url(chat_id))
        answer = answer_in_words(question.payload, said)
        if answer is None:
            return Going(chat_id, question.run_id, f"{AGAIN}\n\n{again}")
        llm = await self._chats.llms.check(caller.organization_id, choice)
        try:
            started = await resume_turn(
                self._chats, caller, ASSISTANT, chat_id=chat_id, request_id=question.id, answer=answer, llm=llm
            )
        except AnswerRefused as refused:
            return Going(chat_id, question.run_id, f"{refused.detail}\n\n{again}")
        return Going(started.chat_id, started.run_id)

    def _url(self, chat_id: str) -> str:
        return f"{self._chats.settings.base_url}/app/c/{chat_id}"


class Telling:
    """One run told as a completion."""

    def __init__(self, chats: Chats, caller: Caller, wish: Wish, going: Going) -> None:
        self._chats = chats
        self._caller = caller
        self._wish = wish
        self._going = going
        self._created = int(time.time())
        self._parts: list[str] = []
        self._break = False
        self._began = False
        self._usage: JsonObject = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        self._error: JsonObject | None = None

    async def whole(self) -> Response:
        """The answer once it is complete."""
        try:
            async with asyncio.timeout(WHOLE_SECONDS):
                async for _ in self._texts():
                    pass
        except TimeoutError:
            url = f"{self._chats.settings.base_url}/app/c/{self._going.chat_id}"
            return _json({"error": _error("server_error", "timeout", f"It still runs. See {url}")}, 504)
        if self._error is not None:
            return _json({"error": self._error}, 500)
        text = "".join(self._parts)
        message: JsonObject = {"role": "assistant", "content": text, "refusal": None}
        choice: JsonObject = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return _json({**self._head("chat.completion"), "choices": [choice], "usage": self._usage})

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The answer as server-sent events."""
        yield self._chunk({"role": "assistant", "content": ""})
        async for text in self._texts():
            yield self._chunk({"content": text}) if text else b": still working\n\n"
        if self._error is not None:
            yield _frame({"error": self._error})
            return
        yield self._chunk({}, finish="stop")
        if self._wish.stream_options is not None and self._wish.stream_options.include_usage:
            yield _frame({**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage})
        yield b"data: [DONE]\n\n"

    async def _texts(self) -> AsyncGenerator[str]:
        """The pieces of the answer; empty after a silence. What was said is remembered before the last one ends."""
        if self._going.sentence:
            self._parts.append(self._going.sentence)
            yield self._going.sentence
        else:
            events = follow(self._chats, self._going.run_id)
            try:
                async for event in events:
                    piece = self._piece(event)
                    if piece is not None:
                        self._parts.append(piece)
                        yield piece
            finally:
                await events.aclose()
            await self._count()
        if self._error is None:
            await self._remember()

    def _piece(self, event: Happened) -> str | None:
        match event.kind:
            case "response_chunk":
                text, self._break = ("\n\n" if self._break else "") + str(event.data["chunk"]), False
                return text
            case "tool_call":
                self._break = any(self._parts)
                return ""
            case "heartbeat":
                return ""
            case "metadata":
                began, self._began = self._began, True
                return RESTARTED if began and any(self._parts) else None
            case "user_input_request":
                url = f"{self._chats.settings.base_url}/app/c/{self._going.chat_id}"
                return ("\n\n" if any(self._parts) else "") + question_in_words(event.data, url)
            case "error":
                self._error = _error("server_error", "turn_failed", str(event.data.get("message", "")))
            case _:
                pass
        return None

    async def _count(self) -> None:
        """What the run used; what the turn used before a question was told with that."""
        used = await self._chats.store.read(lambda tx: run_usage(tx, self._going.run_id))
        self._usage = {
            "prompt_tokens": used.input,
            "completion_tokens": used.output,
            "total_tokens": used.input + used.output,
        }

    async def _remember(self) -> None:
        """That a conversation which goes on from here is this chat."""
        spoken = [(each.role, each.text) for each in self._wish.messages if each.role in ("user", "assistant")]
        spoken.append(("assistant", "".join(self._parts)))
        key, caller, now = _key(self._caller, spoken), self._caller, self._chats.clock.now()

        def work(tx: WriteTx) -> None:
            forget_key(tx, caller.organization_id, ROUTE, key)
            tx.execute(
                idempotency_keys.insert().values(
                    organization_id=caller.organization_id,
                    route=ROUTE,
                    key=key,
                    fingerprint="",
                    status=200,
                    response={"chat_id": self._going.chat_id},
                    created_at=now,
                )
            )

        await self._chats.store.write(work)

    def _head(self, kind: str) -> JsonObject:
        return {
            "id": f"chatcmpl-{self._going.run_id}",
            "object": kind,
            "created": self._created,
            "model": self._wish.model or "parley",
        }

    def _chunk(self, delta: JsonObject, *, finish: str | None = None) -> bytes:
        choice: JsonObject = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _frame({**self._head("chat.completion.chunk"), "choices": [choice]})


def routes(identity: Identity, chats: Chats) -> APIRouter:
    """The routes under ``/v1``; every other path there is unknown."""
    router = APIRouter(tags=["completions"])
    completions = Completions(chats, identity)

    @router.post("/v1/chat/completions", responses=_told(), openapi_extra=_asked())
    async def create(request: Request) -> Response:
        """Answer a conversation, as OpenAI's API would."""
        return await completions.answer(request)

    asked: dict[str, Any] = {"security": [{IN_ORGANIZATION: []}]}

    @router.get("/v1/models", responses=_answers(ModelsOut, "The models"), openapi_extra=asked)
    async def models(request: Request) -> Response:
        """List what a completion takes as its model, as OpenAI's API would."""
        return await completions.models(request)

    @router.get("/v1/models/{name:path}", responses=_answers(ModelOut, "The model"), openapi_extra=asked)
    async def model(request: Request, name: str) -> Response:
        """Show one of them."""
        return await completions.models(request, name)

    return router


def _asked() -> dict[str, Any]:
    """What OpenAPI says of the request: read by hand, so that a fault has OpenAI's shape."""
    schema = argument_schema(Wish)
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"security": [{IN_ORGANIZATION: []}], "requestBody": body}


def _told() -> dict[int | str, dict[str, Any]]:
    answers = _answers(CompletionOut, "The answer, whole or as events")
    answers[200]["content"] = {"text/event-stream": {"schema": EVENT}}
    return answers


def _answers(model: type[BaseModel], description: str) -> dict[int | str, dict[str, Any]]:
    whole = {"model": model, "description": description}
    refused = {status: {"model": Failed, "description": SENTENCES[status]} for status in FAILURES}
    # What no route may take is refused before this one is asked.
    return {200: whole, **refused, 400: {"model": Failed | Detail, "description": SENTENCES[400]}}


def _wish(body: bytes) -> Wish:
    try:
        wish = msgspec.json.decode(body, type=Wish)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotUnderstood(str(error)[:300]) from None
    if wish.n not in (None, 1):
        raise NotUnderstood("Parley gives one answer: leave n out.")
    return wish


def _named(scope: Any) -> Any:
    """The request with its organization where Parley looks for it; OpenAI's clients have a header of their own."""
    headers: list[tuple[bytes, bytes]] = list(scope["headers"])
    names = dict(headers)
    if ORGANIZATION in names or OPENAI_ORGANIZATION not in names:
        return scope
    return {**scope, "headers": [*headers, (ORGANIZATION, names[OPENAI_ORGANIZATION])]}


def _choice(wish: Wish) -> LlmChoice | None:
    """``openai/gpt-4o`` or ``modulexai/openai/gpt-4o``; the organization's own choice for ``parley``."""
    if wish.model.lower() in DEFAULT_MODELS:
        return None
    provider, _, model = wish.model.partition("/")
    behind, _, managed = model.partition("/")
    if provider == MANAGED:
        return LlmChoice(MANAGED, behind, managed, temperature=wish.temperature)
    return LlmChoice(provider, provider, model, temperature=wish.temperature)


def _history(wish: Wish) -> Sequence[Entry]:
    """What was said before, for a chat that begins in the middle of a conversation."""
    entries: list[Entry] = []
    for each in wish.messages[:-1]:
        if each.role in ("system", "developer") and each.text.strip():
            entries.append(UserEntry(f"[How this app wants you to answer]\n{each.text}"))
        elif each.role == "user":
            entries.append(UserEntry(each.text))
        elif each.role == "assistant" and each.text:
            entries.append(AssistantEntry(each.text))
    return entries


def _known(tx: ReadTx, caller: Caller, spoken: Sequence[tuple[str, str]]) -> str | None:
    """The chat that a conversation was held in, where the caller was the one who held it."""
    if not spoken:
        return None
    key = _key(caller, spoken)
    found = tx.execute(
        select(idempotency_keys.c.response).where(
            idempotency_keys.c.organization_id == caller.organization_id,
            idempotency_keys.c.route == ROUTE,
            idempotency_keys.c.key == key,
        )
    ).scalar()
    chat_id = str(found["chat_id"]) if found else ""
    return chat_id if chat_id and chat_store.find_chat(tx, caller.organization_id, ASSISTANT, chat_id) else None


def _key(caller: Caller, spoken: Sequence[tuple[str, str]]) -> str:
    plain = [[role, text.strip()] for role, text in spoken]
    return hashlib.sha256(msgspec.json.encode([caller.user_id, plain])).hexdigest()


def _refused(refusal: Refusal) -> Response:
    kind, code = CODES.get(refusal.status, ("server_error", "unavailable"))
    response = _json({"error": _error(kind, code, refusal.detail)}, refusal.status)
    response.headers.update(refusal.headers)
    return response


def _error(kind: str, code: str, message: str) -> JsonObject:
    return {"message": message, "type": kind, "param": None, "code": code}


def _frame(value: JsonObject) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _json(value: JsonObject, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
