"""Watching one run from outside: the loop, the model and the tools know nothing of it.

A turn's span holds one span a step, and a step the model's call and the tool's. Content is left out
unless the operator turned it on; then it is cleared of the organization's secrets.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Sequence

import msgspec
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, set_span_in_context

from parley.telemetry import names
from parley.telemetry.facts import Clean, CleanFor, RunFacts
from parley.telemetry.meters import Exemplar, Meters
from parley.telemetry.spans import Spans
from parley.turn.loop import Toolbox
from parley.turn.model import (
    Answered,
    AssistantEntry,
    Entry,
    Failed,
    JsonObject,
    JsonValue,
    Model,
    ModelError,
    NoteEntry,
    Observed,
    OpenCall,
    Outcome,
    Paused,
    Prompt,
    Reply,
    ReplyPart,
    TextDelta,
    ToolCall,
    ToolEntry,
    ToolResult,
    ToolSpec,
    Usage,
    UserEntry,
)

CONTENT_CHARACTERS = 16_000
AGENT = "Parley"
OWN_KINDS = ("mcp", "api")


class Telemetry:
    """Spans, metrics or both. ``clean_for`` gives what clears text of an organization's secrets; None: no content."""

    def __init__(self, spans: Spans | None, meters: Meters | None, clean_for: CleanFor | None) -> None:
        self._spans = spans
        self._meters = meters
        self._clean_for = clean_for

    def begin(self, facts: RunFacts) -> "RunWatch":
        """A run begins here."""
        return RunWatch(facts, self._spans, self._meters, self._clean_for)


