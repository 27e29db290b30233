"""The use cases of MCP servers (contract §7): connect one, look again at what it offers, say what its tools do.

A server is a credential, and beside it an own integration of the organization with the tools that
were found. Nothing a server says is trusted: its tools count as destructive until somebody of the
organization has looked at each, and again once it is not the same any more.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import msgspec

from parley.accounts import Caller
from parley.base.clock import Clock
from parley.base.errors import BadRequest, Conflict, NotFound
from parley.base.ids import new_id
from parley.credentials import store as rows
from parley.credentials.credentials import Credentials, shelve
from parley.credentials.model import OAUTH, AuditEntry, Credential, Draft, Opened, Secrets, Source, Usable
from parley.credentials.offers import MCP_SERVER, Offers
from parley.credentials.refresh import CredentialNotFound, Refresher
from parley.credentials.vault import Vault
from parley.integrations import Invoked
from parley.integrations.mcp import (
    Discovery,
    HttpPlace,
    McpFailed,
    Place,
    StdioServers,
    UnfitPlace,
    call_tool,
    check_headers,
    check_url,
    discover,
    shown_url,
    url_secrets,
)
from parley.integrations.mcp.places import STDIO
from parley.integrations.own import MCP, Changes, OwnAction, OwnIntegration, Review, plain_name
from parley.integrations.own import store as own_rows
from parley.storage import ReadTx, Store, WriteTx
from parley.storage.once import OnceKey, remember
from parley.turn.model import JsonObject, JsonValue

DISCOVERY_SECONDS = 30.0
NAME_CHARACTERS = 40
# Of each tool, in the credential's metadata; the whole is in GET …/mcp-tools.
SUMMARY_CHARACTERS = 200
BEARER = re.compile(r"(?i)(?:bearer|basic|token)\s+(\S+)")


class UnfitServer(BadRequest):
    """The MCP server cannot be connected as it was described."""


class ServerFailed(BadRequest):
    """The MCP server did not answer as one."""


class SignInNeeded(Conflict):
    """The MCP server wants a sign-in."""


class NoMcpServer(NotFound):
    """Credential not found"""


class ToolChanged(Conflict):
    """The tool is not the one that was looked at. Refresh the server, look again, then review it."""


@dataclass(frozen=True, slots=True)
class NewServer:
    """What a client asks to connect (contract §7)."""

    server_url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    display_name: str | None = None
    make_default: bool = False


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What looking again has found. ``refreshed_at`` is a time."""

    changes: Changes
    total_tools: int
    refreshed_at: int


@dataclass(frozen=True, slots=True)
class ServerAndTools:
    """A server and its tools as they are stored."""

    server: OwnIntegration
    tools: Sequence[OwnAction]


