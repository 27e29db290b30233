"""The use cases of credentials (contract §7): make, show, change, test, count and choose them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from parley.accounts import AuditEntry as OrganizationEntry
from parley.accounts import Caller, record
from parley.base.clock import SECOND, Clock
from parley.base.errors import Conflict
from parley.credentials import store as rows
from parley.credentials.fields import spread
from parley.credentials.model import (
    MANAGED,
    AuditEntry,
    Credential,
    Draft,
    Secrets,
    Source,
    Stored,
    Usable,
    Usage,
    nobody,
)
from parley.credentials.offers import Offer, Offers, UnknownIntegration, WrongFormat, checked
from parley.credentials.probe import Prober, Verdict
from parley.credentials.refresh import CredentialNotFound, ReconnectNeeded, RefreshDelayed, Refresher
from parley.credentials.secrets_of import secrets_of
from parley.credentials.vault import Vault
from parley.storage import ReadTx, Store, WriteTx
from parley.storage.once import OnceKey, remember
from parley.turn.model import JsonObject, JsonValue

TOUCH_EVERY = 60 * SECOND


class AlreadyManaged(Conflict):
    """A managed credential of this integration is there already."""


@dataclass(frozen=True, slots=True)
class NewCredential:
    """What a client asks to be stored: contract §7's body, with ``expires_at`` as a time."""

    integration_name: str
    auth_data: Secrets = field(default_factory=Secrets)
    auth_type: str | None = None
    oauth_config: Secrets | None = None
    display_name: str | None = None
    metadata: JsonObject = field(default_factory=dict[str, JsonValue])
    make_default: bool = False
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """One integration's share of a list: all its matching rows counted, those on the page shown."""

    integration_name: str
    integration_type: str
    total_count: int
    auth_types: Sequence[str]
    credentials: Sequence[Credential]


@dataclass(frozen=True, slots=True)
class Tested:
    """What a test found, and what it means for the credential now. ``tested_at`` is a time."""

    verdict: Verdict
    is_valid: bool
    tested_at: int