class RunWatch:
    """One run being watched. Call ``end`` once, whatever happens."""

    def __init__(self, facts: RunFacts, spans: Spans | None, meters: Meters | None, clean_for: CleanFor | None) -> None:
        self._facts = facts
        self._spans = spans
        self._meters = meters
        self._clean_for = clean_for
        self._clean: Clean | None = None
        self._began = time.perf_counter()
        self._span = INVALID_SPAN
        self._step = INVALID_SPAN
        if meters is not None:
            meters.running.inc()
        if spans is not None:
            about = {
                names.OPERATION: names.INVOKE_AGENT,
                names.AGENT: AGENT,
                names.PROVIDER: facts.provider,
                names.REQUEST_MODEL: facts.model,
                names.CONVERSATION: facts.chat_id,
                names.ORGANIZATION: facts.organization_id,
                names.RUN: facts.run_id,
                names.TURN: facts.turn_id,
            }
            self._span = spans.begin_turn(facts.turn_id, f"{names.INVOKE_AGENT} {AGENT}", about)

    async def around(self, model: Model, tools: Toolbox) -> "tuple[Model, Toolbox]":
        """The same model and tools, watched."""
        if self._clean_for is not None and self._span.is_recording():
            self._clean = await self._clean_for(self._facts.organization_id)
        return WatchedModel(model, self), WatchedTools(tools, self)

    def end(self, outcome: Outcome | None) -> None:
        """The run ended or paused; None where its task was stopped from outside."""
        word = _outcome_word(outcome)
        self.end_step()
        self._span.set_attribute(names.OUTCOME, word)
        if isinstance(outcome, Failed):
            _fail(self._span, outcome.reason)
        self._span.end()
        if self._meters is not None:
            self._meters.running.dec()
            seconds = time.perf_counter() - self._began
            self._meters.turns.labels(word).inc(exemplar=self._exemplar())
            self._meters.turn_seconds.labels(word).observe(seconds, self._exemplar())

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    def begin_step(self, number: int | None) -> None:
        """A step begins, unless one is open."""
        if self._spans is None or self._step is not INVALID_SPAN:
            return
        self._step = self._spans.tracer.start_span("step", set_span_in_context(self._span), SpanKind.INTERNAL)
        if number is not None:
            self._step.set_attribute(names.STEP, number)

    def end_step(self) -> None:
        """The step that is open is over."""
        self._step.end()
        self._step = INVALID_SPAN

    def begin_span(self, name: str, kind: SpanKind, attributes: dict[str, str]) -> Span:
        """A span within the step."""
        if self._spans is None:
            return INVALID_SPAN
        return self._spans.tracer.start_span(name, set_span_in_context(self._step), kind, attributes)

    # ── model calls ─────────────────────────────────────────────────────────────────────────────

    def begin_model(self, prompt: Prompt) -> Span:
        """A model is asked."""
        self.begin_step(None)
        facts = self._facts
        about = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: facts.provider,
            names.REQUEST_MODEL: facts.model,
            names.CONVERSATION: facts.chat_id,
        }
        span = self.begin_span(f"{names.CHAT} {facts.model}", SpanKind.CLIENT, about)
        if self._clean is not None:
            self.tell(span, names.SYSTEM, [{"type": "text", "content": prompt.system}])
            self.tell(span, names.INPUT_MESSAGES, _messages(prompt.entries))
        return span

    def end_model(self, span: Span, seconds: float, first: float | None, usage: Usage, error: str) -> None:
        """A model's call is over; ``first`` is the seconds to its first piece, ``error`` is empty after a good one."""
        span.set_attributes(
            {
                names.INPUT_TOKENS: usage.input,
                names.OUTPUT_TOKENS: usage.output,
                names.CACHED_TOKENS: usage.cached,
            }
        )
        if first is not None:
            span.set_attribute(names.FIRST_TOKEN, first)
        if error:
            _fail(span, error)
        span.end()
        if self._meters is None:
            return
        whose = self._meters.model_labels(self._facts.provider, self._facts.model)
        exemplar = self._exemplar()
        self._meters.model_seconds.labels(*whose, error).observe(seconds, exemplar)
        self._meters.tokens.labels(*whose, "input").observe(usage.input, exemplar)
        self._meters.tokens.labels(*whose, "output").observe(usage.output, exemplar)
        if first is not None:
            self._meters.first_token.labels(*whose).observe(first, exemplar)

    def tell_reply(self, span: Span, reply: Reply) -> None:
        """What the model said, where content is told."""
        if self._clean is not None:
            said = AssistantEntry(reply.text, reply.calls)
            self.tell(span, names.OUTPUT_MESSAGES, _messages([said]))

    # ── tools ───────────────────────────────────────────────────────────────────────────────────

    def begin_tool(self, call: ToolCall, step: int) -> Span:
        """A tool runs."""
        self.begin_step(step)
        self._step.set_attribute(names.STEP, step)
        about = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL: call.tool,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL: call.id,
        }
        span = self.begin_span(f"{names.EXECUTE_TOOL} {call.tool}", SpanKind.INTERNAL, about)
        self.tell(span, names.TOOL_ARGUMENTS, call.arguments)
        return span

    def end_tool(self, span: Span, tool: str, seconds: float, result: ToolResult | None) -> None:
        """A tool's call is over; None where it was stopped from outside. ``tool`` is empty for one there is not."""
        receipt = result.receipt if isinstance(result, Observed) else None
        if receipt is not None:
            span.set_attributes(
                {
                    names.INTEGRATION: receipt.integration_name,
                    names.ACTION: receipt.action_name,
                    names.EFFECT: receipt.effect,
                }
            )
        word = _result_word(result)
        span.set_attribute(names.OUTCOME, word)
        if word in ("failed", "unknown"):
            _fail(span, word)
        if isinstance(result, Observed):
            self.tell(span, names.TOOL_RESULT, result.output)
        span.end()
        self.end_step()
        if self._meters is not None:
            integration = _counted_as(receipt.integration_name) if receipt is not None else ""
            self._meters.action_seconds.labels(tool, integration, word).observe(seconds, self._exemplar())

    # ── common ──────────────────────────────────────────────────────────────────────────────────

    def tell(self, span: Span, name: str, value: JsonValue) -> None:
        """Content, without secrets and not too long."""
        if self._clean is not None:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            span.set_attribute(name, self._clean(text)[:CONTENT_CHARACTERS])

    def _exemplar(self) -> Exemplar:
        context = self._span.get_span_context()
        return {"trace_id": f"{context.trace_id:032x}"} if context.is_valid and context.trace_flags.sampled else None


