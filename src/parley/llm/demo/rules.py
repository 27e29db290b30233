"""The demo model's rules: words in a message, and what to do next."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from parley.llm.demo.reading import (
    Done,
    answered,
    best_action,
    found_integration,
    given_in,
    last,
    objects,
    present_turn,
    told,
    values,
    words_of,
)
from parley.turn.model import Entry, JsonObject

MOST_QUESTIONS = 4
MOST_SEARCHES = 3

HELP = (
    "I only follow a few fixed rules, to show what a turn looks like. Try:\n\n"
    "- *What can you do?*\n"
    "- *List my GitHub repositories*\n"
    "- *Which accounts are connected?*\n"
    "- *Ask me something*, *Ask me yes or no*, *Ask me for a text*\n"
    "- *Search knowledge for refunds*\n\n"
    "For real answers, connect a model: save an API key for OpenAI, Anthropic, Gemini or another provider, "
    "or start Ollama on this machine."
)


@dataclass(frozen=True, slots=True)
class Say:
    """Answer, and so end the turn."""

    text: str


@dataclass(frozen=True, slots=True)
class Use:
    """Call a tool."""

    tool: str
    arguments: JsonObject


type Move = Say | Use


def next_move(entries: Sequence[Entry], tools: frozenset[str]) -> Move:
    """What the rules say to do next in this conversation, with these tools."""
    wish, done = present_turn(entries)
    for pattern, needed, rule in _RULES:
        if needed in tools and re.search(pattern, wish, re.IGNORECASE):
            return rule(wish, done)
    return Say(HELP)


def _tell_abilities(_wish: str, done: Sequence[Done]) -> Move:
    if not done:
        return Use("get_available_integrations", {"integration_type": "tools"})
    found = objects(done[-1].field("tools"))
    if not found:
        return Say(HELP)
    actions = sum(len(values(entry.get("actions"))) for entry in found)
    shown = "\n".join(f"- **{entry.get('display_name')}**: {entry.get('description')}" for entry in found[:8])
    return Say(
        f"This server offers {len(found)} integrations with {actions} actions. Some of them:\n\n{shown}\n\n{HELP}"
    )


def _tell_accounts(_wish: str, done: Sequence[Done]) -> Move:
    if not done:
        return Use("get_organization_credentials", {})
    output = done[-1].output
    found = objects(output if isinstance(output, list) else done[-1].field("credentials"))
    if not found:
        return Say("No account is connected yet. Say *List my GitHub repositories* and I will ask you for one.")
    shown = "\n".join(f"- {entry.get('display_name')} ({entry.get('integration_name')})" for entry in found)
    return Say(f"These accounts are connected:\n\n{shown}")


def _search_knowledge(wish: str, done: Sequence[Done]) -> Move:
    if not done:
        query = re.sub(r"^.*?\b(?:for|about)\b", "", wish, flags=re.IGNORECASE).strip(" ?.") or wish
        return Use("search_knowledge", {"query": query})
    matches = objects(done[-1].field("matches"))
    if not matches:
        return Say("The search found nothing. Upload a document on the Knowledge page and try again.")
    shown = "\n".join(f"- {str(match.get('content', match.get('text', '')))[:200]}" for match in matches[:3])
    found = "1 passage" if len(matches) == 1 else f"{len(matches)} passages. The first ones"
    return Say(f"The search found {found}:\n\n{shown}")


def _ask(tool: str, arguments: JsonObject) -> Callable[[str, Sequence[Done]], Move]:
    def rule(_wish: str, done: Sequence[Done]) -> Move:
        return Say(f"Your answer was {answered(done[-1])}.") if done else Use(tool, arguments)

    return rule


def _act(wish: str, done: Sequence[Done]) -> Move:
    """Find the integration, read its actions, run the one whose name fits best, ask for what is missing."""
    words = words_of(wish)
    found = found_integration(done, words)
    if found is None:
        searched = sum(1 for step in done if step.tool == "get_available_integrations")
        if searched < min(len(words), MOST_SEARCHES):
            return Use("get_available_integrations", {"integration_type": "tools", "query": words[searched]})
        return Say(f"I found no integration for that. {HELP}")
    name = str(found.get("name"))
    details = last(done, "get_integration_details")
    if details is None:
        return Use("get_integration_details", {"integration_name": name})
    action = best_action(details, wish)
    if action is None:
        return Say(f"{found.get('display_name')} has no action for that.")
    ran = last(done, "execute_integration_tool")
    return _run(wish, done, found, action) if ran is None else _after(ran, done, found)


def _run(wish: str, done: Sequence[Done], found: JsonObject, action: JsonObject) -> Move:
    answers = [step for step in done if step.tool == "ask_user_free_text"]
    given = given_in(wish)
    for step in answers:
        given[str(step.arguments.get("message")).split("`")[1]] = str(step.field("text") or "")
    required = [str(p.get("name")) for p in objects(action.get("parameters")) if p.get("required")]
    missing = next((name for name in required if not given.get(name)), None)
    if missing is None:
        parameters: JsonObject = {name: given[name] for name in required}
        arguments: JsonObject = {
            "integration_name": found.get("name"),
            "tool_name": action.get("name"),
            "parameters": parameters,
        }
        return Use("execute_integration_tool", arguments)
    if len(answers) >= MOST_QUESTIONS or any(f"`{missing}`" in str(step.arguments.get("message")) for step in answers):
        return Say(f"I cannot do that without `{missing}`.")
    return Use("ask_user_free_text", {"message": f"What should `{missing}` be for {action.get('name')}?"})


def _after(ran: Done, done: Sequence[Done], found: JsonObject) -> Move:
    """What follows an action: tell its result, or see to the credential it needs."""
    match ran.field("status"):
        case "ok":
            return Say(told(ran))
        case "cancelled":
            return Say("You declined, so nothing was done.")
        case "needs_credential":
            return _connect(ran, done, found)
        case _:
            reason = ran.field("error") or ran.field("message") or "no reason was given"
            return Say(f"{found.get('display_name')} did not do it: {reason}")


def _connect(ran: Done, done: Sequence[Done], found: JsonObject) -> Move:
    """Ask for a credential once, and try again once it is there."""
    asked = last(done, "request_credential")
    if asked is None:
        options = ran.field("auth_options") or [{"auth_type": "bearer_token", "display_name": "Access token"}]
        arguments: JsonObject = {
            "integration_name": found.get("name"),
            "integration_display_name": found.get("display_name"),
            "auth_options": options,
        }
        return Use("request_credential", arguments)
    if asked.field("kind") == "credential_added" and done[-1] is asked:
        return Use("execute_integration_tool", ran.arguments)
    return Say(f"Without a working account for {found.get('display_name')} I cannot go on.")


_RULES: tuple[tuple[str, str, Callable[[str, Sequence[Done]], Move]], ...] = (
    (r"ask me\b.*\byes\b", "ask_user_yes_no", _ask("ask_user_yes_no", {"message": "Do you like the demo so far?"})),
    (
        r"ask me\b.*\b(several|many|multi)",
        "ask_user_multi_choice",
        _ask(
            "ask_user_multi_choice",
            {
                "message": "Which of these do you use?",
                "options": [{"value": v.lower(), "label": v} for v in ("GitHub", "Slack", "Notion", "Jira")],
            },
        ),
    ),
    (
        r"ask me\b.*\b(text|write|word|name)",
        "ask_user_free_text",
        _ask("ask_user_free_text", {"message": "What would you like to say?"}),
    ),
    (
        r"ask me\b",
        "ask_user_choice",
        _ask(
            "ask_user_choice",
            {
                "message": "Which colour do you like best?",
                "options": [{"value": v.lower(), "label": v} for v in ("Red", "Green", "Blue")],
            },
        ),
    ),
    (r"\b(search|find|look)\b.*\b(knowledge|documents?|docs)\b", "search_knowledge", _search_knowledge),
    (r"\b(connected|credentials?|accounts?)\b", "get_organization_credentials", _tell_accounts),
    (
        r"what (can|do) you|\b(list|show|which|what)\b.*\bintegrations\b|^\s*help",
        "get_available_integrations",
        _tell_abilities,
    ),
    (
        r"^\W*(please |can you )?(list|show|get|find|search|create|add|send|post|delete|remove|update|fetch)\b",
        "execute_integration_tool",
        _act,
    ),
)
