"""Keeping OAuth grants fresh: one refresh per credential at a time, across every process (trust T13).

The right to refresh is a claim on the row, taken by a conditional update and limited in time, so no
transaction is open while the provider is asked. Whoever loses waits and reads what the winner wrote.
A provider may hand out a refresh token once only: the new pair is stored before anyone uses it, the
exchange is carried to its end even when the caller is cancelled, and no failure deletes a grant.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

from parley.accounts import Caller
from parley.base.clock import SECOND, Clock
from parley.base.errors import BadRequest, Conflict, NotFound, Unavailable
from parley.credentials import store as rows
from parley.credentials.grants import Grant, GrantError, TokenEndpoint, filled_in
from parley.credentials.model import OAUTH, App, AuditEntry, Credential, Opened, Secrets, Source, Stored, Usable
from parley.credentials.offers import Offers
from parley.credentials.vault import Vault
from parley.integrations import OAuthConfig
from parley.storage import STORE_TROUBLE, Store, WriteTx

AHEAD = 5 * 60 * SECOND
# Longer than a request to the token endpoint can take, with room for the writes after it.
CLAIM = 60 * SECOND
WAIT_SECONDS = 30.0
POLL_SECONDS = 0.05
SAVE_PAUSES_SECONDS = (0.2, 1.0, 3.0)


class CredentialNotFound(NotFound):
    """Credential not found"""


class NotRefreshable(BadRequest):
    """Only an OAuth credential with a refresh token can be refreshed."""


class ReconnectNeeded(Conflict):
    """The sign-in is no longer accepted. Connect the account again."""


class RefreshDelayed(Unavailable):
    """The sign-in could not be renewed right now. Try again in a minute."""


@dataclass(frozen=True, slots=True)
class _Request:
    """Everything that one refresh needs, gathered before the row is claimed."""

    stored: Stored
    opened: Opened
    config: OAuthConfig
    app: App
    user_id: str | None
    source: Source

    @property
    def credential(self) -> Credential:
        return self.stored.credential


class _Turn:
    """The queue of this process for one credential, and when and how its last attempt failed."""

    __slots__ = ("__weakref__", "failed_at", "failure", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.failed_at = 0.0
        self.failure: ReconnectNeeded | RefreshDelayed = RefreshDelayed()


class Refresher:
    """Renews OAuth grants."""

    def __init__(self, store: Store, clock: Clock, *, vault: Vault, offers: Offers, tokens: TokenEndpoint) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault
        self._offers = offers
        self._tokens = tokens
        # Spares the store a poll by every waiter; the claim on the row is what excludes.
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    async def fresh(self, usable: Usable) -> Usable:
        """The credential with at least five minutes of life in it, where it can be had (contract §7.1).

        Raises ReconnectNeeded when the grant is dead, RefreshDelayed when the token has expired and
        the provider cannot be reached.
        """
        expires_at = usable.expires_at
        if usable.auth_type != OAUTH or expires_at is None or expires_at - self._clock.now() > AHEAD:
            return usable
        try:
            return await self._renewed(usable, None, Source())
        except (NotRefreshable, RefreshDelayed) as refusal:
            if expires_at > self._clock.now():
                return usable
            if isinstance(refusal, RefreshDelayed):
                raise
            raise await self._given_up(usable) from None

    async def renew(self, usable: Usable) -> Usable:
        """A newer grant than this one, which the service refused: another caller's, else the provider's next.

        Raises ReconnectNeeded when there is none, RefreshDelayed, and CredentialNotFound when the
        credential was deleted meanwhile.
        """
        try:
            return await self._renewed(usable, None, Source())
        except NotRefreshable:
            raise await self._given_up(usable) from None

    async def refresh(self, caller: Caller, credential_id: str, source: Source) -> Credential:
        """Renew one credential now, and give its row (contract §7).

        Raises NotRefreshable, ReconnectNeeded, RefreshDelayed and CredentialNotFound.
        """
        stored = await self._row(caller.organization_id, credential_id)
        usable = self._offers.usable(stored, self._vault.open(stored))
        await self._renewed(usable, caller.user_id, source)
        return (await self._row(caller.organization_id, credential_id)).credential

    async def _renewed(self, usable: Usable, user_id: str | None, source: Source) -> Usable:
        if usable.auth_type != OAUTH or usable.credential_id is None:
            raise NotRefreshable
        turn = self._turns.setdefault(usable.credential_id, _Turn())
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(WAIT_SECONDS), turn.lock:
                if turn.failed_at > asked_at:
                    raise type(turn.failure)(turn.failure.detail)
                try:
                    return await self._take_turn(usable, user_id, source)
                except (ReconnectNeeded, RefreshDelayed) as failure:
                    turn.failed_at, turn.failure = time.monotonic(), failure
                    raise
        except TimeoutError:
            raise RefreshDelayed from None

    async def _take_turn(self, usable: Usable, user_id: str | None, source: Source) -> Usable:
        while True:
            stored = await self._row(usable.organization_id, usable.credential_id or "")
            opened = self._vault.open(stored)
            if stored.credential.version != usable.version:
                return self._offers.usable(stored, opened)
            if usable.is_valid and not stored.credential.is_valid:
                raise ReconnectNeeded(_reconnect(usable))
            request = await self._request(stored, opened, user_id, source)
            outcome = await _to_its_end(lambda request=request: self._exchange(request))
            if isinstance(outcome, Stored):
                return self._offers.usable(outcome, self._vault.open(outcome))
            if isinstance(outcome, GrantError):
                raise (
                    ReconnectNeeded(_reconnect(usable)) if outcome.problem == "dead" else RefreshDelayed(outcome.public)
                )
            await asyncio.sleep(POLL_SECONDS)

    async def _request(self, stored: Stored, opened: Opened, user_id: str | None, source: Source) -> _Request:
        """Raises NotRefreshable without a refresh token, RefreshDelayed without the app it belongs to."""
        credential = stored.credential
        offer = await self._offers.find_for(credential.organization_id, credential.integration_name)
        schema = offer.schema(OAUTH)
        if not opened.auth_data.text("refresh_token") or schema is None or schema.oauth_config is None:
            raise NotRefreshable
        app = opened.app or self._offers.pooled_app(schema)
        if app is None:
            raise RefreshDelayed(
                f"The OAuth app behind '{credential.display_name}' is no longer set up on this server. "
                "Ask the operator to set it up, or connect the account again with your own app."
            )
        return _Request(stored, opened, filled_in(schema.oauth_config, opened.auth_data), app, user_id, source)

    async def _exchange(self, request: _Request) -> Stored | GrantError | None:
        """Ask the provider and write down what it said: the row as it is then, or why there is no new grant.

        None where another process is asking.
        """
        now = self._clock.now()
        until = now + CLAIM
        if not await self._store.write(lambda tx: rows.claim_refresh(tx, request.stored, now=now, until=until)):
            return None
        try:
            grant = await self._tokens.refresh(
                request.config, request.app, request.opened.auth_data.text("refresh_token")
            )
        except GrantError as error:
            return await self._refused(request, until, error)
        return await self._saved(request, grant)

    async def _saved(self, request: _Request, grant: Grant) -> Stored | GrantError:
        credential, now = request.credential, self._clock.now()
        # A service that named its own sign-in server must not rewrite where its credential leads.
        extras = {} if request.config.discovered else grant.extras
        kept = {**request.opened.auth_data, **extras, "access_token": grant.access_token}
        if grant.refresh_token is not None:
            kept["refresh_token"] = grant.refresh_token
        box = self._vault.seal(Opened(Secrets(kept), request.opened.app), credential)
        expires_at = None if grant.seconds is None else now + grant.seconds * SECOND
        entry = AuditEntry(credential.credential_id, "refreshed", now, request.user_id, request.source)

        def work(tx: WriteTx) -> Stored | None:
            if rows.save_refreshed(tx, request.stored, box=box, expires_at=expires_at, now=now):
                rows.add_audit(tx, credential.organization_id, entry)
            return rows.find(tx, credential.organization_id, credential.credential_id)

        # Only these bytes hold the new refresh token: a store that is briefly away must not lose it.
        for pause in (*SAVE_PAUSES_SECONDS, None):
            try:
                return await self._store.write(work) or GrantError("refused", "The credential was deleted.")
            except STORE_TROUBLE:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _refused(self, request: _Request, until: int, error: GrantError) -> Stored | GrantError:
        credential, now = request.credential, self._clock.now()
        entry = AuditEntry(
            credential.credential_id, "refresh_failed", now, request.user_id, request.source, {"reason": error.public}
        )

        def work(tx: WriteTx) -> Stored | None:
            rows.release_refresh(tx, request.stored, until=until)
            if error.problem == "dead" and rows.set_valid(tx, credential, is_valid=False, now=now):
                rows.add_audit(tx, credential.organization_id, entry)
            return rows.find(tx, credential.organization_id, credential.credential_id)

        current = await self._store.write(work)
        moved_on = current is not None and current.credential.version != credential.version
        return current if current is not None and moved_on else error

    async def _given_up(self, usable: Usable) -> ReconnectNeeded:
        """Mark a grant that nothing can renew as invalid, and say so."""
        organization_id, credential_id, now = usable.organization_id, usable.credential_id or "", self._clock.now()

        def work(tx: WriteTx) -> None:
            stored = rows.find(tx, organization_id, credential_id)
            if stored is None or stored.credential.version != usable.version:
                return
            if rows.set_valid(tx, stored.credential, is_valid=False, now=now):
                rows.add_audit(tx, organization_id, AuditEntry(credential_id, "marked_invalid", now))

        await self._store.write(work)
        return ReconnectNeeded(_reconnect(usable))

    async def _row(self, organization_id: str, credential_id: str) -> Stored:
        stored = await self._store.read(lambda tx: rows.find(tx, organization_id, credential_id))
        if stored is None:
            raise CredentialNotFound
        return stored


async def _to_its_end[T](work: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run the work to its end even when the caller is cancelled; it bounds itself."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work())
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                while not task.done():
                    with suppress(asyncio.CancelledError):  # being cancelled again changes nothing
                        await asyncio.wait({task})
                raise
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


def _reconnect(usable: Usable) -> str:
    name = f"'{usable.display_name}' ({usable.integration_name})"
    return f"The sign-in of {name} is no longer accepted. Connect the account again."
