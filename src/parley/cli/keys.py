"""``parley keys list|create|revoke`` and ``parley sign-in-link``: what lets people in."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from parley.accounts import Accounts, ApiKey, NoSuchAccount, User, emails, mask, open_accounts
from parley.base.clock import DAY, Clock, iso
from parley.base.errors import NotFound
from parley.base.settings import Settings
from parley.cli.doctor.reach import check_server
from parley.cli.opening import existing_keyring, open_rows
from parley.storage import ReadTx, Store

SHORTEST_ID = 8


@dataclass(frozen=True, slots=True)
class KeyWish:
    """An API key to be made. ``organization_id`` None: good in all of them; ``days`` None: without an end."""

    email: str
    name: str
    organization_id: str | None
    days: int | None
    rate_limit_per_minute: int


def list_keys(settings: Settings, email: str | None) -> None:
    """Print one person's API keys, or everyone's."""

    async def work(accounts: Accounts, store: Store) -> None:
        for each in await store.read(emails) if email is None else [email]:
            person = await accounts.keys.owner(each)
            print(person.email)
            for key in await accounts.keys.all(person):
                print(_line(key, accounts.clock.now()))

    _run(settings, work)


def create_key(settings: Settings, wish: KeyWish) -> None:
    """Make an API key. The key alone is on standard output, and is never shown again."""

    async def work(accounts: Accounts, _store: Store) -> None:
        person = await accounts.keys.owner(wish.email)
        made = await accounts.keys.create(
            person,
            wish.name,
            organization_id=wish.organization_id,
            expires_at=None if wish.days is None else accounts.clock.now() + wish.days * DAY,
            rate_limit_per_minute=wish.rate_limit_per_minute,
        )
        print(made.text)
        print(f"This key acts as {person.email}. Keep it: it is shown only once.", file=sys.stderr)

    _run(settings, work)


def revoke_key(settings: Settings, email: str, which: str) -> None:
    """End an API key for good; ``which`` is its id, the beginning of that, or the key itself."""

    async def work(accounts: Accounts, _store: Store) -> None:
        person = await accounts.keys.owner(email)
        key = _find(person, await accounts.keys.all(person), which)
        await accounts.keys.revoke(person, key.id)
        print(f"{key.masked_key} ({key.name}) of {person.email} is revoked. Servers refuse it within a second.")

    _run(settings, work)


def sign_in_link(settings: Settings, email: str) -> None:
    """Print a link that signs a person in to the web app, once, within a day."""

    async def work(accounts: Accounts, _store: Store) -> None:
        token = await accounts.sessions.make_link(email.strip().lower())
        print(f"{settings.base_url}/app/#sign-in={token}")
        print("It works once, within a day. Hand it to nobody else.", file=sys.stderr)
        if not settings.public_url:
            await _say_where_the_server_is(settings)

    _run(settings, work)


def _run(settings: Settings, work: Callable[[Accounts, Store], Awaitable[None]]) -> None:
    async def run() -> None:
        async with _opened(settings) as (accounts, store):
            try:
                await work(accounts, store)
            except NoSuchAccount:
                known = ", ".join(await store.read(emails))
                raise NoSuchAccount(f"Nobody here has this e-mail address. There are: {known}") from None

    asyncio.run(run())


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncGenerator[tuple[Accounts, Store]]:
    keyring = existing_keyring(settings)
    async with open_rows(settings) as store:
        accounts = await open_accounts(store, keyring, Clock(), _any_number)
        try:
            yield accounts, store
        finally:
            await accounts.close()


async def _say_where_the_server_is(settings: Settings) -> None:
    """The link leads to this process's own PARLEY_PORT, which need not be the server's."""
    async for finding in check_server(settings):
        if finding.state != "good":
            print(f"{finding.text} {finding.mend}", file=sys.stderr)


def _any_number(_tx: ReadTx, _organization_id: str) -> int | None:
    """Seats, which none of these commands fills."""
    return None


def _find(person: User, keys: Sequence[ApiKey], which: str) -> ApiKey:
    live = [key for key in keys if key.revoked_at is None]
    found = [key for key in live if _is_meant(key, which)]
    if len(found) == 1:
        return found[0]
    listed = "\n".join(f"  {key.id}  {key.masked_key}  {key.name}" for key in found or live)
    problem = "More than one key of" if found else "No such key of"
    raise NotFound(f"{problem} {person.email}. Name one by its id:\n{listed}")


def _is_meant(key: ApiKey, which: str) -> bool:
    if which.startswith("mx_live_"):
        return which == key.masked_key or mask(which) == key.masked_key
    return len(which) >= SHORTEST_ID and key.id.startswith(which)


def _line(key: ApiKey, now: int) -> str:
    used = "never used" if key.last_used_at is None else f"used {iso(key.last_used_at)[:10]}"
    scope = f"only {key.organization_id}" if key.organization_id else "all organizations"
    return "  " + "  ".join([key.id, key.masked_key, _state(key, now), used, scope, key.name])


def _state(key: ApiKey, now: int) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is not None and key.expires_at <= now:
        return "expired"
    return "good" if key.expires_at is None else f"good until {iso(key.expires_at)[:10]}"
