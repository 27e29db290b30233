"""Who is asking: from an API key or a session token to a Pass, at little cost for each request.

What the store said is kept for a second, so a busy key costs one look-up a second in each process
and a revoked one works for at most that long. Times of use are gathered and written beside the
requests, not within them.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from parley.accounts import keys
from parley.accounts import pass_store as rows
from parley.accounts.limits import refuse_over
from parley.accounts.model import Caller, Pass
from parley.base.clock import Clock
from parley.base.errors import BadRequest, Forbidden, Unauthorized, Unavailable
from parley.storage import STORE_TROUBLE, ReadTx, Store, WriteTx
from parley.storage.windows import Windows

KEEP_SECONDS = 1.0
MOST_KEPT = 20_000
LOOKUP_SECONDS = 10.0
WRITE_USES_EVERY_SECONDS = 1.0
FAILURES_PER_MINUTE = 120
TOO_MANY_FAILURES = "Too many invalid keys from your address. Check the key, then try again in a minute."

log = logging.getLogger(__name__)


class InvalidKey(Unauthorized):
    """Invalid API key"""


class ExpiredKey(Unauthorized):
    """Your API key has expired. Make a new one."""


class SessionOver(Unauthorized):
    """Your session has ended. Sign in again."""


class Inactive(Forbidden):
    """Your account is switched off. Ask whoever runs this installation to switch it on."""


class OrganizationMissing(BadRequest):
    """The X-Organization-ID header is missing. Send the id of the organization you act in."""


class NotAMember(Forbidden):
    """You are not in this organization."""


class LockedElsewhere(Forbidden):
    """Your API key is locked to another organization. Use a key of the one you act in."""


class OwnerNeeded(Forbidden):
    """Only the owner of the organization may do this."""


class StoreSlow(Unavailable):
    """Parley cannot check who you are right now. Try again in a moment."""


class Callers:
    """Recognizes keys and sessions, and remembers for a second."""

    def __init__(self, store: Store, clock: Clock, pepper: bytes, opaque_keys: frozenset[bytes]) -> None:
        self._store = store
        self._clock = clock
        self._pepper = pepper
        self._opaque_keys = opaque_keys
        self._kept: dict[bytes, tuple[float, Pass]] = {}
        self._looking: dict[bytes, asyncio.Lock] = {}
        self._rates = Windows(store, clock, "api_key", seconds=60)
        self._failures = Windows(store, clock, "bad_key", seconds=60)
        self._watchers: list[Callable[[str], None]] = []
        self.uses = Uses(store)

    async def by_key(self, key: str, *, address: str) -> Pass:
        """What an API key stands for; ``address`` is where the request came from.

        Raises InvalidKey, ExpiredKey, Inactive, TooManyRequests when one address sends too many bad
        keys, StoreSlow.
        """
        digest = keys.digest(self._pepper, key)
        found = self._recent(digest)
        if found is None and (keys.has_checksum(key) or digest in self._opaque_keys):
            found = await self._look_up(digest, lambda tx: rows.pass_of_key(tx, digest), address)
        if found is None:
            raise InvalidKey
        return self._admit(found, ExpiredKey)

    async def by_session(self, token: str, *, address: str) -> Pass:
        """What a session's token stands for.

        Raises SessionOver, Inactive, TooManyRequests when one address sends too many bad tokens, StoreSlow.
        """
        digest = keys.token_digest(token)
        found = self._recent(digest) or await self._look_up(
            digest, lambda tx: rows.pass_of_session(tx, digest), address
        )
        if found is None:
            raise SessionOver
        return self._admit(found, SessionOver)

    async def count(self, recognized: Pass) -> None:
        """Count one request of an API key. Raises TooManyRequests past the key's own rate (contract §1).

        It fails open: when the store does not answer, the route itself will say so.
        """
        if recognized.rate_limit is None or not isinstance(recognized.id, str):
            return
        try:
            taken = await self._rates.take(recognized.id, recognized.rate_limit)
        except STORE_TROUBLE as error:
            log.warning("a request was not counted: %s", type(error).__name__)
            return
        refuse_over(taken, "API key rate limit exceeded")

    def when_doubted(self, watcher: Callable[[str], None]) -> None:
        """Tell the watcher, by id, each key and person whose rights this process has just changed."""
        self._watchers.append(watcher)

    def forget_key(self, key_id: str) -> None:
        """Ask the store anew for a key and for the sessions opened with it."""
        self._forget(lambda kept: kept.user.api_key_id == key_id)
        self._doubt(key_id)

    def forget_user(self, user_id: str) -> None:
        """Ask the store anew for a person's keys and sessions."""
        self._forget(lambda kept: kept.user.id == user_id)
        self._doubt(user_id)

    def forget_session(self, token: str) -> None:
        """Ask the store anew for one session."""
        kept = self._kept.pop(keys.token_digest(token), None)
        if kept is not None:
            self._doubt(kept[1].user.id)

    def _doubt(self, changed_id: str) -> None:
        for watcher in self._watchers:
            watcher(changed_id)

    def _forget(self, which: Callable[[Pass], bool]) -> None:
        for digest in [digest for digest, (_, kept) in self._kept.items() if which(kept)]:
            del self._kept[digest]

    def _admit(self, found: Pass, over: type[Unauthorized]) -> Pass:
        now = self._clock.now()
        if found.good_until is not None and found.good_until <= now:
            raise over
        if not found.user.is_active:
            raise Inactive
        self.uses.note(found, now)
        return found

    def _recent(self, digest: bytes) -> Pass | None:
        kept = self._kept.get(digest)
        return kept[1] if kept is not None and kept[0] > time.monotonic() else None

    async def _look_up(self, digest: bytes, read: Callable[[ReadTx], Pass | None], address: str) -> Pass | None:
        # Requests that miss at the same moment share one look-up.
        lock = self._looking.setdefault(digest, asyncio.Lock())
        try:
            async with asyncio.timeout(LOOKUP_SECONDS), lock:
                return self._recent(digest) or await self._ask(digest, read, address)
        except TimeoutError:
            raise StoreSlow from None
        finally:
            if not lock.locked():
                self._looking.pop(digest, None)

    async def _ask(self, digest: bytes, read: Callable[[ReadTx], Pass | None], address: str) -> Pass | None:
        known = self._kept.pop(digest, None) is not None
        if not known:
            refuse_over(await self._failures.look(address, FAILURES_PER_MINUTE), TOO_MANY_FAILURES)
        found = await self._store.read(read)
        if found is not None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[digest] = (time.monotonic() + KEEP_SECONDS, found)
        elif not known:
            await self._failures.take(address, FAILURES_PER_MINUTE)
        return found


