"""The decision whether to dial: one host, one port, every address it leads to (trust §2.4).

A host is read strictly: spellings that two parsers may read differently (decimal, hexadecimal or
octal addresses, zone ids, user info) are refused instead of interpreted. A name is resolved once,
refused unless every address is public, and the caller dials an address that was vetted, so that a
name which changes its mind between the check and the dial gains nothing.
"""

import asyncio
import errno
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address

from parley.base.settings import SettingsError
from parley.egress.proxies import Proxies
from parley.egress.ranges import Address, is_private_name, is_public

type Resolve = Callable[[str, int], Sequence[str]]
"""Addresses of a host name for a port, as text; raises OSError when there are none."""

SETTING = "PARLEY_ALLOW_PRIVATE_HOSTS"
RESOLVE_SECONDS = 10.0
RESOLVERS = 32
HOST_CHARACTERS = 254  # with a final dot
DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}

WEB = frozenset({80, 443, 6333, 8443})  # 6333 is where Qdrant Cloud serves https
# The usual port, then those of common poolers and hosting services.
POSTGRESQL = frozenset({5432, 5439, 6432, 6543, 25060, 25061, 26257})
MYSQL = frozenset({3306, 4000, 25060})
MONGODB = frozenset({27017, 27015, 27016, 10255, 10260})
SQL_SERVER = frozenset({1433})

LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
NAME = re.compile(rf"{LABEL}(\.{LABEL})*")
HOST_AND_PORT = re.compile(r"(\[[^]]+]|[^:]+):([0-9]{1,5})")
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class NotConnected(OSError):
    """A connection that did not come about, for a client that expects an OSError; ``str()`` is a sentence."""

    code = errno.EHOSTUNREACH

    def __init__(self, sentence: str) -> None:
        super().__init__(self.code, sentence)
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


class Refused(NotConnected):
    """Parley will not connect there. The sentence is for the user and says what to do."""

    code = errno.EACCES


class Unreachable(NotConnected):
    """The connection or the answer did not come about. The sentence is for the user."""


def system_resolve(host: str, port: int) -> Sequence[str]:
    """What the operating system's resolver says."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class Guard:
    """What may be dialled: public places, and what the operator opened.

    ``opened`` holds entries of the form ``host``, ``host:port`` or ``[address]:port``; an entry
    opens that name only, on any address, with any scheme, and without a port on every port.
    """

    def __init__(
        self,
        opened: Iterable[str] = (),
        *,
        resolve: Resolve = system_resolve,
        resolve_seconds: float = RESOLVE_SECONDS,
        proxies: Proxies | None = None,
    ) -> None:
        self.proxies = proxies or Proxies()
        self._opened: set[tuple[str, int | None]] = {parse_entry(entry) for entry in opened}
        self._resolve = resolve
        self._resolve_seconds = resolve_seconds
        self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="parley-dns")

    def open(self, host: str, port: int) -> None:
        """Let one place through that the operator chose by other means than the setting."""
        self._opened.add((plain_host(host), port))

    def close(self) -> None:
        """Let go of the resolver threads without waiting for a slow name server."""
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    def is_open(self, host: str, port: int) -> bool:
        """Whether the operator opened this host, given in its plain form."""
        return not self._opened.isdisjoint({(host, port), (host, None)})

    def check(self, host: str, port: int, ports: frozenset[int] = WEB) -> str:
        """Everything that can be said without resolving; returns the host in its plain form.

        Raises Refused for an odd spelling, a port outside ``ports``, a private address or name.
        """
        name = plain_host(host)
        if self.is_open(name, port):
            return name
        if port not in ports:
            usual = ", ".join(str(number) for number in sorted(ports))
            raise Refused(f"Parley does not connect to port {port} of {name}, only to {usual}. {_ask(name, port)}")
        address = _literal(name)
        if not is_public(address) if address else is_private_name(name):
            raise Refused(_private(name, port))
        return name

    def check_url(self, scheme: str, host: str, port: int | None, *, verified: bool = True) -> None:
        """Whether a request to this URL may be sent; its addresses are vetted when it is dialled.

        ``verified`` says whether the client checks the server's certificate. Behind a proxy this is
        all that can be checked here; the proxy resolves the name. Raises Refused.
        """
        if scheme not in DEFAULT_PORTS:
            raise Refused(f"Parley only opens http and https addresses, not {ascii(scheme)[:40]}.")
        port = port or DEFAULT_PORTS[scheme]
        name = self.check(host, port)
        if self.is_open(name, port):
            return
        if self.proxies.includes(name, port):
            raise Refused(f"{name}:{port} is the proxy itself. Use the address of the service behind it.")
        if scheme not in {"https", "wss"}:
            raise Refused(f"Parley connects to {name} only over https. Use an https:// address. {_ask(name, port)}")
        if not verified:
            raise Refused(f"Parley connects to {name} only with a certificate that it can check. {_ask(name, port)}")

    async def vet(self, host: str, port: int, ports: frozenset[int] = WEB) -> Sequence[str]:
        """The addresses to dial, as text, in the resolver's order.

        Raises Refused unless every one of them is public or the operator opened the host;
        Unreachable when the name does not resolve in time (10 s).
        """
        name = self.check(host, port, ports)
        return self._vetted(name, port, await self._look_up(name, port))

    def vet_now(self, host: str, port: int, ports: frozenset[int] = WEB) -> Sequence[str]:
        """``vet`` for a blocking client, in its own thread."""
        name = self.check(host, port, ports)
        return self._vetted(name, port, self._look_up_now(name, port))

    async def vet_web(self, host: str, port: int) -> Sequence[str]:
        """``vet`` for an HTTP client, which dials the operator's proxy in place of the target."""
        if self.proxies.includes(host, port):
            return await self._look_up(host, port)
        return await self.vet(host, port)

    def vet_web_now(self, host: str, port: int) -> Sequence[str]:
        """``vet_web`` for a blocking client."""
        return self._look_up_now(host, port) if self.proxies.includes(host, port) else self.vet_now(host, port)

    def vet_native(self, host: str, port: int, ports: frozenset[int], suffixes: Iterable[str]) -> None:
        """For a driver that dials in native code, where nothing can be pinned and servers may redirect.

        Only a host whose operator is known passes: one under the given suffixes of a service, or one
        that the operator of Parley opened. Raises Refused or Unreachable.
        """
        name = self.check(host, port, ports)
        if not self.is_open(name, port):
            if not any(name.endswith(suffix) for suffix in suffixes):
                raise Refused(f"Parley connects to {name} only if its operator says so. {_ask(name, port)}")
            self.vet_now(name, port, ports)

    async def _look_up(self, name: str, port: int) -> Sequence[str]:
        looking = asyncio.get_running_loop().run_in_executor(self._resolvers, self._look_up_now, name, port)
        try:
            async with asyncio.timeout(self._resolve_seconds):
                return await looking
        except TimeoutError:
            raise Unreachable(f"The name {name} could not be looked up in time. Try again later.") from None

    def _look_up_now(self, name: str, port: int) -> Sequence[str]:
        if _literal(name):
            return (name,)
        try:
            found = self._resolve(name, port)
        except (OSError, UnicodeError):
            found = ()
        if not found:
            raise Unreachable(f"The name {name} could not be found. Check its spelling.")
        return found

    def _vetted(self, name: str, port: int, found: Sequence[str]) -> Sequence[str]:
        if not self.is_open(name, port) and not all(is_public(ip_address(text)) for text in found):
            raise Refused(_private(name, port))
        return found


