"""``GET /assistant/chat/{chat_id}/runs/{run_id}``: a run, and what its turn used and cost (issue 4, sentence 5).

Amounts are whole micro-credits, with the same figure as decimal text beside them; never a float.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from sqlalchemy import Row

from parley.accounts import Caller
from parley.base.clock import iso
from parley.billing import Breakdown, credits_text
from parley.billing.usage_store import SpendingLine
from parley.chats import Chats, TurnReceipt, run_receipt, wire_status
from parley.http.identity import Identity
from parley.http.routes.billing import ActionLineOut, ModelLineOut, action_line, model_line
from parley.http.schemas import NOT_FOUND
from parley.tools import ASSISTANT


class ChargeOut(BaseModel):
    """What one thing was charged, and which part each account paid. Both names are null for the turn's own credit."""

    kind: str
    integration_name: str | None
    item: str | None
    charges: int
    credits: str
    micro_credits: int
    from_plan_micro: int
    from_wallet_micro: int


class KnowledgeLineOut(BaseModel):
    """How often managed knowledge was searched (``retrieval``) or read in (``ingest``)."""

    item: str
    calls: int
    micro_credits: int


class ReceiptOut(BaseModel):
    """What a turn used over all its runs, what it was charged, and who paid."""

    credits: str
    micro_credits: int
    from_plan_micro: int
    from_wallet_micro: int
    input_tokens: int = Field(description="Includes cached_tokens.")
    cached_tokens: int
    output_tokens: int
    llm_calls: int
    models: list[ModelLineOut]
    actions: list[ActionLineOut]
    knowledge: list[KnowledgeLineOut]
    charges: list[ChargeOut]


class TurnRunOut(BaseModel):
    """One run of the turn."""

    run_id: str
    status: str
    created_at: str
    ended_at: str | None


class RunOut(BaseModel):
    """A run and its turn. ``turn_id`` is the turn's first run; every resume adds one to ``runs``."""

    run_id: str
    chat_id: str
    turn_id: str
    status: str
    reason: str | None
    error: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    runs: list[TurnRunOut]
    receipt: ReceiptOut


def routes(identity: Identity, chats: Chats) -> APIRouter:
    """The receipt of a turn, under any of its runs."""
    router = APIRouter(prefix="/assistant", tags=["assistant"])

    @router.get("/chat/{chat_id}/runs/{run_id}", responses=NOT_FOUND)
    async def run(chat_id: str, run_id: str, caller: Annotated[Caller, Depends(identity.admin)]) -> RunOut:
        """The run, and what its whole turn has used and cost so far."""
        return _run_out(await run_receipt(chats, caller, ASSISTANT, chat_id, run_id))

    return router


def _run_out(receipt: TurnReceipt) -> RunOut:
    run = receipt.run
    return RunOut(
        run_id=run.id,
        chat_id=run.chat_id,
        turn_id=run.turn_id,
        status=wire_status(run.status),
        reason=run.reason,
        error=run.error,
        created_at=iso(run.created_at),
        started_at=_moment(run.started_at),
        ended_at=_moment(run.ended_at),
        runs=[_turn_run(each) for each in receipt.runs],
        receipt=_receipt_out(receipt.breakdown),
    )


def _turn_run(run: Row[Any]) -> TurnRunOut:
    return TurnRunOut(
        run_id=run.id, status=wire_status(run.status), created_at=iso(run.created_at), ended_at=_moment(run.ended_at)
    )


def _receipt_out(breakdown: Breakdown) -> ReceiptOut:
    models, spending = breakdown.models, breakdown.spending
    return ReceiptOut(
        credits=credits_text(breakdown.spent_micro),
        micro_credits=breakdown.spent_micro,
        from_plan_micro=sum(line.plan_micro for line in spending),
        from_wallet_micro=sum(line.wallet_micro for line in spending),
        input_tokens=sum(line.input_tokens for line in models),
        cached_tokens=sum(line.cached_tokens for line in models),
        output_tokens=sum(line.output_tokens for line in models),
        llm_calls=sum(line.calls for line in models),
        models=[model_line(line) for line in models],
        actions=[action_line(line) for line in breakdown.actions],
        knowledge=[_knowledge(line) for line in spending if line.kind == "knowledge"],
        charges=[_charge(line) for line in spending],
    )


def _knowledge(line: SpendingLine) -> KnowledgeLineOut:
    return KnowledgeLineOut(item=line.item or "", calls=line.charges, micro_credits=line.plan_micro + line.wallet_micro)


def _charge(line: SpendingLine) -> ChargeOut:
    amount = line.plan_micro + line.wallet_micro
    return ChargeOut(
        kind=line.kind,
        integration_name=line.integration_name,
        item=line.item,
        charges=line.charges,
        credits=credits_text(amount),
        micro_credits=amount,
        from_plan_micro=line.plan_micro,
        from_wallet_micro=line.wallet_micro,
    )


def _moment(at: int | None) -> str | None:
    return None if at is None else iso(at)
