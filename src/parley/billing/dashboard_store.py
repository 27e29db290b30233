"""The SQL of the dashboard: audit log, people, tool and model calls, daily series (contract §13)."""

from dataclasses import dataclass

from sqlalchemy import Column, ColumnElement, Label, and_, case, false, func, literal_column, or_, select, true

from parley.base.clock import DAY
from parley.billing.usage_store import RAN, SPENT
from parley.storage import ReadTx
from parley.storage.tables.accounts import api_keys, audit_log, invitations, memberships, sessions, users
from parley.storage.tables.billing import ledger, model_usage
from parley.storage.tables.chats import runs, tool_calls
from parley.storage.tables.credentials import credentials
from parley.turn.model import JsonObject


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which audit lines are wanted; None: all. Times are microseconds, ``end`` is not included."""

    category: str | None = None
    operation: str | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the audit log, with who did it."""

    id: str
    at: int
    category: str
    operation: str
    message: str
    detail: JsonObject
    actor_email: str | None


@dataclass(frozen=True, slots=True)
class CallLine:
    """One tool or model call: who, what, with which credential, how it went. ``name`` is the action or model."""

    integration_name: str
    name: str
    started_at: int
    ended_at: int | None
    succeeded: bool
    managed: bool
    user_email: str | None
    credential_name: str | None
    auth_type: str | None
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Calls of one kind in a span of time."""

    calls: int
    succeeded: int
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def success_percent(self) -> float:
        """Share of calls that succeeded, 0 to 100 with one decimal; 0 where there were none."""
        return round(100 * self.succeeded / self.calls, 1) if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class PersonLine:
    """A member of an organization."""

    id: str
    email: str
    username: str
    role: str
    is_active: bool
    created_at: int
    last_active_at: int | None


@dataclass(frozen=True, slots=True)
class InvitedLine:
    """A pending invitation into an organization."""

    id: str
    email: str
    role: str
    created_at: int
    expires_at: int
    user_id: str | None


@dataclass(frozen=True, slots=True)
class Day:
    """One UTC day of an organization. ``number`` counts days since 1970."""

    number: int
    calls: int
    failed: int
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Inventory:
    """How many people and credentials an organization has, and how many integrations those reach."""

    members: int
    credentials: int
    integrations: int


def logs(tx: ReadTx, organization_id: str, wanted: LogFilter, *, limit: int, offset: int) -> tuple[int, list[LogLine]]:
    """How many audit lines match, and one page of them, the newest first."""
    columns = audit_log.c
    condition = and_(
        columns.organization_id == organization_id,
        true() if wanted.category is None else columns.category == wanted.category,
        true() if wanted.operation is None else columns.operation == wanted.operation,
        true() if wanted.start is None else columns.created_at >= wanted.start,
        true() if wanted.end is None else columns.created_at < wanted.end,
    )
    total = tx.execute(select(func.count()).select_from(audit_log).where(condition)).scalar_one()
    query = (
        select(
            columns.id,
            columns.created_at,
            columns.category,
            columns.operation,
            columns.message,
            columns.detail,
            users.c.email,
        )
        .select_from(audit_log.outerjoin(users, users.c.id == columns.user_id))
        .where(condition)
        .order_by(columns.created_at.desc(), columns.id.desc())
    )
    return total, [LogLine(*row) for row in tx.execute(query.limit(limit).offset(offset))]


def inventory(tx: ReadTx, organization_id: str) -> Inventory:
    """The organization's active people, credentials, and the integrations it has credentials for."""
    people = (
        select(func.count())
        .select_from(memberships.join(users, users.c.id == memberships.c.user_id))
        .where(memberships.c.organization_id == organization_id, users.c.is_active)
    )
    owned = select(func.count(), func.count(credentials.c.integration_name.distinct())).where(
        credentials.c.organization_id == organization_id
    )
    kept, reached = tx.execute(owned).one()
    return Inventory(tx.execute(people).scalar_one(), kept, reached)


