"""What credentials are: rows without their secret, and the secret once it is open."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from parley.base.ids import new_id
from parley.turn.model import JsonObject, JsonValue

type OAuthFailure = Literal["oauth_denied", "oauth_provider_error", "network_error", "timeout", "unknown"]

OAUTH = "oauth2"
MANAGED = "modulex_key"
NO_CREDENTIAL = "none"


class Secrets(Mapping[str, JsonValue]):
    """Named secret values that never show themselves: ``repr`` and ``str`` tell the names only."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, JsonValue] | None = None) -> None:
        self._values: dict[str, JsonValue] = dict(values or {})

    def __getitem__(self, name: str) -> JsonValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(f'{name}=…' for name in self._values)})"

    def text(self, name: str) -> str:
        """The value as text without surrounding blanks; empty when it is missing."""
        value = self._values.get(name)
        return "" if value is None else str(value).strip()


@dataclass(frozen=True, slots=True)
class App:
    """An OAuth client: an organization's own, or the operator's pooled one."""

    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Opened:
    """What a credential seals. ``app`` is the organization's own OAuth app, None for the pooled one."""

    auth_data: Secrets
    app: App | None = None


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential as anyone of its organization may see it. Times are µs."""

    credential_id: str
    organization_id: str
    integration_name: str
    integration_type: str
    display_name: str
    auth_type: str
    masked: str
    is_default: bool
    is_valid: bool
    metadata: JsonObject
    version: int
    created_by: str
    created_at: int
    updated_at: int
    last_used_at: int | None
    expires_at: int | None

    @property
    def managed(self) -> bool:
        """Whether the operator's pooled key stands behind it, so that calls cost credits."""
        return self.auth_type == MANAGED


@dataclass(frozen=True, slots=True)
class Box:
    """The sealed bytes of a credential and the key that opens them."""

    sealed: bytes = field(repr=False)
    key_id: str


@dataclass(frozen=True, slots=True)
class Stored:
    """One whole row."""

    credential: Credential
    box: Box
    refresh_until: int | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A checked credential that is not stored yet; ``secret`` is the value its hint is made of."""

    organization_id: str
    user_id: str
    integration_name: str
    integration_type: str
    auth_type: str
    display_name: str
    opened: Opened
    secret: str = field(repr=False)
    metadata: JsonObject = field(default_factory=dict[str, JsonValue])
    make_default: bool = False
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class Usable:
    """An open credential, ready for an action or a model call.

    ``credential_id`` is None for a public service that needs no credential at all. ``auth_data``
    holds every name under which an integration may look for a value.
    """

    credential_id: str | None
    organization_id: str
    integration_name: str
    auth_type: str
    auth_data: Secrets
    managed: bool
    display_name: str
    is_valid: bool = True
    expires_at: int | None = None
    version: int = 0


def nobody(organization_id: str, integration_name: str, display_name: str) -> Usable:
    """What stands for a credential where a service is asked without any."""
    return Usable(None, organization_id, integration_name, NO_CREDENTIAL, Secrets(), False, display_name)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a change came from, for the audit."""

    ip_address: str | None = None
    user_agent: str | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of a credential's audit; ``changes`` never holds a secret."""

    credential_id: str
    event_type: str
    created_at: int
    user_id: str | None = None
    source: Source = Source()
    changes: JsonObject = field(default_factory=dict[str, JsonValue])
    entry_id: str = field(default_factory=new_id)


@dataclass(frozen=True, slots=True)
class Usage:
    """The calls made with one credential in a period."""

    total_calls: int
    successful_calls: int
    action_breakdown: Mapping[str, int]

    @property
    def failed_calls(self) -> int:
        return self.total_calls - self.successful_calls

    @property
    def success_rate(self) -> float:
        """Between 0 and 1; 0 where nothing was called."""
        return self.successful_calls / self.total_calls if self.total_calls else 0.0


# ── OAuth flows ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Flow:
    """What one OAuth sign-in is bound to; the state in the provider's redirect stands for all of it.

    ``llm`` is the model config with which a waiting chat is to go on.
    """

    organization_id: str
    user_id: str
    integration_name: str
    redirect_uri: str
    chat_id: str | None = None
    request_id: str | None = None
    llm: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What the sign-in is to end in, and what proves it; sealed while the person is away.

    ``app`` is the organization's own, None for the pooled one; ``verifier`` is PKCE's, None where it
    is off; ``browser`` is the hash of the cookie of the browser that began, None where there was none.
    """

    app: App | None
    verifier: str | None = field(repr=False)
    scope: str
    display_name: str
    make_default: bool
    values: Secrets
    browser: bytes | None = None


@dataclass(frozen=True, slots=True)
class SealedFlow:
    """A flow's row: found by the hash of its state, its wish sealed. Times are µs."""

    flow: Flow
    state_hash: bytes
    box: Box
    created_at: int
    expires_at: int
