"""The nouns of accounts: plain immutable values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from parley.base.settings import ApprovalPolicy
from parley.storage import ReadTx
from parley.turn.model import JsonObject

type Role = Literal["owner", "admin"]
type InvitationStatus = Literal["pending", "accepted", "rejected", "cancelled", "expired"]
type AuditCategory = Literal["CREDENTIALS", "MEMBERSHIP", "ORGANIZATION"]

type Seats = Callable[[ReadTx, str], int | None]
"""How many people an organization may have, by its id; None where there is no ceiling."""


@dataclass(frozen=True, slots=True)
class User:
    """A person behind a request, and what this key or session lets them do.

    ``roles`` maps the organizations they may act in to their role there. A key that is locked to one
    organization (``locked_to``) leaves at most that one. ``api_key_id`` is None for a session that
    was not opened with a key.
    """

    id: str
    email: str
    username: str
    platform_role: str
    is_active: bool
    primary_organization_id: str | None
    roles: Mapping[str, Role]
    api_key_id: str | None = None
    locked_to: str | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """A person acting in one organization, with the role they have there."""

    user_id: str
    email: str
    username: str
    organization_id: str
    role: Role
    api_key_id: str | None


@dataclass(frozen=True, slots=True)
class Pass:
    """What an API key or a session stands for, as the store has it.

    ``id`` is the key's id or the session's token hash. ``rate_limit`` is requests a minute, None for
    a session. ``good_until`` and ``used_at`` are times; None where there is no end or no use yet.
    """

    user: User
    id: str | bytes
    rate_limit: int | None
    good_until: int | None
    used_at: int | None


@dataclass(frozen=True, slots=True)
class Organization:
    """An organization. ``slug`` is unique in the installation."""

    id: str
    name: str
    slug: str
    domain: str | None
    is_active: bool
    created_at: int


@dataclass(frozen=True, slots=True)
class Membership:
    """That a person belongs to an organization."""

    organization: Organization
    role: Role
    joined_at: int


@dataclass(frozen=True, slots=True)
class Account:
    """A person's row, as signing in needs it."""

    id: str
    email: str
    username: str
    is_active: bool
    password_hash: str | None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without its text, which is shown once and never stored."""

    id: str
    user_id: str
    name: str
    masked_key: str
    organization_id: str | None
    rate_limit_per_minute: int
    expires_at: int | None
    last_used_at: int | None
    created_at: int
    revoked_at: int | None


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation of one e-mail address into one organization."""

    id: str
    organization: Organization
    email: str
    role: Role
    status: InvitationStatus
    message: str | None
    invited_by_id: str
    invited_by_email: str
    invited_by_username: str
    created_at: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class NewInvitation:
    """What an invitation is made of."""

    id: str
    organization_id: str
    email: str
    role: Role
    message: str | None
    invited_by: str
    created_at: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of an organization's audit log."""

    organization_id: str
    user_id: str | None
    category: AuditCategory
    operation: str
    message: str
    detail: JsonObject
    at: int


@dataclass(frozen=True, slots=True)
class VisibleModel:
    """A model that an organization chose to show."""

    id: str
    display_name: str | None = None


@dataclass(frozen=True, slots=True)
class LlmChoice:
    """A model and where it is reached (contract §2.1)."""

    integration_name: str
    provider_id: str
    model_id: str
    credential_id: str | None = None


@dataclass(frozen=True, slots=True)
class OrganizationSettings:
    """An organization's preferences for models (contract §1.3).

    ``visible`` maps an integration to its shown models; an integration that is absent shows all.
    ``default_llm`` serves both the Assistant and the Composer. ``fallback_llm`` takes a turn over when
    the provider of its model is down. ``approval_policy`` counts only where it is stricter than the
    operator's. ``chat_retention_days`` after its last word a chat is erased; None keeps all.
    """

    visible: Mapping[str, Sequence[VisibleModel]]
    default_llm: LlmChoice | None
    approval_policy: ApprovalPolicy | None = None
    fallback_llm: LlmChoice | None = None
    chat_retention_days: int | None = None
