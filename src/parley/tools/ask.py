"""Asking a person: the four kinds of question (contract §5.2)."""

from typing import Annotated

import msgspec

from parley.base.ids import new_id
from parley.tools.context import ToolContext
from parley.tools.spec import AnyObject, Step, failure, tool
from parley.turn.model import Answer, Asked, JsonObject, JsonValue, Observed, Question, ToolResult

Message = Annotated[str, msgspec.Meta(min_length=1, max_length=4_000, description="The question, in markdown.")]
Required = Annotated[bool, msgspec.Meta(description="False lets the user skip the question.")]
Context = Annotated[AnyObject | None, msgspec.Meta(description="Optional rendering hints for the app.")]
Timeout = Annotated[Annotated[int, msgspec.Meta(ge=1)] | None, msgspec.Meta(description="How soon, in seconds.")]
LEAST_OPTIONS = 2
MOST_OPTIONS = 50
# A longer answer than this could not be sent at all.
LONGEST_LEAST = 10_000
# What only the approval gate may put into a card's context.
APPROVAL = "approval"


class ChoiceOption(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One option of a choice."""

    value: Annotated[str, msgspec.Meta(min_length=1)]
    label: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    icon: str | None = None
    badge: str | None = None


Options = Annotated[list[ChoiceOption], msgspec.Meta(description="Two or more options; every value is different.")]


class ChoiceArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``ask_user_choice``."""

    message: Message
    options: Options
    allow_free_text: Annotated[bool, msgspec.Meta(description="Let the user answer in other words.")] = False
    required: Required = True
    context: Context = None
    timeout_hint_seconds: Timeout = None


class MultiChoiceArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``ask_user_multi_choice``."""

    message: Message
    options: Options
    min_selections: Annotated[int, msgspec.Meta(ge=0)] = 0
    max_selections: Annotated[int, msgspec.Meta(ge=1)] | None = None
    required: Required = True
    context: Context = None
    timeout_hint_seconds: Timeout = None


class YesNoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``ask_user_yes_no``."""

    message: Message
    yes_label: Annotated[str, msgspec.Meta(min_length=1)] = "Yes"
    no_label: Annotated[str, msgspec.Meta(min_length=1)] = "No"
    required: Required = True
    context: Context = None
    timeout_hint_seconds: Timeout = None


class FreeTextArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of ``ask_user_free_text``."""

    message: Message
    placeholder: str | None = None
    multiline: bool = False
    min_length: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_LEAST)] = 0
    max_length: Annotated[int, msgspec.Meta(ge=1)] | None = None
    required: Required = True
    context: Context = None
    timeout_hint_seconds: Timeout = None


type Common = ChoiceArguments | MultiChoiceArguments | YesNoArguments | FreeTextArguments


def question(kind: str, arguments: Common, extra: JsonObject) -> Asked:
    """A question of the wire's shape; every base field is there (contract §5.2)."""
    request_id = new_id()
    payload: JsonObject = {
        "kind": kind,
        "request_id": request_id,
        "message": arguments.message,
        "required": arguments.required,
        "allow_free_text": False,
        "context": arguments.context,
        "timeout_hint_seconds": arguments.timeout_hint_seconds,
        **extra,
    }
    return Asked(Question(request_id, kind, payload))


def _option_fault(options: list[ChoiceOption]) -> str | None:
    if not LEAST_OPTIONS <= len(options) <= MOST_OPTIONS:
        return f"Give {LEAST_OPTIONS} to {MOST_OPTIONS} options."
    values = [option.value for option in options]
    if len(set(values)) != len(values):
        return "Every option needs a value of its own."
    return None


def _options(options: list[ChoiceOption]) -> JsonValue:
    return msgspec.to_builtins(options)


async def _choice(_context: ToolContext, arguments: ChoiceArguments, _step: Step) -> ToolResult:
    fault = _option_fault(arguments.options)
    if fault:
        return failure("invalid_arguments", message=fault)
    extra: JsonObject = {"options": _options(arguments.options), "allow_free_text": arguments.allow_free_text}
    return question("single_choice", arguments, extra)


async def _multi_choice(_context: ToolContext, arguments: MultiChoiceArguments, _step: Step) -> ToolResult:
    fault = _option_fault(arguments.options)
    least, most = arguments.min_selections, arguments.max_selections
    if most is not None and least > most:
        fault = "min_selections is larger than max_selections."
    if least > len(arguments.options):
        fault = "min_selections is larger than the number of options."
    if fault:
        return failure("invalid_arguments", message=fault)
    extra: JsonObject = {"options": _options(arguments.options), "min_selections": least, "max_selections": most}
    return question("multi_choice", arguments, extra)


async def _yes_no(_context: ToolContext, arguments: YesNoArguments, _step: Step) -> ToolResult:
    if arguments.context is not None and arguments.context.get("type") == APPROVAL:
        return failure("invalid_arguments", message="Approvals ask by themselves; leave type out of context.")
    return question("yes_no", arguments, {"yes_label": arguments.yes_label, "no_label": arguments.no_label})


async def _free_text(_context: ToolContext, arguments: FreeTextArguments, _step: Step) -> ToolResult:
    if arguments.max_length is not None and arguments.min_length > arguments.max_length:
        return failure("invalid_arguments", message="min_length is larger than max_length.")
    extra: JsonObject = {
        "placeholder": arguments.placeholder,
        "multiline": arguments.multiline,
        "min_length": arguments.min_length,
        "max_length": arguments.max_length,
    }
    return question("free_text", arguments, extra)


async def _answered(_context: ToolContext, _arguments: Common, _step: Step, answer: Answer) -> ToolResult:
    """The answer object is the tool's result (contract §5.4)."""
    return Observed(answer.response)


ASK_USER_CHOICE = tool(
    "ask_user_choice",
    "Ask the user to pick one of several options. Pauses until they answer.",
    ChoiceArguments,
    _choice,
    resume=_answered,
)
ASK_USER_MULTI_CHOICE = tool(
    "ask_user_multi_choice",
    "Ask the user to pick any number of options. Pauses until they answer.",
    MultiChoiceArguments,
    _multi_choice,
    resume=_answered,
)
ASK_USER_YES_NO = tool(
    "ask_user_yes_no",
    "Ask the user a yes/no question. Pauses until they answer. "
    "Not needed before destructive actions: those ask by themselves.",
    YesNoArguments,
    _yes_no,
    resume=_answered,
)
ASK_USER_FREE_TEXT = tool(
    "ask_user_free_text",
    "Ask the user for some text. Pauses until they answer. Never ask for passwords, keys or tokens.",
    FreeTextArguments,
    _free_text,
    resume=_answered,
)
