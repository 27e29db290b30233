"""``/dashboard/analytics``: credits, tools, models, days (contract §13). Failures are real statuses."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from parley.accounts import Caller
from parley.base.clock import DAY, SECOND, Clock, iso
from parley.billing.dashboard_store import CallLine
from parley.billing.plans import MICRO
from parley.billing.usage import CallsPage, DayUsage, MonthUsage, Usage
from parley.http.identity import Identity
from parley.http.routes.dashboard import Limit, Meta, Offset
from parley.http.schemas import described

MANAGED = "Modulex Key"
MANAGED_AUTH = "modulex_key"

type Period = Literal["24h", "7d", "30d", "90d"]
LENGTHS: dict[str, int] = {"24h": 1, "7d": 7, "30d": 30, "90d": 90}


class CreditsOut(BaseModel):
    """The running credit month; ``max_credit`` null: no ceiling."""

    used_credit: float
    max_credit: float | None
    next_reset_date: str


class PeriodOut(BaseModel):
    current_period_start: str
    current_period_end: str


class CredentialUseOut(BaseModel):
    """One use of a credential."""

    integration_name: str
    service_name: str
    auth_type: str | None
    credential_display_name: str | None
    success: bool
    executed_at: str
    user_email: str | None


class OverviewOut(BaseModel):
    active_member_count: int
    configured_integrations_count: int
    total_integrations_count: int
    total_credentials_count: int
    current_month_credit_usage: CreditsOut
    subscription: PeriodOut
    credential_usage_logs: list[CredentialUseOut]


class OverviewData(BaseModel):
    overview: OverviewOut


class OverviewAnswer(BaseModel):
    success: bool = True
    organization_id: str
    data: OverviewData
    meta: Meta


class ActionOut(BaseModel):
    action_name: str
    integration_name: str


class ToolUseOut(BaseModel):
    """One run of an integration's action."""

    user_email: str | None
    integration_name: str
    action_name: str
    executed_at: str
    execution_duration_ms: int | None
    status: Literal["success", "error"]
    credential_display_name: str | None


class ToolsData(BaseModel):
    total_tool_executions: int
    current_month_total_tool_executions: int
    current_month_credit_usage: CreditsOut
    success_rate: float
    most_used_action: ActionOut | None
    configured_integrations_count: int
    total_integrations_count: int
    tool_usages: list[ToolUseOut]


class ToolsAnswer(BaseModel):
    success: bool = True
    organization_id: str
    data: ToolsData
    meta: Meta


class ModelUseOut(BaseModel):
    """One model call."""

    user_email: str | None
    provider: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    request_time: str
    request_duration: int | None
    status: Literal["success", "error"]
    credential_display_name: str | None


class ModelsData(BaseModel):
    total_llm_call: int
    current_month_total_llm_call: int
    current_month_credit_usage: CreditsOut
    request_success_rate: float
    total_completion_tokens: int
    total_prompt_tokens: int
    llm_usages: list[ModelUseOut]


class ModelsAnswer(BaseModel):
    success: bool = True
    organization_id: str
    data: ModelsData
    meta: Meta


class DayOut(BaseModel):
    """One UTC day. ``failed_calls`` are tool calls; ``integrations`` counts tool calls by name.

    ``cached_tokens`` are the part of ``input_tokens`` that the providers' caches served.
    """

    date: str
    credits: float
    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    llm_calls: int
    tool_calls: int
    failed_calls: int
    integrations: dict[str, int]


class DaysData(BaseModel):
    days: list[DayOut]


class DaysAnswer(BaseModel):
    success: bool = True
    organization_id: str
    data: DaysData
    meta: Meta


