"""``/dashboard``: the audit log and people (contract §13). Failures are real statuses."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import AfterValidator, BaseModel

from parley.accounts import Caller
from parley.base.clock import DAY, Clock, from_iso, iso, iso_or_none
from parley.billing.dashboard_store import InvitedLine, LogFilter, LogLine, PersonLine
from parley.billing.plans import MICRO
from parley.billing.usage import Usage
from parley.http.identity import Identity
from parley.http.schemas import described
from parley.turn.model import JsonObject

type SortBy = Literal["created_at", "email", "username", "role", "last_active_at", "current_month_credit_usage"]

type Limit = Annotated[int, Query(ge=1, le=100)]
type Offset = Annotated[int, Query(ge=0, le=1_000_000)]


def _is_time(text: str) -> str:
    if text:
        from_iso(text)
    return text


type When = Annotated[str, Query(max_length=40), AfterValidator(_is_time)]


class Meta(BaseModel):
    """How the answer came about."""

    timestamp: str
    period: str | None = None
    limit: int | None = None
    offset: int | None = None
    cached: bool = False


class LogOut(BaseModel):
    """One line of the audit log."""

    id: str
    audit_time: str
    category: str
    operation: str
    actor_email: str | None
    message: str
    metadata: JsonObject


class LogsData(BaseModel):
    logs: list[LogOut]
    total_count: int
    limit: int
    offset: int
    has_next: bool
    has_previous: bool


class LogsFilters(BaseModel):
    category: str | None
    operation: str | None
    start_date: str | None
    end_date: str | None


class LogsOut(BaseModel):
    success: bool = True
    organization_id: str
    data: LogsData
    filters: LogsFilters
    meta: Meta


class PersonOut(BaseModel):
    """A member, or somebody invited."""

    id: str
    email: str
    username: str | None = None
    avatar: str | None = None
    role: str
    is_active: bool
    created_at: str
    updated_at: str
    last_active_at: str | None = None
    current_month_credit_usage: float = 0.0
    is_invitation: bool = False
    invitation_status: str | None = None
    invitation_expires_at: str | None = None
    invited_user_id: str | None = None
    invited_at: str | None = None


class PeopleAnswer(BaseModel):
    success: bool = True
    organization_id: str
    users: list[PersonOut]
    invitation_count: int
    max_seats: int | None
    total: int
    total_pages: int
    current_page: int
    limit: int
    has_next: bool
    has_previous: bool


def routes(identity: Identity, usage: Usage, clock: Clock) -> APIRouter:
    """The audit log and the people under ``/dashboard``."""
    router = APIRouter(prefix="/dashboard", tags=["dashboard"], responses=described())
    owner, admin = Depends(identity.owner), Depends(identity.admin)

    @router.get("/logs")
    async def logs(
        caller: Annotated[Caller, owner],
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        offset: Offset = 0,
        category: Literal["CREDENTIALS", "MEMBERSHIP", "ORGANIZATION", ""] = "",
        operation: Annotated[str, Query(max_length=60)] = "",
        start_date: When = "",
        end_date: When = "",
    ) -> LogsOut:
        """The audit log of the organization, the newest line first. A plain end date includes its day."""
        wanted = LogFilter(category or None, operation or None, _start(start_date), _end(end_date))
        total, lines = await usage.logs(caller.organization_id, wanted, limit=limit, offset=offset)
        return LogsOut(
            organization_id=caller.organization_id,
            data=LogsData(
                logs=[_log_out(line) for line in lines],
                total_count=total,
                limit=limit,
                offset=offset,
                has_next=offset + len(lines) < total,
                has_previous=offset > 0,
            ),
            filters=LogsFilters(
                category=category or None,
                operation=operation or None,
                start_date=start_date or None,
                end_date=end_date or None,
            ),
            meta=Meta(timestamp=iso(clock.now()), limit=limit, offset=offset),
        )

    @router.get("/users")
    async def users(
        caller: Annotated[Caller, admin],
        search: Annotated[str, Query(max_length=100)] = "",
        status: Literal["active", "inactive", ""] = "",
        sort_by: SortBy = "created_at",
        order: Literal["asc", "desc"] = "desc",
        page: Annotated[int, Query(ge=1, le=100_000)] = 1,
        limit: Limit = 10,
    ) -> PeopleAnswer:
        """Members and open invitations."""
        active = None if not status else status == "active"
        people = await usage.people(caller.organization_id, search=search or None, active=active)
        rows = [_member_out(person, people.spent_micro.get(person.id, 0)) for person in people.members]
        rows += [_invited_out(person) for person in people.invited]
        rows.sort(key=lambda row: (_sort_key(row, sort_by), row.id), reverse=order == "desc")
        pages = -(-len(rows) // limit)
        return PeopleAnswer(
            organization_id=caller.organization_id,
            users=rows[(page - 1) * limit : page * limit],
            invitation_count=len(people.invited),
            max_seats=people.seats,
            total=len(rows),
            total_pages=pages,
            current_page=page,
            limit=limit,
            has_next=page < pages,
            has_previous=page > 1,
        )

    return router


def _start(text: str) -> int | None:
    return from_iso(text) if text else None


def _end(text: str) -> int | None:
    """The end of a span that is not included: the day after a plain date."""
    if not text:
        return None
    is_plain_date = len(text) <= len("2026-01-01")
    return from_iso(text) + (DAY if is_plain_date else 1)


def _log_out(line: LogLine) -> LogOut:
    return LogOut(
        id=line.id,
        audit_time=iso(line.at),
        category=line.category,
        operation=line.operation,
        actor_email=line.actor_email,
        message=line.message,
        metadata=line.detail,
    )


def _member_out(person: PersonLine, spent_micro: int) -> PersonOut:
    return PersonOut(
        id=person.id,
        email=person.email,
        username=person.username,
        role=person.role,
        is_active=person.is_active,
        created_at=iso(person.created_at),
        updated_at=iso(person.created_at),
        last_active_at=iso_or_none(person.last_active_at),
        current_month_credit_usage=spent_micro / MICRO,
    )


def _invited_out(person: InvitedLine) -> PersonOut:
    return PersonOut(
        id=person.id,
        email=person.email,
        role=person.role,
        is_active=False,
        created_at=iso(person.created_at),
        updated_at=iso(person.created_at),
        is_invitation=True,
        invitation_status="pending",
        invitation_expires_at=iso(person.expires_at),
        invited_user_id=person.user_id,
        invited_at=iso(person.created_at),
    )


def _sort_key(row: PersonOut, sort_by: SortBy) -> tuple[bool, float, str]:
    """Rows without the value sort together, below those with one."""
    value: str | float | None = getattr(row, sort_by)
    if value is None:
        return (False, 0.0, "")
    return (True, 0.0, value.lower()) if isinstance(value, str) else (True, value, "")
