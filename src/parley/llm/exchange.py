"""One request to a model provider: retried until its first byte, then a bounded stream of events."""

import asyncio
import io
import logging
import random
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Self

import aiohttp

from parley.egress import Refused
from parley.llm import failures
from parley.llm.events import EventSplitter, LineTooLong
from parley.llm.providers import Endpoint
from parley.turn.model import ModelError

ERROR_BODY_BYTES = 65_536
ERROR_BODY_SECONDS = 5.0
DRAIN_SECONDS = 0.1
READS_AT_ONCE = 4
"""Reads that are handed on as they come, so that the first words and short replies never wait."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one reply may cost in time and size. ``retry_seconds`` bounds all the waiting between tries.

    ``gather_seconds``: a stream that is well under way is read only so often. Between two looks its bytes
    wait in the kernel, which costs nothing; a read and a wake-up for every token would.
    """

    connect_seconds: float = 10.0
    idle_seconds: float = 180.0
    reply_seconds: float = 1_800.0
    retries: int = 3
    backoff_seconds: float = 0.5
    retry_seconds: float = 30.0
    event_bytes: int = 4 << 20
    reply_bytes: int = 64 << 20
    text_characters: int = 4 << 20
    arguments_characters: int = 1 << 20
    gather_seconds: float = 0.05


@dataclass(frozen=True, slots=True)
class Request:
    """A POST below the endpoint's base URL. ``optional`` names the body's dispensable parameters."""

    path: str
    headers: dict[str, str]
    body: bytes
    model: str
    optional: Sequence[str] = ()


class EventStream:
    """The events of one answered request. Leaving its ``async with`` closes an unfinished connection at once."""

    __slots__ = (
        "_bytes",
        "_deadline",
        "_endpoint",
        "_first",
        "_heard_at",
        "_limits",
        "_loop",
        "_opening",
        "_reads",
        "_response",
        "_silent",
        "_splitter",
        "_watch",
        "ended",
    )

    def __init__(self, response: aiohttp.ClientResponse, first: bytes, endpoint: Endpoint, limits: Limits) -> None:
        self._response = response
        self._first = first
        self._endpoint = endpoint
        self._limits = limits
        self._splitter = EventSplitter(limits.event_bytes)
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._deadline = self._heard_at + limits.reply_seconds
        self._bytes = 0
        self._reads = 0
        self._silent = False
        self._watch: asyncio.TimerHandle | None = None
        self._opening: asyncio.TimerHandle | None = None
        self.ended = False

    async def __aenter__(self) -> Self:
        self._watch = self._loop.call_at(self._heard_at + self._limits.idle_seconds, self._end_if_silent)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for timer in (self._watch, self._opening):
            if timer is not None:
                timer.cancel()
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()

    async def events(self) -> list[bytes]:
        """The data of the events that the next read completes, maybe none. Sets ``ended`` at the stream's end.

        Raises ModelError when the connection breaks, falls silent, or exceeds a limit.
        """
        piece = self._first
        if piece:
            self._first = b""
        else:
            piece = await self._read()
            if not piece:
                self.ended = True
                return self._splitter.end()
        self._bytes += len(piece)
        self._heard_at = self._loop.time()
        if self._bytes > self._limits.reply_bytes or self._heard_at > self._deadline:
            raise failures.oversized(self._endpoint)
        try:
            return self._splitter.feed(piece)
        except LineTooLong:
            raise failures.oversized(self._endpoint) from None

    async def drain(self) -> None:
        """Read the end of a finished answer, so that the connection can be used again."""
        self._let_in()
        content = self._response.content
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while not content.at_eof() and self._bytes <= self._limits.reply_bytes:
                    self._bytes += len(await content.readany())
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            logger.debug("the connection is not reused: %s", type(error).__name__)

    async def _read(self) -> bytes:
        gathers = self._reads >= READS_AT_ONCE
        if gathers:
            # Every stream of the process looks at the same moments: one wake-up serves them all.
            now, seconds = self._loop.time(), self._limits.gather_seconds
            self._opening = self._loop.call_at(now - now % seconds + seconds, self._let_in)
        self._reads += 1
        try:
            piece = await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            if self._silent:
                raise failures.silent(self._endpoint, self._limits.idle_seconds) from None
            raise failures.broken_off(self._endpoint) from error
        if gathers:
            self._hold_back()
        return piece

    def _hold_back(self) -> None:
        """Leave what comes next in the kernel. A connection that aiohttp has let go of is left alone."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.pause_reading()

    def _let_in(self) -> None:
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.resume_reading()

    def _end_if_silent(self) -> None:
        """One timer for the whole stream: aiohttp's own read timeout sets a new one for every read."""
        due = self._heard_at + self._limits.idle_seconds
        if self._loop.time() < due:
            self._watch = self._loop.call_at(due, self._end_if_silent)
        else:
            self._silent = True
            self._response.close()


