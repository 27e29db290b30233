"""Credentials of organizations: sealed at rest, resolved, tested, connected with OAuth, kept fresh."""

from parley.credentials.credentials import Credentials, Group, NewCredential
from parley.credentials.grants import TokenEndpoint
from parley.credentials.model import Credential, Flow, OAuthFailure, Secrets, Source, Usable, nobody
from parley.credentials.oauth import Ended, Listeners, OAuth, Return, SignIn
from parley.credentials.offers import Offers
from parley.credentials.probe import Prober
from parley.credentials.refresh import Refresher
from parley.credentials.rotation import Rotated, rotate, seals
from parley.credentials.store import count as count_credentials
from parley.credentials.vault import Vault

__all__ = [
    "Credential",
    "Credentials",
    "Ended",
    "Flow",
    "Group",
    "Listeners",
    "NewCredential",
    "OAuth",
    "OAuthFailure",
    "Offers",
    "Prober",
    "Refresher",
    "Return",
    "Rotated",
    "Secrets",
    "SignIn",
    "Source",
    "TokenEndpoint",
    "Usable",
    "Vault",
    "count_credentials",
    "nobody",
    "rotate",
    "seals",
]
