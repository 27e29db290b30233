"""The Anthropic messages format."""

import re
from collections.abc import Mapping, Sequence
from uuid import uuid4

import msgspec

from parley.base.settings import LEAST_THINKING_TOKENS
from parley.llm import failures
from parley.llm.catalogue import Thinking
from parley.llm.exchange import Limits, Request
from parley.llm.http_model import (
    CALL_ID_CHARACTERS,
    TOOL_NAME_CHARACTERS,
    Pieces,
    estimated_tokens,
    said_tokens,
    storable,
)
from parley.llm.providers import Endpoint, key_headers
from parley.llm.transcript import AssistantTurn, SentCall, UserTurn, sendable, without_calls
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

DEFAULT_OUTPUT_TOKENS = 8_192
CACHED = {"type": "ephemeral"}

# ── what is read ────────────────────────────────────────────────────────────────────────────────


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Message(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Delta(msgspec.Struct, gc=False):
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: object = None


_EVENT = msgspec.json.Decoder(_Event)


class _Open:
    """A content block that is still arriving."""

    __slots__ = ("arguments", "block", "signature", "text")

    def __init__(self, block: _Block) -> None:
        self.block = block
        self.text: list[str] = []
        self.signature: list[str] = []
        self.arguments: list[str] = []


class MessagesDecoder:
    """Fulfils ``http_model.Decoder``."""

    def __init__(self, endpoint: Endpoint, model: str, prompt: Prompt, sent_bytes: int, limits: Limits) -> None:
        self.finished = False
        self._endpoint = endpoint
        self._model = model
        self._prompt = prompt
        self._sent_bytes = sent_bytes
        self._pieces = Pieces(endpoint, limits)
        self._arguments_left = limits.arguments_characters
        self._blocks: dict[int, _Open] = {}
        self._started: _Usage | None = None
        self._final_output: int | None = None
        self._stop_reason = ""

    def take(self, events: Sequence[bytes]) -> None:
        for event in events:
            try:
                said = _EVENT.decode(event)
            except (msgspec.MsgspecError, RecursionError):
                raise failures.garbled(self._endpoint) from None
            if said.type == "content_block_delta" and said.delta is not None:
                self._delta(said.index, said.delta)
            else:
                self._mark(said)
            if self.finished:
                break

    def fresh(self) -> list[ReplyPart]:
        return self._pieces.fresh()

    def end(self) -> None:
        if self._started is None:
            raise failures.garbled(self._endpoint)
        if not self._stop_reason:
            raise failures.broken_off(self._endpoint)
        self.finished = True

    def reply(self) -> Reply:
        text = self.text()
        calls, state = self._content()
        if self._stop_reason == "refusal" and not calls:
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
        estimate = estimated_tokens(
            sum(map(len, (*self._pieces.text, *self._pieces.thinking)))
            + sum(len(piece) for opened in self._blocks.values() for piece in opened.arguments)
        )
        said = self._started
        if said is None:
            return Usage(estimated_tokens(self._sent_bytes), estimate, 0, exact=False)
        cached = said_tokens(said.cache_read_input_tokens)
        given = said_tokens(said.input_tokens) + said_tokens(said.cache_creation_input_tokens) + cached
        if self._final_output is not None:
            return Usage(given, said_tokens(self._final_output), cached)
        return Usage(given, max(said_tokens(said.output_tokens), estimate), cached, exact=False)

    def text(self) -> str:
        return "".join(self._pieces.text)

    def _delta(self, index: int, delta: _Delta) -> None:
        opened = self._blocks.get(index)
        if opened is None:
            raise failures.garbled(self._endpoint)
        if delta.text:
            self._pieces.add(TextDelta, delta.text)
            opened.text.append(delta.text)
        elif delta.thinking:
            self._pieces.add(ThinkingDelta, delta.thinking)
            opened.text.append(delta.thinking)
        elif delta.partial_json:
            self._arguments_left -= len(delta.partial_json)
            if self._arguments_left < 0:
                raise failures.oversized(self._endpoint)
            opened.arguments.append(delta.partial_json)
        elif delta.signature:
            opened.signature.append(delta.signature)

    def _mark(self, said: _Event) -> None:
        match said.type:
            case "message_start":
                self._started = (said.message and said.message.usage) or _Usage()
            case "content_block_start" if said.content_block is not None:
                self._begin(said.index, said.content_block)
            case "message_delta":
                if said.delta is not None and said.delta.stop_reason:
                    self._stop_reason = said.delta.stop_reason
                self._final(said.usage)
            case "message_stop":
                self.end()
            case "error":
                raise failures.error_for(failures.problem_of(said.error), self._endpoint, self._model)
            case _:  # pings, ends of blocks, and whatever else may come later
                pass

    def _begin(self, index: int, block: _Block) -> None:
        opened = self._blocks[index] = _Open(block)
        if block.text:
            self._pieces.add(TextDelta, block.text)
            opened.text.append(block.text)
        if block.thinking:
            self._pieces.add(ThinkingDelta, block.thinking)
            opened.text.append(block.thinking)
        if block.signature:
            opened.signature.append(block.signature)

    def _final(self, usage: _Usage | None) -> None:
        """Take the last figures; some servers give the input's only here."""
        if usage is None:
            return
        if usage.output_tokens is not None:
            self._final_output = usage.output_tokens
        started = self._started
        if started is not None and usage.input_tokens and not started.input_tokens:
            self._started = usage

    def _content(self) -> tuple[list[ToolCall], JsonValue]:
        """The calls, and the blocks to replay where thinking must come back unchanged."""
        taken = {c.id for e in self._prompt.entries if isinstance(e, AssistantEntry) for c in e.calls}
        calls: list[ToolCall] = []
        blocks: list[JsonValue] = []
        thought = False
        for _, opened in sorted(self._blocks.items()):
            block = opened.block
            match block.type:
                case "text":
                    blocks.append({"type": "text", "text": "".join(opened.text)})
                case "thinking":
                    thought = True
                    signature = "".join(opened.signature)
                    blocks.append({"type": "thinking", "thinking": "".join(opened.text), "signature": signature})
                case "redacted_thinking":
                    thought = True
                    blocks.append({"type": "redacted_thinking", "data": block.data})
                case "tool_use":
                    call_id = storable(block.id, CALL_ID_CHARACTERS)
                    if not call_id or call_id in taken:
                        call_id = f"toolu_{uuid4().hex[:24]}"
                    taken.add(call_id)
                    arguments = "".join(opened.arguments) or bytes(block.input).decode(errors="replace")
                    calls.append(
                        ToolCall(
                            call_id,
                            storable(block.name, TOOL_NAME_CHARACTERS),
                            arguments if arguments.strip() else "{}",
                        )
                    )
                    blocks.append({"type": "tool_use", "id": call_id})
                case _:
                    pass
        return calls, {"model": self._model, "blocks": blocks} if thought else None


# ── what is sent ────────────────────────────────────────────────────────────────────────────────


def thinking_wish(thinking: Thinking | None, budget: int, max_output_tokens: int | None) -> JsonObject | None:
    """The parameter that asks a model to think; None where it cannot, or is not to (``budget`` 0).

    A budget leaves at least half of the reply for the answer. Models that think as they see fit take no
    number, and show what they thought only where a summary is asked for.
    """
    if thinking is None or budget == 0:
        return None
    if thinking == "adaptive":
        return {"type": "adaptive", "display": "summarized"}
    tokens = min(budget, (max_output_tokens or DEFAULT_OUTPUT_TOKENS) // 2)
    return {"type": "enabled", "budget_tokens": tokens} if tokens >= LEAST_THINKING_TOKENS else None


class AnthropicMessages:
    """Fulfils ``http_model.WireFormat``. ``thinking`` is what ``thinking_wish`` made of the model and the settings."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        thinking: JsonObject | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._thinking = thinking
        self._max_output_tokens = max_output_tokens or DEFAULT_OUTPUT_TOKENS
        self._temperature = temperature
        self._limits = limits or Limits()

    def request(self, prompt: Prompt, refused: frozenset[str]) -> Request:
        messages = self._messages(prompt, replay="thinking" not in refused)
        optional = {name: value for name, value in self._optional(prompt, messages).items() if name not in refused}
        body: dict[str, object] = {"model": self._model, "max_tokens": self._max_output_tokens, "stream": True}
        body |= optional
        if prompt.system.strip():
            body["system"] = [{"type": "text", "text": prompt.system, "cache_control": CACHED}]
        if prompt.tools:
            tools: list[dict[str, object]] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in prompt.tools
            ]
            tools[-1]["cache_control"] = CACHED
            body["tools"] = tools
            body["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
        # Last, so that each request of a conversation begins with the bytes of the one before.
        body["messages"] = messages
        headers = key_headers(self._endpoint)
        return Request("/v1/messages", headers, msgspec.json.encode(body), self._model, tuple(optional))

    def decoder(self, prompt: Prompt, sent_bytes: int) -> MessagesDecoder:
        return MessagesDecoder(self._endpoint, self._model, prompt, sent_bytes, self._limits)

    def _optional(self, prompt: Prompt, messages: Sequence[Mapping[str, object]]) -> dict[str, object]:
        """Parameters that the request is better with, and possible without.

        A chosen temperature and thinking exclude each other; a request without tools is one for a summary.
        """
        if self._temperature is not None:
            return {"temperature": min(1.0, self._temperature)}
        if self._thinking is None or not prompt.tools:
            return {}
        budgeted = "budget_tokens" in self._thinking
        return {} if budgeted and _begun_without_thinking(messages) else {"thinking": self._thinking}

    def _messages(self, prompt: Prompt, *, replay: bool) -> list[dict[str, object]]:
        turns = sendable(prompt.entries, re.compile(r"[\w-]{1,64}", re.ASCII), lambda digest: f"toolu_{digest[:24]}")
        if not prompt.tools:
            turns = without_calls(turns)
        messages: list[dict[str, object]] = []
        said: list[dict[str, object]] = []  # the next user message: results first, then texts
        for turn in turns:
            if isinstance(turn, UserTurn):
                said.extend({"type": "text", "text": text} for text in turn.texts)
                continue
            if said:
                messages.append({"role": "user", "content": said})
            content = self._replayed(turn) if replay else None
            messages.append({"role": "assistant", "content": content or _assistant(turn)})
            said = [_tool_result(call) for call in turn.calls]
        said[-1]["cache_control"] = CACHED
        messages.append({"role": "user", "content": said})
        return messages

    def _replayed(self, turn: AssistantTurn) -> list[JsonObject] | None:
        """The blocks as the same model sent them; None where they are another's or no longer fit the entry."""
        state = turn.entry.provider_state
        if turn.entry.provider != self._endpoint.provider.name or not isinstance(state, dict):
            return None
        blocks = state.get("blocks")
        if state.get("model") != self._model or not isinstance(blocks, list):
            return None
        calls = list(turn.calls)
        replayed: list[JsonObject] = []
        for block in blocks:
            if not isinstance(block, dict):
                return None
            if block.get("type") == "tool_use":
                if not calls or calls[0].original_id != block.get("id"):
                    return None
                replayed.append(_tool_use(calls.pop(0)))
            elif block.get("type") != "text" or str(block.get("text")).strip():
                replayed.append(block)
        text = "".join(str(block.get("text")) for block in replayed if block.get("type") == "text")
        return replayed if text.strip() == turn.text.strip() and not calls else None


def _begun_without_thinking(messages: Sequence[Mapping[str, object]]) -> bool:
    """Whether the reply to the newest text goes on already, and did not begin with thinking: it must end so too."""
    first: object = None
    for message in reversed(messages):
        content = message["content"]
        assert isinstance(content, list)
        if message["role"] == "assistant":
            first = content[0]
        elif any(block["type"] != "tool_result" for block in content):
            break
    return isinstance(first, dict) and first["type"] not in ("thinking", "redacted_thinking")


def _assistant(turn: AssistantTurn) -> list[JsonObject]:
    blocks: list[JsonObject] = [{"type": "text", "text": turn.text}] if turn.text else []
    return blocks + [_tool_use(call) for call in turn.calls]


def _tool_use(call: SentCall) -> JsonObject:
    arguments: JsonValue = msgspec.Raw(call.arguments.encode())  # pyright: ignore[reportAssignmentType] - kept byte for byte
    return {"type": "tool_use", "id": call.id, "name": call.tool, "input": arguments}


def _tool_result(call: SentCall) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": call.id, "content": call.output or ""}
