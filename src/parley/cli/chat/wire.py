"""What the server sends, as far as the terminal looks at it."""

from typing import Any

import msgspec


class Llm(msgspec.Struct, frozen=True):
    """Which model to use (contract §2.1)."""

    integration_name: str
    provider_id: str
    model_id: str
    credential_id: str | None = None

    @property
    def title(self) -> str:
        """How people name it."""
        return f"{self.integration_name}/{self.model_id}"


class OfferedModel(msgspec.Struct, frozen=True):
    """A model the organization can use now."""

    id: str
    display_name: str
    integration_name: str
    integration_display_name: str
    description: str = ""


class Organization(msgspec.Struct, frozen=True):
    """An organization the key acts in."""

    id: str
    name: str
    role: str
    is_default: bool = False


class Running(msgspec.Struct, frozen=True):
    """A turn that has begun or goes on."""

    chat_id: str
    run_id: str


class Message(msgspec.Struct, frozen=True):
    """What a person or the Assistant said."""

    role: str
    content: str
    running_status: str | None = None


class Chat(msgspec.Struct, frozen=True):
    """A chat with what was said in it. ``pending_user_input_request`` is its open question."""

    id: str
    title: str
    running_id: str | None
    pending_user_input_request: dict[str, Any] | None
    messages: list[Message]


class Credential(msgspec.Struct, frozen=True):
    """A credential without its secret."""

    credential_id: str
    display_name: str
    auth_type: str


class Tested(msgspec.Struct, frozen=True):
    """What came of trying a credential."""

    is_valid: bool
    message: str


class SignIn(msgspec.Struct, frozen=True):
    """Where a browser signs in. ``redirect_uri`` is what the OAuth app must allow."""

    authorization_url: str
    redirect_uri: str = ""
