"""Integrations that an organization brought itself: what they are, their rows, and the cleaning of foreign texts."""

from parley.integrations.own.discover import own_available, own_details
from parley.integrations.own.model import (
    MCP,
    ActionCount,
    Changes,
    FoundAction,
    OwnAction,
    OwnIntegration,
    Review,
    changes_between,
)
from parley.integrations.own.schemas import TooComplex, parameters_of
from parley.integrations.own.texts import clean_text, is_clean, plain_name

__all__ = [
    "MCP",
    "ActionCount",
    "Changes",
    "FoundAction",
    "OwnAction",
    "OwnIntegration",
    "Review",
    "TooComplex",
    "changes_between",
    "clean_text",
    "is_clean",
    "own_available",
    "own_details",
    "parameters_of",
    "plain_name",
]
