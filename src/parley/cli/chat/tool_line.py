"""A tool call as one line: whose tool, what it does, what came of it, how long it took."""

from dataclasses import dataclass
from typing import Any, Literal, cast

from parley.cli.chat.markdown import clean
from parley.cli.chat.stream import Event

type State = Literal["ok", "failed", "declined", "needs", "unknown"]

# Their questions are on the screen themselves.
ASKING = frozenset(
    {"ask_user_choice", "ask_user_multi_choice", "ask_user_yes_no", "ask_user_free_text", "request_credential"}
)
BY_STATUS: dict[str, State] = {
    "ok": "ok",
    "error": "failed",
    "cancelled": "declined",
    "needs_credential": "needs",
    "credit_limit": "failed",
}
STATE_WORDS: dict[State, str] = {
    "ok": "",
    "failed": "",
    "declined": "declined",
    "needs": "not connected yet",
    "unknown": "outcome unknown",
}
SHORT = 90
TELLING = ("message", "title", "name", "full_name", "html_url", "url", "id")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended. ``summary`` is a few words, maybe none."""

    state: State
    summary: str


def title(tool: str, given: dict[str, Any]) -> str:
    """Whose tool it is and what it does, such as ``github · list repositories``."""
    match tool:
        case "execute_integration_tool":
            return f"{_word(given, 'integration_name')} · {_word(given, 'tool_name').replace('_', ' ')}"
        case "search_knowledge":
            return f"knowledge · search “{_short(_word(given, 'query'))}”"
        case "get_available_integrations":
            query = _word(given, "query")
            return f"catalog · look for “{_short(query)}”" if query else "catalog · browse"
        case "get_integration_details":
            return f"{_word(given, 'integration_name')} · read what it can do"
        case "get_organization_credentials":
            return f"{_word(given, 'integration_name') or 'organization'} · check connections"
        case _:
            return _short(tool.replace("_", " "))


def called_title(event: Event) -> str:
    """The title of a ``tool_call`` event."""
    return title(event.text("tool"), event.object("input"))


def returned_title(event: Event) -> str:
    """The title of a ``tool_result`` event whose call was not seen."""
    return title(event.text("tool"), event.object("output"))


def outcome(output: object) -> Outcome:
    """What came of a call (contract §6)."""
    if not isinstance(output, dict):
        return Outcome("ok", _said(output))
    said = cast("dict[str, Any]", output)
    error = said.get("error")
    if error == "outcome_unknown":
        return Outcome("unknown", STATE_WORDS["unknown"])
    known = BY_STATUS.get(str(said.get("status")))
    state = known or ("failed" if error is not None and said.get("success") is False else "ok")
    if state == "failed":
        return Outcome(state, _short(str(said.get("message") or error or "failed")))
    return Outcome(state, STATE_WORDS[state] or _said(said.get("result", said)))


def seconds(milliseconds: float) -> str:
    """A duration for people: ``12 ms``, ``0.4 s``, ``12 s``, ``2 m 05 s``."""
    total = milliseconds / 1_000
    if total < 0.1:
        return f"{milliseconds:.0f} ms"
    if total < 10:
        return f"{total:.1f} s"
    minutes, rest = divmod(round(total), 60)
    return f"{minutes} m {rest:02d} s" if minutes else f"{rest} s"


def _said(value: object) -> str:
    """The gist of a result."""
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, list):
        return _count(len(cast("list[Any]", value)), "item")
    if not isinstance(value, dict):
        return ""
    fields = cast("dict[str, Any]", value)
    lists = [(name, items) for name, items in fields.items() if isinstance(items, list)]
    if len(lists) == 1:
        name, items = lists[0]
        number, noun = len(cast("list[Any]", items)), _short(name.replace("_", " "))
        return f"{number} {_one_of(noun) if number == 1 else noun}"
    telling = next((fields[name] for name in TELLING if isinstance(fields.get(name), str) and fields[name]), "")
    return _short(str(telling))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _one_of(plural: str) -> str:
    if plural.endswith("ies"):
        return f"{plural.removesuffix('ies')}y"
    return plural.removesuffix("es" if plural.endswith(("ches", "shes", "sses", "xes")) else "s")


def _word(given: dict[str, Any], name: str) -> str:
    return clean(str(given.get(name) or ""))


def _short(text: str) -> str:
    line = " ".join(clean(text).split())
    return line if len(line) <= SHORT else f"{line[: SHORT - 1]}…"
