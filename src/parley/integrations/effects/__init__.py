"""What actions do to the world: the reviewed table, when a person is asked, what is never passed on."""

from parley.integrations.effects.dangers import refuse_dangerous
from parley.integrations.effects.policy import Reason, asks_first, has_documented_pattern, raised_effect
from parley.integrations.effects.raising import EffectKind
from parley.integrations.effects.table import Effect, all_effects, effect_of, schema_hash

__all__ = [
    "Effect",
    "EffectKind",
    "Reason",
    "all_effects",
    "asks_first",
    "effect_of",
    "has_documented_pattern",
    "raised_effect",
    "refuse_dangerous",
    "schema_hash",
]
