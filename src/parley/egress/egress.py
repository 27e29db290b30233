"""The egress of one process: its guard, its sessions, and the guard inside other people's clients."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from ssl import SSLContext
from typing import Any

import aiohttp
from yarl import URL

from parley.base.settings import SettingsError
from parley.egress.guard import DEFAULT_PORTS, Guard, Refused, Resolve, system_resolve
from parley.egress.install import installed
from parley.egress.proxies import read_proxies
from parley.egress.request import MIB, Response, exchange, first_exchange
from parley.egress.session import open_session, tls_context


class Egress:
    """Every connection that leaves this process, made once by the wiring.

    ``opened`` is PARLEY_ALLOW_PRIVATE_HOSTS; ``environment`` holds the proxy and CA variables.
    Raises SettingsError when one of them cannot be used.
    """

    def __init__(
        self, opened: Iterable[str], environment: Mapping[str, str], *, resolve: Resolve = system_resolve
    ) -> None:
        entries = tuple(opened)
        proxies = read_proxies(environment)
        self._environment = environment
        self._guard = Guard(entries, resolve=resolve, proxies=proxies)
        self._own_guard = Guard(entries, resolve=resolve, proxies=proxies)
        self._sessions: dict[Guard, aiohttp.ClientSession] = {}

    def allow(self, url: str) -> None:
        """Let ``session()`` reach one place that the operator configured, such as OPENAI_BASE_URL.

        Tenants do not get there with it. Raises SettingsError for what is not an http(s) URL.
        """
        try:
            place = URL(url)
            usual = DEFAULT_PORTS[place.scheme]
            self._own_guard.open(place.raw_host or "", place.port or usual)
        except (ValueError, KeyError, Refused):
            raise SettingsError(f"{url!r} is not a web address, such as http://127.0.0.1:11434/v1") from None

    def session(self) -> aiohttp.ClientSession:
        """The shared session for places that Parley or its operator chose; ``allow`` opens them."""
        return self._session(self._own_guard)

    def tenant_session(self) -> aiohttp.ClientSession:
        """The shared session for places that a tenant chose, such as the ``base_url`` of a credential."""
        return self._session(self._guard)

    def install(self) -> AbstractContextManager[None]:
        """Guard the clients that integrations use in this process, for the time of the block.

        The places are a tenant's. Raises RuntimeError on entry when the process is guarded already.
        """
        return installed(self._guard, self._environment.get("SSL_CERT_FILE", ""))

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        data: Any = None,
        seconds: float = 30.0,
        max_bytes: int = 25 * MIB,
    ) -> Response:
        """Send one request to a place that a tenant or a manifest chose, and read the whole answer.

        At most three redirects are followed, each vetted anew; headers that may be credentials stay
        behind when the origin changes. ``seconds`` bounds all of it, ``max_bytes`` the decompressed
        body. Raises Refused or Unreachable, each with a sentence for the user.
        """
        first = first_exchange(method, url, headers=headers, params=params, json=json, data=data)
        return await exchange(self.tenant_session(), first, seconds=seconds, max_bytes=max_bytes)

    async def close(self) -> None:
        """Close the sessions and let go of the resolver threads."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
        self._guard.close()
        self._own_guard.close()

    @cached_property
    def _tls(self) -> SSLContext:
        return tls_context(self._environment)

    def _session(self, guard: Guard) -> aiohttp.ClientSession:
        session = self._sessions.get(guard)
        if session is None:
            session = self._sessions[guard] = open_session(guard, self._tls)
        return session
