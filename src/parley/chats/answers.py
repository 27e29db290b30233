"""Which answer fits which question (contract §5.2, §5.3)."""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from parley.base.errors import BadRequest, Refusal
from parley.turn.model import JsonObject

type ErrorCode = Literal[
    "oauth_denied",
    "oauth_provider_error",
    "invalid_credentials",
    "network_error",
    "popup_closed",
    "timeout",
    "unknown",
]


# Every answer becomes part of the conversation that the model reads; a message is held to the same.
ANSWER_BYTES = 100_000


class AnswerRefused(BadRequest):
    """The answer does not fit the question."""


class SingleChoice(msgspec.Struct, tag_field="kind", tag="single_choice", frozen=True):
    """One of the options, or other words where the question allows them."""

    selected_value: str | None = None
    free_text: str | None = None


class MultiChoice(msgspec.Struct, tag_field="kind", tag="multi_choice", frozen=True):
    """Any number of the options."""

    selected_values: list[str]


class YesNo(msgspec.Struct, tag_field="kind", tag="yes_no", frozen=True):
    """Yes or no; also the answer to an approval."""

    answer: bool


class FreeText(msgspec.Struct, tag_field="kind", tag="free_text", frozen=True):
    """Words."""

    text: str


class CredentialAdded(msgspec.Struct, tag_field="kind", tag="credential_added", frozen=True):
    """The integration is connected."""

    credential_id: str
    integration_name: str
    auth_type: str


class CredentialFailed(msgspec.Struct, tag_field="kind", tag="credential_failed", frozen=True):
    """The integration could not be connected."""

    integration_name: str
    auth_type: str
    error_code: ErrorCode
    error_message: str
    retryable: bool = True
    provider_details: dict[str, Any] | None = None


class Skipped(msgspec.Struct, tag_field="kind", tag="skipped", frozen=True):
    """The person leaves the question open; only where it is not required."""

    reason: str | None = None


type AnswerForm = SingleChoice | MultiChoice | YesNo | FreeText | CredentialAdded | CredentialFailed | Skipped

OUTCOMES: dict[type[Any], str] = {
    Skipped: "skipped",
    CredentialAdded: "credential_added",
    CredentialFailed: "credential_failed",
}


class AnswerMalformed(Refusal):
    """The answer is of no known kind, or a field of it is missing or of the wrong type."""

    status = 422


def parse_answer(response: JsonObject) -> AnswerForm:
    """The answer in a request's ``response``. Raises AnswerMalformed."""
    try:
        return msgspec.convert(response, AnswerForm.__value__)
    except msgspec.ValidationError as error:
        raise AnswerMalformed(f"response: {error}") from None


@dataclass(frozen=True, slots=True)
class Checked:
    """An answer that fits: what is stored, and the audit's outcome (contract §17 row 4)."""

    response: JsonObject
    outcome: str


def check_answer(request: JsonObject, answer: AnswerForm) -> Checked:
    """Hold an answer against its question. Raises AnswerRefused, saying what would fit."""
    kind = str(request["kind"])
    if isinstance(answer, Skipped):
        if request.get("required", True):
            raise AnswerRefused("This question must be answered; it cannot be skipped.")
    else:
        _check_kind(kind, answer)
        _check_value(request, answer)
    if len(msgspec.json.encode(answer)) > ANSWER_BYTES:
        raise AnswerRefused(f"The answer is longer than {ANSWER_BYTES:,} bytes. Say it in fewer words.")
    response = msgspec.to_builtins(answer)
    return Checked(response, OUTCOMES.get(type(answer), "answered"))


def _check_kind(kind: str, answer: AnswerForm) -> None:
    fits: dict[str, tuple[type[Any], ...]] = {
        "single_choice": (SingleChoice,),
        "multi_choice": (MultiChoice,),
        "yes_no": (YesNo,),
        "free_text": (FreeText,),
        "credential_request": (CredentialAdded, CredentialFailed),
    }
    allowed = fits[kind]
    if not isinstance(answer, allowed):
        names = " or ".join(str(form.__struct_config__.tag) for form in allowed)
        raise AnswerRefused(f"A {kind} question takes an answer of kind {names}.")


def _check_value(request: JsonObject, answer: AnswerForm) -> None:
    match answer:
        case SingleChoice():
            _check_single(request, answer)
        case MultiChoice(values):
            _check_multi(request, values)
        case FreeText(text):
            _check_text(request, text)
        case CredentialAdded() | CredentialFailed():
            if answer.integration_name != request["integration_name"]:
                raise AnswerRefused(f"The question is about {request['integration_name']}.")
        case YesNo() | Skipped():
            pass


def _options(request: JsonObject) -> list[str]:
    options = request["options"]
    if not isinstance(options, list):
        raise TypeError("a choice is stored with its options")
    return [str(option["value"]) for option in options if isinstance(option, dict)]


def _check_single(request: JsonObject, answer: SingleChoice) -> None:
    if (answer.selected_value is None) == (answer.free_text is None):
        raise AnswerRefused("Give either selected_value or free_text.")
    if answer.free_text is not None:
        if not request.get("allow_free_text", False):
            raise AnswerRefused("This question takes one of its options, not free text.")
        if not answer.free_text.strip():
            raise AnswerRefused("free_text is empty.")
    elif answer.selected_value not in _options(request):
        raise AnswerRefused("selected_value is not one of the options.")


def _check_multi(request: JsonObject, values: list[str]) -> None:
    if len(set(values)) != len(values):
        raise AnswerRefused("selected_values has the same value twice.")
    if not set(values) <= set(_options(request)):
        raise AnswerRefused("selected_values has a value that is not one of the options.")
    least, most = request.get("min_selections") or 0, request.get("max_selections")
    if isinstance(least, int) and len(values) < least:
        raise AnswerRefused(f"Select at least {least}.")
    if isinstance(most, int) and len(values) > most:
        raise AnswerRefused(f"Select at most {most}.")


def _check_text(request: JsonObject, text: str) -> None:
    least, most = request.get("min_length") or 0, request.get("max_length")
    if isinstance(least, int) and len(text) < least:
        raise AnswerRefused(f"Write at least {least} characters.")
    if isinstance(most, int) and len(text) > most:
        raise AnswerRefused(f"Write at most {most} characters.")
