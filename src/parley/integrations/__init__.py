"""The catalog of integrations, and invoking one action."""

from parley.integrations.arguments import PLAIN_FIELDS, Secret, model_arguments, secret_values, shown_fields, texts_of
from parley.integrations.catalog import Catalog, load_catalog
from parley.integrations.discover import available, details
from parley.integrations.index import (
    Action,
    AuthSchema,
    CredentialField,
    Integration,
    OAuthConfig,
    Probe,
)
from parley.integrations.invoke import invoke
from parley.integrations.logos import monogram
from parley.integrations.results import ActionFailed, Invoked, Scrubber

__all__ = [
    "PLAIN_FIELDS",
    "Action",
    "ActionFailed",
    "AuthSchema",
    "Catalog",
    "CredentialField",
    "Integration",
    "Invoked",
    "OAuthConfig",
    "Probe",
    "Scrubber",
    "Secret",
    "available",
    "details",
    "invoke",
    "load_catalog",
    "model_arguments",
    "monogram",
    "secret_values",
    "shown_fields",
    "texts_of",
]
