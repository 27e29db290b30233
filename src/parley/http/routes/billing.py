"""``/billing``: the month in full, the wallet, the ledger (additive to the contract)."""

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from parley.accounts import Caller
from parley.base.clock import DAY, SECOND, from_iso, iso
from parley.base.errors import BadRequest
from parley.billing.plans import MICRO, credits_text
from parley.billing.subscriptions import Subscriptions, Wallet
from parley.billing.usage import Breakdown, MonthReport, Usage
from parley.billing.usage_store import ActionLine, LedgerLine, ModelLine, SpendingLine
from parley.http.identity import Identity
from parley.http.routes.subscriptions import LinkOut
from parley.http.schemas import described
from parley.turn.model import JsonObject

PAGE = 1_000


class BadCursor(BadRequest):
    """The cursor does not fit. Take it from next_cursor of the page before, or leave it out."""


class ModelLineOut(BaseModel):
    """What a model was used for. ``paid_by``: your own key, or credits.

    ``cache_hit_share`` is the part of the input that the provider's cache served, 0 to 1; null without input.
    """

    integration_name: str
    model_id: str
    paid_by: Literal["own_key", "credits"]
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cache_hit_share: float | None


class ActionLineOut(BaseModel):
    """How often an action ran. ``paid_by``: your own credential, or credits."""

    integration_name: str
    action_name: str
    paid_by: Literal["own_key", "credits"]
    calls: int


class SpendingLineOut(BaseModel):
    """What one thing was charged, and which part each account paid."""

    kind: str
    integration_name: str | None
    item: str | None
    credits: float
    from_plan: float
    from_wallet: float


class BreakdownOut(BaseModel):
    """What was used and charged; ``cache_hit_share`` as in its models' lines, over all of them."""

    credits: float
    cache_hit_share: float | None
    models: list[ModelLineOut]
    actions: list[ActionLineOut]
    spending: list[SpendingLineOut]


class DaySpent(BaseModel):
    date: str
    credits: float


class UsageOut(BreakdownOut):
    """The running credit month; ``limit`` null: no ceiling."""

    plan_slug: str
    period_start: str
    period_end: str
    used: float
    limit: float | None
    by_day: list[DaySpent]


class WalletOut(BaseModel):
    """Prepaid credits. ``overage``: whether they pay for what goes beyond the month."""

    balance: float
    held: float
    overage: bool
    overage_allowed: bool
    top_up_below: float | None
    top_up_amount: float | None
    turn_cap: float | None


class WalletIn(BaseModel):
    """What to change; what is left out stays. A null switches the top-up or the cap off."""

    overage: bool = False
    top_up_below: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    top_up_amount: Annotated[int, Field(ge=100, le=10_000_000)] | None = None
    turn_cap: Annotated[int, Field(ge=2, le=1_000_000)] | None = None


class TopUpIn(BaseModel):
    """How many credits to buy."""

    credits: Annotated[int, Field(ge=100, le=10_000_000)]


class EntryOut(BaseModel):
    """One line of the ledger; ``credits`` is negative for what was spent."""

    id: str
    created_at: str
    kind: str
    account: str
    credits: float
    run_id: str | None
    charge_key: str
    detail: JsonObject


class LedgerOut(BaseModel):
    items: list[EntryOut]
    next_cursor: str | None


