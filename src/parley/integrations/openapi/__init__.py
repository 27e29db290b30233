"""APIs that an organization imported from an OpenAPI document: reading it, and sending one request."""

from parley.integrations.openapi.calling import call
from parley.integrations.openapi.document import MOST_BYTES, Unreadable
from parley.integrations.openapi.model import (
    OPENAPI,
    Description,
    Reached,
    Request,
    Scheme,
    Way,
    effect_of_own,
    integration_of,
    proposed_effect,
    reached_of,
    request_of,
)
from parley.integrations.openapi.reading import Wanted, known_names, read_api
from parley.integrations.openapi.sending import Presented

__all__ = [
    "MOST_BYTES",
    "OPENAPI",
    "Description",
    "Presented",
    "Reached",
    "Request",
    "Scheme",
    "Unreadable",
    "Wanted",
    "Way",
    "call",
    "effect_of_own",
    "integration_of",
    "known_names",
    "proposed_effect",
    "reached_of",
    "read_api",
    "request_of",
]
