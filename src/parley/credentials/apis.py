"""The use cases of imported APIs: look at a document, import it, look again, review, delete, call one action.

A document is a stranger's. What it describes is shown first, with a digest; only what was shown is
imported, and importing it is the review: somebody of the organization has seen every action and may
have said otherwise of it than its verb. What changes later counts as destructive until it is looked at.
"""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from parley.accounts import AuditEntry, Caller, record
from parley.base.clock import Clock
from parley.base.errors import BadRequest, Conflict, NotFound
from parley.base.ids import new_id
from parley.credentials import store as rows
from parley.credentials.credentials import discard
from parley.credentials.fields import is_base_url
from parley.credentials.grants import GrantError, TokenEndpoint
from parley.credentials.model import App, Source, Usable
from parley.credentials.offers import Offers
from parley.egress import Egress, Refused, Unreachable
from parley.integrations import ActionFailed, Integration, Invoked, Secret, secret_values
from parley.integrations.effects import EffectKind
from parley.integrations.index import OAuthConfig
from parley.integrations.openapi import (
    MOST_BYTES,
    OPENAPI,
    Description,
    Presented,
    Reached,
    Request,
    Scheme,
    Unreadable,
    Wanted,
    Way,
    call,
    integration_of,
    known_names,
    proposed_effect,
    reached_of,
    read_api,
    request_of,
)
from parley.integrations.own import (
    ActionCount,
    Changes,
    OwnAction,
    OwnIntegration,
    Review,
    changes_between,
    clean_text,
    plain_name,
)
from parley.integrations.own import store as own_rows
from parley.storage import ReadTx, Store, WriteTx
from parley.storage.once import OnceKey, remember
from parley.turn.model import JsonObject

FETCH_SECONDS = 30.0
NAME_CHARACTERS = 40
PAGE = 500
MOST_TOKENS = 1_000
TOKEN_SECONDS = 300
SPARE_SECONDS = 30
READS = ("get", "head")
ACCEPT = {"Accept": "application/json, application/yaml, text/yaml, */*;q=0.5"}


class UnfitDocument(BadRequest):
    """The document cannot be imported."""


class DocumentChanged(Conflict):
    """What would be taken over is not what was looked at. Look again, then confirm."""


class NoSuchApi(NotFound):
    """There is no imported API of that name."""


class AlreadyImported(Conflict):
    """An API of this name is imported, and no other name was asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(f"It is imported already as {name}: refresh that one, or give display_name for a second one.")


class ActionChanged(Conflict):
    """The action is not the one that was looked at. Look again, then review it."""


@dataclass(frozen=True, slots=True)
class NewApi:
    """What a client asks to import: a document's text or where it is; ``wanted`` is what was chosen of it."""

    text: str = field(default="", repr=False)
    url: str = field(default="", repr=False)
    display_name: str | None = None
    wanted: Wanted = field(default_factory=Wanted)


@dataclass(frozen=True, slots=True)
class Looked:
    """What a document describes; ``digest`` stands for exactly this. ``changes`` is what is different from before.

    ``notes`` say what to know of both.
    """

    description: Description
    digest: str
    notes: Sequence[str]
    changes: Changes = field(default_factory=Changes)


@dataclass(frozen=True, slots=True)
class Api:
    """An imported API and its actions as they are stored."""

    own: OwnIntegration
    actions: Sequence[OwnAction]


