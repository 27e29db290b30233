"""An event over 256 KB is sent cut, with a reference to the whole (issue 3, sentence 5).

Only what tools were given and gave is cut, never what the model says to people. The whole is a row of
``tool_results``; ``GET /assistant/chat/{chat_id}/tool-results/{whole_id}`` shows it.
"""

from msgspec import structs

from parley.base.ids import new_id
from parley.runs import chat_store
from parley.runs.run_store import Lease
from parley.storage import WriteTx
from parley.turn.events import Done, Event, ToolCalled, ToolReturned, ToolSummary
from parley.turn.model import JsonValue, Whole
from parley.turn.text import shortened

EVENT_BYTES = 256 * 1024
# A character is at most four bytes on the wire; half is left for everything else in the event.
CHARACTERS = EVENT_BYTES // 8


def fitted(tx: WriteTx, lease: Lease, event: Event, now: int) -> Event:
    """The event, or where it is too large the same one cut; called inside the transaction that stores it."""
    if len(event.body().encode()) <= EVENT_BYTES:
        return event

    def keep(value: JsonValue) -> str:
        whole = Whole(new_id(), value)
        chat_store.keep_result(tx, lease.chat_id, lease.run_id, whole, now)
        return whole.id

    match event:
        case ToolCalled():
            return structs.replace(event, input=shortened(event.input, CHARACTERS), whole_id=keep(event.input))
        case ToolReturned():
            return structs.replace(event, output=shortened(event.output, CHARACTERS), whole_id=keep(event.output))
        case Done():
            whole = keep([{"tool": each.tool, "input": each.input, "output": each.output} for each in event.tool_calls])
            share = CHARACTERS // (2 * max(1, len(event.tool_calls)))
            cut = tuple(
                ToolSummary(each.tool, shortened(each.input, share), shortened(each.output, share))
                for each in event.tool_calls
            )
            return structs.replace(event, tool_calls=cut, whole_id=whole)
        case _:
            return event
