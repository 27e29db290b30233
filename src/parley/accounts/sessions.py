"""Signing in and out: by password, API key, sign-in link or invitation; and setting a password.

A session is a random token in a cookie, stored as a hash: twelve hours without use end it, seven
days end it in any case. One opened with an API key can do what the key can and ends with it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy.exc import IntegrityError

from parley.accounts import pass_store as rows
from parley.accounts import store as people
from parley.accounts.callers import Callers, Inactive
from parley.accounts.invitations import HasAccount, Invitations
from parley.accounts.keys import NoSuchAccount, new_token, token_digest
from parley.accounts.limits import refuse_over
from parley.accounts.model import Account, User
from parley.base.clock import DAY, Clock
from parley.base.errors import Forbidden, Unauthorized, Unavailable
from parley.storage import Store, WriteTx
from parley.storage.windows import Windows

SESSION_FOR = 7 * DAY
LINK_FOR = DAY

ARGON2_MEMORY_KIB = 19 * 1024
ARGON2_PASSES = 2
ARGON2_LANES = 1
HASHES_AT_ONCE = 2
MOST_HASHES_WAITING = 32

TRY_SECONDS = 15 * 60
TRIES_PER_ACCOUNT = 10
TRIES_PER_ADDRESS = 100
TOO_MANY_TRIES = "Too many attempts to sign in. Wait a few minutes, then try again."


class WrongPassword(Unauthorized):
    """The e-mail address or the password is wrong."""


class LinkOver(Unauthorized):
    """The sign-in link was used already, or is too old. Ask for a new one."""


class KeyMayNot(Forbidden):
    """An API key cannot set a password. Sign in with a link or with your password first."""


class Crowded(Unavailable):
    """Too many people are signing in at this moment. Try again in a few seconds."""


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session just opened, with the token for the cookie, which is never seen again."""

    user: User
    expires_at: int
    token: str = field(repr=False)


