"""The cap of a single turn: when a person is asked whether it may go on, and what a yes allows.

The cap is the organization's own setting. It never ends a turn by itself.
"""

from dataclasses import dataclass

from sqlalchemy import bindparam, select

from parley.billing import store, usage_store
from parley.billing.metering import tool_charge_key
from parley.storage import ReadTx
from parley.storage.tables.chats import questions, runs
from parley.turn.model import JsonObject

ALLOWANCE = "turn_allowance_micro"
"""Under this name a question's binding says how many micro-credits a yes lets the turn use in all."""

# Of the cap: so much is left when a person is asked, for the call that crosses it and for the answer "stop".
ROOM_PERCENT = 20


@dataclass(frozen=True, slots=True)
class CapNear:
    """A turn has used most of what it may use without asking; a yes lets it use ``next_micro`` in all."""

    spent_micro: int
    allowance_micro: int
    next_micro: int

    @property
    def binding(self) -> JsonObject:
        """What the answer is held against."""
        return {
            ALLOWANCE: self.next_micro,
            "spent_micro": self.spent_micro,
            "allowance_micro": self.allowance_micro,
        }


def cap_near(tx: ReadTx, organization_id: str, turn_id: str, *, run_id: str, step: int) -> CapNear | None:
    """Whether the turn should pause and ask before it starts the call of this step.

    Every yes so far allowed the cap once more. None where the organization has no cap, where there is room,
    and where this very call was paid before its process died: asked now, it would be paid again.
    """
    subscription = store.peek(tx, organization_id)
    if subscription is None or subscription.turn_cap_micro is None:
        return None
    cap = subscription.turn_cap_micro
    spent = usage_store.turn_spent_micro(tx, turn_id)
    allowance = max(cap, _agreed_micro(tx, turn_id))
    if spent * 100 < allowance * 100 - cap * ROOM_PERCENT:
        return None
    if store.entered_micro(tx, organization_id, tool_charge_key(run_id, step)) is not None:
        return None
    return CapNear(spent, allowance, max(allowance, spent) + cap)


def _agreed_micro(tx: ReadTx, turn_id: str) -> int:
    """The most that a person has let the turn use; 0 where nobody was asked yet."""
    rows = tx.execute(_ANSWERED, {"of_turn": turn_id})
    return max((row.binding.get(ALLOWANCE, 0) for row in rows if row.answer["answer"] is True), default=0)


_ANSWERED = (
    select(questions.c.binding, questions.c.answer)
    .join(runs, runs.c.id == questions.c.run_id)
    .where(runs.c.turn_id == bindparam("of_turn"), questions.c.kind == "yes_no", questions.c.outcome == "answered")
)
