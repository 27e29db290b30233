"""The proxy that the operator's environment names: ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from yarl import URL

from parley.base.settings import SettingsError

SCHEMES = ("http", "https")
# A proxy elsewhere cannot reach what listens on this machine only.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxy for each scheme, and the names that are dialled without one."""

    by_scheme: Mapping[str, URL] = field(default_factory=dict[str, URL])
    exempt: tuple[str, ...] = ()

    def for_target(self, scheme: str, host: str, port: int | None) -> URL | None:
        """The proxy to go through, None to dial directly."""
        if host in LOOPBACK or any(_covers(entry, host, port) for entry in self.exempt):
            return None
        return self.by_scheme.get(scheme)

    def includes(self, host: str, port: int) -> bool:
        """Whether this is the address of a proxy itself."""
        return any((proxy.host, proxy.port) == (host, port) for proxy in self.by_scheme.values())


def read_proxies(environment: Mapping[str, str]) -> Proxies:
    """The proxies that the environment names, the lower-case spelling first as curl does.

    Raises SettingsError for a proxy that is not reached over http or https.
    """
    found: dict[str, URL] = {}
    for scheme in SCHEMES:
        name = f"{scheme}_proxy"
        chosen, value = _first(environment, name, name.upper(), "all_proxy", "ALL_PROXY")
        if value:
            found[scheme] = _proxy(chosen, value)
    exempt = _first(environment, "no_proxy", "NO_PROXY")[1].lower().split(",")
    return Proxies(found, tuple(entry.strip().removeprefix(".") for entry in exempt if entry.strip()))


def _covers(entry: str, host: str, port: int | None) -> bool:
    return entry in {"*", host, f"{host}:{port}"} or host.endswith(f".{entry}")


def _first(environment: Mapping[str, str], *names: str) -> tuple[str, str]:
    return next(((name, environment[name]) for name in names if environment.get(name)), ("", ""))


def _proxy(name: str, value: str) -> URL:
    try:
        url = URL(value if "://" in value else f"http://{value}")
    except ValueError:
        raise SettingsError(f"{name} is not a URL. Write it as http://proxy.example.com:3128") from None
    if url.scheme not in SCHEMES or not url.host:
        raise SettingsError(f"{name} must name an http or https proxy, such as http://proxy.example.com:3128")
    return url