def routes(identity: Identity, usage: Usage, subscriptions: Subscriptions) -> APIRouter:
    """The routes under ``/billing``."""
    router = APIRouter(prefix="/billing", tags=["billing"], responses=described())
    owner, admin = Depends(identity.owner), Depends(identity.admin)

    @router.get("/usage")
    async def month(caller: Annotated[Caller, admin]) -> UsageOut:
        """The running credit month by day, model, action and payer."""
        return _usage_out(await usage.report(caller.organization_id))

    @router.get("/wallet")
    async def wallet(caller: Annotated[Caller, admin]) -> WalletOut:
        """Prepaid credits and their switches."""
        return _wallet_out(await subscriptions.wallet(caller.organization_id))

    @router.patch("/wallet", responses=described(409))
    async def change_wallet(caller: Annotated[Caller, owner], wish: WalletIn) -> WalletOut:
        """Switch overage, the automatic top-up and the cap of a single turn."""
        return _wallet_out(await subscriptions.change_wallet(caller, _changes(wish)))

    @router.post("/wallet/top-up", responses=described(409))
    async def top_up(caller: Annotated[Caller, owner], wish: TopUpIn) -> LinkOut:
        """Where the owner buys credits for the wallet."""
        return LinkOut(url=await subscriptions.top_up_link(caller, wish.credits))

    @router.get("/ledger")
    async def ledger(
        caller: Annotated[Caller, admin],
        limit: Annotated[int, Query(ge=1, le=PAGE)] = 100,
        cursor: Annotated[str, Query(max_length=100)] = "",
    ) -> LedgerOut:
        """Every movement of credits, the newest first."""
        lines = await usage.ledger(caller.organization_id, before=_cursor(cursor), limit=limit + 1)
        more = len(lines) > limit
        shown = lines[:limit]
        return LedgerOut(
            items=[_entry_out(line) for line in shown], next_cursor=_cursor_of(shown[-1]) if more else None
        )

    @router.get("/ledger.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}})
    async def ledger_csv(
        caller: Annotated[Caller, admin], cursor: Annotated[str, Query(max_length=100)] = ""
    ) -> Response:
        """A thousand movements at a time as CSV; ``X-Next-Cursor`` names the next thousand."""
        lines = await usage.ledger(caller.organization_id, before=_cursor(cursor), limit=PAGE + 1)
        headers = {"Content-Disposition": 'attachment; filename="ledger.csv"'}
        if len(lines) > PAGE:
            headers["X-Next-Cursor"] = _cursor_of(lines[PAGE - 1])
        return Response(_csv(lines[:PAGE]), media_type="text/csv; charset=utf-8", headers=headers)

    return router


def _breakdown_out(breakdown: Breakdown) -> BreakdownOut:
    return BreakdownOut(
        credits=breakdown.spent_micro / MICRO,
        cache_hit_share=_share(breakdown.models),
        models=[model_line(line) for line in breakdown.models],
        actions=[action_line(line) for line in breakdown.actions],
        spending=[_spending_out(line) for line in breakdown.spending],
    )


def _usage_out(report: MonthReport) -> UsageOut:
    month = report.usage
    limit = month.allowance_micro
    return UsageOut(
        **_breakdown_out(report.breakdown).model_dump(),
        plan_slug=month.plan.slug,
        period_start=iso(month.month.start),
        period_end=iso(month.month.end),
        used=month.used_micro / MICRO,
        limit=None if limit is None else limit / MICRO,
        by_day=[DaySpent(date=_date(day), credits=spent / MICRO) for day, spent in sorted(report.by_day.items())],
    )


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY // SECOND, UTC).date().isoformat()


def model_line(line: ModelLine) -> ModelLineOut:
    """What a model was used for, on the wire."""
    return ModelLineOut(
        integration_name=line.integration_name,
        model_id=line.model_id,
        paid_by="credits" if line.managed else "own_key",
        calls=line.calls,
        input_tokens=line.input_tokens,
        cached_tokens=line.cached_tokens,
        output_tokens=line.output_tokens,
        cache_hit_share=_share([line]),
    )


def _share(lines: Sequence[ModelLine]) -> float | None:
    given = sum(line.input_tokens for line in lines)
    return round(sum(line.cached_tokens for line in lines) / given, 4) if given else None


def action_line(line: ActionLine) -> ActionLineOut:
    """How often an action ran, on the wire."""
    return ActionLineOut(
        integration_name=line.integration_name,
        action_name=line.action_name,
        paid_by="credits" if line.managed else "own_key",
        calls=line.calls,
    )


def _spending_out(line: SpendingLine) -> SpendingLineOut:
    return SpendingLineOut(
        kind=line.kind,
        integration_name=line.integration_name,
        item=line.item,
        credits=(line.plan_micro + line.wallet_micro) / MICRO,
        from_plan=line.plan_micro / MICRO,
        from_wallet=line.wallet_micro / MICRO,
    )


def _wallet_out(wallet: Wallet) -> WalletOut:
    return WalletOut(
        balance=wallet.balance_micro / MICRO,
        held=wallet.held_micro / MICRO,
        overage=wallet.overage,
        overage_allowed=wallet.overage_allowed,
        top_up_below=_credits(wallet.top_up_below_micro),
        top_up_amount=_credits(wallet.top_up_amount_micro),
        turn_cap=_credits(wallet.turn_cap_micro),
    )


def _credits(micro: int | None) -> float | None:
    return None if micro is None else micro / MICRO


def _changes(wish: WalletIn) -> dict[str, bool | int | None]:
    said: dict[str, bool | int | None] = wish.model_dump(exclude_unset=True)
    changes = {f"{name}_micro": value if value is None else value * MICRO for name, value in said.items()}
    if "overage" in said:
        del changes["overage_micro"]
        return {**changes, "overage": said["overage"]}
    return {**changes}


def _entry_out(line: LedgerLine) -> EntryOut:
    return EntryOut(
        id=line.id,
        created_at=iso(line.created_at),
        kind=line.kind,
        account=line.account,
        credits=line.amount_micro / MICRO,
        run_id=line.run_id,
        charge_key=line.charge_key,
        detail=line.detail,
    )


def _cursor_of(line: LedgerLine) -> str:
    return f"{iso(line.created_at)}|{line.id}"


def _cursor(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    when, separator, entry_id = text.partition("|")
    # A plus sign that was not escaped arrives as a space.
    try:
        at = from_iso(when.replace(" ", "+"))
    except ValueError:
        raise BadCursor from None
    if not separator:
        raise BadCursor
    return at, entry_id


def _csv(lines: Sequence[LedgerLine]) -> str:
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["created_at", "kind", "account", "credits", "run_id", "charge_key"])
    for line in lines:
        credit = credits_text(line.amount_micro)
        rows.writerow([iso(line.created_at), line.kind, line.account, credit, line.run_id or "", line.charge_key])
    return text.getvalue()