def tool_totals(tx: ReadTx, organization_id: str, since: int) -> CallTotals:
    """The organization's tool calls since a time."""
    succeeded = func.sum(case((tool_calls.c.succeeded, 1), else_=0))
    query = select(func.count(), func.coalesce(succeeded, 0)).where(_tools(organization_id, since))
    calls, good = tx.execute(query).one()
    return CallTotals(calls, int(good))


def model_totals(tx: ReadTx, organization_id: str, since: int) -> CallTotals:
    """The organization's model calls since a time."""
    columns = model_usage.c
    query = select(
        func.count(),
        func.coalesce(func.sum(case((columns.succeeded, 1), else_=0)), 0),
        func.coalesce(func.sum(columns.input_tokens), 0),
        func.coalesce(func.sum(columns.output_tokens), 0),
    ).where(_models(organization_id, since))
    return CallTotals(*(int(figure) for figure in tx.execute(query).one()))


def most_used_action(tx: ReadTx, organization_id: str, since: int) -> tuple[str, str] | None:
    """Integration and action that ran most often since a time; None where none did."""
    columns = tool_calls.c
    query = (
        select(columns.integration_name, columns.action_name)
        .where(_tools(organization_id, since))
        .group_by(columns.integration_name, columns.action_name)
        .order_by(func.count().desc(), columns.integration_name, columns.action_name)
        .limit(1)
    )
    row = tx.execute(query).one_or_none()
    return None if row is None else (row[0], row[1])


def tool_lines(tx: ReadTx, organization_id: str, since: int, *, limit: int, offset: int) -> list[CallLine]:
    """The organization's tool calls since a time, the newest first."""
    columns = tool_calls.c
    query = (
        select(
            columns.integration_name,
            columns.action_name,
            columns.started_at,
            columns.ended_at,
            func.coalesce(columns.succeeded, false()),
            columns.managed,
            users.c.email,
            credentials.c.display_name,
            credentials.c.auth_type,
        )
        .select_from(
            tool_calls.join(runs, runs.c.id == columns.run_id)
            .outerjoin(users, users.c.id == runs.c.user_id)
            .outerjoin(credentials, credentials.c.id == columns.credential_id)
        )
        .where(_tools(organization_id, since))
        .order_by(columns.started_at.desc(), columns.run_id, columns.step.desc())
    )
    return [CallLine(*row) for row in tx.execute(query.limit(limit).offset(offset))]


def model_lines(tx: ReadTx, organization_id: str, since: int, *, limit: int, offset: int) -> list[CallLine]:
    """The organization's model calls since a time, the newest first."""
    columns = model_usage.c
    query = (
        select(
            columns.integration_name,
            columns.model_id,
            func.coalesce(columns.started_at, columns.created_at),
            columns.created_at,
            func.coalesce(columns.succeeded, false()),
            columns.managed,
            users.c.email,
            credentials.c.display_name,
            credentials.c.auth_type,
            columns.input_tokens,
            columns.output_tokens,
        )
        .select_from(
            model_usage.outerjoin(users, users.c.id == columns.user_id).outerjoin(
                credentials, credentials.c.id == columns.credential_id
            )
        )
        .where(_models(organization_id, since))
        .order_by(columns.created_at.desc(), columns.run_id, columns.call.desc())
    )
    return [CallLine(*row) for row in tx.execute(query.limit(limit).offset(offset))]


def tool_days(tx: ReadTx, organization_id: str, since: int) -> list[Day]:
    """The organization's tool calls on each UTC day since a time; days without any are left out."""
    query = (
        select(_day(tool_calls.c.started_at), func.count(), _failed(tool_calls.c.succeeded))
        .where(_tools(organization_id, since))
        .group_by("day")
    )
    return [Day(*(int(figure) for figure in row)) for row in tx.execute(query)]


