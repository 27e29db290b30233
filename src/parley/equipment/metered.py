"""What a turn may spend: models are counted however a call ends, and tools wait at the turn's cap."""

from collections.abc import AsyncGenerator, Iterator

from parley.base.clock import Clock
from parley.base.ids import new_id
from parley.billing import ALLOWANCE, CapNear, ModelCall, Plans, cap_near, credits_text, hold_model
from parley.equipment.llms import OpenModel
from parley.runs.journal import RunJournal, Spent
from parley.runs.run_store import Lease
from parley.storage import Store
from parley.turn.loop import Toolbox
from parley.turn.model import (
    Answer,
    Asked,
    Declined,
    JsonObject,
    JsonValue,
    ModelError,
    OpenCall,
    Prompt,
    Question,
    Reply,
    ReplyPart,
    Rescue,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)

CHARACTERS_PER_TOKEN = 4
LIKELY_OUTPUT_TOKENS = 1_000
# Figures for people are rounded up to hundredths of a credit.
SHOWN_MICRO = 10_000
NOT_ALLOWED = "The user did not let this turn use more credits. The call was not run."


class MeteredModel:
    """A model that leaves one usage row with the journal for every call: good, failed or stopped.

    ``numbers`` are those of the run's calls that are still to come; models of one run share them.
    """

    def __init__(
        self,
        opened: OpenModel,
        journal: RunJournal,
        *,
        numbers: Iterator[int],
        store: Store,
        plans: Plans,
        clock: Clock,
    ) -> None:
        self._opened = opened
        self._journal = journal
        self._numbers = numbers
        self._store = store
        self._plans = plans
        self._clock = clock

    async def reply(self, prompt: Prompt) -> AsyncGenerator[ReplyPart]:
        """Stream the reply of the model behind. Raises ModelError, also when credits are used up."""
        call = self._call(next(self._numbers))
        await self._hold(call, prompt)
        started, usage, succeeded = self._clock.now(), None, False
        stream = self._opened.model.reply(prompt)
        try:
            async for part in stream:
                if isinstance(part, Reply):
                    usage, succeeded = part.usage, True
                    # Before the reply is passed on: whoever stores it stores what it cost.
                    self._journal.usage.append(Spent(call, usage, started, succeeded))
                yield part
        except ModelError as error:
            usage = error.usage
            raise
        finally:
            await stream.aclose()
            if not succeeded:
                used = usage if usage is not None else self._opened.model.partial_usage()
                self._journal.usage.append(Spent(call, used, started, succeeded))

    def partial_usage(self) -> Usage:
        """Tokens of the call that was stopped."""
        return self._opened.model.partial_usage()

    def _call(self, number: int) -> ModelCall:
        lease, opened = self._journal.lease, self._opened
        return ModelCall(
            organization_id=lease.organization_id,
            user_id=lease.user_id,
            run_id=lease.run_id,
            call=number,
            attempt=lease.epoch,
            integration_name=opened.integration_name,
            model_id=opened.model_id,
            managed=opened.managed,
            credential_id=opened.credential_id,
        )

    async def _hold(self, call: ModelCall, prompt: Prompt) -> None:
        """Set credits aside for a managed call."""
        if not call.managed:
            return
        characters = len(prompt.system) + sum(len(str(entry)) for entry in prompt.entries)
        estimate = Usage(characters // CHARACTERS_PER_TOKEN, LIKELY_OUTPUT_TOKENS, exact=False)
        now = self._clock.now()
        broke = await self._store.write(lambda tx: hold_model(tx, self._plans, call, estimate, now))
        if broke is not None:
            raise ModelError("credit", broke.message)


class CappedTools:
    """A run's tools, of which none starts before a person agrees once the turn nears its cap.

    Fulfils ``turn.loop.Toolbox``. The check comes before a call, so a turn that is about to answer is never asked.
    """

    def __init__(self, tools: Toolbox, lease: Lease, store: Store) -> None:
        self._tools = tools
        self._lease = lease
        self._store = store

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told of the tools."""
        return self._tools.specs

    async def run(self, call: ToolCall, step: int) -> ToolResult:
        """Run one call, or ask whether the turn may go on."""
        lease = self._lease
        near = await self._store.read(
            lambda tx: cap_near(tx, lease.organization_id, lease.turn_id, run_id=lease.run_id, step=step)
        )
        return await self._tools.run(call, step) if near is None else _cap_question(near)

    async def reenter(self, pending: OpenCall) -> ToolResult:
        """Go on with a call: one that waited at the cap runs after a yes and ends the turn after a no."""
        match pending.reentry:
            case Answer(response, binding) if ALLOWANCE in binding:
                if response.get("answer") is True:
                    return await self._tools.run(pending.call, pending.step)
                return _stopped_at_cap(binding)
            case Rescue(None):
                return await self.run(pending.call, pending.step)
            case _:
                return await self._tools.reenter(pending)


def _cap_question(near: CapNear) -> Asked:
    """The card: what was used of what, and what a yes allows."""
    request_id = new_id()
    used, allowed, then = (_shown(micro) for micro in (near.spent_micro, near.allowance_micro, near.next_micro))
    payload: JsonObject = {
        "kind": "yes_no",
        "request_id": request_id,
        "message": f"This turn has used **{used} of {allowed} credits**. Go on? It may then use up to {then}.",
        "required": True,
        "allow_free_text": False,
        "context": {
            "type": "turn_cap",
            "used_micro": near.spent_micro,
            "allowance_micro": near.allowance_micro,
            "next_allowance_micro": near.next_micro,
        },
        "timeout_hint_seconds": None,
        "yes_label": "Go on",
        "no_label": "Stop here",
    }
    return Asked(Question(request_id, "yes_no", payload, near.binding))


def _stopped_at_cap(binding: JsonObject) -> Declined:
    used, allowed = (_shown(binding[name]) for name in ("spent_micro", "allowance_micro"))
    text = f"I stopped here, as you chose: this turn has used {used} of {allowed} credits. Send a message to go on."
    return Declined({"status": "cancelled", "reason": NOT_ALLOWED}, text)


def _shown(micro: JsonValue) -> str:
    if not isinstance(micro, int):
        raise TypeError("a cap's binding holds whole micro-credits")
    return credits_text(-(-micro // SHOWN_MICRO) * SHOWN_MICRO)
