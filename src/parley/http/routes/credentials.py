"""``/credentials``: what an organization has connected (contract §7)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request, Response, status
from pydantic import AfterValidator, BaseModel, Field, StringConstraints
from starlette.responses import StreamingResponse

from parley.accounts import Caller
from parley.base.clock import DAY, from_iso, iso, iso_or_none
from parley.base.errors import BadRequest, Refusal
from parley.credentials import Credential, Credentials, Group, NewCredential, Secrets, Source
from parley.http.identity import Identity, address_of
from parley.http.schemas import EVENT, described
from parley.storage import Store
from parley.storage.once import once_key, run_once
from parley.turn.model import JsonObject

MOST_METADATA_BYTES = 16_384
DATE_ONLY = 10
SSE_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


class SecretsStay(BadRequest):
    """The secret of a credential cannot be changed. Save a new credential and delete this one."""


class NoTime(BadRequest):
    """start_date and end_date must be dates or times, such as 2026-06-20 or 2026-06-20T10:00:00Z."""


def _is_time(text: str) -> str:
    from_iso(text)
    return text


def _is_small(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(msgspec.json.encode(metadata)) > MOST_METADATA_BYTES:
        raise ValueError(f"at most {MOST_METADATA_BYTES} bytes as JSON")
    return metadata


type Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=255)]
type IntegrationName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
type AuthType = Annotated[str, StringConstraints(min_length=1, max_length=20)]
type Metadata = Annotated[dict[str, Any], AfterValidator(_is_small)]
type Time = Annotated[str, StringConstraints(max_length=40), AfterValidator(_is_time)]


class CredentialIn(BaseModel):
    """A new credential; without ``auth_type`` it is inferred from ``auth_data``."""

    integration_name: IntegrationName
    auth_data: dict[str, Any] | None = Field(default=None, repr=False)
    auth_type: AuthType | None = None
    oauth_config: dict[str, Any] | None = Field(default=None, repr=False)
    display_name: Name | None = None
    metadata: Metadata | None = None
    make_default: bool = False
    expires_at: Time | None = None


class ChangeIn(BaseModel):
    """New words for a credential. ``auth_data`` is here to be refused with a sentence."""

    display_name: Name | None = None
    metadata: Metadata | None = None
    auth_data: dict[str, Any] | None = Field(default=None, repr=False)


class TestIn(BaseModel):
    """Values to test without storing them."""

    integration_name: IntegrationName
    auth_type: AuthType
    auth_data: dict[str, Any] = Field(default_factory=dict, repr=False)


class CredentialOut(BaseModel):
    """A credential without its secret."""

    credential_id: str
    integration_name: str
    integration_type: str
    display_name: str
    auth_type: str
    is_default: bool
    is_valid: bool
    created_at: str
    updated_at: str
    last_used_at: str | None
    expires_at: str | None
    credentials_metadata: dict[str, Any]


class DetailOut(CredentialOut):
    """A credential with who made it and, when asked for, a hint of its secret."""

    organization_id: str
    created_by: str
    created_by_email: str | None
    auth_data_masked: str | None


class GroupOut(BaseModel):
    integration_name: str
    integration_type: str
    total_count: int
    auth_types: list[str]
    credentials: list[CredentialOut]


class GroupedOut(BaseModel):
    """The list without ``integration_name``."""

    integrations: dict[str, GroupOut]
    total_credentials: int
    total_integrations: int
    filters: dict[str, str | int | None]


class FlatOut(BaseModel):
    """The list with ``integration_name``."""

    credentials: list[CredentialOut]
    total_count: int
    integration_name: str
    filters: dict[str, str | int | None]


class TestedOut(BaseModel):
    """The result of a test. ``error_code`` tells a refusal by the service from trouble on the way there."""

    credential_id: str
    is_valid: bool
    message: str
    tested_at: str
    error_code: str | None


class TestedTemporaryOut(BaseModel):
    is_valid: bool
    message: str
    tested_at: str
    test_method: str
    integration_name: str
    auth_type: str
    test_endpoint: str | None
    status_code: int | None
    cost_level: str | None
    error_code: str | None


class UsageOut(BaseModel):
    """``success_rate`` is between 0 and 1."""

    credential_id: str
    total_calls: int
    successful_calls: int
    failed_calls: int
    success_rate: float
    action_breakdown: dict[str, int]
    start_date: str | None
    end_date: str | None


class AuditOut(BaseModel):
    id: str
    credential_id: str
    event_type: str
    user_id: str | None
    changes: dict[str, Any]
    ip_address: str | None
    user_agent: str | None
    timestamp: str


ERROR_CODES = {"invalid": "invalid_credentials", "unknown": "network_error"}

type Limit = Annotated[int, Query(ge=1, le=500)]
type Offset = Annotated[int, Query(ge=0, le=1_000_000_000)]


class CreatedOut(CredentialOut):
    """A new credential, and how many chats that waited for it went on."""

    resumed_chats: int = 0


type OnCreated = Callable[[Caller, Credential], Awaitable[int]]


FRAMES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {"schema": EVENT}}}
}


def routes(identity: Identity, credentials: Credentials, store: Store, on_created: OnCreated) -> APIRouter:
    """The routes under ``/credentials``, less those of OAuth. ``on_created`` wakes what waited for the integration."""
    router = APIRouter(prefix="/credentials", tags=["credentials"], responses=described(404))
    _create_route(router, Depends(identity.admin), credentials, store, on_created)
    _change_routes(router, Depends(identity.admin), credentials)
    _read_routes(router, Depends(identity.admin), credentials)
    _test_routes(router, Depends(identity.admin), credentials)
    return router


def _create_route(router: APIRouter, admin: Any, credentials: Credentials, store: Store, on_created: OnCreated) -> None:
    @router.post("", status_code=status.HTTP_201_CREATED, responses=described(409))
    async def create(
        caller: Annotated[Caller, admin],
        request: Request,
        wish: CredentialIn,
        idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
    ) -> CreatedOut:
        new = NewCredential(
            integration_name=wish.integration_name,
            auth_data=Secrets(wish.auth_data),
            auth_type=wish.auth_type,
            oauth_config=None if wish.oauth_config is None else Secrets(wish.oauth_config),
            display_name=wish.display_name,
            metadata=wish.metadata or {},
            make_default=wish.make_default,
            expires_at=None if wish.expires_at is None else from_iso(wish.expires_at),
        )
        once = once_key(caller.organization_id, "credentials", idempotency_key, wish.model_dump())
        resumed = 0

        async def first() -> dict[str, object]:
            nonlocal resumed
            made = await credentials.create(caller, new, source_of(request), once=once)
            resumed = await on_created(caller, made)
            return {"credential_id": made.credential_id}

        answer = await run_once(store, once, first)
        credential, _ = await credentials.get(caller.organization_id, str(answer["credential_id"]))
        return CreatedOut(**credential_out(credential).model_dump(), resumed_chats=resumed)


def _change_routes(router: APIRouter, admin: Any, credentials: Credentials) -> None:
    @router.put("/{credential_id}")
    async def update(
        caller: Annotated[Caller, admin], request: Request, credential_id: str, wish: ChangeIn | None = None
    ) -> CredentialOut:
        wish = wish or ChangeIn()
        if wish.auth_data is not None:
            raise SecretsStay
        changed = await credentials.update(
            caller,
            credential_id,
            display_name=wish.display_name,
            metadata=wish.metadata,
            source=source_of(request),
        )
        return credential_out(changed)

    @router.delete("/{credential_id}", status_code=status.HTTP_204_NO_CONTENT)
    async def delete(caller: Annotated[Caller, admin], request: Request, credential_id: str) -> Response:
        await credentials.delete(caller, credential_id, source_of(request))
        return Response(status_code=status.HTTP_204_NO_CONTENT)

    @router.post("/{credential_id}/set-default")
    async def set_default(caller: Annotated[Caller, admin], request: Request, credential_id: str) -> CredentialOut:
        return credential_out(await credentials.set_default(caller, credential_id, source_of(request)))

    @router.post("/bulk-modulex-keys/stream", response_class=StreamingResponse, responses=FRAMES)
    async def add_every_managed(caller: Annotated[Caller, admin], request: Request) -> Response:
        frames = _managed_frames(credentials, caller, source_of(request))
        return StreamingResponse(frames, media_type="text/event-stream", headers=SSE_HEADERS)


def _read_routes(router: APIRouter, admin: Any, credentials: Credentials) -> None:
    @router.get("")
    async def everything(
        caller: Annotated[Caller, admin],
        *,
        integration_name: str | None = None,
        auth_type: str | None = None,
        limit: Limit = 100,
        offset: Offset = 0,
    ) -> GroupedOut | FlatOut:
        groups = await credentials.list(
            caller.organization_id,
            integration_name=integration_name,
            auth_type=auth_type,
            limit=limit,
            offset=offset,
        )
        filters: dict[str, str | int | None] = {
            "integration_name": integration_name,
            "auth_type": auth_type,
            "limit": limit,
            "offset": offset,
        }
        return _grouped(groups, filters) if integration_name is None else _flat(groups, integration_name, filters)

    @router.get("/{credential_id}")
    async def one(caller: Annotated[Caller, admin], credential_id: str, *, include_masked: bool = False) -> DetailOut:
        credential, email = await credentials.get(caller.organization_id, credential_id)
        return DetailOut(
            **credential_out(credential).model_dump(),
            organization_id=credential.organization_id,
            created_by=credential.created_by,
            created_by_email=email,
            auth_data_masked=credential.masked if include_masked else None,
        )

    @router.get("/{credential_id}/usage")
    async def usage(
        caller: Annotated[Caller, admin],
        credential_id: str,
        start_date: str | None = None,
        end_date: str | None = None,
    ) -> UsageOut:
        used = await credentials.usage(
            caller.organization_id,
            credential_id,
            since=None if start_date is None else _time(start_date),
            until=None if end_date is None else _end(end_date),
        )
        return UsageOut(
            credential_id=credential_id,
            total_calls=used.total_calls,
            successful_calls=used.successful_calls,
            failed_calls=used.failed_calls,
            success_rate=used.success_rate,
            action_breakdown=dict(used.action_breakdown),
            start_date=start_date,
            end_date=end_date,
        )

    @router.get("/{credential_id}/audit")
    async def audit(
        caller: Annotated[Caller, admin], credential_id: str, *, limit: Limit = 100, offset: Offset = 0
    ) -> list[AuditOut]:
        entries = await credentials.audit(caller.organization_id, credential_id, limit=limit, offset=offset)
        return [
            AuditOut(
                id=entry.entry_id,
                credential_id=entry.credential_id,
                event_type=entry.event_type,
                user_id=entry.user_id,
                changes=entry.changes,
                ip_address=entry.source.ip_address,
                user_agent=entry.source.user_agent,
                timestamp=iso(entry.created_at),
            )
            for entry in entries
        ]


def _test_routes(router: APIRouter, admin: Any, credentials: Credentials) -> None:
    @router.post("/test-temporary")
    async def test_values(caller: Annotated[Caller, admin], wish: TestIn) -> TestedTemporaryOut:
        values = Secrets(wish.auth_data)
        tested = await credentials.test_temporary(caller.organization_id, wish.integration_name, wish.auth_type, values)
        verdict = tested.verdict
        return TestedTemporaryOut(
            is_valid=tested.is_valid,
            message=verdict.message,
            tested_at=iso(tested.tested_at),
            test_method=verdict.method,
            integration_name=wish.integration_name,
            auth_type=wish.auth_type,
            test_endpoint=verdict.endpoint,
            status_code=verdict.status_code,
            cost_level=verdict.cost_level,
            error_code=ERROR_CODES.get(verdict.outcome),
        )

    @router.post("/{credential_id}/test", responses=described())
    async def test(caller: Annotated[Caller, admin], request: Request, credential_id: str) -> TestedOut:
        tested = await credentials.test(caller, credential_id, source_of(request))
        return TestedOut(
            credential_id=credential_id,
            is_valid=tested.is_valid,
            message=tested.verdict.message,
            tested_at=iso(tested.tested_at),
            error_code=ERROR_CODES.get(tested.verdict.outcome),
        )


async def _managed_frames(credentials: Credentials, caller: Caller, source: Source) -> AsyncIterator[bytes]:
    """Make the managed credentials the organization lacks, and tell of each (contract §7)."""
    offers = await credentials.managed_offers(caller.organization_id)
    yield _frame(
        {
            "phase": "initial_status",
            "completed": False,
            "integrations": [
                {
                    "integration_name": offer.name,
                    "integration_type": offer.integration_type,
                    "display_name": offer.display_name,
                    "has_modulex_key_credential": held,
                }
                for offer, held in offers
            ],
        }
    )
    created = 0
    for offer, held in offers:
        if held:
            continue
        try:
            made = await credentials.add_managed(caller, offer.name, source)
        except Refusal as refusal:
            yield _frame({"phase": "creating", "completed": False, "just_created": [], "error": refusal.detail})
            continue
        if made is not None:
            created += 1
            yield _frame({"phase": "creating", "completed": False, "just_created": [offer.name]})
    summary: JsonObject = {"total": len(offers), "created": created, "already_existed": len(offers) - created}
    message = f"{created} of {len(offers)} managed credentials were made now."
    yield _frame({"phase": "completed", "completed": True, "summary": summary, "message": message})


def _frame(data: JsonObject) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def source_of(request: Request) -> Source:
    """Where a change comes from, for the audit."""
    agent = request.headers.get("user-agent")
    return Source(address_of(request.scope)[:60] or None, agent and agent[:255])


def credential_out(credential: Credential) -> CredentialOut:
    """A credential's row on the wire."""
    return CredentialOut(
        credential_id=credential.credential_id,
        integration_name=credential.integration_name,
        integration_type=credential.integration_type,
        display_name=credential.display_name,
        auth_type=credential.auth_type,
        is_default=credential.is_default,
        is_valid=credential.is_valid,
        created_at=iso(credential.created_at),
        updated_at=iso(credential.updated_at),
        last_used_at=iso_or_none(credential.last_used_at),
        expires_at=iso_or_none(credential.expires_at),
        credentials_metadata=credential.metadata,
    )


def _grouped(groups: Sequence[Group], filters: dict[str, str | int | None]) -> GroupedOut:
    return GroupedOut(
        integrations={
            group.integration_name: GroupOut(
                integration_name=group.integration_name,
                integration_type=group.integration_type,
                total_count=group.total_count,
                auth_types=list(group.auth_types),
                credentials=[credential_out(credential) for credential in group.credentials],
            )
            for group in groups
        },
        total_credentials=sum(group.total_count for group in groups),
        total_integrations=len(groups),
        filters=filters,
    )


def _flat(groups: Sequence[Group], integration_name: str, filters: dict[str, str | int | None]) -> FlatOut:
    return FlatOut(
        credentials=[credential_out(credential) for group in groups for credential in group.credentials],
        total_count=sum(group.total_count for group in groups),
        integration_name=integration_name,
        filters=filters,
    )


def _time(text: str) -> int:
    try:
        return from_iso(text)
    except ValueError:
        raise NoTime from None


def _end(text: str) -> int:
    """The last moment that a day or a time includes."""
    return _time(text) + (DAY - 1 if len(text) == DATE_ONLY else 0)
