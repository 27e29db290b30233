"""Traces and metrics of turns, for those who collect them (docs/decisions/0043).

Without a collector and without ``PARLEY_METRICS_BIND`` there is no telemetry object, and neither
OpenTelemetry's SDK nor Prometheus's client is imported: this package's ``__init__`` and ``facts`` and
``opening`` import neither. ``names`` has every name that leaves.
"""

from parley.telemetry.facts import RunFacts
from parley.telemetry.opening import Watching, open_telemetry, read_collector

__all__ = ["RunFacts", "Watching", "open_telemetry", "read_collector"]