class Credentials:
    """An organization's credentials. Another organization's are like missing ones."""

    def __init__(
        self, store: Store, clock: Clock, *, vault: Vault, offers: Offers, prober: Prober, refresher: Refresher
    ) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault
        self._offers = offers
        self._prober = prober
        self._refresher = refresher

    # ── making and changing ─────────────────────────────────────────────────────────────────────

    async def create(
        self, caller: Caller, new: NewCredential, source: Source, *, once: OnceKey | None = None
    ) -> Credential:
        """Check, seal and store a credential; its id is remembered under ``once``.

        Raises UnknownIntegration, WrongCredential, UnsafeValue, and AlreadyManaged for a second
        managed one of the same integration.
        """
        offer = await self._offers.find_for(caller.organization_id, new.integration_name)
        form = checked(offer, new.auth_type, new.auth_data, new.oauth_config)
        if form.schema.auth_type == MANAGED:
            self._offers.require_pooled_key(offer)
        draft = Draft(
            organization_id=caller.organization_id,
            user_id=caller.user_id,
            integration_name=offer.name,
            integration_type=offer.integration_type,
            auth_type=form.schema.auth_type,
            display_name=new.display_name or offer.display_name,
            opened=form.opened,
            secret=form.secret,
            metadata=new.metadata,
            make_default=new.make_default,
            expires_at=new.expires_at,
        )
        now = self._clock.now()
        stored = self._vault.sealed(draft, now)

        def work(tx: WriteTx) -> Credential:
            self._offers.room(tx, caller.organization_id)
            credential = shelve(tx, draft, stored, source)
            remember(tx, once, {"credential_id": credential.credential_id}, now)
            return credential

        return await self._store.write(work)

    async def update(
        self,
        caller: Caller,
        credential_id: str,
        *,
        display_name: str | None,
        metadata: JsonObject | None,
        source: Source,
    ) -> Credential:
        """Rename a credential or replace its metadata; None leaves as it is. Raises CredentialNotFound."""
        now = self._clock.now()

        def work(tx: WriteTx) -> Credential:
            before = _found(rows.find(tx, caller.organization_id, credential_id))
            changes: JsonObject = {}
            values: dict[str, object] = {}
            if display_name is not None and display_name != before.display_name:
                values["display_name"] = display_name
                changes["display_name"] = {"old": before.display_name, "new": display_name}
            if metadata is not None and metadata != before.metadata:
                values["metadata"] = metadata
                changes["metadata"] = {"old": before.metadata, "new": metadata}
            if not values:
                return before
            rows.change(tx, caller.organization_id, credential_id, {**values, "updated_at": now})
            _note(tx, before, AuditEntry(credential_id, "updated", now, caller.user_id, source, changes))
            return _found(rows.find(tx, caller.organization_id, credential_id))

        return await self._store.write(work)

    async def delete(self, caller: Caller, credential_id: str, source: Source) -> None:
        """Delete a credential for good; its audit stays. Raises CredentialNotFound."""
        now = self._clock.now()

        def work(tx: WriteTx) -> None:
            discard(tx, _found(rows.find(tx, caller.organization_id, credential_id)), caller.user_id, source, now)

        await self._store.write(work)

    async def set_default(self, caller: Caller, credential_id: str, source: Source) -> Credential:
        """Make a credential its integration's only default. Raises CredentialNotFound."""
        now = self._clock.now()

        def work(tx: WriteTx) -> Credential:
            rows.lock_defaults(tx, caller.organization_id)
            before = _found(rows.find(tx, caller.organization_id, credential_id))
            if before.is_default:
                return before
            rows.clear_default(tx, caller.organization_id, before.integration_name, now)
            rows.change(tx, caller.organization_id, credential_id, {"is_default": True, "updated_at": now})
            _note(tx, before, AuditEntry(credential_id, "set_default", now, caller.user_id, source))
            return _found(rows.find(tx, caller.organization_id, credential_id))

        return await self._store.write(work)

    async def add_managed(self, caller: Caller, integration_name: str, source: Source) -> Credential | None:
        """A managed credential for one integration; None where the organization has one already."""
        new = NewCredential(integration_name, auth_type=MANAGED)
        try:
            return await self.create(caller, new, source)
        except AlreadyManaged:
            return None

    # ── showing ─────────────────────────────────────────────────────────────────────────────────

    async def get(self, organization_id: str, credential_id: str) -> tuple[Credential, str | None]:
        """A credential, and the e-mail address of whoever made it. Raises CredentialNotFound."""

        def work(tx: ReadTx) -> tuple[Credential, str | None]:
            credential = _found(rows.find(tx, organization_id, credential_id))
            return credential, rows.creator_email(tx, credential.created_by)

        return await self._store.read(work)

    async def list(
        self,
        organization_id: str,
        *,
        integration_name: str | None = None,
        auth_type: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Group]:
        """What matches, by integration: every group counted whole, with the page's rows, newest first."""
        wanted = {"integration_name": integration_name, "auth_type": auth_type}
        filters = {name: value for name, value in wanted.items() if value is not None}

        def work(tx: ReadTx) -> Sequence[Group]:
            page = rows.page(tx, organization_id, filters, limit=limit, offset=offset)
            return _groups(rows.totals(tx, organization_id, filters), page)

        return await self._store.read(work)

    async def usage(
        self, organization_id: str, credential_id: str, *, since: int | None = None, until: int | None = None
    ) -> Usage:
        """The actions run with a credential between two times. Raises CredentialNotFound."""

        def work(tx: ReadTx) -> Usage:
            _found(rows.find(tx, organization_id, credential_id))
            return rows.usage(tx, organization_id, credential_id, since, until)

        return await self._store.read(work)

    async def audit(
        self, organization_id: str, credential_id: str, *, limit: int = 100, offset: int = 0
    ) -> Sequence[AuditEntry]:
        """What happened to a credential, newest first, also to a deleted one. Raises CredentialNotFound."""

        def work(tx: ReadTx) -> Sequence[AuditEntry]:
            entries = rows.audit_page(tx, organization_id, credential_id, limit=limit, offset=offset)
            if not entries and offset == 0:
                _found(rows.find(tx, organization_id, credential_id))
            return entries

        return await self._store.read(work)

    async def managed_offers(self, organization_id: str) -> Sequence[tuple[Offer, bool]]:
        """Every service this server offers as managed, and whether the organization has its credential."""
        held = await self._store.read(lambda tx: rows.managed_names(tx, organization_id))
        return [(offer, offer.name in held) for offer in self._offers.managed()]

    # ── testing ─────────────────────────────────────────────────────────────────────────────────

    async def test(self, caller: Caller, credential_id: str, source: Source) -> Tested:
        """Ask the service whether a stored credential works, and remember what it said.

        Trouble on the way there changes nothing. Raises CredentialNotFound, UnknownIntegration and
        CannotOpen.
        """
        stored = await self._store.read(lambda tx: rows.find(tx, caller.organization_id, credential_id))
        if stored is None:
            raise CredentialNotFound
        credential = stored.credential
        verdict = await self._verdict(self._opened(stored))
        now = self._clock.now()
        changes: JsonObject = {"outcome": verdict.outcome, "status_code": verdict.status_code}

        def work(tx: WriteTx) -> Credential:
            if verdict.outcome in {"valid", "invalid"}:
                rows.set_valid(tx, credential, is_valid=verdict.outcome == "valid", now=now)
            _note(tx, credential, AuditEntry(credential_id, "tested", now, caller.user_id, source, changes))
            return _found(rows.find(tx, caller.organization_id, credential_id))

        return Tested(verdict, (await self._store.write(work)).is_valid, now)

    async def test_temporary(
        self, organization_id: str, integration_name: str, auth_type: str, auth_data: Secrets
    ) -> Tested:
        """Test values that are not stored. Raises like ``create``, except for a key of the wrong format."""
        offer = await self._offers.find_for(organization_id, integration_name)
        verdict = await self._temporary_verdict(offer, auth_type, auth_data)
        return Tested(verdict, verdict.outcome in {"valid", "skipped"}, self._clock.now())

    async def _temporary_verdict(self, offer: Offer, auth_type: str, auth_data: Secrets) -> Verdict:
        try:
            form = checked(offer, auth_type, auth_data, None)
        except WrongFormat as wrong:
            return Verdict("invalid", wrong.detail, "format")
        values = spread(form.schema, form.opened.auth_data)
        if form.schema.auth_type == MANAGED:
            values = self._offers.require_pooled_key(offer)
        return await self._prober.probe(offer, form.schema, values)

    async def _verdict(self, usable: Usable) -> Verdict:
        offer = await self._offers.find_for(usable.organization_id, usable.integration_name)
        schema = offer.schema(usable.auth_type)
        if schema is None:
            return Verdict("skipped", f"{offer.display_name} no longer takes this type of credential.", "skipped")
        try:
            usable = await self._refresher.fresh(usable)
        except ReconnectNeeded as refusal:
            return Verdict("invalid", refusal.detail)
        except RefreshDelayed as refusal:
            return Verdict("unknown", refusal.detail)
        return await self._prober.probe(offer, schema, usable.auth_data)

    # ── choosing ────────────────────────────────────────────────────────────────────────────────

    async def resolve(
        self, organization_id: str, integration_name: str, credential_id: str | None = None
    ) -> Usable | None:
        """The credential a call is to use, opened: the named one, else default, else newest valid (contract §6.1).

        Own ones come before managed ones, and only the chosen one is opened. A named credential that
        is missing, foreign or another integration's is None: nothing else takes its place. A public
        service needs none. Raises CannotOpen, naming the credential.
        """
        now = self._clock.now()

        def work(tx: ReadTx) -> Stored | None:
            if credential_id is None:
                return rows.best(tx, organization_id, integration_name, now)
            named = rows.find(tx, organization_id, credential_id)
            return named if named and named.credential.integration_name == integration_name else None

        stored = await self._store.read(work)
        if stored is None:
            return None if credential_id else await self._public(organization_id, integration_name)
        if stored.credential.managed and not self._offers.offers_managed(integration_name):
            return None
        usable = self._opened(stored)
        await self._touch(stored.credential, now)
        return usable

    async def secret_texts(self, organization_id: str) -> frozenset[str]:
        """Every secret of the organization's own credentials, to be removed from what leaves in bulk."""
        return await self._store.read(
            lambda tx: secrets_of(tx, organization_id, self._vault, self._offers.plain_fields)
        )

    async def mark_invalid(self, usable: Usable, reason: str) -> None:
        """Note that the service refused this credential; ``reason`` goes into the audit, without secrets."""
        await self._mark(usable, is_valid=False, event="marked_invalid", changes={"reason": reason})

    async def mark_valid(self, usable: Usable) -> None:
        """Note that the service accepted this credential after all."""
        await self._mark(usable, is_valid=True, event="marked_valid", changes={})

    async def _mark(self, usable: Usable, *, is_valid: bool, event: str, changes: JsonObject) -> None:
        if usable.credential_id is None or usable.is_valid == is_valid:
            return
        organization_id, credential_id, now = usable.organization_id, usable.credential_id, self._clock.now()

        def work(tx: WriteTx) -> None:
            stored = rows.find(tx, organization_id, credential_id)
            if stored is None or stored.credential.version != usable.version:
                return
            if rows.set_valid(tx, stored.credential, is_valid=is_valid, now=now):
                _note(tx, stored.credential, AuditEntry(credential_id, event, now, changes=changes))

        await self._store.write(work)

    def _opened(self, stored: Stored) -> Usable:
        return self._offers.usable(stored, self._vault.open(stored))

    async def _public(self, organization_id: str, integration_name: str) -> Usable | None:
        """What stands for a credential where none is needed."""
        try:
            offer = await self._offers.find_for(organization_id, integration_name)
        except UnknownIntegration:
            return None
        if not offer.public:
            return None
        if offer.schema(MANAGED) is not None:
            return Usable(None, organization_id, offer.name, MANAGED, Secrets(), True, offer.display_name)
        if not offer.schemas:
            return nobody(organization_id, offer.name, offer.display_name)
        auth_type = offer.schemas[0].auth_type
        return Usable(None, organization_id, offer.name, auth_type, Secrets(), False, offer.display_name)

    async def _touch(self, credential: Credential, now: int) -> None:
        """Note the use, at most once a minute, so that reading stays free of writes."""
        if credential.last_used_at is None or now - credential.last_used_at >= TOUCH_EVERY:
            organization_id, credential_id = credential.organization_id, credential.credential_id
            await self._store.write(lambda tx: rows.touch(tx, organization_id, credential_id, now))


