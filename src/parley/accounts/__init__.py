"""People, organizations, owner and admin, API keys, sessions, the audit log."""

from parley.accounts.callers import caller_in, owner_in
from parley.accounts.first_start import FirstStart, first_start
from parley.accounts.invitations import Invited
from parley.accounts.keys import PEPPER, NoSuchAccount, mask, secret_context
from parley.accounts.limits import RateReached, refuse_over
from parley.accounts.model import (
    ApiKey,
    AuditEntry,
    Caller,
    Invitation,
    LlmChoice,
    Membership,
    Organization,
    OrganizationSettings,
    Pass,
    User,
)
from parley.accounts.opening import Accounts, open_accounts
from parley.accounts.organizations import chat_retentions, settings_of
from parley.accounts.sessions import OpenSession
from parley.accounts.store import all_organizations, emails, record

__all__ = [
    "PEPPER",
    "Accounts",
    "ApiKey",
    "AuditEntry",
    "Caller",
    "FirstStart",
    "Invitation",
    "Invited",
    "LlmChoice",
    "Membership",
    "NoSuchAccount",
    "OpenSession",
    "Organization",
    "OrganizationSettings",
    "Pass",
    "RateReached",
    "User",
    "all_organizations",
    "caller_in",
    "chat_retentions",
    "emails",
    "first_start",
    "mask",
    "open_accounts",
    "owner_in",
    "record",
    "refuse_over",
    "secret_context",
    "settings_of",
]
