"""In place of a model, for a turn whose one call its caller has written (docs/decisions/0024)."""

from collections.abc import AsyncGenerator

import msgspec

from parley.turn.model import JsonObject, Prompt, Reply, ReplyPart, TextDelta, ToolEntry, Usage

# In place of a model on the run's row.
DIRECT = "direct"
DIRECT_LLM: JsonObject = {
    "integration_name": DIRECT,
    "provider_id": DIRECT,
    "model_id": DIRECT,
    "credential_id": None,
    "temperature": None,
}
WINDOW_TOKENS = 1_000_000
WORDS = {"ok": "Done.", "cancelled": "Not run.", "credit_limit": "Not run: the credits are used up."}


class Finishing:
    """Fulfils ``turn.model.Model`` for a turn whose one call is made: it says how the call ended, and stops."""

    async def reply(self, prompt: Prompt) -> AsyncGenerator[ReplyPart]:
        """One sentence and no call."""
        last = next((entry for entry in reversed(prompt.entries) if isinstance(entry, ToolEntry)), None)
        text = WORDS.get(_status(last.output) if last else "", "It did not work.")
        yield TextDelta(text)
        yield Reply(text=text, provider=DIRECT)

    def partial_usage(self) -> Usage:
        """Nothing: no model is asked."""
        return Usage()


def is_direct(llm: JsonObject) -> bool:
    """Whether a run's row names no model but one call."""
    return llm.get("integration_name") == DIRECT


def _status(output: str) -> str:
    try:
        value = msgspec.json.decode(output)
    except msgspec.DecodeError:
        return ""
    return str(value.get("status", "")) if isinstance(value, dict) else ""
