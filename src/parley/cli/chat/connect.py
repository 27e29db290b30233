"""Connecting an integration in mid-turn: the secret goes to the credential store, never through the chat."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import msgspec
from rich.text import Text

from parley.cli.chat.ask import SKIP, SKIPPED, Person, Question, Response, Unfit, option_number, show_options
from parley.cli.chat.client import Client
from parley.cli.chat.markdown import clean, visible
from parley.cli.chat.problems import Refused
from parley.cli.chat.screen import markdown
from parley.cli.chat.wire import Llm

OAUTH = "oauth2"
MANAGED = "modulex_key"
CALLBACK_PATH = "/credentials/oauth2/callback"
GIVE_UP = "/stop"
# What a manifest without fields asks for.
PLAIN_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "api_key": {"name": "api_key", "display_name": "API key", "required": True, "sensitive": True},
    "bearer_token": {"name": "token", "display_name": "Token", "required": True, "sensitive": True},
}

type Field = Mapping[str, Any]


class Run(Protocol):
    """Runs what waits for the server; raises what it raises, and KeyboardInterrupt."""

    def __call__[T](self, work: Coroutine[None, None, T]) -> T: ...


class GivenUp(Exception):
    """The person stops trying; the message is what went wrong last."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The chat and the question that wait, and the model they go on with."""

    chat_id: str
    request_id: str
    llm: Llm


class Connecting:
    """Leads a person through one credential request."""

    def __init__(self, person: Person, client: Client, run: Run, binding: Binding) -> None:
        self._person = person
        self._client = client
        self._run = run
        self._binding = binding

    def ask(self, question: Question) -> Response | None:
        """The answer; None when a sign-in began whose end the server tells by itself.

        Raises Trouble, EOFError and KeyboardInterrupt.
        """
        person = self._person
        person.show(Text())
        person.show(markdown(str(question.get("message", ""))))
        option = self._choose(question)
        if option is None:
            return SKIPPED
        auth_type = str(option.get("auth_type"))
        names = {"integration_name": str(question.get("integration_name")), "auth_type": auth_type}
        for number, step in enumerate(option.get("setup_instructions") or (), 1):
            person.say(f"  {number}. {step}", "dim")
        try:
            if auth_type == OAUTH:
                return self._sign_in(option, names)
            credential_id = self._type_in(option, names)
        except GivenUp as given_up:
            return {
                "kind": "credential_failed",
                **names,
                "error_code": "oauth_provider_error" if auth_type == OAUTH else "invalid_credentials",
                "error_message": str(given_up),
                "retryable": True,
            }
        return {"kind": "credential_added", **names, "credential_id": credential_id}

    def _choose(self, question: Question) -> Field | None:
        options = cast("Sequence[Field]", question.get("auth_options") or ())
        skippable = not question.get("required", True)
        if len(options) == 1 and not skippable:
            return options[0]
        show_options(self._person, [Text(visible(str(option.get("display_name")))) for option in options])
        prompt = f"How? 1-{len(options)}{f', or {SKIP}' if skippable else ''}> "
        while True:
            typed = self._person.line(prompt)
            if typed.lower() == SKIP and skippable:
                return None
            try:
                return options[option_number(typed, len(options))]
            except Unfit as unfit:
                self._person.say(str(unfit), "yellow")

    # ── typing a key in ─────────────────────────────────────────────────────────────────────────

    def _type_in(self, option: Field, names: Mapping[str, str]) -> str:
        """Until the values work: the new credential's id. Raises GivenUp."""
        while True:
            body = {**names, "auth_data": self._fill(_fields(option))}
            try:
                problem = self._tested(option, body)
                if problem is None:
                    return self._run(self._client.add_credential(body)).credential_id
            except Refused as refused:
                if refused.status != 400:
                    raise
                problem = str(refused)
            self._person.say(f"That did not work: {problem}", "yellow")
            if self._person.line(f"Enter to try again, or {GIVE_UP}> ").lower() == GIVE_UP:
                raise GivenUp(problem)

    def _tested(self, option: Field, body: Mapping[str, Any]) -> str | None:
        """What is wrong with the values; None when they work, or nobody can tell before they are used."""
        if not option.get("test_supported") or body["auth_type"] == MANAGED:
            return None
        self._person.say("Testing…", "dim")
        tested = self._run(self._client.test_credential(body))
        return None if tested.is_valid else tested.message or "The service refused it."

    def _fill(self, fields: Sequence[Field]) -> dict[str, str]:
        values: dict[str, str] = {}
        for field in fields:
            value = self._fill_one(field)
            if value:
                values[str(field.get("name"))] = value
        return values

    def _fill_one(self, field: Field) -> str:
        label = str(field.get("display_name") or field.get("label") or field.get("name"))
        hints = [str(field[name]) for name in ("description", "about_url") if field.get(name)]
        if field.get("sample_format"):
            hints.append(f"It looks like {field['sample_format']}")
        for hint in hints:
            self._person.say(f"  {hint}", "dim")
        required = field.get("required", True)
        prompt = f"{clean(label)}{'' if required else ' (optional)'}> "
        read = self._person.secret if field.get("sensitive") else self._person.line
        while True:
            value = read(prompt)
            if value or not required:
                return value
            self._person.say("This one is needed.", "yellow")

    # ── signing in ──────────────────────────────────────────────────────────────────────────────

    def _sign_in(self, option: Field, names: Mapping[str, str]) -> None:
        """Print where to sign in. Raises GivenUp when the sign-in cannot begin."""
        callback = f"{self._client.url}{CALLBACK_PATH}"
        body: dict[str, Any] = {
            "integration_name": names["integration_name"],
            "redirect_uri": callback,
            "use_modulex_oauth": True,
            "env_var_values": self._fill(_fields(option)),
            "composer_chat_id": self._binding.chat_id,
            "composer_request_id": self._binding.request_id,
            "composer_llm_config": msgspec.to_builtins(self._binding.llm),
        }
        try:
            started = self._run(self._client.sign_in(body))
        except Refused as refused:
            if refused.status != 400:
                raise
            self._person.say(str(refused), "yellow")
            self._person.say(f"With an app of your own: it must allow {callback}")
            started = self._run(self._client.sign_in({**body, **self._own_app(str(refused))}))
        self._person.say("Open this address in a browser and sign in:")
        # As it is: a wrapped or shortened address could not be copied.
        self._person.console.out(clean(started.authorization_url), highlight=False)
        self._person.say("Waiting for the sign-in to end. Ctrl-C goes back to the question.", "dim")

    def _own_app(self, problem: str) -> dict[str, Any]:
        client_id = self._person.line(f"Client ID (or {GIVE_UP})> ")
        if client_id.lower() in {"", GIVE_UP}:
            raise GivenUp(problem)
        secret = self._person.secret("Client secret> ")
        return {
            "use_modulex_oauth": False,
            "custom_oauth_config": {"client_id": client_id, "client_secret": secret},
        }


def _fields(option: Field) -> Sequence[Field]:
    """What a person types in for this way to connect; an OAuth app's own fields are asked for apart."""
    fields = cast("Sequence[Field]", option.get("fields") or ())
    plain = PLAIN_FIELDS.get(str(option.get("auth_type")))
    if not fields and plain is not None:
        return [plain]
    if option.get("auth_type") != OAUTH:
        return fields
    return [field for field in fields if not _is_of_app(field)]


def _is_of_app(field: Field) -> bool:
    return bool(field.get("only_for_custom")) or str(field.get("name")).lower().endswith(("client_id", "client_secret"))