def model_days(tx: ReadTx, organization_id: str, since: int) -> list[Day]:
    """The organization's model calls on each UTC day since a time; days without any are left out."""
    columns = model_usage.c
    query = (
        select(
            _day(columns.created_at),
            func.count(),
            _failed(columns.succeeded),
            func.sum(columns.input_tokens),
            func.sum(columns.output_tokens),
            func.sum(columns.cached_tokens),
        )
        .where(_models(organization_id, since))
        .group_by("day")
    )
    return [Day(*(int(figure) for figure in row)) for row in tx.execute(query)]


def integration_days(tx: ReadTx, organization_id: str, since: int) -> list[tuple[int, str, int]]:
    """Day number, integration and number of its tool calls on that day."""
    columns = tool_calls.c
    query = (
        select(_day(columns.started_at), columns.integration_name, func.count())
        .where(_tools(organization_id, since))
        .group_by("day", columns.integration_name)
        .order_by("day", columns.integration_name)
    )
    return [(int(row[0]), row[1], row[2]) for row in tx.execute(query)]


def people(tx: ReadTx, organization_id: str, *, search: str | None, active: bool | None) -> list[PersonLine]:
    """The organization's members."""
    seen = select(func.max(sessions.c.seen_at)).where(sessions.c.user_id == users.c.id).scalar_subquery()
    used = select(func.max(api_keys.c.last_used_at)).where(api_keys.c.user_id == users.c.id).scalar_subquery()
    query = (
        select(
            users.c.id,
            users.c.email,
            users.c.username,
            memberships.c.role,
            users.c.is_active,
            memberships.c.joined_at,
            case((func.coalesce(used, 0) > func.coalesce(seen, 0), used), else_=seen),
        )
        .select_from(memberships.join(users, users.c.id == memberships.c.user_id))
        .where(
            memberships.c.organization_id == organization_id,
            true() if active is None else users.c.is_active == active,
            _matches(search, users.c.email, users.c.username),
        )
    )
    return [PersonLine(*row) for row in tx.execute(query)]


def spent_by_person(tx: ReadTx, organization_id: str, since: int) -> dict[str, int]:
    """Micro-credits that the turns of each person were charged since a time."""
    query = (
        select(runs.c.user_id, func.sum(-ledger.c.amount_micro))
        .select_from(ledger.join(runs, runs.c.id == ledger.c.run_id))
        .where(ledger.c.organization_id == organization_id, ledger.c.created_at >= since, ledger.c.kind.in_(SPENT))
        .group_by(runs.c.user_id)
    )
    return {row[0]: int(row[1]) for row in tx.execute(query)}


def invited(tx: ReadTx, organization_id: str, *, search: str | None, now: int) -> list[InvitedLine]:
    """The organization's invitations that wait for an answer."""
    columns = invitations.c
    query = (
        select(columns.id, columns.email, columns.role, columns.created_at, columns.expires_at, users.c.id)
        .select_from(invitations.outerjoin(users, users.c.email == columns.email))
        .where(
            columns.organization_id == organization_id,
            columns.status == "pending",
            columns.expires_at > now,
            _matches(search, columns.email),
        )
    )
    return [InvitedLine(*row) for row in tx.execute(query)]


def _tools(organization_id: str, since: int) -> ColumnElement[bool]:
    return and_(tool_calls.c.organization_id == organization_id, tool_calls.c.started_at >= since, RAN)


def _models(organization_id: str, since: int) -> ColumnElement[bool]:
    return and_(model_usage.c.organization_id == organization_id, model_usage.c.created_at >= since)


def _day(column: Column[int]) -> Label[int]:
    # The number is spelled out: PostgreSQL does not group by an expression with a bound value in it.
    return (column // literal_column(str(DAY))).label("day")


def _failed(column: Column[bool]) -> ColumnElement[int]:
    return func.sum(case((column, 0), else_=1))


def _matches(search: str | None, *columns: Column[str]) -> ColumnElement[bool]:
    if not search:
        return true()
    return or_(*(column.icontains(search, autoescape=True) for column in columns))
