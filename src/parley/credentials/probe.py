"""Does a credential work? Asking the service, and telling "refused" from "could not be asked".

The request comes from the manifest, the values from the credential, and it leaves through the
egress guard. Neither the values nor what the service says in words comes back in the verdict.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

import msgspec

from parley.credentials.grants import PLACEHOLDER
from parley.credentials.model import Secrets
from parley.credentials.offers import Offer
from parley.egress import Egress, Refused, Response, Unreachable
from parley.integrations import AuthSchema, Probe
from parley.llm import CredentialNeeded, LlmCredential, Models, Provider, served_models
from parley.turn.model import JsonValue, ModelError
from parley.turn.text import NOT_JSON

SECONDS = 15.0
MOST_BYTES = 1_048_576
# Providers whose list of models is open to everyone, so that it proves no key.
OPEN_LISTS = frozenset({"openrouter"})

type Outcome = Literal["valid", "invalid", "unknown", "skipped"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a test found. ``unknown`` means that the service could not be asked: nothing against the key.

    ``method`` is ``api_call``, ``format`` or ``skipped``; ``endpoint`` is the manifest's template.
    """

    outcome: Outcome
    message: str
    method: str = "api_call"
    endpoint: str | None = None
    status_code: int | None = None
    cost_level: str | None = None


class Prober:
    """Tests credentials."""

    def __init__(self, egress: Egress, models: Models) -> None:
        self._egress = egress
        self._models = models

    async def probe(self, offer: Offer, schema: AuthSchema, values: Secrets) -> Verdict:
        """Test values against the service: its models for a model provider, else the manifest's test endpoint."""
        if offer.provider is not None:
            return await self._probe_models(offer.provider, values)
        test = schema.test_endpoint
        if test is None or not _proves_something(offer, test):
            message = f"{offer.display_name} offers no way to test a credential; its first use will tell."
            return Verdict("skipped", message, "skipped")
        request = request_of(test, values)
        if request is None:
            message = f"The test of {offer.display_name} needs a value this credential does not hold."
            return Verdict("skipped", message, "skipped", test.url)
        try:
            response = await self._egress.request(
                request.method,
                request.url,
                headers=request.headers,
                params=request.params,
                json=request.body,
                seconds=SECONDS,
                max_bytes=MOST_BYTES,
            )
        except (Refused, Unreachable) as error:
            return Verdict("unknown", str(error), endpoint=test.url, cost_level=test.cost_level)
        outcome, message = _judged(offer.display_name, test, response)
        return Verdict(outcome, message, endpoint=test.url, status_code=response.status, cost_level=test.cost_level)

    async def _probe_models(self, provider: Provider, values: Secrets) -> Verdict:
        """Have the provider list its models, which needs the key and costs nothing."""
        if provider.name in OPEN_LISTS:
            message = f"{provider.display_name} lists its models to everyone; the key's first use will tell."
            return Verdict("skipped", message, "skipped")
        if provider.wire == "vendors":
            message = f"A key for {provider.display_name} is tested by its first use, which names the vendor."
            return Verdict("skipped", message, "skipped")
        credential = LlmCredential(values.text("api_key"), values.text("base_url") or None)
        try:
            endpoint = self._models.own_endpoint(provider, credential)
        except CredentialNeeded as refusal:
            return Verdict("invalid", refusal.detail, "format")
        try:
            await served_models(endpoint, self._egress.tenant_session(), seconds=SECONDS)
        except ModelError as error:
            outcome = "invalid" if error.kind == "auth" else "unknown"
            return Verdict(outcome, error.public, endpoint=endpoint.base_url, cost_level="free")
        return Verdict(
            "valid", f"{provider.display_name} accepted the key.", endpoint=endpoint.base_url, cost_level="free"
        )


def _proves_something(offer: Offer, test: Probe) -> bool:
    """A request that carries nothing of the credential only proves that a web page is up."""
    if offer.public or test.auth is not None:
        return True
    carried = (test.url, *test.headers.values(), *test.params.values(), msgspec.json.encode(test.body).decode())
    return any(PLACEHOLDER.search(text) for text in carried)


def request_of(test: Probe, values: Secrets) -> Probe | None:
    """The request with every placeholder replaced; None when its URL needs a value that is missing.

    A header, parameter or half of Basic that lacks its value is left out: it belongs to an optional field.
    """
    if any(not values.text(name) for name in PLACEHOLDER.findall(test.url)):
        return None
    headers = _texts(test.headers, values)
    if test.auth is not None:
        halves = (test.auth.username_placeholder, test.auth.password_placeholder)
        pair = ":".join(values.text(half) or half for half in halves)
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return msgspec.structs.replace(
        test,
        url=_url(test.url, values),
        headers=headers,
        params=_texts(test.params, values),
        body=_body(test.body, values),
    )


def _url(template: str, values: Secrets) -> str:
    """A base URL at the head goes in as it is; anything later is one part and cannot leave its place."""

    def value(match: re.Match[str]) -> str:
        text = values.text(match[1])
        return text.rstrip("/") if match.start() == 0 else quote(text, safe=":")

    return PLACEHOLDER.sub(value, template)


def _texts(templates: Mapping[str, str], values: Secrets) -> dict[str, str]:
    return {
        name: PLACEHOLDER.sub(lambda match: values.text(match[1]), template)
        for name, template in templates.items()
        if all(values.text(placeholder) for placeholder in PLACEHOLDER.findall(template))
    }


def _body(template: JsonValue, values: Secrets) -> JsonValue:
    match template:
        case str():
            return PLACEHOLDER.sub(lambda found: values.text(found[1]), template)
        case dict():
            return {name: _body(value, values) for name, value in template.items()}
        case list():
            return [_body(value, values) for value in template]
        case _:
            return template


def _judged(name: str, test: Probe, response: Response) -> tuple[Outcome, str]:
    status = response.status
    if status in test.status_codes:
        missing = _missing_field(test, response)
        if missing is None:
            return "valid", f"{name} accepted the credential."
        return "invalid", f"{name} answered without '{missing}', so it did not accept the credential."
    if status == 429 or status >= 500:
        return "unknown", f"{name} answered {status}, which says nothing about the credential. Try again in a minute."
    return "invalid", f"{name} refused the credential (status {status}). Check it, or make a new one there."


def _missing_field(test: Probe, response: Response) -> str | None:
    """The first promised field that the answer lacks or denies; Slack, for one, answers 200 with ``ok: false``."""
    if not test.response_fields:
        return None
    try:
        answer: JsonValue = msgspec.json.decode(response.body)
    except NOT_JSON:
        return test.response_fields[0]
    for path in test.response_fields:
        value = answer
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None or value is False:
            return path
    return None
