"""Questions as text that a person can answer with text.

An answer counts only where it is unmistakable: for an approval that means the word itself, never a
sentence that contains it.
"""

import re

from parley.chats.answers import AnswerForm, FreeText, MultiChoice, SingleChoice, Skipped, YesNo
from parley.turn.model import JsonObject, JsonValue

YES = frozenset({"yes", "y", "ok", "okay", "approve", "approved", "true"})
NO = frozenset({"no", "n", "decline", "declined", "cancel", "stop", "false"})
SKIP = "skip"


def question_in_words(payload: JsonObject, chat_url: str) -> str:
    """A question (contract §5.2) with how to answer it."""
    said = [str(payload.get("message", ""))]
    match payload.get("kind"):
        case "yes_no":
            said.append(f"Answer **yes** ({payload.get('yes_label')}) or **no** ({payload.get('no_label')}).")
            said[1:1] = _parameters(payload)
        case "single_choice" | "multi_choice":
            said.append("\n".join(_listed(payload)))
            several = payload.get("kind") == "multi_choice"
            said.append("Answer with the numbers, separated by commas." if several else "Answer with a number.")
        case "credential_request":
            said.append(f"Connect it here: {chat_url}")
        case _:
            pass
    if not payload.get("required", True):
        said.append(f"Write **{SKIP}** to go on without.")
    return "\n\n".join(part for part in said if part)


def answer_in_words(payload: JsonObject, text: str) -> AnswerForm | None:
    """The answer that a text is; None where it is none."""
    said = text.strip()
    word = said.rstrip(".!").casefold()
    if word == SKIP and not payload.get("required", True):
        return Skipped()
    match payload.get("kind"):
        case "yes_no":
            return _yes_no(payload, word)
        case "single_choice":
            return _single(payload, said)
        case "multi_choice":
            chosen = [_option(payload, part) for part in re.split(r"[,;\n]", said) if part.strip()]
            values = [value for value in chosen if value is not None]
            return MultiChoice(values) if len(values) == len(chosen) else None
        case "free_text":
            return FreeText(said)
        case _:
            return None


def _yes_no(payload: JsonObject, word: str) -> YesNo | None:
    labels = [str(payload.get(name, "")).casefold() for name in ("yes_label", "no_label")]
    if word in YES or word == labels[0]:
        return YesNo(answer=True)
    return YesNo(answer=False) if word in NO or word == labels[1] else None


def _single(payload: JsonObject, said: str) -> SingleChoice | None:
    value = _option(payload, said)
    if value is not None:
        return SingleChoice(selected_value=value)
    return SingleChoice(free_text=said) if payload.get("allow_free_text") and said else None


def _option(payload: JsonObject, said: str) -> str | None:
    """The value of the option that a number, a label or a value names."""
    options = _options(payload)
    plain = said.strip().rstrip(".").casefold()
    if plain.isascii() and plain.isdigit() and 0 < int(plain) <= len(options):
        return str(options[int(plain) - 1]["value"])
    named = [each for each in options if plain in (str(each["value"]).casefold(), str(each["label"]).casefold())]
    return str(named[0]["value"]) if len(named) == 1 else None


def _options(payload: JsonObject) -> list[JsonObject]:
    options = payload.get("options")
    return [each for each in options if isinstance(each, dict)] if isinstance(options, list) else []


def _listed(payload: JsonObject) -> list[str]:
    return [
        f"{number}. {each['label']}" + (f": {each['description']}" if each.get("description") else "")
        for number, each in enumerate(_options(payload), 1)
    ]


def _parameters(payload: JsonObject) -> list[str]:
    """What an approval would run, parameter by parameter; secrets are masked already."""
    context = payload.get("context")
    parameters = context.get("parameters") if isinstance(context, dict) else None
    if not isinstance(parameters, dict):
        return []
    return ["\n".join(f"- `{name}`: {_short(value)}" for name, value in parameters.items())]


def _short(value: JsonValue) -> str:
    text = str(value)
    return text if len(text) <= 500 else f"{text[:499]}…"
