"""Answering a question: exactly one answer wins, and the turn goes on as a new run (contract §2.6, §5)."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, update

from parley.accounts import Caller
from parley.base.errors import Forbidden, Gone, NotFound
from parley.base.ids import is_id, new_id
from parley.chats.answers import (
    AnswerForm,
    AnswerRefused,
    Checked,
    CredentialAdded,
    CredentialFailed,
    check_answer,
)
from parley.chats.context import Change, Chats
from parley.chats.expire import expire_if_due
from parley.chats.start import ChatNotFound, Started, queue_run
from parley.credentials import Source
from parley.equipment.finishing import is_direct
from parley.equipment.llms import LlmChoice
from parley.runs import chat_store, question_store
from parley.runs.chat_store import Chat
from parley.storage import ReadTx, WriteTx
from parley.storage.once import OnceKey, remember
from parley.storage.tables.chats import tool_calls
from parley.turn.events import RunResumed
from parley.turn.model import JsonObject


class NotPending(Gone):
    """The question is no longer open."""


class NotYourQuestion(Forbidden):
    """Only the person whose turn raised the question may answer it."""


@dataclass(frozen=True, slots=True)
class Answering:
    """Who answers which question."""

    organization_id: str
    user_id: str
    chat_id: str
    request_id: str


async def resume_turn(
    chats: Chats,
    caller: Caller,
    kind: str,
    *,
    chat_id: str,
    request_id: str,
    answer: AnswerForm,
    llm: LlmChoice,
    once: OnceKey | None = None,
) -> Started:
    """Take a person's answer and queue the run that goes on with it.

    Raises ChatNotFound, NotPending, NotYourQuestion, AnswerRefused and the refusals of ``Llms.check``;
    after AnswerRefused the question is still open.
    """
    answering = Answering(caller.organization_id, caller.user_id, chat_id, request_id)
    if isinstance(answer, CredentialAdded):
        credential_id = answer.credential_id
        going = await chats.commit(lambda change: _already_going(change, answering, kind, credential_id, once))
        if going is not None:
            return going
    question = await chats.store.read(lambda tx: _pending(tx, answering, kind, chats.clock.now()))
    check_answer(question.payload, answer)
    choice = await chats.llms.check(answering.organization_id, llm)
    if isinstance(answer, CredentialAdded):
        answer = await _tested(chats, caller, question.payload, answer)
    checked = check_answer(question.payload, answer)

    def work(change: Change) -> Started:
        started = take_answer(change, chats, answering, kind, checked, llm=choice, answered_by=caller.user_id)
        remember(change.tx, once, started.as_json(), change.now)
        return started

    return await chats.commit(work)


def _already_going(
    change: Change, answering: Answering, kind: str, credential_id: str, once: OnceKey | None
) -> Started | None:
    """The run that a new connection has already resumed, for the client that made the connection; given once."""
    tx = change.tx
    chat = _lock(tx, answering, kind)
    question = question_store.find_question(tx, chat.id, answering.request_id)
    if question is None or question.user_id != answering.user_id:
        return None
    woken = question.outcome == "credential_added" and question.answered_by is None
    if not woken or question.answer["credential_id"] != credential_id:
        return None
    question_store.note_answered_by(tx, question.id, answering.user_id)
    run = chat_store.run_resumed_from(tx, question.run_id)
    if run is None:
        return None
    started = Started(chat.id, run.id)
    remember(tx, once, started.as_json(), change.now)
    return started


async def _tested(
    chats: Chats, caller: Caller, request: JsonObject, answer: CredentialAdded
) -> CredentialAdded | CredentialFailed:
    """The credential a person says they added: the organization's own, and working where that can be tested."""
    if not is_id(answer.credential_id):
        raise AnswerRefused("credential_id is not a credential of this organization.")
    try:
        credential, _ = await chats.credentials.get(caller.organization_id, answer.credential_id)
    except NotFound:
        raise AnswerRefused("credential_id is not a credential of this organization.") from None
    if credential.integration_name != request["integration_name"]:
        raise AnswerRefused(f"The credential is for {credential.integration_name}.")
    if not _test_supported(request, credential.auth_type):
        return answer
    verdict = (await chats.credentials.test(caller, answer.credential_id, Source())).verdict
    if verdict.outcome != "invalid":
        return answer
    return CredentialFailed(
        credential.integration_name, credential.auth_type, "invalid_credentials", verdict.message, retryable=True
    )


def _test_supported(request: JsonObject, auth_type: str) -> bool:
    options = request["auth_options"]
    return isinstance(options, list) and any(
        isinstance(option, dict) and option["auth_type"] == auth_type and bool(option.get("test_supported"))
        for option in options
    )


def take_answer(
    change: Change,
    chats: Chats,
    answering: Answering,
    kind: str,
    checked: Checked,
    *,
    llm: LlmChoice | None,
    answered_by: str | None,
) -> Started:
    """The one place where a question is answered: by a person, or, ``answered_by`` None, by a new connection.

    ``llm`` None keeps the model the turn began with. Raises as ``resume_turn``; of many callers one gets through.
    """
    tx, now = change.tx, change.now
    chat = _lock(tx, answering, kind)
    expire_if_due(change, chat)
    question = _pending(tx, answering, kind, now)
    if not question_store.close_question(
        tx,
        question.id,
        outcome=checked.outcome,
        now=now,
        answer=checked.response,
        answered_by=answered_by,
    ):
        raise NotPending
    paused = chat_store.find_run(tx, chat.id, question.run_id)
    if paused is None:
        raise NotPending
    run_id = new_id()
    chat_store.end_run(tx, paused.id, {"status": "resumed", "updated_at": now})
    queue_run(
        change,
        chats,
        chat,
        {
            "id": run_id,
            "user_id": paused.user_id,
            "turn_id": paused.turn_id,
            "resumed_from": paused.id,
            # A turn without a model does not get one by being answered.
            "llm": llm.as_json() if llm and not is_direct(paused.llm) else paused.llm,
        },
    )
    _hand_over_call(tx, paused.id, run_id)
    change.show(paused.id, [RunResumed(run_id)], epoch=paused.epoch + 1)
    return Started(chat.id, run_id)


def _lock(tx: WriteTx, answering: Answering, kind: str) -> Chat:
    chat = (
        chat_store.lock_chat(tx, answering.organization_id, kind, answering.chat_id)
        if is_id(answering.chat_id)
        else None
    )
    if chat is None:
        raise ChatNotFound
    return chat


def _pending(tx: ReadTx, answering: Answering, kind: str, now: int) -> Row[Any]:
    """The open question. Raises ChatNotFound, NotPending or NotYourQuestion."""
    chat = (
        chat_store.find_chat(tx, answering.organization_id, kind, answering.chat_id)
        if is_id(answering.chat_id)
        else None
    )
    if chat is None:
        raise ChatNotFound
    question = question_store.find_question(tx, chat.id, answering.request_id)
    if question is None or question.outcome != "pending" or question.expires_at <= now:
        raise NotPending
    if question.user_id != answering.user_id:
        raise NotYourQuestion
    return question


def _hand_over_call(tx: WriteTx, paused: str, run_id: str) -> None:
    """The call that asked belongs to the new run, which gives it its result under its original id."""
    tx.execute(
        update(tool_calls)
        .where(tool_calls.c.run_id == paused, tool_calls.c.status == "asked")
        .values(run_id=run_id, step=0, status="started")
    )