@dataclass(frozen=True, slots=True)
class ApiBrief:
    """An imported API without its actions."""

    own: OwnIntegration
    count: ActionCount


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of client credentials, and until when (monotonic seconds) it is used."""

    text: str = field(repr=False)
    until: float


class ImportedApis:
    """An organization's imported APIs. Another organization's are like missing ones."""

    def __init__(self, store: Store, clock: Clock, egress: Egress, offers: Offers, tokens: TokenEndpoint) -> None:
        self._store = store
        self._clock = clock
        self._egress = egress
        self._offers = offers
        self._endpoint = tokens
        self._tokens: dict[tuple[str, int, str, Scheme], _Token] = {}

    # ── looking and importing ───────────────────────────────────────────────────────────────────

    async def look(self, new: NewApi) -> Looked:
        """What a document describes; nothing is stored. Raises UnfitDocument."""
        description = await self._described(new, {})
        return Looked(description, _digest(description, 0), description.notes)

    async def add(
        self,
        caller: Caller,
        new: NewApi,
        digest: str,
        effects: Mapping[str, EffectKind],
        source: Source,
        *,
        once: OnceKey | None = None,
    ) -> str:
        """Import what was looked at; its name. ``effects`` are the reviewer's, where they differ from the verbs'.

        Raises UnfitDocument, DocumentChanged where the document is another by now, and AlreadyImported.
        """
        looked = await self.look(new)
        description = looked.description
        if looked.digest != digest:
            raise DocumentChanged
        decided = _decided(description, effects)
        now = self._clock.now()
        title = new.display_name or description.title

        def work(tx: WriteTx) -> str:
            rows.lock_defaults(tx, caller.organization_id)
            wanted = self._name_of(title)
            if new.display_name is None and own_rows.find(tx, caller.organization_id, wanted) is not None:
                raise AlreadyImported(wanted)
            own = OwnIntegration(
                id=new_id(),
                organization_id=caller.organization_id,
                credential_id=None,
                kind=OPENAPI,
                name=own_rows.free_name(tx, caller.organization_id, wanted),
                display_name=title,
                description=description.text or title,
                source=msgspec.to_builtins(description.reached),
                revision=0,
                created_at=now,
                refreshed_at=now,
            )
            own_rows.add(tx, own)
            own_rows.take(tx, own, description.actions, {}, now)
            own_rows.review_all(tx, own.id, decided, user_id=caller.user_id, now=now)
            self._note(tx, caller, own, source, "imported", {**_counted(decided), "decided": dict(effects)})
            remember(tx, once, {"name": own.name}, now)
            return own.name

        return await self._store.write(work)

    async def look_again(self, organization_id: str, name: str, new: NewApi) -> Looked:
        """What is different in the document now; nothing is stored. Raises NoSuchApi and UnfitDocument."""
        looked, _ = await self._looked_again(await self.get(organization_id, name), new)
        return looked

    async def refresh(self, caller: Caller, name: str, new: NewApi, digest: str, source: Source) -> Looked:
        """Take over what ``look_again`` has shown. Raises NoSuchApi, UnfitDocument and DocumentChanged.

        What is new or changed is unreviewed; the address stays, unless another was asked for.
        """
        before = await self.get(caller.organization_id, name)
        looked, values = await self._looked_again(before, new)
        if looked.digest != digest:
            raise DocumentChanged
        now = self._clock.now()

        def work(tx: WriteTx) -> Changes:
            rows.lock_defaults(tx, caller.organization_id)
            own = own_rows.find(tx, caller.organization_id, name)
            if own is None or own.id != before.own.id or own.revision != before.own.revision:
                raise DocumentChanged
            changes = own_rows.take(tx, own, looked.description.actions, values, now)
            self._note(tx, caller, own, source, "refreshed", changes.as_json())
            return changes

        return replace(looked, changes=await self._store.write(work))

    async def _looked_again(self, before: Api, new: NewApi) -> tuple[Looked, Mapping[str, object]]:
        reached = reached_of(before.own)
        left_out = new.wanted.left_out or reached.left_out
        wanted = replace(new.wanted, server_url=new.wanted.server_url or reached.base_url, left_out=left_out)
        if not new.text and not new.url:
            if not reached.document_url:
                raise UnfitDocument("Send the document: Parley does not know where it came from.")
            new = replace(new, url=reached.document_url)
        known = known_names([action.found for action in before.actions])
        description = await self._described(replace(new, wanted=wanted), known)
        notes = [*description.notes, *_differences(before.own, description)]
        values: dict[str, object] = {
            "source": msgspec.to_builtins(description.reached),
            "description": description.text or before.own.description,
        }
        known_marks = {action.found.name: action.fingerprint for action in before.actions}
        changes = changes_between(known_marks, {action.name: action.fingerprint for action in description.actions})
        return Looked(description, _digest(description, before.own.revision), notes, changes), values

    async def _described(self, new: NewApi, known: Mapping[tuple[str, str], str]) -> Description:
        if new.wanted.server_url and not is_base_url(new.wanted.server_url):
            raise UnfitDocument("server_url must be the web address of the API, such as https://api.example.com/v1")
        text = new.text or await self._fetched(new.url)
        try:
            description = await asyncio.to_thread(read_api, text, new.url, new.wanted, known)
        except Unreadable as unfit:
            raise UnfitDocument(str(unfit)) from None
        if not is_base_url(description.reached.base_url):
            raise UnfitDocument("The address of the API in the document is no plain web address. Send server_url.")
        return description

    async def _fetched(self, url: str) -> str:
        try:
            response = await self._egress.request(
                "GET", url, headers=ACCEPT, seconds=FETCH_SECONDS, max_bytes=MOST_BYTES
            )
        except (Refused, Unreachable) as trouble:
            raise UnfitDocument(f"The document could not be fetched. {trouble}") from None
        if response.status != 200:
            raise UnfitDocument(f"The document could not be fetched: its address answered {response.status}.")
        return response.body.decode(errors="replace")

    def _name_of(self, title: str) -> str:
        """What an API of this title is called where the organization has no other of that name."""
        wanted = f"api_{plain_name(title, NAME_CHARACTERS) or 'imported'}"
        return f"{wanted}_imported" if self._offers.has(wanted) else wanted

    def _note(
        self, tx: WriteTx, caller: Caller, own: OwnIntegration, source: Source, what: str, detail: JsonObject
    ) -> None:
        said: JsonObject = {"integration": own.name, "ip_address": source.ip_address, **detail}
        message = f"{caller.email} {what} the API {own.display_name}"
        now = self._clock.now()
        record(
            tx, AuditEntry(caller.organization_id, caller.user_id, "ORGANIZATION", f"api_{what}", message, said, now)
        )

    # ── showing, reviewing, deleting ────────────────────────────────────────────────────────────

    async def list(self, organization_id: str) -> Sequence[ApiBrief]:
        """Every imported API of an organization, by name."""

        def work(tx: ReadTx) -> Sequence[ApiBrief]:
            found = own_rows.list_integrations(tx, organization_id)
            counts = own_rows.action_counts(tx, organization_id)
            return [ApiBrief(own, counts.get(own.id, ActionCount())) for own in found if own.kind == OPENAPI]

        return await self._store.read(work)

    async def get(self, organization_id: str, name: str) -> Api:
        """One of them. Raises NoSuchApi."""
        return await self._store.read(lambda tx: _api(tx, organization_id, name))

    async def review(self, caller: Caller, name: str, reviews: Sequence[Review], source: Source) -> Api:
        """Note what a person says of actions, all or none. Raises NoSuchApi and ActionChanged."""
        now = self._clock.now()

        def work(tx: WriteTx) -> Api:
            own = _api(tx, caller.organization_id, name).own
            if not own_rows.review_each(tx, own.id, reviews, user_id=caller.user_id, now=now):
                raise ActionChanged
            self._note(tx, caller, own, source, "reviewed", {"effects": {each.name: each.effect for each in reviews}})
            return _api(tx, caller.organization_id, name)

        return await self._store.write(work)

    async def delete(self, caller: Caller, name: str, source: Source) -> None:
        """Delete one with its actions and every credential for it. Raises NoSuchApi."""
        now = self._clock.now()

        def work(tx: WriteTx) -> None:
            rows.lock_defaults(tx, caller.organization_id)
            api = _api(tx, caller.organization_id, name)
            own = api.own
            filters = {"integration_name": own.name}
            while held := rows.page(tx, caller.organization_id, filters, limit=PAGE, offset=0):
                for credential in held:
                    discard(tx, credential, caller.user_id, source, now)
            own_rows.remove(tx, caller.organization_id, own.id)
            self._note(tx, caller, own, source, "deleted", {"actions": len(api.actions)})

        await self._store.write(work)

    # ── calling ─────────────────────────────────────────────────────────────────────────────────

    async def call(
        self,
        usable: Usable,
        own: OwnIntegration,
        action: OwnAction,
        arguments: JsonObject,
        *,
        seconds: float,
        max_bytes: int,
    ) -> Invoked:
        """Run one action with an open credential. Raises ActionFailed."""
        began = time.monotonic()
        reached, request = reached_of(own), request_of(action.found)
        way = reached.way(usable.auth_type)
        schemes = _combination(request, way)
        sealed = secret_values(integration_of(own), Secret(usable.auth_type, usable.auth_data))
        for last in (False, True):
            shown, kept = await self._presented(usable, reached, way, schemes)
            hidden = sealed.union(value for parts in shown.values.values() for value in parts.values() if value)
            left = max(seconds - (time.monotonic() - began), 0.1)
            invoked = await call(
                self._egress, reached, request, arguments, shown, sorted(hidden), seconds=left, max_bytes=max_bytes
            )
            if not (invoked.unauthorized and kept):
                break
            # The token was kept from before and may have ended early: that says nothing about the credential.
            self._forget(usable)
            invoked = replace(invoked, unauthorized=False)
            if last or request.method not in READS:
                break
        return invoked

    async def _presented(
        self, usable: Usable, reached: Reached, way: Way | None, schemes: Sequence[str]
    ) -> tuple[Presented, bool]:
        """The parts of the credential by scheme, and whether a kept token is among them. Raises ActionFailed."""
        values: dict[str, Mapping[str, str]] = {}
        is_kept = False
        for name in schemes:
            fields = {} if way is None else way.schemes[name]
            parts = {part: usable.auth_data.text(key) for part, key in fields.items()}
            if not all(value for part, value in parts.items() if part != "password"):
                lacking = ", ".join(sorted(part for part, value in parts.items() if not value))
                raise ActionFailed(
                    f"The credential '{usable.display_name}' has no usable {lacking}. Connect it again.",
                    attempted=False,
                )
            if reached.schemes[name].kind == "client_credentials":
                token, is_kept = await self._token(usable, name, reached.schemes[name], parts)
                parts = {"value": token}
            values[name] = parts
        return Presented(values), is_kept

    async def _token(self, usable: Usable, name: str, scheme: Scheme, parts: Mapping[str, str]) -> tuple[str, bool]:
        """A token for the client itself, and whether it was kept from before. Raises ActionFailed."""
        # With the scheme as it is now: a token of other scopes, or of another address, is another token.
        key = (usable.credential_id or "", usable.version, name, scheme)
        kept = self._tokens.get(key)
        if kept is not None and kept.until > time.monotonic():
            return kept.text, True
        config = OAuthConfig("", scheme.token_url, scheme.scopes, token_auth_method="basic")  # noqa: S106 - where it travels
        try:
            grant = await self._endpoint.client_grant(config, App(parts["client_id"], parts["client_secret"]))
        except GrantError as error:
            raise ActionFailed(error.public, attempted=False, unauthorized=error.problem == "dead") from None
        while len(self._tokens) >= MOST_TOKENS:
            self._tokens.pop(next(iter(self._tokens)))
        lasts = TOKEN_SECONDS if grant.seconds is None else max(grant.seconds - SPARE_SECONDS, 0)
        self._tokens[key] = _Token(grant.access_token, time.monotonic() + lasts)
        return grant.access_token, False

    def _forget(self, usable: Usable) -> None:
        for key in [key for key in self._tokens if key[0] == usable.credential_id]:
            del self._tokens[key]


async def imported_integration(store: Store, organization_id: str, name: str) -> Integration | None:
    """An imported API as an integration with its ways to connect; None where there is none of that name."""
    own = await store.read(lambda tx: own_rows.find(tx, organization_id, name))
    return integration_of(own) if own is not None and own.kind == OPENAPI else None


def _api(tx: ReadTx, organization_id: str, name: str) -> Api:
    own = own_rows.find(tx, organization_id, name)
    if own is None or own.kind != OPENAPI:
        raise NoSuchApi
    return Api(own, own_rows.list_actions(tx, own.id))


def _decided(description: Description, effects: Mapping[str, EffectKind]) -> dict[str, EffectKind]:
    """The effect of every action: the reviewer's word, else what its verb promises."""
    proposed: dict[str, EffectKind] = {
        action.name: proposed_effect(request_of(action)) for action in description.actions
    }
    unknown = sorted(set(effects) - set(proposed))
    if unknown:
        raise UnfitDocument(f"The document has no action {clean_text(unknown[0], 100)!r}.")
    if not proposed:
        raise UnfitDocument("Nothing in the document can be offered, so there is nothing to import.")
    proposed.update(effects)
    return proposed