def shelve(tx: WriteTx, draft: Draft, stored: Stored, source: Source) -> Credential:
    """Insert a new credential, its audit and, where it takes over, its place as the default.

    It takes over when asked to, and when the present default is no longer accepted: otherwise the
    account that was just reconnected would not be used. Raises AlreadyManaged.
    """
    new = stored.credential
    rows.lock_defaults(tx, new.organization_id)
    if new.managed and new.integration_name in rows.managed_names(tx, new.organization_id):
        raise AlreadyManaged
    default = rows.default_of(tx, new.organization_id, new.integration_name)
    replaces = default is not None and not default.is_valid and not new.managed
    if draft.make_default or replaces:
        rows.clear_default(tx, new.organization_id, new.integration_name, new.created_at)
        stored = replace(stored, credential=replace(new, is_default=True))
    rows.add(tx, stored)
    changes: JsonObject = {
        "integration_name": new.integration_name,
        "auth_type": new.auth_type,
        "display_name": new.display_name,
        "is_default": stored.credential.is_default,
    }
    _note(tx, new, AuditEntry(new.credential_id, "created", new.created_at, draft.user_id, source, changes))
    return stored.credential


def discard(tx: WriteTx, credential: Credential, user_id: str, source: Source, now: int) -> None:
    """Delete a credential's row for good and note it; its audit stays."""
    rows.remove(tx, credential.organization_id, credential.credential_id)
    changes: JsonObject = {
        "integration_name": credential.integration_name,
        "display_name": credential.display_name,
        "auth_type": credential.auth_type,
    }
    _note(tx, credential, AuditEntry(credential.credential_id, "deleted", now, user_id, source, changes))


