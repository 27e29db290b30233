"""What the demo model reads off a conversation."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from parley.turn.model import AssistantEntry, Entry, JsonObject, JsonValue, ToolCall, ToolEntry, UserEntry
from parley.turn.text import NOT_JSON

NAMES_SHOWN = 20
RESULT_SHOWN = 1_500

_SHORTEST_NAME = 4
_VERBS = frozenset({"list", "show", "find", "search", "create", "send", "post", "fetch", "delete", "remove", "update"})
_FILLERS = frozenset(
    {"please", "could", "with", "from", "that", "this", "your", "have", "what", "about", "them", "into"}
)
_SAME = {"repos": "repository", "repo": "repository", "show": "list", "display": "list", "find": "search"}


@dataclass(frozen=True, slots=True)
class Done:
    """One tool call of this turn with what came back."""

    tool: str
    arguments: JsonObject
    output: JsonValue

    def field(self, name: str) -> JsonValue:
        """A field of the output, None where there is none."""
        return self.output.get(name) if isinstance(self.output, dict) else None


def present_turn(entries: Sequence[Entry]) -> tuple[str, list[Done]]:
    """The last message and the calls since, each with its output."""
    start = next((i for i in range(len(entries) - 1, -1, -1) if isinstance(entries[i], UserEntry)), -1)
    wish = said(entries[start]) if start >= 0 else ""
    calls: dict[str, ToolCall] = {}
    done: list[Done] = []
    for entry in entries[start + 1 :]:
        if isinstance(entry, AssistantEntry):
            calls |= {call.id: call for call in entry.calls}
        elif isinstance(entry, ToolEntry) and entry.call_id in calls:
            arguments = _decoded(calls[entry.call_id].arguments)
            done.append(Done(entry.tool, arguments if isinstance(arguments, dict) else {}, _decoded(entry.output)))
    return wish, done


def said(entry: Entry) -> str:
    """The text of an entry."""
    return entry.output if isinstance(entry, ToolEntry) else entry.text


def _decoded(text: str) -> JsonValue:
    try:
        return msgspec.json.decode(text)
    except NOT_JSON:
        return text


def values(value: JsonValue) -> list[JsonValue]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def objects(value: JsonValue) -> list[JsonObject]:
    """The objects in the value if it is a list."""
    return [entry for entry in values(value) if isinstance(entry, dict)]


def last(done: Sequence[Done], tool: str) -> Done | None:
    """The latest use of a tool in this turn."""
    return next((step for step in reversed(done) if step.tool == tool), None)


def words_of(wish: str) -> list[str]:
    """The words that may name an integration or an action, in order."""
    found = re.findall(r"[a-z][a-z0-9_]+", wish.lower())
    return [word for word in found if len(word) >= _SHORTEST_NAME and word not in _VERBS | _FILLERS]


def found_integration(done: Sequence[Done], words: Sequence[str]) -> JsonObject | None:
    """The integration a search brought up: one that was named, else the first."""
    for step in done:
        found = objects(step.field("tools")) if step.tool == "get_available_integrations" else []
        named = next((entry for entry in found if entry.get("name") in words), None)
        if named or found:
            return named or found[0]
    return None


def best_action(details: Done, wish: str) -> JsonObject | None:
    """The action with the most words in common with the message; shorter names win."""
    integration = str(details.arguments.get("integration_name", ""))
    wanted = {_stem(word) for word in re.findall(r"[a-z0-9]+", wish.lower()) if word != integration}

    def score(action: JsonObject) -> tuple[int, int]:
        parts = {_stem(part) for part in str(action.get("name")).split("_")}
        return len(parts & wanted), -len(parts)

    actions = objects(details.field("actions"))
    best = max(actions, key=score, default=None)
    return best if best is not None and score(best)[0] > 0 else None


def _stem(word: str) -> str:
    word = _SAME.get(word, word)
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


def given_in(wish: str) -> dict[str, str]:
    """Parameters that can be read off the message: ``owner/repo`` and a quoted text."""
    given: dict[str, str] = {}
    if path := re.search(r"\b([\w.-]+)/([\w.-]+)\b", wish):
        given |= {"owner": path[1], "repo": path[2]}
    if quoted := re.search(r"[\"“']([^\"”']+)[\"”']", wish):
        given |= dict.fromkeys(("title", "name", "text", "message", "query", "body"), quoted[1])
    return given


def answered(step: Done) -> str:
    """A person's answer in words (contract §5.3)."""
    if step.field("kind") == "skipped":
        return "to skip the question"
    for name in ("selected_value", "free_text", "selected_values", "answer", "text"):
        value = step.field(name)
        if value is not None:
            return f"`{value}`"
    return f"`{step.output}`"


def told(ran: Done) -> str:
    """A result as a short list of names, or as it is."""
    action, result = ran.arguments.get("tool_name"), ran.field("result")
    for value in _lists(result):
        names = [str(e.get("full_name") or e.get("name") or e.get("title") or e.get("id")) for e in objects(value)]
        if names:
            shown = "\n".join(f"- {name}" for name in names[:NAMES_SHOWN])
            return f"{action} returned {len(names)}:\n\n{shown}"
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    return f"{action} returned:\n\n```json\n{text[:RESULT_SHOWN]}\n```"


def _lists(result: JsonValue) -> Iterator[JsonValue]:
    if isinstance(result, list):
        yield result
    elif isinstance(result, dict):
        yield from (value for value in result.values() if isinstance(value, list))