def routes(identity: Identity, usage: Usage, clock: Clock, count_integrations: Callable[[], int]) -> APIRouter:
    """The routes under ``/dashboard/analytics``; ``count_integrations`` is the size of the catalog."""
    router = APIRouter(prefix="/dashboard/analytics", tags=["dashboard"], responses=described())
    admin = Depends(identity.admin)

    def meta(*, period: Period | None = None, limit: int | None = None, offset: int | None = None) -> Meta:
        return Meta(timestamp=iso(clock.now()), period=period, limit=limit, offset=offset)

    def since(period: Period) -> int:
        return clock.now() - LENGTHS[period] * DAY

    @router.get("/overview")
    async def overview(caller: Annotated[Caller, admin], limit: Limit = 20, offset: Offset = 0) -> OverviewAnswer:
        """What the organization has, its credit month, and the newest uses of its credentials."""
        seen = await usage.overview(caller.organization_id, limit=limit, offset=offset)
        return OverviewAnswer(
            organization_id=caller.organization_id,
            data=OverviewData(
                overview=OverviewOut(
                    active_member_count=seen.inventory.members,
                    configured_integrations_count=seen.inventory.integrations,
                    total_integrations_count=count_integrations(),
                    total_credentials_count=seen.inventory.credentials,
                    current_month_credit_usage=credits_out(seen.usage),
                    subscription=_period_out(seen.usage),
                    credential_usage_logs=[_credential_use_out(call) for call in seen.calls],
                )
            ),
            meta=meta(limit=limit, offset=offset),
        )

    @router.get("/tools")
    async def tools(
        caller: Annotated[Caller, admin], period: Period = "7d", limit: Limit = 20, offset: Offset = 0
    ) -> ToolsAnswer:
        """Runs of actions in the period. ``success_rate`` is in percent."""
        page = await usage.tools(caller.organization_id, since=since(period), limit=limit, offset=offset)
        return ToolsAnswer(
            organization_id=caller.organization_id,
            data=_tools_out(page, count_integrations()),
            meta=meta(period=period, limit=limit, offset=offset),
        )

    @router.get("/llm-usage")
    async def llm_usage(
        caller: Annotated[Caller, admin], period: Period = "7d", limit: Limit = 20, offset: Offset = 0
    ) -> ModelsAnswer:
        """Model calls in the period. ``request_success_rate`` is in percent."""
        page = await usage.models(caller.organization_id, since=since(period), limit=limit, offset=offset)
        return ModelsAnswer(
            organization_id=caller.organization_id,
            data=_models_out(page),
            meta=meta(period=period, limit=limit, offset=offset),
        )

    @router.get("/daily")
    async def daily(caller: Annotated[Caller, admin], period: Period = "30d") -> DaysAnswer:
        """A figure for each UTC day of the period, today included, the oldest first."""
        days = await usage.daily(caller.organization_id, days=LENGTHS[period])
        return DaysAnswer(
            organization_id=caller.organization_id,
            data=DaysData(days=[_day_out(day) for day in days]),
            meta=meta(period=period),
        )

    return router


def credits_out(usage: MonthUsage) -> CreditsOut:
    """The running credit month in credits."""
    return CreditsOut(
        used_credit=usage.used_micro / MICRO,
        max_credit=None if usage.allowance_micro is None else usage.allowance_micro / MICRO,
        next_reset_date=iso(usage.month.end),
    )


def _period_out(usage: MonthUsage) -> PeriodOut:
    return PeriodOut(current_period_start=iso(usage.month.start), current_period_end=iso(usage.month.end))


def _credential_name(call: CallLine) -> str | None:
    return MANAGED if call.managed else call.credential_name


def _status(call: CallLine) -> Literal["success", "error"]:
    return "success" if call.succeeded else "error"


def _milliseconds(call: CallLine) -> int | None:
    return None if call.ended_at is None else (call.ended_at - call.started_at) * 1000 // SECOND


def _credential_use_out(call: CallLine) -> CredentialUseOut:
    return CredentialUseOut(
        integration_name=call.integration_name,
        service_name=call.name,
        auth_type=MANAGED_AUTH if call.managed else call.auth_type,
        credential_display_name=_credential_name(call),
        success=call.succeeded,
        executed_at=iso(call.started_at),
        user_email=call.user_email,
    )


def _tools_out(page: CallsPage, integrations: int) -> ToolsData:
    most = page.most_used
    return ToolsData(
        total_tool_executions=page.period.calls,
        current_month_total_tool_executions=page.month.calls,
        current_month_credit_usage=credits_out(page.usage),
        success_rate=page.period.success_percent,
        most_used_action=None if most is None else ActionOut(integration_name=most[0], action_name=most[1]),
        configured_integrations_count=page.inventory.integrations,
        total_integrations_count=integrations,
        tool_usages=[
            ToolUseOut(
                user_email=call.user_email,
                integration_name=call.integration_name,
                action_name=call.name,
                executed_at=iso(call.started_at),
                execution_duration_ms=_milliseconds(call),
                status=_status(call),
                credential_display_name=_credential_name(call),
            )
            for call in page.calls
        ],
    )


def _models_out(page: CallsPage) -> ModelsData:
    return ModelsData(
        total_llm_call=page.period.calls,
        current_month_total_llm_call=page.month.calls,
        current_month_credit_usage=credits_out(page.usage),
        request_success_rate=page.period.success_percent,
        total_completion_tokens=page.period.output_tokens,
        total_prompt_tokens=page.period.input_tokens,
        llm_usages=[
            ModelUseOut(
                user_email=call.user_email,
                provider=call.integration_name,
                model=call.name,
                prompt_tokens=call.input_tokens,
                completion_tokens=call.output_tokens,
                request_time=iso(call.started_at),
                request_duration=_milliseconds(call),
                status=_status(call),
                credential_display_name=_credential_name(call),
            )
            for call in page.calls
        ],
    )


def _day_out(day: DayUsage) -> DayOut:
    return DayOut(
        date=datetime.fromtimestamp(day.number * DAY // SECOND, UTC).date().isoformat(),
        credits=day.spent_micro / MICRO,
        turns=day.turns,
        input_tokens=day.input_tokens,
        output_tokens=day.output_tokens,
        cached_tokens=day.cached_tokens,
        llm_calls=day.model_calls,
        tool_calls=day.tool_calls,
        failed_calls=day.failed_calls,
        integrations=day.integrations,
    )
