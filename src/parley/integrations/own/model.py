"""What an organization's own integration is, and what changed when it was looked at again."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import msgspec

from parley.integrations.effects import Effect, EffectKind
from parley.integrations.effects.table import UNKNOWN
from parley.integrations.index import Action, Integration
from parley.integrations.own.schemas import parameters_of
from parley.turn.model import JsonObject

MCP = "mcp"


@dataclass(frozen=True, slots=True)
class FoundAction:
    """An action as it was found: nothing of it is trusted, and nobody has looked at it yet.

    ``body`` holds its ``input_schema``, and what else is shown or needed to run it, such as ``hints``.
    """

    name: str
    description: str
    body: JsonObject

    @property
    def input_schema(self) -> JsonObject:
        """The JSON Schema object of its arguments."""
        schema = self.body["input_schema"]
        return schema if isinstance(schema, dict) else {}

    @property
    def closed(self) -> bool:
        """Whether only what its schema names may be sent; else the other side checks the arguments."""
        return self.body.get("closed") is True

    @property
    def fingerprint(self) -> str:
        """What a review is bound to: the words count too, because a person judged by them."""
        whole = msgspec.json.encode([self.name, self.description, self.body], order="deterministic")
        return hashlib.sha256(whole).hexdigest()


@dataclass(frozen=True, slots=True)
class OwnAction:
    """An action of an own integration; ``effect`` is what a person decided, None until then. Times are µs."""

    found: FoundAction
    fingerprint: str
    effect: EffectKind | None = None
    reviewed_by: str | None = None
    reviewed_at: int | None = None

    @property
    def reviewed_effect(self) -> Effect:
        """What it does, as far as people have said so; until then the worst."""
        return UNKNOWN if self.effect is None else Effect(self.effect, schema=self.fingerprint)

    def action(self) -> Action:
        """The same as an action of the catalog."""
        return Action(
            name=self.found.name,
            description=self.found.description,
            parameters=parameters_of(self.found.input_schema),
            open=not self.found.closed,
        )


@dataclass(frozen=True, slots=True)
class Review:
    """What a person says that an action does, None to take it back; ``fingerprint`` is of what they looked at."""

    name: str
    fingerprint: str
    effect: EffectKind | None


@dataclass(frozen=True, slots=True)
class OwnIntegration:
    """One own integration without its actions. Times are µs.

    ``source`` says how it is reached, without any secret. ``credential_id`` is the one it came with.
    """

    id: str
    organization_id: str
    credential_id: str | None
    kind: str
    name: str
    display_name: str
    description: str
    source: JsonObject
    revision: int
    created_at: int
    refreshed_at: int

    def integration(self) -> Integration:
        """The same as an integration of the catalog, without actions."""
        return Integration(name=self.name, display_name=self.display_name, description=self.description)


@dataclass(frozen=True, slots=True)
class ActionCount:
    """How many actions an own integration has, and how many of them nobody has reviewed as they are now."""

    total: int = 0
    unreviewed: int = 0


@dataclass(frozen=True, slots=True)
class Changes:
    """What is different since the last look, by names of actions."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    rejected: dict[str, str] = field(default_factory=dict[str, str])

    def as_json(self) -> JsonObject:
        """The form on the wire. ``rejected`` says of each tool that is not offered why."""
        return cast(
            "JsonObject",
            {
                "added": list(self.added),
                "removed": list(self.removed),
                "changed": list(self.changed),
                "rejected": dict(self.rejected),
            },
        )


def changes_between(before: Mapping[str, str], now: Mapping[str, str]) -> Changes:
    """What is different, of fingerprints by names of actions."""
    return Changes(
        added=tuple(name for name in now if name not in before),
        removed=tuple(name for name in before if name not in now),
        changed=tuple(name for name, mark in now.items() if before.get(name, mark) != mark),
    )
