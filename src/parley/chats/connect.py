"""When an integration gets connected: the chats that wait for it go on by themselves (contract §7.1)."""

import logging
from dataclasses import dataclass

from sqlalchemy import select

from parley.accounts import Caller
from parley.base.errors import Refusal
from parley.chats.answers import CredentialAdded, CredentialFailed, check_answer
from parley.chats.context import Change, Chats
from parley.chats.resume import Answering, take_answer
from parley.credentials import Credential, Flow, OAuthFailure, Source
from parley.runs import question_store
from parley.storage import ReadTx
from parley.storage.tables.accounts import memberships
from parley.storage.tables.chats import chats as chat_table

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A question that waits for an integration, and the kind of its chat."""

    answering: Answering
    kind: str


async def integration_connected(chats: Chats, organization_id: str, credential: Credential) -> int:
    """Resume every chat of the organization that waits for this integration; how many went on.

    Each answer is given in the name of the person who was asked, if they are still a member.
    """
    waiting = await chats.store.read(
        lambda tx: _waiting(tx, organization_id, credential.integration_name, chats.clock.now())
    )
    answer = CredentialAdded(credential.credential_id, credential.integration_name, credential.auth_type)
    resumed = 0
    for each in waiting:
        resumed += await _answer(chats, each, answer)
    return resumed


async def credential_created(chats: Chats, caller: Caller, credential: Credential) -> int:
    """A person has stored a credential: test it where the service lets us, then wake the chats that wait for it."""
    waiting = await chats.store.read(
        lambda tx: _waiting(tx, caller.organization_id, credential.integration_name, chats.clock.now())
    )
    if not waiting:
        return 0
    tested = await chats.credentials.test(caller, credential.credential_id, Source())
    if tested.verdict.outcome == "invalid":
        return 0
    return await integration_connected(chats, caller.organization_id, credential)


async def sign_in_ended(chats: Chats, flow: Flow, credential: Credential) -> None:
    """An OAuth callback has stored a credential."""
    await integration_connected(chats, flow.organization_id, credential)


async def sign_in_failed(chats: Chats, flow: Flow, code: OAuthFailure, sentence: str) -> None:
    """An OAuth sign-in failed: the chat it was for goes on with the reason."""
    if flow.chat_id is None or flow.request_id is None:
        return
    chat_id, request_id = flow.chat_id, flow.request_id
    kind = await chats.store.read(
        lambda tx: tx.execute(select(chat_table.c.kind).where(chat_table.c.id == chat_id)).scalar()
    )
    if kind is None:
        return
    answering = Answering(flow.organization_id, flow.user_id, chat_id, request_id)
    answer = CredentialFailed(flow.integration_name, "oauth2", code, sentence, retryable=code != "oauth_denied")
    await _answer(chats, Waiting(answering, kind), answer)


async def _answer(chats: Chats, waiting: Waiting, answer: CredentialAdded | CredentialFailed) -> int:
    answering = waiting.answering

    def work(change: Change) -> int:
        member = change.tx.execute(
            select(memberships.c.role).where(
                memberships.c.organization_id == answering.organization_id,
                memberships.c.user_id == answering.user_id,
            )
        ).first()
        question = question_store.find_question(change.tx, answering.chat_id, answering.request_id)
        if member is None or question is None:
            return 0
        checked = check_answer(question.payload, answer)
        take_answer(change, chats, answering, waiting.kind, checked, llm=None, answered_by=None)
        return 1

    try:
        return await chats.commit(work)
    except Refusal as refusal:
        # Answered, cancelled or expired meanwhile: the credential stays, nothing is resumed.
        log.info("question %s was not resumed: %s", answering.request_id, refusal.detail)
        return 0


def _waiting(tx: ReadTx, organization_id: str, integration_name: str, now: int) -> list[Waiting]:
    found: list[Waiting] = []
    for question in question_store.waiting_for_integration(tx, organization_id, now):
        if question.payload["integration_name"] != integration_name:
            continue
        kind = tx.execute(select(chat_table.c.kind).where(chat_table.c.id == question.chat_id)).scalar_one()
        answering = Answering(organization_id, question.user_id, question.chat_id, question.id)
        found.append(Waiting(answering, kind))
    return found
