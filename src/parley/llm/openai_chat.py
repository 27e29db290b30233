"""The OpenAI chat completions format, as a dozen vendors and servers speak it."""

import re
from collections.abc import Sequence
from uuid import uuid4

import msgspec

from parley.llm import failures
from parley.llm.exchange import Limits, Request
from parley.llm.http_model import (
    CALL_ID_CHARACTERS,
    TOOL_NAME_CHARACTERS,
    Pieces,
    estimated_tokens,
    said_tokens,
    storable,
)
from parley.llm.providers import Endpoint, Quirk, key_headers
from parley.llm.transcript import AssistantTurn, SentCall, Turn, UserTurn, sendable, without_calls
from parley.turn.model import (
    AssistantEntry,
    JsonObject,
    JsonValue,
    Prompt,
    Reply,
    ReplyPart,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    Usage,
)
from parley.turn.text import NOT_JSON

DONE = b"[DONE]"
UNSIGNED: JsonObject = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""What Gemini wants on calls that another model made (its documentation on thought signatures)."""

# ── what is read ────────────────────────────────────────────────────────────────────────────────


class _Piece(msgspec.Struct, gc=False):
    """A part of a content list, as Mistral's reasoning models stream it."""

    text: str = ""
    thinking: "list[_Piece] | None" = None


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class _CallDelta(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: dict[str, object] | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | list[_Piece] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _CachedTokens(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None
    prompt_cache_hit_tokens: int | None = None


class _GroqExtra(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    x_groq: _GroqExtra | None = None
    error: object = None


_CHUNK = msgspec.json.Decoder(_Chunk)


class _Call:
    """A tool call that is still arriving."""

    __slots__ = ("arguments", "extra", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: dict[str, object] | None = None


class ChatDecoder:
    """Fulfils ``http_model.Decoder``."""

    def __init__(self, endpoint: Endpoint, model: str, prompt: Prompt, sent_bytes: int, limits: Limits) -> None:
        self.finished = False
        self._endpoint = endpoint
        self._model = model
        self._prompt = prompt
        self._sent_bytes = sent_bytes
        self._pieces = Pieces(endpoint, limits)
        self._arguments_left = limits.arguments_characters
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._usage: _Usage | None = None
        self._finish_reason = ""

    def take(self, events: Sequence[bytes]) -> None:
        for event in events:
            if event == DONE:
                # Some servers say that they are done, but not why.
                self._finish_reason = self._finish_reason or ("stop" if self._calls or self._pieces.text else "")
                self.end()
                break
            try:
                chunk = _CHUNK.decode(event)
            except NOT_JSON:
                raise failures.garbled(self._endpoint) from None
            if chunk.choices:
                self._choice(chunk.choices[0])
            if chunk.usage is not None:
                self._usage = chunk.usage
            elif chunk.x_groq is not None and chunk.x_groq.usage is not None:
                self._usage = chunk.x_groq.usage
            if chunk.error is not None:
                raise failures.error_for(failures.problem_of(chunk.error), self._endpoint, self._model)

    def fresh(self) -> list[ReplyPart]:
        return self._pieces.fresh()

    def end(self) -> None:
        if self._finish_reason:
            self.finished = True
        elif self._calls or self._pieces.text or self._pieces.thinking:
            raise failures.broken_off(self._endpoint)
        else:
            raise failures.garbled(self._endpoint)

    def reply(self) -> Reply:
        text = self.text()
        calls, state = self._finished_calls()
        if self._finish_reason == "content_filter" and not text and not calls:
            raise failures.declined(self._endpoint)
        return Reply(
            text=text,
            calls=calls,
            thinking="".join(self._pieces.thinking) or None,
            usage=self.usage(),
            provider=self._endpoint.provider.name,
            provider_state=state,
        )

    def usage(self) -> Usage:
        said = self._usage
        if said is None:
            return Usage(estimated_tokens(self._sent_bytes), self._estimated_output(), 0, exact=False)
        given = said_tokens(said.prompt_tokens)
        output = max(said_tokens(said.completion_tokens), said_tokens(said.total_tokens) - given)
        details = said.prompt_tokens_details
        cached = (details and details.cached_tokens) or said.prompt_cache_hit_tokens or 0
        if not self._finish_reason:
            output = max(output, self._estimated_output())
        return Usage(given, output, min(said_tokens(cached), given), exact=bool(self._finish_reason))

    def text(self) -> str:
        return "".join(self._pieces.text)

    def _estimated_output(self) -> int:
        pieces = (*self._pieces.text, *self._pieces.thinking, *(p for call in self._calls for p in call.arguments))
        return estimated_tokens(sum(map(len, pieces)))

    def _choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta is not None:
            thought = delta.reasoning_content or delta.reasoning
            if thought:
                self._pieces.add(ThinkingDelta, thought)
            if delta.content:
                self._content(delta.content)
            if delta.refusal:
                self._pieces.add(TextDelta, delta.refusal)
            if delta.tool_calls:
                for call in delta.tool_calls:
                    self._call(call)
        if choice.finish_reason:
            self._finish_reason = choice.finish_reason

    def _content(self, content: str | list[_Piece]) -> None:
        if isinstance(content, str):
            self._pieces.add(TextDelta, content)
            return
        for piece in content:
            if piece.text:
                self._pieces.add(TextDelta, piece.text)
            for thought in piece.thinking or ():
                self._pieces.add(ThinkingDelta, thought.text)

    def _call(self, delta: _CallDelta) -> None:
        function = delta.function or _Function()
        call = self._call_for(delta, function.name or "")
        if delta.extra_content:
            call.extra = delta.extra_content
        if function.name and function.name != call.name:
            call.name += function.name
        raw = bytes(function.arguments)
        if raw in (b'""', b"null"):
            return
        try:
            # Some servers send the arguments as an object instead of a text.
            piece = msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()
        except NOT_JSON:
            raise failures.garbled(self._endpoint) from None
        self._arguments_left -= len(piece)
        if self._arguments_left < 0:
            raise failures.oversized(self._endpoint)
        call.arguments.append(piece)

    def _call_for(self, delta: _CallDelta, name: str) -> _Call:
        """The call that a delta belongs to.

        Some servers leave the index out, or give every call the index 0: there a new id together
        with a name begins a new call. Others repeat id and name in every delta, or change the id.
        """
        known = self._calls[-1] if delta.index is None and self._calls else self._by_index.get(delta.index or 0)
        if known is not None:
            other_id = bool(delta.id and known.id and delta.id != known.id)
            again = not delta.id and delta.index is None and bool(known.arguments)
            if not (name and (other_id or again)):
                known.id = known.id or delta.id or ""
                return known
        call = _Call()
        call.id = delta.id or ""
        self._calls.append(call)
        self._by_index[delta.index or 0] = call
        return call

    def _finished_calls(self) -> tuple[list[ToolCall], JsonValue]:
        if not self._calls:
            return [], None
        taken = {c.id for e in self._prompt.entries if isinstance(e, AssistantEntry) for c in e.calls}
        calls: list[ToolCall] = []
        extras: dict[str, object] = {}
        for call in self._calls:
            call_id = storable(call.id, CALL_ID_CHARACTERS)
            if not call_id or call_id in taken:
                call_id = f"call_{uuid4().hex[:24]}"
            taken.add(call_id)
            arguments = "".join(call.arguments)
            calls.append(
                ToolCall(call_id, storable(call.name, TOOL_NAME_CHARACTERS), arguments if arguments.strip() else "{}")
            )
            if call.extra:
                extras[call_id] = call.extra
        state: JsonValue = msgspec.convert({"extra_content": extras}, type=object) if extras else None  # pyright: ignore[reportAssignmentType]
        return calls, state


# ── what is sent ────────────────────────────────────────────────────────────────────────────────


class OpenAIChat:
    """Fulfils ``http_model.WireFormat``."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._max_output_tokens = max_output_tokens
        self._temperature = temperature
        self._limits = limits or Limits()

    def request(self, prompt: Prompt, refused: frozenset[str]) -> Request:
        optional = {name: value for name, value in self._optional(prompt).items() if name not in refused}
        body: dict[str, object] = {"model": self._model, "stream": True, **optional}
        if prompt.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in prompt.tools
            ]
        # Last, so that each request of a conversation begins with the bytes of the one before.
        body["messages"] = self._messages(prompt)
        headers = key_headers(self._endpoint)
        return Request("/chat/completions", headers, msgspec.json.encode(body), self._model, tuple(optional))

    def decoder(self, prompt: Prompt, sent_bytes: int) -> ChatDecoder:
        return ChatDecoder(self._endpoint, self._model, prompt, sent_bytes, self._limits)

    def _has(self, quirk: Quirk) -> bool:
        return quirk in self._endpoint.provider.quirks

    def _optional(self, prompt: Prompt) -> dict[str, object]:
        """Parameters that the request is better with, and possible without."""
        optional: dict[str, object] = {}
        if not self._has("no_stream_options"):
            optional["stream_options"] = {"include_usage": True}
        if prompt.tools and not self._has("no_parallel_tool_calls"):
            optional["parallel_tool_calls"] = False
        if self._max_output_tokens is not None:
            name = "max_completion_tokens" if self._has("max_completion_tokens") else "max_tokens"
            optional[name] = self._max_output_tokens
        if self._temperature is not None:
            optional["temperature"] = self._temperature
        return optional

    def _messages(self, prompt: Prompt) -> list[dict[str, object]]:
        messages: list[dict[str, object]] = []
        if prompt.system.strip():
            messages.append({"role": "system", "content": prompt.system})
        for turn in self._turns(prompt):
            if isinstance(turn, UserTurn):
                if messages and messages[-1]["role"] == "tool" and self._has("assistant_after_tool"):
                    messages.append({"role": "assistant", "content": "(Interrupted.)"})
                messages.append({"role": "user", "content": "\n\n".join(turn.texts)})
            else:
                messages.append(self._assistant(turn))
                messages += [_tool_message(call) for call in turn.calls]
        return messages

    def _turns(self, prompt: Prompt) -> list[Turn]:
        if self._has("nine_character_ids"):
            turns = sendable(prompt.entries, re.compile(r"[a-zA-Z0-9]{9}"), lambda digest: digest[:9])
        else:
            turns = sendable(prompt.entries, re.compile(r"[\w-]{1,40}", re.ASCII), lambda digest: f"call_{digest[:24]}")
        return turns if prompt.tools else without_calls(turns)

    def _assistant(self, turn: AssistantTurn) -> dict[str, object]:
        message: dict[str, object] = {"role": "assistant", "content": turn.text or None}
        if not turn.calls:
            return message
        tool_calls: list[dict[str, object]] = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
            for call in turn.calls
        ]
        message["tool_calls"] = tool_calls
        ours = turn.entry.provider == self._endpoint.provider.name
        if self._has("reasoning_replay"):
            message["reasoning_content"] = (turn.entry.thinking or "") if ours else ""
        if self._has("thought_signatures"):
            _sign(tool_calls, turn.calls, turn.entry.provider_state if ours else None)
        return message


def _sign(sent: Sequence[dict[str, object]], calls: Sequence[SentCall], state: JsonValue) -> None:
    """Give the calls back the signatures they came with; the first call must have one in any case."""
    extras = state.get("extra_content") if isinstance(state, dict) else None
    known = extras if isinstance(extras, dict) else {}
    for position, (message, call) in enumerate(zip(sent, calls, strict=True)):
        extra = known.get(call.original_id) or (UNSIGNED if position == 0 else None)
        if extra:
            message["extra_content"] = extra


def _tool_message(call: SentCall) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call.id, "content": call.output or ""}
