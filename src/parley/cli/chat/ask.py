"""Asking a person at the terminal: the four kinds of question, and approvals (contract §5)."""

from collections.abc import Callable, Mapping, Sequence
from getpass import getpass
from typing import Any, cast

import msgspec
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from parley.cli.chat.markdown import clean, visible
from parley.cli.chat.screen import markdown

type Question = Mapping[str, Any]
type Response = dict[str, Any]

SKIP = "/skip"
SKIPPED: Response = {"kind": "skipped"}
LABELS = (("yes_label", "Yes"), ("no_label", "No"))
YES, NO = frozenset({"y", "yes"}), frozenset({"n", "no"})


class Unfit(Exception):
    """What was typed is no answer; the message says what would be."""


class Person:
    """Whoever sits at the terminal. Both readers raise EOFError and KeyboardInterrupt."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def show(self, what: RenderableType) -> None:
        """Print something."""
        self.console.print(what)

    def say(self, text: str, style: str = "") -> None:
        """Print plain words, as they are."""
        self.console.print(Text(clean(text), style=style))

    def line(self, prompt: str) -> str:
        """One line of what they type, trimmed."""
        return input(prompt).strip()

    def secret(self, prompt: str) -> str:
        """One line that the terminal does not show."""
        return getpass(prompt).strip()


def ask(person: Person, question: Question) -> Response:
    """Show a question until it is answered; the answer in the wire's form (contract §5.3).

    Raises EOFError and KeyboardInterrupt from the keyboard.
    """
    person.show(Text())
    _show(person, question)
    prompt, read = _reader(question)
    while True:
        typed = _typed(person, question, prompt)
        if typed.lower() == SKIP and not question.get("required", True):
            return SKIPPED
        try:
            return read(typed)
        except Unfit as unfit:
            person.say(str(unfit), "yellow")


def show_options(person: Person, titles: Sequence[Text]) -> None:
    """A numbered list."""
    for number, title in enumerate(titles, 1):
        person.show(Text.assemble((f"  {number:>2}  ", "cyan"), title))


def option_number(typed: str, count: int) -> int:
    """The option a number stands for, counted from 0. Raises Unfit."""
    if not typed.isdecimal() or not 1 <= int(typed) <= count:
        raise Unfit(f"Type a number from 1 to {count}.")
    return int(typed) - 1


# ── showing ─────────────────────────────────────────────────────────────────────────────────────


def _show(person: Person, question: Question) -> None:
    context = question.get("context")
    if isinstance(context, dict) and context.get("type") == "approval":
        person.show(_approval(question, cast("dict[str, Any]", context)))
        return
    person.show(markdown(str(question.get("message", ""))))
    show_options(person, [_option_title(option) for option in _options(question)])


def _option_title(option: Mapping[str, Any]) -> Text:
    title = Text(visible(str(option.get("label", option.get("value", "")))))
    if option.get("badge"):
        title.append(f"  [{visible(str(option['badge']))}]", "magenta")
    if option.get("description"):
        title.append(f"  {visible(str(option['description']))}", "dim")
    return title


def _approval(question: Question, context: Mapping[str, Any]) -> Panel:
    """The whole of what would run: action, account, reason, every parameter; nothing in it can hide."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    name = str(context.get("integration_display_name") or context.get("integration_name") or "")
    table.add_row("Action", Text(visible(f"{name} · {context.get('action_name', '')}"), style="bold"))
    table.add_row("Account", Text(visible(str(context.get("account") or "none"))))
    given = context.get("parameters")
    parameters = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    for key, value in parameters.items():
        table.add_row(Text(visible(key)), Text(visible(_value(value))))
    reason = Text(visible(str(context.get("reason") or question.get("message") or "")))
    return Panel(
        Group(reason, Text(), table),
        title="Asks first",
        title_align="left",
        border_style="red" if context.get("irreversible") else "yellow",
    )


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _typed(person: Person, question: Question, prompt: str) -> str:
    if question.get("kind") == "free_text" and question.get("multiline"):
        person.say("Finish with an empty line.", "dim")
        lines: list[str] = []
        while line := person.line(prompt if not lines else "… "):
            lines.append(line)
        return "\n".join(lines)
    return person.line(prompt)


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def _reader(question: Question) -> tuple[str, Callable[[str], Response]]:
    """The prompt for a question, and what turns a typed line into its answer."""
    skip = "" if question.get("required", True) else f", or {SKIP}"
    options = _options(question)
    match question.get("kind"):
        case "single_choice":
            other = ", or in your own words" if question.get("allow_free_text") else ""
            return f"1-{len(options)}{other}{skip}> ", lambda typed: _single(question, options, typed)
        case "multi_choice":
            return f"{_amount(question, len(options))}{skip}> ", lambda typed: _multi(question, options, typed)
        case "yes_no":
            yes, no = (
                clean(str(question.get(name) or word)) for name, word in (("yes_label", "Yes"), ("no_label", "No"))
            )
            return f"[y] {yes}  [n] {no}{skip}> ", _yes_no
        case _:
            hint = f" ({clean(str(question['placeholder']))})" if question.get("placeholder") else ""
            return f"Your answer{hint}{skip}> ", lambda typed: _text(question, typed)


def _options(question: Question) -> list[dict[str, Any]]:
    options = question.get("options")
    return cast("list[dict[str, Any]]", options) if isinstance(options, list) else []


def _single(question: Question, options: Sequence[Mapping[str, Any]], typed: str) -> Response:
    try:
        return {"kind": "single_choice", "selected_value": options[option_number(typed, len(options))]["value"]}
    except Unfit:
        if not question.get("allow_free_text") or not typed or typed.isdecimal():
            raise
    return {"kind": "single_choice", "free_text": typed}


def _multi(question: Question, options: Sequence[Mapping[str, Any]], typed: str) -> Response:
    words = typed.replace(",", " ").split()
    numbers = sorted({option_number(word, len(options)) for word in words})
    least, most = question.get("min_selections") or 0, question.get("max_selections")
    if len(numbers) < least or (most is not None and len(numbers) > most):
        raise Unfit(f"Choose {_amount(question, len(options))}.")
    return {"kind": "multi_choice", "selected_values": [options[number]["value"] for number in numbers]}


def _amount(question: Question, count: int) -> str:
    least, most = question.get("min_selections") or 0, question.get("max_selections")
    if most is not None:
        return f"{least} to {most} numbers from 1-{count}, such as 1,3"
    return f"at least {least} numbers from 1-{count}, such as 1,3" if least else f"numbers from 1-{count}, such as 1,3"


def _yes_no(typed: str) -> Response:
    if typed.lower() not in YES | NO:
        raise Unfit("Type y or n.")
    return {"kind": "yes_no", "answer": typed.lower() in YES}


def _text(question: Question, typed: str) -> Response:
    least, most = question.get("min_length") or 0, question.get("max_length")
    if len(typed) < least:
        raise Unfit(f"Write at least {least} characters.")
    if most is not None and len(typed) > most:
        raise Unfit(f"Write at most {most} characters.")
    return {"kind": "free_text", "text": typed}
