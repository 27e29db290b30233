"""API keys: their text, the keyed hash stored in its place, and what their owner may do with them (trust T17).

A key of ours is ``mx_live_``, 26 random characters and a CRC32 of them in 6: more than 154 random
bits, and a typing error or a made-up key is refused before the store is asked.
"""

import hashlib
import hmac
import secrets
import string
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.exc import IntegrityError

from parley.accounts import pass_store as rows
from parley.accounts import store as people
from parley.accounts.model import ApiKey, AuditEntry, User
from parley.base.clock import Clock
from parley.base.errors import BadRequest, Conflict, Forbidden, NotFound
from parley.base.ids import new_id
from parley.keyring import Keyring
from parley.storage import ReadTx, Store, WriteTx

PREFIX = "mx_live_"
SHOWN = 4
MOST_KEYS = 25
_ALPHABET = string.digits + string.ascii_letters
_RANDOM = 26
_CHECK = 6

PEPPER = "api-key-pepper"
PEPPER_BYTES = 32


class TooManyKeys(Conflict):
    """You have 25 API keys, which is the most. Revoke one that you no longer use."""


class KeyNotFound(NotFound):
    """API key not found"""


class NoSuchAccount(NotFound):
    """Nobody has this e-mail address"""


class EndInThePast(BadRequest):
    """expires_at is in the past. Give a later time, or leave it out for a key without an end."""


class ScopeTooWide(Forbidden):
    """A key may be locked only to an organization you are in, and a locked key makes only keys with its own lock."""


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A key just made, with its text, which is never seen again."""

    row: ApiKey
    text: str = field(repr=False)


class ApiKeys:
    """A person's API keys, at most ``most``. Through a locked key only keys with the same lock are seen."""

    most = MOST_KEYS

    def __init__(self, store: Store, clock: Clock, pepper: bytes, forget: Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._pepper = pepper
        self._forget = forget

    async def owner(self, email: str) -> User:
        """The person with an e-mail address, for the operator's commands. Raises NoSuchAccount."""

        def work(tx: ReadTx) -> User | None:
            account = people.account_by_email(tx, email.strip().lower())
            return None if account is None else rows.user_by_id(tx, account.id)

        found = await self._store.read(work)
        if found is None:
            raise NoSuchAccount
        return found

    async def create(
        self, user: User, name: str, *, organization_id: str | None, expires_at: int | None, rate_limit_per_minute: int
    ) -> MadeKey:
        """Make a key, locked to one organization when that is given; ``expires_at`` is a time (contract §1.2).

        Raises EndInThePast 400, ScopeTooWide 403, TooManyKeys 409.
        """
        now = self._clock.now()
        if expires_at is not None and expires_at <= now:
            raise EndInThePast
        if organization_id not in (user.roles if user.locked_to else (None, *user.roles)):
            raise ScopeTooWide
        text = new_key()
        row = ApiKey(
            id=new_id(),
            user_id=user.id,
            name=name,
            masked_key=mask(text),
            organization_id=organization_id,
            rate_limit_per_minute=rate_limit_per_minute,
            expires_at=expires_at,
            last_used_at=None,
            created_at=now,
            revoked_at=None,
        )

        def work(tx: WriteTx) -> None:
            people.lock_user(tx, user.id)
            if rows.count_keys(tx, user.id) >= MOST_KEYS:
                raise TooManyKeys
            rows.add_key(tx, row, key_hash=digest(self._pepper, text), opaque=False)
            _record(tx, user, row, "api_key_created", f"{user.email} made the API key {row.masked_key}", now)

        await self._store.write(work)
        return MadeKey(row, text)

    async def all(self, user: User) -> list[ApiKey]:
        """A person's keys, revoked ones too, newest first."""
        found = await self._store.read(lambda tx: rows.keys_of(tx, user.id))
        return [key for key in found if user.locked_to in (None, key.organization_id)]

    async def get(self, user: User, key_id: str) -> ApiKey:
        """One of a person's keys. Raises KeyNotFound."""
        found = await self._store.read(lambda tx: rows.key_by_id(tx, user.id, key_id))
        if found is None or user.locked_to not in (None, found.organization_id):
            raise KeyNotFound
        return found

    async def revoke(self, user: User, key_id: str) -> None:
        """End a key, and the sessions opened with it, for good. Raises KeyNotFound, also when it had ended."""
        key = await self.get(user, key_id)
        now = self._clock.now()

        def work(tx: WriteTx) -> None:
            if not rows.revoke_key(tx, key.id, now):
                raise KeyNotFound
            _record(tx, user, key, "api_key_revoked", f"{user.email} revoked the API key {key.masked_key}", now)

        await self._store.write(work)
        self._forget(key.id)


def new_key() -> str:
    """A fresh key: ``mx_live_`` and 32 letters and digits."""
    body = "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    return PREFIX + body + _checksum(body)


def has_checksum(key: str) -> bool:
    """Whether the key is one that ``new_key`` could have made."""
    body = key[len(PREFIX) :]
    return len(body) == _RANDOM + _CHECK and key.startswith(PREFIX) and _checksum(body[:_RANDOM]) == body[_RANDOM:]


def mask(key: str) -> str:
    """What may be shown of a key later: ``mx_live_abcd****`` (contract §1.2)."""
    return key[: len(PREFIX) + SHOWN] + "****"


def digest(pepper: bytes, key: str) -> bytes:
    """The keyed hash a key is stored and found by."""
    return hmac.digest(pepper, key.encode("utf-8", "surrogateescape"), "sha256")


def token_digest(token: str) -> bytes:
    """The hash a random token is stored and found by: sessions, sign-in links, invitations."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def new_token() -> str:
    """A fresh random token of 256 bits, fit for a URL."""
    return secrets.token_urlsafe(32)


async def load_pepper(store: Store, keyring: Keyring, clock: Clock) -> bytes:
    """The secret that API keys are hashed with, made at first use; the same in every process.

    Raises SealBroken when the keyring is not the one that sealed it.
    """
    context = secret_context(PEPPER)
    found = await store.read(lambda tx: rows.instance_secret(tx, PEPPER))
    if found is None:
        pepper = secrets.token_bytes(PEPPER_BYTES)
        sealed, key_id = keyring.seal(pepper, context=context)
        now = clock.now()
        try:
            await store.write(lambda tx: rows.add_instance_secret(tx, PEPPER, sealed, key_id, now))
        except IntegrityError:  # another process was first: its secret counts
            found = await store.read(lambda tx: rows.instance_secret(tx, PEPPER))
        else:
            return pepper
    if found is None:
        raise RuntimeError("the pepper of API keys was removed while it was being made")
    sealed, key_id = found
    return keyring.open(sealed, key_id=key_id, context=context)


def secret_context(name: str) -> str:
    """What the seal of one of this installation's own secrets is bound to."""
    return f"instance_secrets|{name}"


def _record(tx: WriteTx, user: User, key: ApiKey, operation: str, message: str, now: int) -> None:
    """Tell every organization that the key can act in."""
    for organization_id in user.roles if key.organization_id is None else (key.organization_id,):
        people.record(
            tx,
            AuditEntry(
                organization_id=organization_id,
                user_id=user.id,
                category="CREDENTIALS",
                operation=operation,
                message=message,
                detail={"api_key_id": key.id, "name": key.name},
                at=now,
            ),
        )


def _checksum(body: str) -> str:
    rest = zlib.crc32(body.encode("utf-8", "surrogateescape"))
    digits: list[str] = []
    for _ in range(_CHECK):
        rest, digit = divmod(rest, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