def _counted(decided: Mapping[str, EffectKind]) -> JsonObject:
    effects: JsonObject = {}
    for kind, count in Counter(decided.values()).items():
        effects[kind] = count
    return {"actions": len(decided), "effects": effects}


def _digest(description: Description, revision: int) -> str:
    """What stands for a description at a revision: two that differ in anything that matters differ in it."""
    actions = [(action.name, action.fingerprint) for action in description.actions]
    texts = [description.title, description.text]
    whole = msgspec.json.encode([texts, description.reached, actions, revision], order="deterministic")
    return hashlib.sha256(whole).hexdigest()


def _differences(own: OwnIntegration, description: Description) -> list[str]:
    """What else is different, in sentences: what it says of itself, where credentials go, how they are sent."""
    before, now = reached_of(own), description.reached
    notes: list[str] = []
    if now.version != before.version:
        notes.append(f"The document's version is {now.version or 'not given'} now, and no longer {before.version}.")
    if description.text and description.text != own.description:
        notes.append(f"The API describes itself differently now: {description.text}")
    if now.base_url != before.base_url:
        notes.append(f"The API would be asked at {now.base_url} from now on, and no longer at {before.base_url}.")
    elif description.servers and now.base_url not in description.servers:
        notes.append(f"The document names other servers now. The API is still asked at {now.base_url}.")
    if (now.schemes, now.ways) != (before.schemes, before.ways):
        notes.append("Signing in works differently: look at where credentials are sent before you confirm.")
        elsewhere = sorted(_sign_in_addresses(now) - _sign_in_addresses(before))
        notes += [f"Signing in would go to {address} from now on." for address in elsewhere]
    return notes


def _sign_in_addresses(reached: Reached) -> set[str]:
    schemes = reached.schemes.values()
    return {address for each in schemes for address in (each.auth_url, each.token_url) if address}


def _combination(request: Request, way: Way | None) -> Sequence[str]:
    """The schemes that this credential fulfils for this action. Raises ActionFailed."""
    held = set() if way is None else set(way.schemes)
    fitting = [each for each in request.security if held.issuperset(each)]
    if not fitting:
        wanted = "; or ".join(" + ".join(each) for each in request.security)
        raise ActionFailed(f"This action takes another kind of credential: {wanted}.", attempted=False)
    return max(fitting, key=len)
