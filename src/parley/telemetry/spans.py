"""OpenTelemetry's SDK, set up for turns, and the way of its spans to a collector.

Every run of a turn is in one trace. Spans wait in a bounded queue and leave over Parley's own egress,
as OTLP over HTTP in protobuf; what a collector does not take is dropped and counted, never waited for.
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Mapping

import aiohttp
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, Tracer

from parley.telemetry.facts import Collector

SEND_EVERY_SECONDS = 2.0
SEND_SECONDS = 5.0
MOST_WAITING, MOST_AT_ONCE = 8_192, 512

log = logging.getLogger(__name__)

type Attributes = Mapping[str, str | int | float]


class TurnIds(RandomIdGenerator):
    """Trace ids made of the turn's id, so that a resumed run joins the trace of the one that paused."""

    def __init__(self) -> None:
        self.turn_id: str | None = None

    def generate_trace_id(self) -> int:
        """The turn's trace; random outside of turns."""
        return super().generate_trace_id() if self.turn_id is None else trace_of(self.turn_id)


def trace_of(turn_id: str) -> int:
    """The id of a turn's trace."""
    return int.from_bytes(hashlib.sha256(turn_id.encode()).digest()[:16])


class Waiting(SpanProcessor):
    """Spans that ended and have not left yet."""

    def __init__(self) -> None:
        self.spans: deque[ReadableSpan] = deque(maxlen=MOST_WAITING)
        self.lost = 0

    def on_end(self, span: ReadableSpan) -> None:
        """A span is over; the oldest one goes where there is no room."""
        if span.context is not None and span.context.trace_flags.sampled:
            self.lost += len(self.spans) == MOST_WAITING
            self.spans.append(span)

    def take(self) -> list[ReadableSpan]:
        """Some of them, the oldest first."""
        return [self.spans.popleft() for _ in range(min(MOST_AT_ONCE, len(self.spans)))]


class Spans:
    """Where spans are begun, and the sender that ``keep_sending`` is."""

    def __init__(self, version: str, collector: Collector, session: aiohttp.ClientSession) -> None:
        self._collector = collector
        self._session = session
        self._ids = TurnIds()
        self._waiting = Waiting()
        resource = Resource.create({"service.name": "parley", "service.version": version})
        self._provider = TracerProvider(id_generator=self._ids, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._waiting)
        self.tracer: Tracer = self._provider.get_tracer("parley", version)

    def begin_turn(self, turn_id: str, name: str, attributes: Attributes) -> Span:
        """The root span of one run."""
        self._ids.turn_id = turn_id
        try:
            return self.tracer.start_span(name, Context(), SpanKind.INTERNAL, dict(attributes))
        finally:
            self._ids.turn_id = None

    async def keep_sending(self) -> None:
        """Send what has ended every two seconds, until cancelled."""
        while True:
            await asyncio.sleep(SEND_EVERY_SECONDS)
            await self.send()

    async def send(self) -> None:
        """Send what has ended; stops at the first refusal, and what was refused is lost."""
        while spans := self._waiting.take():
            try:
                await self._post(encode_spans(spans).SerializeToString())
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._waiting.lost += len(spans)
                log.warning(
                    "the collector did not take %d spans (%s); %d are lost so far",
                    len(spans),
                    type(error).__name__,
                    self._waiting.lost,
                )
                return

    async def _post(self, body: bytes) -> None:
        headers = {**self._collector.headers, "Content-Type": "application/x-protobuf"}
        timeout = aiohttp.ClientTimeout(total=SEND_SECONDS)
        async with self._session.post(
            self._collector.url, data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            response.raise_for_status()
            if response.status >= 300:
                raise aiohttp.ClientError("the collector answered with a redirect")