class Exchange:
    """Sends requests to one endpoint.

    Only what fails before the first byte of the answer is tried again: afterwards people may have
    seen text, and the provider has done the work.
    """

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint, limits: Limits) -> None:
        self._session = session
        self._endpoint = endpoint
        self._limits = limits
        self._timeout = aiohttp.ClientTimeout(
            total=None,
            connect=limits.connect_seconds,
            sock_connect=limits.connect_seconds,
        )

    async def open(self, request: Request) -> EventStream:
        """The stream of an accepted request. Raises ModelError; ParameterRefused is worth another request."""
        waited, tries = 0.0, 0
        while True:
            outcome = await self._try(request)
            if isinstance(outcome, EventStream):
                return outcome
            tries += 1
            wait = outcome.wait if outcome.wait is not None else self._backoff(tries)
            waited += wait
            if not outcome.retryable or tries > self._limits.retries or waited > self._limits.retry_seconds:
                raise outcome.error
            await asyncio.sleep(wait)

    def _backoff(self, tries: int) -> float:
        full = self._limits.backoff_seconds * 2 ** (tries - 1)
        return full * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, keeps no secret

    async def _try(self, request: Request) -> "EventStream | _NoAnswer":
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                response = await self._session.post(
                    self._endpoint.base_url + request.path,
                    data=io.BytesIO(request.body),  # aiohttp warns of long plain bytes
                    headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **request.headers},
                    timeout=self._timeout,
                    allow_redirects=False,
                )
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            return self._not_answered(error)
        try:
            if response.status == 200:
                async with asyncio.timeout(self._limits.idle_seconds):
                    first = await response.content.readany()
                return EventStream(response, first, self._endpoint, self._limits)
            return await self._refused(response, request)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            response.close()
            return self._not_answered(error)
        except BaseException:
            response.close()
            raise

    def _not_answered(self, error: Exception) -> "_NoAnswer":
        name = self._endpoint.provider.name
        logger.warning("%s did not answer: %s", name, type(error).__name__)
        if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, Refused):
            return _NoAnswer(ModelError("request", str(error.os_error)), retryable=False)
        if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
            return _NoAnswer(failures.insecure(self._endpoint), retryable=False)
        if isinstance(error, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError)):
            return _NoAnswer(failures.bad_address(self._endpoint), retryable=False)
        if isinstance(error, aiohttp.ClientResponseError):
            return _NoAnswer(failures.garbled(self._endpoint), retryable=False)
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
            return _NoAnswer(failures.silent(self._endpoint, self._limits.idle_seconds), retryable=False)
        return _NoAnswer(failures.unreachable(self._endpoint), retryable=True)

    async def _refused(self, response: aiohttp.ClientResponse, request: Request) -> "_NoAnswer":
        body = await _error_body(response)
        response.close()
        problem = failures.read_problem(response.status, body)
        logger.warning("%s answered %d %s", self._endpoint.provider.name, response.status, problem.code)
        error = failures.error_for(problem, self._endpoint, request.model, request.optional)
        wait = retry_after(response.headers.get("Retry-After", ""), now=time.time())
        return _NoAnswer(error, retryable=problem.retryable, wait=wait)


@dataclass(frozen=True, slots=True)
class _NoAnswer:
    """One try that led to nothing; ``wait`` is what the provider asked for, in seconds."""

    error: ModelError
    retryable: bool
    wait: float | None = None


async def _error_body(response: aiohttp.ClientResponse) -> bytes:
    """What could be read of a refusal, in little time."""
    body = b""
    try:
        async with asyncio.timeout(ERROR_BODY_SECONDS):
            while len(body) < ERROR_BODY_BYTES and not response.content.at_eof():
                body += await response.content.readany()
    except TimeoutError:
        logger.debug("the refusal was cut short")
    return body[:ERROR_BODY_BYTES]


def retry_after(value: str, *, now: float) -> float | None:
    """Seconds to wait from a Retry-After header, given as a number or a date; None where there is none."""
    if not value:
        return None
    if value.replace(".", "", 1).isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.fromtimestamp(now, UTC)).total_seconds())