class Uses:
    """When keys and sessions were last used, written at most once a minute each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: dict[str, int] = {}
        self._sessions: dict[bytes, int] = {}
        self._some = asyncio.Event()

    def note(self, used: Pass, now: int) -> None:
        """Remember one use. Costs nothing when the store's time is less than a minute old."""
        if used.used_at is not None and now - used.used_at < rows.NOTE_USE_EVERY:
            return
        if isinstance(used.id, str):
            self._keys[used.id] = now
        else:
            self._sessions[used.id] = now
        self._some.set()

    async def write_down(self) -> None:
        """Write what was noted since the last time."""
        noted_keys, noted_sessions = dict(self._keys), dict(self._sessions)
        self._keys.clear()
        self._sessions.clear()
        self._some.clear()

        def work(tx: WriteTx) -> None:
            rows.note_key_uses(tx, noted_keys)
            rows.note_session_uses(tx, noted_sessions)

        await self._store.write(work)

    async def keep_writing(self) -> None:
        """Write down uses until cancelled; one of the server's own tasks.

        A store that does not answer loses a few times of use, never a request.
        """
        while True:
            await self._some.wait()
            try:
                await self.write_down()
            except STORE_TROUBLE as error:
                log.warning("times of last use were not written: %s", type(error).__name__)
            await asyncio.sleep(WRITE_USES_EVERY_SECONDS)


def caller_in(recognized: Pass, organization_id: str | None) -> Caller:
    """The caller in the organization they named (contract §1).

    Raises OrganizationMissing 400, LockedElsewhere and NotAMember 403. An organization that does not
    exist answers like one the caller is not in.
    """
    user = recognized.user
    if not organization_id:
        raise OrganizationMissing
    organization_id = organization_id.lower()
    if user.locked_to is not None and user.locked_to != organization_id:
        raise LockedElsewhere
    role = user.roles.get(organization_id)
    if role is None:
        raise NotAMember
    return Caller(
        user_id=user.id,
        email=user.email,
        username=user.username,
        organization_id=organization_id,
        role=role,
        api_key_id=user.api_key_id,
    )


def owner_in(recognized: Pass, organization_id: str | None) -> Caller:
    """``caller_in`` for what only an owner may do. Raises OwnerNeeded 403 too."""
    caller = caller_in(recognized, organization_id)
    if caller.role != "owner":
        raise OwnerNeeded
    return caller
