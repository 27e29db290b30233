"""Setting telemetry up, where somebody collects it; nothing is imported for it otherwise."""
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import aiohttp

from parley.base.settings import Settings, SettingsError
from parley.storage import STORE_TROUBLE
from parley.telemetry.facts import CleanFor, Collector

if TYPE_CHECKING:
    from parley.telemetry.meters import Scrape
    from parley.telemetry.spans import Spans
    from parley.telemetry.watch import Telemetry

COUNT_SECONDS = 15.0
NEEDS = "OTEL_EXPORTER_OTLP_ENDPOINT and PARLEY_METRICS_BIND need two packages more: pip install 'parley[telemetry]'"

log = logging.getLogger(__name__)

type CountWaiting = Callable[[], Awaitable[int]]


def read_collector(environment: Mapping[str, str]) -> Collector | None:
    """The collector that ``OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT`` and ``…_HEADERS`` name; None for none."""
    url = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    if not url:
        base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
        url = f"{base}/v1/traces" if base else ""
    raw = environment.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environment.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    pairs = (pair.partition("=") for pair in raw.split(",") if "=" in pair)
    return Collector(url, {name.strip(): unquote(value.strip()) for name, _, value in pairs}) if url else None


@dataclass(frozen=True, slots=True)
class Watching:
    """What collects in this process: ``telemetry`` watches runs, the rest sends and answers."""

    telemetry: Telemetry
    spans: Spans | None
    scrape: Scrape | None
    count_waiting: CountWaiting

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """What runs beside the turns, until cancelled."""
        tasks: list[Coroutine[Any, Any, None]] = []
        if self.spans is not None:
            tasks.append(self.spans.keep_sending())
        if self.scrape is not None:
            tasks.append(self._keep_counting(self.scrape))
        return tasks

    async def close(self) -> None:
        """Send what is left and stop answering."""
        if self.spans is not None:
            await self.spans.send()
        if self.scrape is not None:
            await asyncio.to_thread(self.scrape.close)

    async def _keep_counting(self, scrape: Scrape) -> None:
        while True:
            try:
                scrape.meters.waiting.set(await self.count_waiting())
            except STORE_TROUBLE as error:
                log.warning("could not count the runs that wait (%s)", type(error).__name__)
            await asyncio.sleep(COUNT_SECONDS)


def open_telemetry(
    settings: Settings,
    version: str,
    collector: Collector | None,
    session: aiohttp.ClientSession,
    clean_for: CleanFor,
    count_waiting: CountWaiting,
) -> Watching | None:
    """What the settings ask for; None where nobody collects. ``session`` reaches the ``collector``.

    Raises SettingsError where the packages are missing or the address is taken.
    """
    if collector is None and settings.metrics_bind is None:
        return None
    try:
        from parley.telemetry.meters import Meters, Scrape
        from parley.telemetry.spans import Spans
        from parley.telemetry.watch import Telemetry
    except ImportError as error:
        raise SettingsError(f"{NEEDS} ({error})") from None
    meters = scrape = None
    if settings.metrics_bind is not None:
        meters = Meters(version)
        host, port = settings.metrics_bind
        try:
            scrape = Scrape(meters, host, port)
        except OSError as error:
            raise SettingsError(f"PARLEY_METRICS_BIND {host}:{port} cannot be listened on: {error}") from None
    spans = None if collector is None else Spans(version, collector, session)
    telemetry = Telemetry(spans, meters, clean_for if settings.trace_content else None)
    return Watching(telemetry, spans, scrape, count_waiting)
