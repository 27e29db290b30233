"""The turn that is measured: two model calls with one tool between them."""

from dataclasses import dataclass

from parley.testing.scripted_wire import ScriptedCall, ScriptedReply, ScriptedUsage

CHUNKS = 100
CHARACTERS = 4
EVENT_SECONDS = 0.02
MODEL_CALLS = 2
TOOL = "get_organization_credentials"
"""The one tool: it lists what is connected, from the store. Free, and the same small answer everywhere."""
MESSAGE = "Which accounts are connected, and what can you do with them?"
LOOK = ScriptedCall(TOOL)
TEXT_CHARACTERS = MODEL_CALLS * CHUNKS * CHARACTERS
CHUNKS_OF_TURN = MODEL_CALLS * CHUNKS


def replies(paced: float, call: ScriptedCall = LOOK, chunks: int = CHUNKS) -> list[ScriptedReply]:
    """What the model says: text and the tool call, then text; one event every ``paced`` seconds, 0 for all at once."""
    text = ["abc "] * chunks
    usage = ScriptedUsage(input=1_000, output=120)
    if paced:
        return [
            ScriptedReply(text=text, calls=[call], usage=usage, paced=paced),
            ScriptedReply(text=text, usage=usage, paced=paced),
        ]
    return [
        ScriptedReply(text=text, calls=[call], usage=usage),
        ScriptedReply(text=text, usage=usage),
    ]


@dataclass(frozen=True, slots=True)
class Shape:
    """How many turns, how many of them at once, and over how many seconds their starts are spread.

    ``patience`` is how many seconds one may take.
    """

    turns: int
    at_once: int
    spread: float
    patience: float = 180.0
