"""What a provider's refusal means, and the sentence people see for it.

Nothing that a provider wrote reaches people or logs except its short error code; its text may quote
keys and prompts.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from parley.llm.providers import Endpoint
from parley.turn.model import ModelError, ModelErrorKind
from parley.turn.text import NOT_JSON

RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504, *range(520, 530)})

_STATUS_OF_CODE = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "context_length_exceeded": 413,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "server_error": 500,
    "service_unavailable": 503,
    "timeout_error": 504,
    "overloaded_error": 529,
}

_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|limit)|prompt is too long|too large for model|maximum (prompt|context) length"
    r"|exceeds? the maximum number of (input )?tokens|reduce the length|exceed context|input is too long",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Za-z0-9_.\-]{1,60}")


@dataclass(frozen=True, slots=True)
class Problem:
    """What a provider says is wrong. ``codes`` are its short words for it; ``text`` is only for matching."""

    status: int
    codes: tuple[str, ...] = ()
    text: str = ""

    @property
    def code(self) -> str:
        """The most telling code that is fit to be shown, or an empty text."""
        return next((code for code in self.codes if _CODE.fullmatch(code) and not code.isdigit()), "")

    @property
    def out_of_credit(self) -> bool:
        """Whether the account must be topped up, which some report as a rate limit."""
        return self.status == 402 or "insufficient_quota" in self.codes

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status in RETRYABLE and not self.out_of_credit


class ParameterRefused(ModelError):
    """The provider does not know an optional parameter; the request is worth repeating without it."""

    def __init__(self, parameter: str, error: ModelError) -> None:
        self.parameter = parameter
        super().__init__(error.kind, error.public)


def read_problem(status: int, body: bytes) -> Problem:
    """A refusal from its status and body, in any of the shapes that providers use."""
    try:
        value = msgspec.json.decode(body)
    except NOT_JSON:
        return Problem(status, text=body[:2000].decode(errors="replace"))
    return problem_of(value, status=status)


def problem_of(value: object, *, status: int = 0) -> Problem:
    """A refusal from decoded JSON; without a ``status`` it is taken from the code."""
    if isinstance(value, list) and value:
        value = value[0]
    inner = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(inner, dict):
        return Problem(status or 500, text=str(inner)[:2000])
    codes = tuple(str(inner[name]) for name in ("code", "type", "status", "param") if inner.get(name))
    text = str(inner.get("message") or inner.get("detail") or "")[:2000]
    return Problem(status or _status_of(codes), codes, text)


def error_for(problem: Problem, endpoint: Endpoint, model: str, optional: Collection[str] = ()) -> ModelError:
    """The error to raise. ``optional`` names the parameters that the request can do without.

    Returns ParameterRefused where the provider complains of one of those.
    """
    kind, public = _verdict(problem, endpoint, model)
    error = ModelError(kind, public)
    if kind == "request" and problem.status in (400, 422):
        for parameter in optional:
            if parameter in problem.text or parameter in problem.codes:
                return ParameterRefused(parameter, error)
    return error


def unreachable(endpoint: Endpoint) -> ModelError:
    """No connection could be made, or it was lost before anything came."""
    name = endpoint.provider.display_name
    return ModelError(
        "down",
        f"{name} could not be reached. Try again in a minute; if it goes on, check the base URL and the network.",
    )


def insecure(endpoint: Endpoint) -> ModelError:
    """The server's certificate is not trusted."""
    name = endpoint.provider.display_name
    return ModelError(
        "down",
        f"The secure connection to {name} failed: its certificate is not trusted. "
        "Check the base URL, or have the operator add the certificate authority to SSL_CERT_FILE.",
    )


def bad_address(endpoint: Endpoint) -> ModelError:
    """The base URL does not lead to a model server."""
    return ModelError(
        "request",
        f"The base URL for {endpoint.provider.display_name} does not lead to a model server. "
        f"Correct it in {endpoint.key_name}.",
    )


def silent(endpoint: Endpoint, seconds: float) -> ModelError:
    """Nothing came for too long."""
    return ModelError(
        "down",
        f"{endpoint.provider.display_name} sent nothing for {seconds:g} seconds. "
        "Send the message again, or choose another model.",
    )


def broken_off(endpoint: Endpoint) -> ModelError:
    """The stream ended in the middle."""
    return ModelError(
        "down",
        f"The answer from {endpoint.provider.display_name} broke off. Send the message again to go on.",
    )


def garbled(endpoint: Endpoint) -> ModelError:
    """What came is not the format that was asked for."""
    return ModelError(
        "garbled",
        f"{endpoint.provider.display_name} sent an answer that cannot be read. "
        "Try again; if it goes on, choose another model or check the base URL.",
    )


def oversized(endpoint: Endpoint) -> ModelError:
    """More came than any honest reply has."""
    return ModelError(
        "garbled",
        f"The answer from {endpoint.provider.display_name} was longer than Parley accepts and was stopped. "
        "Ask for a shorter one, or choose another model.",
    )


def declined(endpoint: Endpoint) -> ModelError:
    """The provider's safety filter stopped the reply."""
    return ModelError(
        "request",
        f"{endpoint.provider.display_name} declined to answer this. Put it differently, or choose another model.",
    )


def _status_of(codes: tuple[str, ...]) -> int:
    for code in codes:
        if code.isdigit() and 400 <= int(code) < 600:
            return int(code)
        if code.lower() in _STATUS_OF_CODE:
            return _STATUS_OF_CODE[code.lower()]
    return 400 if "invalid_request_error" in codes else 500


def _verdict(problem: Problem, endpoint: Endpoint, model: str) -> tuple[ModelErrorKind, str]:
    name, key = endpoint.provider.display_name, endpoint.key_name
    if problem.out_of_credit:
        return "auth", f"The {name} account behind {key} has no credit left. Top it up, or choose another model."
    if problem.status in (401, 403) or "invalid_api_key" in problem.codes or "API_KEY_INVALID" in problem.text:
        return "auth", f"{name} did not accept {key}. Save a working key for it, or choose another model."
    if problem.status == 429:
        return "rate", f"{name} limits the requests of {key}. Wait a minute and send the message again."
    if problem.status == 413 or (problem.status < 500 and _too_long(problem)):
        return "context", f"The conversation is too long for {model}. Start a new chat, or choose a larger model."
    if problem.status >= 500 or problem.status in RETRYABLE:
        return "down", f"{name} is not working properly just now. Try again in a minute, or choose another model."
    if problem.status == 404:
        return "request", f"{name} does not offer {model} to {key}. Choose another model, or check the base URL."
    if problem.status < 400:
        return "request", bad_address(endpoint).public
    code = f" ({problem.code})" if problem.code else ""
    return "request", f"{name} refused the request{code}. Choose another model, or start a new chat."


def _too_long(problem: Problem) -> bool:
    return any("context_length" in code for code in problem.codes) or bool(_TOO_LONG.search(problem.text))
