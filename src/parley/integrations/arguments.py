"""From what the model sends to what an action is called with.

The model's arguments are filtered to the action's own parameters first; what belongs to the
credential is set afterwards, from the credential and from nothing else (trust §2.2).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ValidationError

from parley.integrations.index import Action, AuthSchema, Integration
from parley.integrations.results import ActionFailed
from parley.turn.model import JsonObject, JsonValue
from parley.turn.text import NOT_JSON

CREDENTIAL_ITSELF = frozenset({"auth_type", "auth_data"})
# The argument that is the secret itself, whichever way the integration is connected.
SECRET_ARGUMENT = "api_key"  # noqa: S105 - a name
SECRET_FIELDS = ("api_key", "access_token", "token", "bearer_token")
# What every credential may hold beside its secrets. Anything else that is not declared counts as secret.
PLAIN_FIELDS = frozenset({"token_type", "scope", "scopes", "expires_in", "expires_at", "issued_at", "api_domain"})


@dataclass(frozen=True, slots=True)
class Secret:
    """A credential as an action receives it: how it authenticates and the opened ``auth_data``.

    Values are under the keys of the integration's credential fields; further names do no harm.
    """

    auth_type: str
    auth_data: Mapping[str, JsonValue] = field(repr=False)


def shown_fields(schemas: Sequence[AuthSchema]) -> frozenset[str]:
    """The names of a credential's values that may be seen, of an integration that is connected in these ways.

    What any of them declares sensitive may not, whatever another one says of it.
    """
    declared = [entry for schema in schemas for entry in schema.fields]
    harmless = {name for entry in declared if not entry.sensitive for name in (entry.name, entry.key)}
    sensitive = {name for entry in declared if entry.sensitive for name in (entry.name, entry.key)}
    return (PLAIN_FIELDS | harmless).difference(sensitive, SECRET_FIELDS)


def secret_values(integration: Integration, secret: Secret) -> frozenset[str]:
    """Every text of the credential that must not be seen: all but the fields declared harmless."""
    shown = shown_fields(integration.auth_schemas)
    return frozenset(text for name, value in secret.auth_data.items() if name not in shown for text in _texts(value))


def texts_of(values: Mapping[str, JsonValue]) -> frozenset[str]:
    """Every text in a credential's values, or in a call's arguments."""
    return frozenset(text for value in values.values() for text in _texts(value))


def model_arguments(action: Action, arguments: Mapping[str, JsonValue]) -> JsonObject:
    """Of what the model sent, what the action takes from a model: known parameters by their real names.

    Unknown names are dropped, credential fields with them. A null for a parameter that may be left
    out and cannot be null means the same as leaving it out. An open action gets everything as it is.
    """
    if action.open:
        return dict(arguments)
    taken: JsonObject = {}
    for parameter in action.parameters:
        names = (parameter.name, *(old for old, new in action.aliases.items() if new == parameter.name))
        sent = next((name for name in names if name in arguments), None)
        if sent is None:
            continue
        if arguments[sent] is None and not parameter.required and not _nullable(parameter.schema):
            continue
        taken[parameter.name] = arguments[sent]
    return taken


def call_arguments(
    integration: Integration, action: Action, model: type[BaseModel], arguments: Mapping[str, JsonValue], secret: Secret
) -> dict[str, Any]:
    """Keyword arguments for the action's function, checked against ``model``, the function's own schema.

    Raises ActionFailed, not attempted, naming the parameters that are missing or of the wrong type,
    or the fields the credential lacks.
    """
    known = _known(integration, secret)
    merged = model_arguments(action, arguments)
    for name in action.defaulted:
        if name not in merged and name in known:
            merged[name] = known[name]
    merged |= _bound(action, secret, known)
    return _checked(integration, action, model, merged)


# ── the credential ──────────────────────────────────────────────────────────────────────────────


def _known(integration: Integration, secret: Secret) -> JsonObject:
    """The credential's values, with those that are never passed on replaced."""
    known: JsonObject = dict(secret.auth_data)
    for key, replacements in integration.replaced.items():
        replacement = replacements.get(str(known.get(key) or ""))
        if replacement is not None:
            known[key] = replacement
    return known


def _bound(action: Action, secret: Secret, known: JsonObject) -> JsonObject:
    """The arguments that come from the credential; those it has no value for are left out."""
    found: JsonObject = {}
    for name in action.bound:
        sources = SECRET_FIELDS if name == SECRET_ARGUMENT else (name,)
        value = next((known[source] for source in sources if known.get(source) not in (None, "")), None)
        if value is not None:
            found[name] = value
    given: JsonObject = {"auth_type": secret.auth_type, "auth_data": known}
    return found | {name: given[name] for name in CREDENTIAL_ITSELF.intersection(action.bound)}


def _texts(value: JsonValue) -> Iterator[str]:
    """Every text inside a credential field, and what is secret inside such a text.

    A field may itself be a JSON document, such as a service account's, or a URL with a password.
    """
    match value:
        case str():
            yield value
            yield from _texts_inside(value)
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            for item in value.values():
                yield from _texts(item)
        case _:
            return


def _texts_inside(text: str) -> Iterator[str]:
    try:
        if text.lstrip().startswith("{"):
            yield from _texts(json.loads(text))
        elif "://" in text and (password := urlsplit(text).password):
            yield from (password, unquote(password))
    except NOT_JSON:  # neither a document nor a URL after all
        return


# ── checking ────────────────────────────────────────────────────────────────────────────────────


def _nullable(schema: Mapping[str, Any]) -> bool:
    return not schema or any(variant.get("type") == "null" for variant in schema.get("anyOf", ()))


def _checked(integration: Integration, action: Action, model: type[BaseModel], merged: JsonObject) -> dict[str, Any]:
    try:
        checked = model.model_validate(merged)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise ActionFailed(_sentence(integration, action, problems), attempted=False) from None
    return {name: getattr(checked, name) for name in model.model_fields}


def _sentence(integration: Integration, action: Action, problems: list[Any]) -> str:
    """What is wrong and what to do, in words; the credential's own values never appear in it."""
    lacking = sorted({str(problem["loc"][0]) for problem in problems if str(problem["loc"][0]) in action.bound})
    if lacking:
        return (
            f"The {integration.display_name} credential has no usable {', '.join(lacking)}. "
            f"Connect {integration.display_name} again with it."
        )
    said = "; ".join(_problem(problem) for problem in problems)
    taken = ", ".join(f"{each.name} (required)" if each.required else each.name for each in action.parameters)
    return f"Wrong parameters for {integration.name}.{action.name}: {said}. It takes: {taken or 'none'}."


def _problem(problem: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{path} is required"
    message: str = problem["msg"]
    return f"{path}: {message[:1].lower()}{message[1:]}"