def _note(tx: WriteTx, credential: Credential, entry: AuditEntry) -> None:
    """Write an event into the credential's audit and into the organization's."""
    rows.add_audit(tx, credential.organization_id, entry)
    record(
        tx,
        OrganizationEntry(
            organization_id=credential.organization_id,
            user_id=entry.user_id,
            category="CREDENTIALS",
            operation=f"credential_{entry.event_type}",
            message=f"{credential.display_name} ({credential.integration_name}): {entry.event_type.replace('_', ' ')}",
            detail={"credential_id": credential.credential_id, **entry.changes},
            at=entry.created_at,
        ),
    )


def _found(stored: Stored | None) -> Credential:
    if stored is None:
        raise CredentialNotFound
    return stored.credential


def _groups(totals: Sequence[tuple[str, str, str, int]], page: Sequence[Credential]) -> Sequence[Group]:
    counted: dict[str, list[tuple[str, str, int]]] = {}
    for name, kind, auth_type, count in totals:
        counted.setdefault(name, []).append((kind, auth_type, count))
    return [
        Group(
            integration_name=name,
            integration_type=parts[0][0],
            total_count=sum(count for _, _, count in parts),
            auth_types=sorted({auth_type for _, auth_type, _ in parts}),
            credentials=[credential for credential in page if credential.integration_name == name],
        )
        for name, parts in counted.items()
    ]