class McpServers:
    """An organization's MCP servers. Another organization's are like missing ones.

    ``programs`` are the operator's; ``seconds`` bounds one look at what a server offers.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        vault: Vault,
        offers: Offers,
        credentials: Credentials,
        refresher: Refresher,
        programs: StdioServers,
        seconds: float = DISCOVERY_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault
        self._offers = offers
        self._credentials = credentials
        self._refresher = refresher
        self._programs = programs
        self._seconds = seconds

    # ── connecting ──────────────────────────────────────────────────────────────────────────────

    async def connect(
        self, caller: Caller, new: NewServer, source: Source, *, once: OnceKey | None = None
    ) -> Credential:
        """Ask the server what it offers, then store it with its tools.

        Nothing is stored of a server that does not answer. Raises UnfitServer, ServerFailed and, for
        a server that wants a sign-in, SignInNeeded.
        """
        values = self._values(caller.organization_id, new)
        found = await self._look(self._place(caller.organization_id, values, {}), values)
        draft = Draft(
            organization_id=caller.organization_id,
            user_id=caller.user_id,
            integration_name=MCP_SERVER,
            integration_type="tool",
            auth_type="custom",
            display_name=new.display_name or found.name or _host(values.text("server_url")),
            opened=Opened(values),
            secret=next(iter(_secrets(values)), ""),
            make_default=new.make_default,
        )
        now = self._clock.now()
        stored = self._vault.sealed(draft, now)

        def work(tx: WriteTx) -> Credential:
            self._offers.room(tx, caller.organization_id)
            credential = shelve(tx, draft, stored, source)
            self._keep(tx, credential, values, found, now)
            remember(tx, once, {"credential_id": credential.credential_id}, now)
            return _row(tx, credential)

        return await self._store.write(work)

    async def signed_in(self, credential: Credential) -> None:
        """A sign-in to a server has ended well: look at what it offers. Raises as ``refresh``."""
        await self._refreshed(credential.organization_id, credential.credential_id)

    async def refresh(self, caller: Caller, credential_id: str, source: Source) -> Refreshed:
        """Look again at what a server offers, and store what is different. Raises NoMcpServer and as ``connect``."""
        refreshed = await self._refreshed(caller.organization_id, credential_id)
        changes = refreshed.changes
        said: JsonObject = {
            "added": len(changes.added), "removed": len(changes.removed), "changed": len(changes.changed)
        }  # fmt: skip
        entry = AuditEntry(credential_id, "discovery_refreshed", refreshed.refreshed_at, caller.user_id, source, said)
        await self._store.write(lambda tx: rows.add_audit(tx, caller.organization_id, entry))
        return refreshed

    async def _refreshed(self, organization_id: str, credential_id: str) -> Refreshed:
        usable = await self._usable(organization_id, credential_id)
        before = await self._store.read(lambda tx: own_rows.of_credential(tx, organization_id, credential_id))
        found = await self._look_as(usable, before)
        now = self._clock.now()

        def work(tx: WriteTx) -> Changes:
            stored = rows.find(tx, organization_id, credential_id)
            if stored is None:
                raise NoMcpServer
            return self._keep(tx, stored.credential, usable.auth_data, found, now)

        changes = await self._store.write(work)
        return Refreshed(replace(changes, rejected=dict(found.rejected)), len(found.tools), now)

    def _keep(self, tx: WriteTx, credential: Credential, values: Secrets, found: Discovery, now: int) -> Changes:
        """The own integration of a credential, with what was found just now."""
        organization_id = credential.organization_id
        source: JsonObject = {
            "server_url": _shown(values.text("server_url")),
            "transport": found.transport,
            "protocol_version": found.protocol,
            "server_name": found.name,
            "server_version": found.version,
        }
        description = found.instructions or f"MCP server {found.name}".strip()
        own = own_rows.of_credential(tx, organization_id, credential.credential_id)
        if own is None:
            own = OwnIntegration(
                id=new_id(),
                organization_id=organization_id,
                credential_id=credential.credential_id,
                kind=MCP,
                name=self._free_name(tx, organization_id, credential.display_name),
                display_name=credential.display_name,
                description=description,
                source=source,
                revision=0,
                created_at=now,
                refreshed_at=now,
            )
            own_rows.add(tx, own)
        changes = own_rows.take(tx, own, found.tools, {"source": source, "description": description}, now)
        tools: list[JsonValue] = [
            {"name": tool.name, "description": tool.description[:SUMMARY_CHARACTERS]} for tool in found.tools
        ]
        metadata: JsonObject = {
            **source, "integration": own.name, "tools": tools, "total_tools": len(found.tools)
        }  # fmt: skip
        rows.change(tx, organization_id, credential.credential_id, {"metadata": metadata, "updated_at": now})
        return changes

    def _free_name(self, tx: ReadTx, organization_id: str, display_name: str) -> str:
        wanted = f"mcp_{plain_name(display_name, NAME_CHARACTERS) or 'server'}"
        return own_rows.free_name(tx, organization_id, f"{wanted}_server" if self._offers.has(wanted) else wanted)

    # ── looking and calling ─────────────────────────────────────────────────────────────────────

    async def call(
        self, usable: Usable, own: OwnIntegration, name: str, arguments: JsonObject, *, seconds: float, max_bytes: int
    ) -> Invoked:
        """Call one tool with an open credential. Raises ActionFailed and UnfitServer."""
        place = self._place(usable.organization_id, usable.auth_data, own.source)
        return await call_tool(place, name, arguments, _secrets(usable.auth_data), seconds=seconds, max_bytes=max_bytes)

    async def _look_as(self, usable: Usable, before: OwnIntegration | None) -> Discovery:
        """Ask as this credential; a sign-in that ran out is renewed once."""
        known = {} if before is None else before.source
        usable = await self._refresher.fresh(usable)
        try:
            return await self._look(self._place(usable.organization_id, usable.auth_data, known), usable.auth_data)
        except SignInNeeded:
            if usable.auth_type != OAUTH:
                raise
        usable = await self._refresher.renew(usable)
        return await self._look(self._place(usable.organization_id, usable.auth_data, known), usable.auth_data)

    async def _look(self, place: Place, values: Secrets) -> Discovery:
        try:
            return await discover(place, _secrets(values), seconds=self._seconds)
        except McpFailed as failed:
            if not failed.unauthorized:
                raise ServerFailed(failed.public) from None
            raise SignInNeeded(
                f"{failed.public} Send the headers it wants, or sign in: start with "
                "POST /credentials/oauth2/initiate, integration_name 'mcp_server' and env_var_values "
                "{'server_url': …}."
            ) from None

    def _values(self, organization_id: str, new: NewServer) -> Secrets:
        """What is sealed. Raises UnfitServer."""
        if new.server_url.startswith(STDIO):
            if new.headers:
                raise UnfitServer("A program of this server takes no headers.")
            self._place(organization_id, Secrets({"server_url": new.server_url}), {})
            return Secrets({"server_url": new.server_url})
        try:
            return Secrets({"server_url": check_url(new.server_url), "headers": dict(check_headers(new.headers))})
        except UnfitPlace as unfit:
            raise UnfitServer(str(unfit)) from None

    def _place(self, organization_id: str, values: Secrets, known: JsonObject) -> Place:
        """Where to go with these values; ``known`` is what the last look has found. Raises UnfitServer."""
        url, protocol = values.text("server_url"), str(known.get("protocol_version", ""))
        if url.startswith(STDIO):
            program = self._programs.get(url.removeprefix(STDIO))
            if program is None or not program.serves(organization_id):
                raise UnfitServer(_no_program(organization_id, self._programs))
            return msgspec.structs.replace(program, protocol=protocol)
        given = values.get("headers")
        headers = {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
        if values.text("access_token"):
            headers["Authorization"] = f"Bearer {values.text('access_token')}"
        try:
            return HttpPlace(check_url(url), check_headers(headers), str(known.get("transport", "")), protocol)
        except UnfitPlace as unfit:
            raise UnfitServer(str(unfit)) from None

    # ── showing and reviewing ───────────────────────────────────────────────────────────────────

    async def tools(self, organization_id: str, credential_id: str) -> ServerAndTools:
        """A server's tools as they were found last. Raises NoMcpServer."""

        def work(tx: ReadTx) -> ServerAndTools:
            own = own_rows.of_credential(tx, organization_id, credential_id)
            if own is None:
                raise NoMcpServer
            return ServerAndTools(own, own_rows.list_actions(tx, own.id))

        return await self._store.read(work)

    async def review(
        self, caller: Caller, credential_id: str, reviews: Sequence[Review], source: Source
    ) -> ServerAndTools:
        """Note what a person says of tools, all or none. Raises NoMcpServer and ToolChanged."""
        now = self._clock.now()

        def work(tx: WriteTx) -> ServerAndTools:
            own = own_rows.of_credential(tx, caller.organization_id, credential_id)
            if own is None:
                raise NoMcpServer
            if not own_rows.review_each(tx, own.id, reviews, user_id=caller.user_id, now=now):
                raise ToolChanged
            said: JsonObject = {each.name: each.effect for each in reviews}
            entry = AuditEntry(credential_id, "tools_reviewed", now, caller.user_id, source, {"effects": said})
            rows.add_audit(tx, caller.organization_id, entry)
            return ServerAndTools(own, own_rows.list_actions(tx, own.id))

        return await self._store.write(work)

    async def _usable(self, organization_id: str, credential_id: str) -> Usable:
        usable = await self._credentials.resolve(organization_id, MCP_SERVER, credential_id)
        if usable is None:
            raise NoMcpServer
        return usable


def _row(tx: ReadTx, credential: Credential) -> Credential:
    stored = rows.find(tx, credential.organization_id, credential.credential_id)
    if stored is None:
        raise CredentialNotFound
    return stored.credential


def _secrets(values: Secrets) -> list[str]:
    """Everything of a credential that must not be seen, also without the word in front of it."""
    found = [values.text("access_token"), values.text("refresh_token"), *url_secrets(values.text("server_url"))]
    headers = values.get("headers")
    for value in headers.values() if isinstance(headers, dict) else ():
        inner = BEARER.fullmatch(str(value))
        found += [str(value), *([inner[1]] if inner else [])]
    return [secret for secret in found if secret]


def _no_program(organization_id: str, programs: StdioServers) -> str:
    usable = ", ".join(f"{STDIO}{name}" for name, each in programs.items() if each.serves(organization_id))
    if usable:
        return f"This server has no such program. It has: {usable}."
    return "This server has no programs of its own. Its operator names them in PARLEY_MCP_SERVERS."


def _shown(url: str) -> str:
    return url if url.startswith(STDIO) else shown_url(url)


def _host(url: str) -> str:
    return url.removeprefix(STDIO) if url.startswith(STDIO) else urlsplit(url).hostname or "MCP server"