class Passwords:
    """argon2id at 19 MiB, two at once, off the event loop (trust §4)."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=ARGON2_PASSES, memory_cost=ARGON2_MEMORY_KIB, parallelism=ARGON2_LANES)
        self._threads = ThreadPoolExecutor(HASHES_AT_ONCE, thread_name_prefix="parley-password")
        self._waiting = 0
        self._nobody: str | None = None

    async def hash(self, password: str) -> str:
        """What to store for a password. Raises Crowded 503."""
        return await self._in_thread(lambda: self._hasher.hash(password))

    async def fits(self, password: str, stored: str | None) -> bool:
        """Whether the password is the stored one; takes as long when nothing is stored. Raises Crowded 503."""
        return await self._in_thread(lambda: self._fits(password, stored))

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False)

    async def _in_thread[T](self, work: Callable[[], T]) -> T:
        if self._waiting >= MOST_HASHES_WAITING:
            raise Crowded
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def _fits(self, password: str, stored: str | None) -> bool:
        if self._nobody is None:
            self._nobody = self._hasher.hash(new_token())
        try:
            return self._hasher.verify(stored or self._nobody, password) and stored is not None
        except (VerificationError, InvalidHashError):
            return False


class Sessions:
    """Opening, closing and guarding sessions."""

    def __init__(self, store: Store, clock: Clock, callers: Callers, invitations: Invitations) -> None:
        self._store = store
        self._clock = clock
        self._callers = callers
        self._invitations = invitations
        self._tries = Windows(store, clock, "sign_in", seconds=TRY_SECONDS)
        self.passwords = Passwords()

    async def sign_in_with_key(self, key: str, *, address: str) -> OpenSession:
        """Raises what ``Callers.by_key`` raises, and TooManyRequests."""
        await self._try(f"address:{address}", TRIES_PER_ADDRESS)
        found = await self._callers.by_key(key, address=address)
        return await self._store.write(lambda tx: self._open(tx, found.user.id, found.user.api_key_id))

    async def sign_in_with_password(self, email: str, password: str, *, address: str) -> OpenSession:
        """Raises WrongPassword 401, Inactive 403, TooManyRequests; an unknown address answers like a wrong password."""
        subject = f"account:{email}"
        await self._try(f"address:{address}", TRIES_PER_ADDRESS)
        await self._try(subject, TRIES_PER_ACCOUNT)
        account = await self._store.read(lambda tx: people.account_by_email(tx, email))
        fits = await self.passwords.fits(password, account.password_hash if account else None)
        if account is None or not fits:
            raise WrongPassword
        await self._tries.forget(subject)
        return await self._store.write(lambda tx: self._open(tx, account.id, None))

    async def sign_in_with_link(self, token: str, *, address: str) -> OpenSession:
        """Use up a sign-in link. Raises LinkOver 401, Inactive 403, TooManyRequests."""
        await self._try(f"address:{address}", TRIES_PER_ADDRESS)

        def work(tx: WriteTx) -> OpenSession:
            user_id = rows.use_link(tx, token_digest(token), self._clock.now())
            if user_id is None:
                raise LinkOver
            return self._open(tx, user_id, None)

        return await self._store.write(work)

    async def sign_in_with_invitation(
        self, token: str, username: str, password: str | None, *, address: str
    ) -> OpenSession:
        """Open an account for an invited address that has none, and join.

        Raises what ``Invitations.join_new`` raises, and TooManyRequests.
        """
        await self._try(f"address:{address}", TRIES_PER_ADDRESS)
        password_hash = None if password is None else await self.passwords.hash(password)

        def work(tx: WriteTx) -> OpenSession:
            user_id = self._invitations.join_new(tx, token, username)
            if password_hash is not None:
                people.set_password_hash(tx, user_id, password_hash)
            return self._open(tx, user_id, None)

        try:
            return await self._store.write(work)
        except IntegrityError:  # another invitation of the same address was accepted at this very moment
            raise HasAccount from None

    async def sign_out(self, token: str) -> None:
        """End a session; one that has ended already is fine."""
        await self._store.write(lambda tx: rows.remove_session(tx, token_digest(token)))
        self._callers.forget_session(token)

    async def set_password(self, user: User, *, current: str | None, new: str, session_token: str) -> None:
        """Set the password, and end every other session of the user.

        Raises WrongPassword 401 when there is a password and ``current`` is not it, KeyMayNot 403 for a
        session that an API key opened, TooManyRequests.
        """
        if user.api_key_id is not None:
            raise KeyMayNot
        subject = f"account:{user.email}"
        await self._try(subject, TRIES_PER_ACCOUNT)
        account = await self._store.read(lambda tx: people.account_by_id(tx, user.id))
        if account is None or not await self._may_change(account, current):
            raise WrongPassword
        password_hash = await self.passwords.hash(new)

        def work(tx: WriteTx) -> None:
            people.set_password_hash(tx, user.id, password_hash)
            rows.remove_other_sessions(tx, user.id, token_digest(session_token))

        await self._store.write(work)
        await self._tries.forget(subject)
        self._callers.forget_user(user.id)

    async def make_link(self, email: str) -> str:
        """The token of a new sign-in link for a person, good once within a day. Raises NoSuchAccount."""

        def work(tx: WriteTx) -> str:
            account = people.account_by_email(tx, email)
            if account is None:
                raise NoSuchAccount
            return add_link(tx, account.id, self._clock.now())

        return await self._store.write(work)

    async def _may_change(self, account: Account, current: str | None) -> bool:
        if account.password_hash is None:
            return True
        return current is not None and await self.passwords.fits(current, account.password_hash)

    async def _try(self, subject: str, limit: int) -> None:
        refuse_over(await self._tries.take(subject, limit), TOO_MANY_TRIES)

    def _open(self, tx: WriteTx, user_id: str, api_key_id: str | None) -> OpenSession:
        now = self._clock.now()
        token = new_token()
        expires_at = now + SESSION_FOR
        rows.add_session(tx, token_digest(token), user_id=user_id, api_key_id=api_key_id, at=now, expires_at=expires_at)
        opened = rows.pass_of_session(tx, token_digest(token))
        if opened is None or not opened.user.is_active:
            raise Inactive
        return OpenSession(opened.user, expires_at, token)


def add_link(tx: WriteTx, user_id: str, now: int) -> str:
    """Store a new sign-in link; its token."""
    token = new_token()
    rows.add_link(tx, token_digest(token), user_id=user_id, at=now, expires_at=now + LINK_FOR)
    return token
