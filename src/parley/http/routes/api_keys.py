"""``/api-keys``: a person's own API keys (contract §1.2)."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, status
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from parley.accounts import Accounts, ApiKey, User
from parley.base.clock import from_iso, iso, iso_or_none
from parley.http.identity import Identity
from parley.http.routes.auth import DoneOut
from parley.http.schemas import described

HINT = "mx_live_"


def _is_time(text: str) -> str:
    try:
        from_iso(text)
    except ValueError:
        raise ValueError("write a time such as 2027-01-31T10:00:00+00:00") from None
    return text


class KeyIn(BaseModel):
    """A new key. ``organization_id`` locks it to that organization; ``expires_at`` is ISO 8601."""

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=255)]
    organization_id: Annotated[str, StringConstraints(to_lower=True, max_length=36)] | None = None
    expires_at: Annotated[str, StringConstraints(max_length=40), AfterValidator(_is_time)] | None = None
    rate_limit_per_minute: Annotated[int, Field(ge=1, le=1000)] = 60


class KeyOut(BaseModel):
    """A key without its text."""

    id: str
    name: str
    key_hint: Literal["mx_live_"] = HINT
    masked_key: str
    organization_id: str | None
    expires_at: str | None
    is_expired: bool
    is_active: bool
    rate_limit_per_minute: int
    last_used_at: str | None
    created_at: str
    revoked_at: str | None


class NewKeyOut(KeyOut):
    """A key just made; ``key`` is its text, shown this once."""

    key: str


class KeysOut(BaseModel):
    keys: list[KeyOut]
    total: int
    max_keys: int


def routes(identity: Identity, accounts: Accounts) -> APIRouter:
    """The routes under ``/api-keys``."""
    router = APIRouter(prefix="/api-keys", tags=["api-keys"], responses=described())
    signed_in = Depends(identity.user)

    @router.post("", status_code=status.HTTP_201_CREATED, responses=described(409))
    async def create(user: Annotated[User, signed_in], wish: KeyIn) -> NewKeyOut:
        made = await accounts.keys.create(
            user,
            wish.name,
            organization_id=wish.organization_id,
            expires_at=None if wish.expires_at is None else from_iso(wish.expires_at),
            rate_limit_per_minute=wish.rate_limit_per_minute,
        )
        return NewKeyOut(key=made.text, **_key_out(made.row, accounts.clock.now()).model_dump())

    @router.get("")
    async def all_keys(user: Annotated[User, signed_in], *, include_revoked: bool = False) -> KeysOut:
        now = accounts.clock.now()
        found = await accounts.keys.all(user)
        shown = [_key_out(key, now) for key in found if include_revoked or key.revoked_at is None]
        return KeysOut(keys=shown, total=len(shown), max_keys=accounts.keys.most)

    @router.get("/{key_id}", responses=described(404))
    async def one(user: Annotated[User, signed_in], key_id: str) -> KeyOut:
        return _key_out(await accounts.keys.get(user, key_id), accounts.clock.now())

    @router.delete("/{key_id}", responses=described(404))
    async def revoke(user: Annotated[User, signed_in], key_id: str) -> DoneOut:
        await accounts.keys.revoke(user, key_id)
        return DoneOut(message="The API key is revoked.")

    return router


def _key_out(key: ApiKey, now: int) -> KeyOut:
    return KeyOut(
        id=key.id,
        name=key.name,
        masked_key=key.masked_key,
        organization_id=key.organization_id,
        expires_at=iso_or_none(key.expires_at),
        is_expired=key.expires_at is not None and key.expires_at <= now,
        is_active=key.revoked_at is None,
        rate_limit_per_minute=key.rate_limit_per_minute,
        last_used_at=iso_or_none(key.last_used_at),
        created_at=iso(key.created_at),
        revoked_at=iso_or_none(key.revoked_at),
    )