class WatchedModel:
    """A model whose calls are spans. Fulfils ``turn.model.Model``."""

    def __init__(self, model: Model, watch: RunWatch) -> None:
        self._model = model
        self._watch = watch

    async def reply(self, prompt: Prompt) -> AsyncGenerator[ReplyPart]:
        """The reply of the model behind."""
        span, began = self._watch.begin_model(prompt), time.perf_counter()
        first: float | None = None
        usage, error = None, "stopped"
        stream = self._model.reply(prompt)
        try:
            async for part in stream:
                if first is None and isinstance(part, TextDelta):
                    first = time.perf_counter() - began
                if isinstance(part, Reply):
                    usage, error = part.usage, ""
                    self._watch.tell_reply(span, part)
                yield part
        except ModelError as failure:
            usage, error = failure.usage, failure.kind
            raise
        finally:
            await stream.aclose()
            used = usage if usage is not None else self._model.partial_usage()
            self._watch.end_model(span, time.perf_counter() - began, first, used, error)

    def partial_usage(self) -> Usage:
        """Tokens of the call that was stopped."""
        return self._model.partial_usage()


class WatchedTools:
    """Tools whose calls are spans. Fulfils ``turn.loop.Toolbox``."""

    def __init__(self, tools: Toolbox, watch: RunWatch) -> None:
        self._tools = tools
        self._watch = watch

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told of the tools."""
        return self._tools.specs

    async def run(self, call: ToolCall, step: int) -> ToolResult:
        """Run one call."""
        return await self._watched(call, step, self._tools.run(call, step))

    async def reenter(self, pending: OpenCall) -> ToolResult:
        """Go on with a call."""
        return await self._watched(pending.call, pending.step, self._tools.reenter(pending))

    async def _watched(self, call: ToolCall, step: int, running: Awaitable[ToolResult]) -> ToolResult:
        span, began = self._watch.begin_tool(call, step), time.perf_counter()
        result = None
        try:
            result = await running
            return result
        finally:
            # A model may call what it made up: its words are no labels, which are kept for ever.
            tool = call.tool if any(spec.name == call.tool for spec in self.specs) else ""
            self._watch.end_tool(span, tool, time.perf_counter() - began, result)


def _fail(span: Span, kind: str) -> None:
    span.set_attribute(names.ERROR, kind)
    span.set_status(Status(StatusCode.ERROR, kind))


def _outcome_word(outcome: Outcome | None) -> str:
    match outcome:
        case None:
            return "handed_back"
        case Answered():
            return "completed"
        case Paused():
            return "paused"
        case Failed():
            return "failed"
        case _:
            return "declined"


def _counted_as(integration: str) -> str:
    """The integration's name; of an organization's own one its kind only: there is no end of those names."""
    kind, own, _ = integration.partition("_")
    return kind if own and kind in OWN_KINDS else integration


def _result_word(result: ToolResult | None) -> str:
    match result:
        case None:
            return "stopped"
        case Observed(unknown=True):
            return "unknown"
        case Observed(failed=True):
            return "failed"
        case Observed():
            return "done"
        case _:
            return "asked"


def _messages(entries: Sequence[Entry]) -> list[JsonValue]:
    """Entries in the convention's shape: a role and typed parts."""
    return [_message(entry) for entry in entries]


def _message(entry: Entry) -> JsonObject:
    match entry:
        case UserEntry(text):
            return {"role": "user", "parts": [{"type": "text", "content": text}]}
        case NoteEntry(text):
            return {"role": "system", "parts": [{"type": "text", "content": text}]}
        case ToolEntry():
            part: JsonObject = {"type": "tool_call_response", "id": entry.call_id, "result": entry.output}
            return {"role": "tool", "parts": [part]}
        case AssistantEntry():
            parts: list[JsonValue] = [{"type": "text", "content": entry.text}] if entry.text else []
            return {"role": "assistant", "parts": [*parts, *map(_call_part, entry.calls)]}


def _call_part(call: ToolCall) -> JsonObject:
    return {"type": "tool_call", "id": call.id, "name": call.tool, "arguments": call.arguments}
