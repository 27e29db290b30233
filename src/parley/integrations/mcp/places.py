"""Where an MCP server is: an address that a tenant gave, or a program that the operator configured."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import msgspec

from parley.base.settings import SettingsError

SETTING = "PARLEY_MCP_SERVERS"
STDIO = "stdio:"
MOST_URL_CHARACTERS = 2_000
MOST_HEADERS = 32
MOST_HEADER_CHARACTERS = 8_192
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
HEADER_VALUE = re.compile(r"[\x20-\x7e\xa0-\xff]*")
# Set by the protocol, or able to turn one request into two.
OWN_HEADERS = frozenset(
    {
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host",
        "keep-alive", "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id",
        "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
SERVER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class UnfitPlace(Exception):
    """An address or header that is not used; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class HttpPlace:
    """A server on the network. ``transport`` is ``streamable_http`` or ``sse``, empty before the first look.

    ``protocol`` is the version last agreed on, empty before the first look.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    transport: str = ""
    protocol: str = ""

    @property
    def spoken(self) -> str:
        """How to name it to people."""
        return urlsplit(self.url).hostname or "The server"


class StdioPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program of this machine that speaks over its standard input and output.

    ``organizations`` are the ids that may use it; empty for all of them. ``protocol`` is the version
    last agreed on, empty before the first look.
    """

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    organizations: tuple[str, ...] = ()
    display_name: str = ""
    protocol: str = ""

    def __repr__(self) -> str:
        return f"StdioPlace({self.command!r}, …)"

    @property
    def spoken(self) -> str:
        """How to name it to people."""
        return self.display_name or "The server"

    def serves(self, organization_id: str) -> bool:
        """Whether an organization may use it."""
        return not self.organizations or organization_id in self.organizations


type Place = HttpPlace | StdioPlace
type StdioServers = Mapping[str, StdioPlace]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"servers": "mcpServers"}):
    servers: dict[str, StdioPlace]


def read_servers(path: str) -> StdioServers:
    """The operator's programs from the file that PARLEY_MCP_SERVERS names; none where it names none.

    The file has the shape that desktop clients use: ``{"mcpServers": {name: {command, args, env}}}``.
    Raises SettingsError.
    """
    if not path:
        return {}
    try:
        servers = msgspec.json.decode(Path(path).read_bytes(), type=_File).servers
    except OSError:
        raise SettingsError(f"{SETTING} names {path}, which cannot be read") from None
    except msgspec.DecodeError as error:
        raise SettingsError(f"{SETTING} names {path}, which is no list of MCP servers: {error}") from None
    for name, server in servers.items():
        if not SERVER_NAME.fullmatch(name):
            raise SettingsError(f"{SETTING}: {name!r} is no name. Use a-z, 0-9, '_' and '-', at most 40")
        if not server.command:
            raise SettingsError(f"{SETTING}: {name!r} has no command")
    return servers


def check_url(url: str) -> str:
    """An address as it is used, without a fragment. Raises UnfitPlace."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = None, None
    odd = any(character <= " " or character in "\\\x7f" for character in url)
    if parts is None or odd or parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise UnfitPlace("server_url must be the web address of an MCP server, such as https://mcp.example.com/mcp")
    if len(url) > MOST_URL_CHARACTERS:
        raise UnfitPlace(f"server_url is longer than {MOST_URL_CHARACTERS} characters.")
    if parts.username is not None or parts.password is not None:
        raise UnfitPlace("server_url holds a user name or a password. Send it as a header instead.")
    return urlunsplit(parts._replace(fragment=""))


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as they are sent. Raises UnfitPlace."""
    if len(headers) > MOST_HEADERS:
        raise UnfitPlace(f"At most {MOST_HEADERS} headers can be sent along.")
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            raise UnfitPlace(f"The header {name[:40]!a} has a name or a value that no header can have.")
        if len(value) > MOST_HEADER_CHARACTERS:
            raise UnfitPlace(f"The header {name} is longer than {MOST_HEADER_CHARACTERS} characters.")
        if name.lower() in OWN_HEADERS:
            raise UnfitPlace(f"The header {name} belongs to the connection itself and cannot be set.")
    return dict(headers)


def shown_url(url: str) -> str:
    """The address without its query, which often holds a key."""
    return urlunsplit(urlsplit(url)._replace(query="", fragment=""))


def url_secrets(url: str) -> list[str]:
    """What in an address may be a key."""
    return [value for _, value in parse_qsl(urlsplit(url).query)]
