"""The server's routes as the terminal uses them."""

import asyncio
import ipaddress
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec

from parley.cli.chat.problems import Refused, Trouble, Unreachable, not_parley, not_running, refusal
from parley.cli.chat.wire import Chat, Credential, Llm, OfferedModel, Organization, Running, SignIn, Tested

type JsonBody = Mapping[str, Any]

ANSWER_SECONDS = 30.0
CONNECT_SECONDS = 10.0
# A question and a credential test wait for the integration's own server.
SLOW_SECONDS = 90.0
TRIES = 3
TRY_AGAIN_SECONDS = 0.5
# Longer than any event on one line (an event is at most 256 KB).
LINE_BYTES = 4 << 20


class _Organizations(msgspec.Struct):
    organizations: list[Organization]


class _Settings(msgspec.Struct):
    composer_llm: Llm | None = None


class _Llms(msgspec.Struct):
    active_llms: list[OfferedModel]


class _Credentials(msgspec.Struct):
    credentials: list[Credential]


class _Nothing(msgspec.Struct):
    pass


@dataclass(slots=True)
class Client:
    """One key in one organization of one server. Every method raises Trouble."""

    url: str
    key: str = field(repr=False)
    organization_id: str
    session: aiohttp.ClientSession

    # ── who and what ────────────────────────────────────────────────────────────────────────────

    async def organizations(self) -> Sequence[Organization]:
        """Where the key may act."""
        return (await self._get("/auth/me/organizations", _Organizations)).organizations

    async def default_llm(self) -> Llm:
        """The organization's model: the saved one, else the first it can use."""
        saved = (await self._get("/organizations/settings", _Settings)).composer_llm
        if saved is not None:
            return saved
        offered = await self.models()
        if not offered:
            raise Trouble("This server offers no model. Connect one in the web app under Integrations.")
        first = offered[0]
        return Llm(first.integration_name, first.integration_name, first.id)

    async def models(self) -> Sequence[OfferedModel]:
        """What the organization can use now, the recommended first."""
        return (await self._get("/organizations/llms", _Llms)).active_llms

    async def credentials(self, integration_name: str) -> Sequence[Credential]:
        """The organization's credentials for one integration."""
        query = {"integration_name": integration_name}
        return (await self._get("/credentials", _Credentials, query)).credentials

    # ── turns ───────────────────────────────────────────────────────────────────────────────────

    async def chat(self, chat_id: str) -> Chat:
        """A chat with its messages and its open question."""
        return await self._get(f"/assistant/chat/{_plain(chat_id)}", Chat)

    async def start(self, message: str, chat_id: str | None, llm: Llm) -> Running:
        """Begin a turn, once: a lost answer is asked for again under the same key."""
        body: dict[str, Any] = {"message": message, "llm": msgspec.to_builtins(llm)}
        if chat_id is not None:
            body["chat_id"] = chat_id
        return await self._once("/assistant/chat", Running, body)

    async def resume(self, chat_id: str, request_id: str, response: JsonBody, llm: Llm) -> Running:
        """Answer a question, once."""
        body = {"request_id": request_id, "response": response, "llm": msgspec.to_builtins(llm)}
        return await self._once(f"/assistant/chat/{_plain(chat_id)}/resume", Running, body)

    async def cancel(self, chat_id: str) -> None:
        """Stop the chat's turn; fine when it is over already."""
        try:
            await self._call("POST", f"/assistant/chat/{_plain(chat_id)}/cancel", _Nothing)
        except Refused as refused:
            if refused.status != 400:
                raise

    # ── credentials ─────────────────────────────────────────────────────────────────────────────

    async def test_credential(self, body: JsonBody) -> Tested:
        """Try typed-in values without storing them."""
        return await self._call("POST", "/credentials/test-temporary", Tested, body, seconds=SLOW_SECONDS)

    async def add_credential(self, body: JsonBody) -> Credential:
        """Store typed-in values; the secret goes nowhere else."""
        return await self._once("/credentials", Credential, body)

    async def sign_in(self, body: JsonBody) -> SignIn:
        """Begin an OAuth sign-in."""
        return await self._call("POST", "/credentials/oauth2/initiate", SignIn, body)

    async def post[T](self, path: str, shape: type[T], body: JsonBody) -> T:
        """Send one value and get one back, once: a lost answer is asked for again under the same key."""
        return await self._once(path, shape, body)

    # ── streams ─────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def listening(
        self, chat_id: str, run_id: str, cursor: str | None, silence_seconds: float
    ) -> AsyncGenerator[aiohttp.StreamReader]:
        """The lines of a run's event stream, from after the cursor on.

        Raises Refused before the first line; aiohttp's errors, OSError and TimeoutError when it is cut.
        """
        path = f"/assistant/chat/{_plain(chat_id)}/listen/{_plain(run_id)}"
        headers = {**self._headers, "Accept": "text/event-stream", "Cache-Control": "no-store"}
        if cursor is not None:
            headers["Last-Event-ID"] = cursor
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds)
        async with self.session.get(
            self.url + path, headers=headers, timeout=timeout, read_bufsize=LINE_BYTES
        ) as response:
            if response.status != 200:
                raise refusal(response.status, await response.read(), response.headers, self.url)
            if response.content_type != "text/event-stream":
                raise not_parley(self.url)
            yield response.content

    # ── requests ────────────────────────────────────────────────────────────────────────────────

    @property
    def _headers(self) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self.key}", "User-Agent": f"parley-chat/{version('parley')}"}
        if self.organization_id:
            headers["X-Organization-ID"] = self.organization_id
        return headers

    async def _get[T](self, path: str, shape: type[T], query: Mapping[str, str] | None = None) -> T:
        return await self._call("GET", path, shape, query=query)

    async def _once[T](self, path: str, shape: type[T], body: JsonBody) -> T:
        """A POST that may be sent again when no answer came: the server does it once (Idempotency-Key)."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        for number in range(1, TRIES + 1):
            try:
                return await self._call("POST", path, shape, body, headers=headers, seconds=SLOW_SECONDS)
            except Unreachable:
                if number == TRIES:
                    raise
                await asyncio.sleep(TRY_AGAIN_SECONDS * number)
        raise AssertionError("the last try returns or raises")

    async def _call[T](
        self,
        method: Literal["GET", "POST"],
        path: str,
        shape: type[T],
        body: JsonBody | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> T:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self.session.request(
                method,
                self.url + path,
                json=body,
                params=query,
                headers={**self._headers, **(headers or {})},
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise unreachable(self.url, error) from None
        if not response.ok or response.status >= 300:
            raise refusal(response.status, answer, response.headers, self.url)
        try:
            return msgspec.json.decode(answer or b"{}", type=shape)
        except msgspec.DecodeError:
            raise not_parley(self.url) from None


def unreachable(url: str, error: Exception) -> Unreachable:
    """What a failed connection means."""
    match error:
        case aiohttp.InvalidURL() | ValueError():
            return Unreachable(
                f"{url!r} is not a web address. Write it like http://127.0.0.1:8000 (--url, PARLEY_URL)."
            )
        case aiohttp.ClientSSLError():
            return Unreachable(
                f"The certificate of {url} is not trusted here. Name your CA in SSL_CERT_FILE, or correct --url."
            )
        case aiohttp.ClientProxyConnectionError():
            return Unreachable(f"The proxy between here and {url} does not answer. Check HTTPS_PROXY and NO_PROXY.")
        case TimeoutError():
            return Unreachable(f"{url} takes too long to answer. Try again in a moment.")
        case aiohttp.ClientConnectorError():
            return not_running(url)
        case _:
            return Unreachable(f"The connection to {url} was cut. Try again in a moment.")


@asynccontextmanager
async def connected(url: str, key: str, organization_id: str) -> AsyncGenerator[Client]:
    """A client with connections of its own. A server on this machine is asked without a proxy.

    Raises Unreachable for what is no web address.
    """
    url = url.rstrip("/")
    _check(url)
    # Between two turns nobody watches the connections, so none is kept.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector, trust_env=not _is_local(url)) as session:
        yield Client(url, key, organization_id, session)


async def choose_organization(client: Client) -> Organization:
    """Where to act: what was named, else the key's own. Raises Trouble, listing the choices."""
    known = await client.organizations()
    if client.organization_id:
        for each in known:
            if each.id == client.organization_id.lower():
                return each
        listed = "".join(f"\n  {each.id}  {each.name}" for each in known) or " nowhere."
        raise Trouble(f"This key cannot act in organization {client.organization_id}. It can act in:{listed}")
    if not known:
        raise Trouble("This key's owner is in no organization. Ask for an invitation to one.")
    chosen = next((each for each in known if each.is_default), known[0])
    client.organization_id = chosen.id
    return chosen


def _check(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise Unreachable(f"{url!r} is no web address. Write it like http://127.0.0.1:8000 (--url, PARLEY_URL).")


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _plain(identifier: str) -> str:
    """An id as one part of a path; anything that is none leads to a chat that does not exist."""
    return identifier if identifier.isascii() and identifier.replace("-", "").isalnum() else "unknown"
