"""Sealing and opening what a credential keeps secret, and the hint that may be shown of it (trust T9)."""

from dataclasses import replace
from typing import Any

import msgspec

from parley.base.errors import Unavailable
from parley.base.ids import new_id
from parley.credentials.model import (
    MANAGED,
    OAUTH,
    App,
    Box,
    Credential,
    Draft,
    Flow,
    Opened,
    SealedFlow,
    Secrets,
    Stored,
    Wish,
)
from parley.keyring import Keyring, SealBroken

SHOWN_AT_MOST = 12
TAIL = 3


class CannotOpen(Unavailable):
    """A stored credential cannot be opened with this server's master keys."""


class FlowBroken(Unavailable):
    """The sign-in cannot be completed on this server. Start it again."""


class _Hidden(msgspec.Struct):
    """A struct of secrets: a traceback that shows variables shows only its name."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class _Plain(_Hidden):
    auth_data: dict[str, Any]  # msgspec cannot follow the recursive JsonValue
    client_id: str | None = None
    client_secret: str | None = None


class _PlainWish(_Hidden):
    client_id: str | None
    client_secret: str | None
    verifier: str | None
    scope: str
    display_name: str
    make_default: bool
    values: dict[str, Any]
    browser: bytes | None
    llm: dict[str, Any] | None


class Vault:
    """The only place that turns credentials into sealed bytes and back."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def seal(self, opened: Opened, credential: Credential) -> Box:
        """The sealed bytes, bound to the credential's organization and row."""
        app = opened.app
        plain = _Plain(dict(opened.auth_data), app and app.client_id, app and app.client_secret)
        return Box(*self._keyring.seal(msgspec.json.encode(plain), context=_context(credential)))

    def sealed(self, draft: Draft, now: int) -> Stored:
        """The row of a new credential, not yet anyone's default."""
        credential = Credential(
            credential_id=new_id(),
            organization_id=draft.organization_id,
            integration_name=draft.integration_name,
            integration_type=draft.integration_type,
            display_name=draft.display_name,
            auth_type=draft.auth_type,
            masked=mask(draft.auth_type, draft.secret),
            is_default=False,
            is_valid=True,
            metadata=draft.metadata,
            version=1,
            created_by=draft.user_id,
            created_at=now,
            updated_at=now,
            last_used_at=None,
            expires_at=draft.expires_at,
        )
        return Stored(credential, self.seal(draft.opened, credential))

    def open(self, stored: Stored) -> Opened:
        """What the row seals.

        Raises CannotOpen, naming the credential, when a key is missing or the bytes belong elsewhere.
        """
        credential = stored.credential
        try:
            raw = self._keyring.open(stored.box.sealed, key_id=stored.box.key_id, context=_context(credential))
        except SealBroken as error:
            raise CannotOpen(
                f"The credential '{credential.display_name}' of {credential.integration_name} cannot be opened. "
                f"{error} Delete it and connect it again, or ask your operator to restore the key."
            ) from None
        plain = msgspec.json.decode(raw, type=_Plain)
        app = App(plain.client_id, plain.client_secret or "") if plain.client_id else None
        return Opened(Secrets(plain.auth_data), app)

    def seal_flow(self, flow: Flow, wish: Wish, state_hash: bytes) -> Box:
        """The sealed wish of an OAuth flow, bound to its organization and state."""
        app = wish.app
        plain = _PlainWish(
            client_id=app and app.client_id,
            client_secret=app and app.client_secret,
            verifier=wish.verifier,
            scope=wish.scope,
            display_name=wish.display_name,
            make_default=wish.make_default,
            values=dict(wish.values),
            browser=wish.browser,
            llm=flow.llm,
        )
        return Box(*self._keyring.seal(msgspec.json.encode(plain), context=_flow_context(flow, state_hash)))

    def open_flow(self, sealed: SealedFlow) -> tuple[Flow, Wish]:
        """The whole flow and its wish. Raises FlowBroken when the key is gone or the bytes belong elsewhere."""
        context = _flow_context(sealed.flow, sealed.state_hash)
        try:
            raw = self._keyring.open(sealed.box.sealed, key_id=sealed.box.key_id, context=context)
        except SealBroken:
            raise FlowBroken from None
        plain = msgspec.json.decode(raw, type=_PlainWish)
        wish = Wish(
            app=App(plain.client_id, plain.client_secret or "") if plain.client_id else None,
            verifier=plain.verifier,
            scope=plain.scope,
            display_name=plain.display_name,
            make_default=plain.make_default,
            values=Secrets(plain.values),
            browser=plain.browser,
        )
        return replace(sealed.flow, llm=plain.llm), wish


def mask(auth_type: str, secret: str) -> str:
    """A hint such as ``sk-proj12...xyz`` that tells two keys apart (contract §7).

    At most a quarter of the secret, and never more than twelve characters of it, is shown.
    """
    if auth_type == OAUTH:
        return "OAuth2"
    if auth_type == MANAGED:
        return "Managed"
    visible = "".join(character if character.isprintable() else " " for character in secret)
    shown = min(SHOWN_AT_MOST, len(visible) // 4)
    tail = min(TAIL, shown // 3)
    head = shown - tail
    return f"{visible[:head]}...{visible[len(visible) - tail :]}" if head else "..."


def credential_context(organization_id: str, credential_id: str) -> str:
    """What the seal of a credential is bound to."""
    return f"credentials|{organization_id}|{credential_id}|auth_data"


def flow_context(organization_id: str, state_hash: bytes) -> str:
    """What the seal of an OAuth flow is bound to."""
    return f"oauth_states|{organization_id}|{state_hash.hex()}|sealed"


def _context(credential: Credential) -> str:
    return credential_context(credential.organization_id, credential.credential_id)


def _flow_context(flow: Flow, state_hash: bytes) -> str:
    return flow_context(flow.organization_id, state_hash)
