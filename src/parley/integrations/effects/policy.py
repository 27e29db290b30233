"""When a person is asked before an action runs, and why (contract §6)."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from parley.base.settings import ApprovalPolicy
from parley.integrations.effects.raising import GRAVITY, EffectKind
from parley.integrations.effects.table import Effect
from parley.turn.model import JsonValue

CATASTROPHIC: frozenset[EffectKind] = frozenset({"destructive", "money", "exec", "identity", "infra"})
# Substrings of the action name that ask, to the letter (contract §6).
DELETING_PATTERNS = ("delete_", "_delete", "drop_", "truncate", "purge", "destroy", "wipe")
QUERY_PATTERNS = ("execute_query", "execute_statement", "execute_raw_query", "raw_query")
WORDS: Mapping[EffectKind, str] = {
    "read": "only looks something up",
    "write": "changes something",
    "egress": "sends something out of your organization",
    "infra": "changes production, infrastructure or DNS",
    "identity": "changes who has access, or a secret",
    "exec": "runs code, a command or a query as it is written",
    "money": "moves money, changes what is owed, or binds you legally",
    "destructive": "deletes, removes or cancels something",
}
ASKED_BY_NAME = "Actions with this name always ask first."


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an action asks first. ``sentence`` is plain words for the card."""

    sentence: str


def raised_effect(effect: Effect, arguments: Mapping[str, JsonValue]) -> Effect:
    """The effect of a call with these arguments: never milder than the action's own."""
    if effect.idempotency_key is not None and not arguments.get(effect.idempotency_key):
        effect = msgspec.structs.replace(effect, idempotent=False)
    applying = [found for found in effect.raises if found.applies(arguments)]
    if not applying:
        return effect
    gravest = max(applying, key=lambda found: GRAVITY.index(found.to))
    kind = max(effect.effect, gravest.to, key=GRAVITY.index)
    because = gravest.because if kind == gravest.to else effect.because
    return msgspec.structs.replace(effect, effect=kind, reversible=False, idempotent=False, because=because)


def has_documented_pattern(action: str) -> bool:
    """Whether the name contains one of the documented patterns (contract §6)."""
    return any(pattern in action for pattern in (*DELETING_PATTERNS, *QUERY_PATTERNS))


def asks_first(
    policy: ApprovalPolicy, integration: str, action: str, arguments: Mapping[str, JsonValue], effect: Effect
) -> Reason | None:
    """Why a person is asked before this call runs; None where it runs at once.

    ``documented`` goes by the name alone. ``catalog`` adds the reviewed catastrophic kinds, and what
    was not reviewed; ``guarded`` is the same here, its rule for tainted runs being the tools'.
    ``strict`` asks for everything but a known read.
    """
    raised = raised_effect(effect, arguments)
    said = _sentence(raised) if raised.known else f"Parley has not reviewed {integration}.{action} as it is now."
    if has_documented_pattern(action):
        return Reason(f"{said} {ASKED_BY_NAME}")
    match policy:
        case "documented":
            return None
        case "catalog" | "guarded":
            return Reason(said) if raised.effect in CATASTROPHIC else None
        case "strict":
            if raised.known and raised.effect == "read":
                return None
            return Reason(f"{said} Here, every change asks first.")


def _sentence(effect: Effect) -> str:
    if effect.because:
        return f"It would {effect.because}."
    said = f"It {WORDS[effect.effect]}."
    final = effect.overwrites or effect.effect in ("destructive", "money", "egress")
    return f"{said} This cannot be taken back." if final and not effect.reversible else said
