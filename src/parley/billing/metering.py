"""What models, managed tools and managed knowledge cost (contract §9.1).

Own keys cost nothing: they are recorded and never gated.
"""

from dataclasses import dataclass

from parley.billing import ledger, usage_store
from parley.billing.denials import CreditDenied, CreditExhausted, WalletDenied
from parley.billing.ledger import Charge
from parley.billing.plans import Plans
from parley.billing.usage_store import UsageRow
from parley.storage import WriteTx
from parley.turn.model import Usage


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One model call of a run. ``attempt`` tells a repeat after a crash apart (the run's epoch)."""

    organization_id: str
    user_id: str
    run_id: str
    call: int
    attempt: int
    integration_name: str
    model_id: str
    managed: bool
    credential_id: str | None = None

    @property
    def charge_key(self) -> str:
        """What the ledger knows the call by."""
        return f"model:{self.run_id}:{self.call}:{self.attempt}"


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One managed call of an integration's action, at a step of a run."""

    integration_name: str
    action_name: str
    run_id: str
    step: int


def hold_model(tx: WriteTx, plans: Plans, call: ModelCall, estimate: Usage, now: int) -> CreditExhausted | None:
    """Set credits aside before a managed model call; a value when there are none, and the call must not start.

    ``estimate`` is the prompt's tokens and a likely answer. Own keys, and plans without a ceiling, need no hold.
    """
    if not call.managed:
        return None
    denial = ledger.hold(
        tx,
        plans,
        call.organization_id,
        charge_key=call.charge_key,
        amount_micro=plans.model_micro(call.model_id, estimate),
        run_id=call.run_id,
        now=now,
    )
    return _exhausted(denial, "The model was not called")


def settle_model(
    tx: WriteTx, plans: Plans, call: ModelCall, usage: Usage, *, started_at: int, succeeded: bool, now: int
) -> int:
    """Record what a model call used and charge what it cost; the micro-credits that could not be collected.

    Also for calls that failed or were stopped (contract §9.1). Recording a call twice is once. More than 0
    means that the credits ran out during the call: the turn ends after it (contract §17 row 29).
    """
    cost = plans.model_micro(call.model_id, usage) if call.managed else 0
    row = UsageRow(
        run_id=call.run_id,
        call=call.call,
        attempt=call.attempt,
        organization_id=call.organization_id,
        user_id=call.user_id,
        integration_name=call.integration_name,
        model_id=call.model_id,
        credential_id=call.credential_id,
        managed=call.managed,
        input_tokens=usage.input,
        cached_tokens=usage.cached,
        output_tokens=usage.output,
        exact=usage.exact,
        succeeded=succeeded,
        cost_micro=cost,
        started_at=started_at,
    )
    usage_store.record_usage(tx, row, now)
    if not call.managed:
        return 0
    what = Charge(call.charge_key, "model", cost, call.run_id, call.integration_name, call.model_id)
    return ledger.settle(tx, plans, call.organization_id, what, now)


def charge_tool(tx: WriteTx, plans: Plans, organization_id: str, use: ToolUse, now: int) -> CreditExhausted | None:
    """Charge one managed call of an integration's action, before it runs; a value when it cannot be paid.

    The same step of the same run pays once, however often it is tried again. Own credentials never come here.
    """
    price = plans.tool_micro(use.integration_name)
    what = Charge(
        tool_charge_key(use.run_id, use.step), "tool", price, use.run_id, use.integration_name, use.action_name
    )
    return _exhausted(ledger.charge(tx, plans, organization_id, what, now), "The tool was not run")


def charge_ingest(
    tx: WriteTx, plans: Plans, organization_id: str, *, document_id: str, attempt: int, tokens: int, now: int
) -> CreditExhausted | None:
    """Charge reading a document of ``tokens`` into managed knowledge, before it is read; a value when unpaid.

    One ``attempt`` of a document is paid once: a reading that failed is tried again under the same number for
    nothing, and a document read anew, at a person's wish or with other contents, takes the next one. Own
    credentials never come here. Raises ChargeKeyReused when an attempt comes with other ``tokens``.
    """
    key = f"ingest:{document_id}:{attempt}"
    what = Charge(key, "knowledge", plans.ingest_micro(tokens), item="ingest", detail={"document_id": document_id})
    return _exhausted(ledger.charge(tx, plans, organization_id, what, now), "The document was not read")


def charge_retrieval(
    tx: WriteTx, plans: Plans, organization_id: str, *, search_id: str, run_id: str | None, now: int
) -> CreditExhausted | None:
    """Charge one search of managed knowledge, before it is made; a value when it cannot be paid.

    ``search_id`` names the search: the same one is paid once. ``run_id`` puts it on the receipt of that run's
    turn; None for a search outside of turns. A route raises the value's ``denial`` (402, the gate's envelope); a
    tool returns its ``message`` and ``reason`` as ``credit_limit``. Own credentials never come here.
    """
    what = Charge(f"retrieval:{search_id}", "knowledge", plans.retrieval_micro, run_id, item="retrieval")
    return _exhausted(ledger.charge(tx, plans, organization_id, what, now), "The search was not made")


def tool_charge_key(run_id: str, step: int) -> str:
    """What the ledger knows the managed call of a step by."""
    return f"tool:{run_id}:{step}"


def _exhausted(denial: CreditDenied | WalletDenied | None, what_did_not_happen: str) -> CreditExhausted | None:
    return None if denial is None else CreditExhausted(f"{what_did_not_happen}. {denial.detail}", denial)