@lru_cache(4_096)
def plain_host(spelled: str) -> str:
    """A host as a lower-case ASCII name, or an address in its canonical form without brackets.

    Raises Refused for what is neither, or not unambiguously so.
    """
    host = spelled[1:-1] if spelled.startswith("[") and spelled.endswith("]") else spelled
    plain = _plain(host) if len(host) <= HOST_CHARACTERS else None
    if plain is None:
        raise Refused(f"{spelled[:60]!a} is not a plain host. Write a name such as api.example.com.")
    return plain


def _plain(host: str) -> str | None:
    try:
        if ":" in host:
            address = IPv6Address(host)
            return None if address.scope_id else str(address)
        name = host.encode("idna").decode("ascii").lower().removesuffix(".")
        if NUMBER.fullmatch(name.rpartition(".")[2]):
            return str(IPv4Address(name))
    except (UnicodeError, AddressValueError):
        return None
    return name if len(name) < HOST_CHARACTERS and NAME.fullmatch(name) else None


def parse_entry(entry: str) -> tuple[str, int | None]:
    """One entry of PARLEY_ALLOW_PRIVATE_HOSTS as host and port, None for every port.

    Raises SettingsError for anything else.
    """
    with_port = HOST_AND_PORT.fullmatch(entry)
    host, port = with_port.groups() if with_port else (entry, None)
    try:
        name = plain_host(host)
    except Refused:
        name = ""
    if not name or (port is not None and not 0 < int(port) < 65_536):
        raise SettingsError(f"{SETTING} holds {entry!r}, which is neither a host nor host:port, such as nas.lan:8443")
    return name, None if port is None else int(port)


@lru_cache(4_096)
def _literal(name: str) -> Address | None:
    """The address that a plain host spells, None for a name."""
    try:
        return ip_address(name)
    except ValueError:
        return None


def _private(name: str, port: int) -> str:
    return f"{name} leads to a private network, and Parley does not connect there. {_ask(name, port)}"


def _ask(name: str, port: int) -> str:
    place = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
    return f"If this place is meant, ask the operator of Parley to add {place} to {SETTING}."
