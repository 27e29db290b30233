"""Asking before an action runs: the card, its binding, and whether an answer still fits (contract §5.4, §6)."""

import hashlib
import re

import msgspec

from parley.base.ids import new_id
from parley.credentials import Usable
from parley.integrations import Action, Integration
from parley.integrations.effects import Effect
from parley.tools.ask import APPROVAL
from parley.turn.model import Asked, JsonObject, JsonValue, Question
from parley.turn.text import NOT_JSON, as_text

MASK = "••••••"
SECRET_NAME = re.compile(
    r"passw|passphrase|passcode|(^|_)pwd$|secret|token|credential|authorization|bearer|(^|_)cookies?$|(^|_)(pin|cvv|cvc|otp)$"
    r"|(api|access|private|signing|encryption|master|service|account|license)[ _-]?key",
    re.IGNORECASE,
)
NAME_WORDS = ("name", "key")
VALUE_WORDS = ("value", "content")
# Names that look secret and are not (trust §2.2).
PLAIN_NAMES = frozenset(
    {
        "page_token",
        "next_token",
        "sync_token",
        "request_sync_token",
        "sequence_token",
        "token_type",
        "max_tokens",
        "budget_tokens",
        "return_tokens",
        "tokenizer",
        "download_access_token",
    }
)


def masked(value: JsonValue) -> JsonValue:
    """A copy with the values of secret-looking keys hidden, at any depth.

    Also where the name stands beside the value, as in ``{"key": "API_KEY", "value": …}``, and inside
    a text that is a JSON document.
    """
    match value:
        case dict():
            beside = [value.get(word) for word in NAME_WORDS]
            hidden = VALUE_WORDS if any(isinstance(name, str) and looks_secret(name) for name in beside) else ()
            return {
                key: MASK if item is not None and (looks_secret(key) or key in hidden) else masked(item)
                for key, item in value.items()
            }
        case list():
            return [masked(item) for item in value]
        case str() if value.lstrip().startswith(("{", "[")):
            return _masked_document(value)
        case _:
            return value


def _masked_document(text: str) -> str:
    try:
        document: JsonValue = msgspec.json.decode(text)
        shown = masked(document)
        return text if shown == document else as_text(shown)
    except RecursionError:
        return MASK  # nobody could look for a secret in it
    except NOT_JSON:
        return text


def looks_secret(name: str) -> bool:
    """Whether a parameter's name says that its value is a secret."""
    return name not in PLAIN_NAMES and SECRET_NAME.search(name) is not None


def arguments_digest(integration_name: str, action_name: str, arguments: JsonObject, credential_id: str | None) -> str:
    """SHA-256 of exactly what would run, under which account: what an approval is bound to."""
    canonical = msgspec.json.encode([integration_name, action_name, arguments, credential_id], order="deterministic")
    return hashlib.sha256(canonical).hexdigest()


def approval_question(
    integration: Integration,
    action: Action,
    arguments: JsonObject,
    account: Usable | None,
    effect: Effect,
    reason: str,
    *,
    version: str,
) -> Asked:
    """The card: what would run, as whom, with every parameter; secrets masked. ``version`` is the action's."""
    request_id = new_id()
    credential_id = account.credential_id if account else None
    digest = arguments_digest(integration.name, action.name, arguments, credential_id)
    verb = action.name.replace("_", " ")
    payload: JsonObject = {
        "kind": "yes_no",
        "request_id": request_id,
        "message": f"Run **{integration.display_name} · {verb}**? {reason}",
        "required": True,
        "allow_free_text": False,
        "context": {
            "type": APPROVAL,
            "integration_name": integration.name,
            "integration_display_name": integration.display_name,
            "action_name": action.name,
            "account": account.display_name if account else None,
            "reason": reason,
            "effect": effect.effect,
            "irreversible": not effect.reversible,
            "parameters": masked(arguments),
            "arguments_digest": digest,
        },
        "timeout_hint_seconds": None,
        "yes_label": verb[:1].upper() + verb[1:],
        "no_label": "Do not run",
    }
    binding: JsonObject = {
        "integration_name": integration.name,
        "action_name": action.name,
        "arguments": arguments,
        "credential_id": credential_id,
        "digest": digest,
        "version": version,
    }
    return Asked(Question(request_id, "yes_no", payload, binding))


def still_fits(binding: JsonObject, arguments: JsonObject, version: str) -> bool:
    """Whether an approval is for exactly this (no change between the answer and the run)."""
    credential_id = binding.get("credential_id")
    digest = arguments_digest(
        str(binding.get("integration_name")),
        str(binding.get("action_name")),
        arguments,
        str(credential_id) if credential_id is not None else None,
    )
    # A question that was asked before versions were kept is one for the version of then, whatever it was.
    return digest == binding.get("digest") and binding.get("version", version) == version
