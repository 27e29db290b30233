"""What is known of a run that is watched, and of where its spans go."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

type Clean = Callable[[str], str]
"""Clears a text of secrets."""
type CleanFor = Callable[[str], Awaitable[Clean]]
"""``Clean`` for the secrets of an organization, by its id."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Which run is watched: ids, and the model that was chosen for it."""

    run_id: str
    turn_id: str
    chat_id: str
    organization_id: str
    provider: str
    model: str


@dataclass(frozen=True, slots=True)
class Collector:
    """Where spans go, over OTLP in HTTP and protobuf; headers may hold a key."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
