"""Running one action: the single choke point in front of every side effect (contract §6).

Find, refuse what is dangerous, resolve the account, ask where the policy says so, write the intent,
invoke, return a value. Nothing here raises to the loop.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID

import msgspec

from parley.base.errors import Refusal
from parley.base.ids import new_id
from parley.billing import ToolUse
from parley.credentials import Usable, nobody
from parley.integrations import Action, ActionFailed, Integration, Invoked, model_arguments
from parley.integrations.effects import Effect, asks_first, raised_effect, refuse_dangerous
from parley.tools.actions import Account, Call
from parley.tools.approval import approval_question, arguments_digest, still_fits
from parley.tools.connect import OAUTH, auth_options
from parley.tools.context import ToolContext
from parley.tools.spec import AnyObject, Step, tool
from parley.turn.model import Answer, JsonObject, JsonValue, Observed, Receipt, ToolResult, Whole
from parley.turn.text import as_text, shortened

RESULT_CHARACTERS = 8_000
ERROR_CHARACTERS = 500
REPEATABLE = ("read",)
UNSETTLED_REASON = "An earlier try of exactly this was cut off: it may already have happened."


class ExecuteArguments(msgspec.Struct, frozen=True):
    """Arguments of ``execute_integration_tool``."""

    integration_name: Annotated[str, msgspec.Meta(description="The integration's name, for example github.")]
    tool_name: Annotated[str, msgspec.Meta(description="The action's name, for example list_repositories.")]
    parameters: Annotated[
        AnyObject,
        msgspec.Meta(
            description="The action's parameters as get_integration_details describes them. Never credentials: "
            "they are added at run time."
        ),
    ] = {}
    credential_id: Annotated[
        str | None, msgspec.Meta(description="A certain credential; leave it out for the default one.")
    ] = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One action, resolved: what would run, as whom, and what it does to the world."""

    integration: Integration
    action: Action
    arguments: JsonObject
    account: Usable
    effect: Effect
    digest: str
    call: Call
    version: str


async def _execute(context: ToolContext, arguments: ExecuteArguments, step: Step) -> ToolResult:
    plan = await _plan(context, arguments, step)
    if isinstance(plan, Observed):
        return plan
    why = await _why_ask(context, plan)
    if why is not None:
        return approval_question(
            plan.integration, plan.action, plan.arguments, plan.account, plan.effect, why, version=plan.version
        )
    return await _run(context, plan, step)


async def _why_ask(context: ToolContext, plan: Plan) -> str | None:
    """Why a person is asked before this runs; None where it runs at once."""
    reason = asks_first(context.policy, plan.integration.name, plan.action.name, plan.arguments, plan.effect)
    if reason is not None:
        return reason.sentence
    guarded = context.policy == "guarded" and context.taint.read
    source = context.taint.source or "an earlier turn"
    if plan.effect.effect in REPEATABLE:
        # An address says something to whoever serves it, and the model made it out of what it has read.
        names = [name for name in plan.effect.urls if plan.arguments.get(name)] if guarded else []
        return (
            f"This turn has read text that outsiders may have written ({source}), and this would open an address "
            f"made since ({', '.join(names)}), which can carry data away."
            if names
            else None
        )
    if guarded:
        return f"This turn has read text that outsiders may have written ({source}), and this would act on it."
    return UNSETTLED_REASON if await context.intents.unsettled(plan.digest) else None


async def _approved(context: ToolContext, arguments: ExecuteArguments, step: Step, answer: Answer) -> ToolResult:
    """A person has answered the card: run exactly what it showed, or nothing."""
    names = (arguments.integration_name, arguments.tool_name)
    if answer.response.get("kind") != "yes_no" or answer.response.get("answer") is not True:
        return _result(names, "cancelled", reason="The user declined. The action was not run.")
    bound = answer.binding.get("arguments")
    bound_arguments = bound if isinstance(bound, dict) else {}
    credential_id = answer.binding.get("credential_id")
    wanted = ExecuteArguments(*names, bound_arguments, str(credential_id) if credential_id else None)
    plan = await _plan(context, wanted, step)
    if isinstance(plan, Observed):
        return plan
    same_account = plan.account.credential_id == credential_id
    if not same_account or not still_fits(answer.binding, plan.arguments, plan.version):
        return _result(names, "cancelled", reason="What was approved has changed since. Nothing was run; ask again.")
    return await _run(context, plan, step)


async def _recover(context: ToolContext, arguments: ExecuteArguments, step: Step, receipt: Receipt) -> ToolResult:
    """The process died after the intent was written (durability §4.5): repeat only what is safe to repeat."""
    plan = await _plan(context, arguments, step)
    settle = None
    # Where it cannot be planned any more, such as without its credential, it has left all the same.
    if not isinstance(plan, Observed):
        same = plan.digest == receipt.arguments_digest
        if same and (plan.effect.effect in REPEATABLE or plan.effect.idempotent):
            return await _run(context, plan, step)
        settle = plan.effect.settled_by
    hint = f" Use {settle} to find out." if settle else " Check in the service before doing it again."
    return Observed(
        {
            "status": "error",
            "integration_name": arguments.integration_name,
            "tool_name": arguments.tool_name,
            "error": "outcome_unknown",
            "success": False,
            "message": "The server stopped while this action was running. It may or may not have taken effect, and was "
            f"not repeated.{hint} Tell the user.",
        },
        failed=True,
        receipt=receipt,
        unknown=True,
    )


async def _plan(context: ToolContext, arguments: ExecuteArguments, step: Step) -> Plan | Observed:
    shared = context.shared
    names = (arguments.integration_name, arguments.tool_name)
    found = await shared.actions.find(context.organization_id, *names)
    if isinstance(found, str):
        return _error(names, found)
    integration, action, effect = found.integration, found.action, found.effect
    # What the function will really get: nothing else is checked, shown, approved or run.
    parameters = model_arguments(action, arguments.parameters)
    if effect.idempotency_key is not None and not parameters.get(effect.idempotency_key):
        key = _idempotency_key(context.run_id, step.number, integration.name, action.name, parameters)
        parameters = {**parameters, effect.idempotency_key: key}
    effect = raised_effect(effect, parameters)
    refused = refuse_dangerous(parameters, effect)
    if refused is not None:
        return _error(names, refused)
    account = await _account(context, integration, names, found.account, arguments.credential_id)
    if isinstance(account, Observed):
        return account
    digest = arguments_digest(integration.name, action.name, parameters, account.credential_id)
    return Plan(integration, action, parameters, account, effect, digest, found.call, found.version)


async def _account(
    context: ToolContext,
    integration: Integration,
    names: tuple[str, str],
    where: Account,
    credential_id: str | None,
) -> Usable | Observed:
    """The account to act as, or the value that says there is none."""
    if where.only is not None and credential_id not in (None, where.only):
        return _error(names, f"{integration.display_name} has one credential of its own. Leave credential_id out.")
    credential_id = where.only or credential_id
    try:
        account = await context.shared.credentials.resolve(
            context.organization_id, where.integration_name, credential_id
        )
    except Refusal as refusal:
        return _error(names, refusal.detail)
    if account is not None:
        return account
    if where.optional and credential_id is None:
        return nobody(context.organization_id, integration.name, integration.display_name)
    if credential_id is not None:
        return _error(names, f"There is no credential {credential_id!r} for {integration.display_name}.")
    return Observed(
        {
            "status": "needs_credential",
            "integration_name": names[0],
            "tool_name": names[1],
            "message": f"No credential exists for {integration.display_name}. Call request_credential with these "
            "auth_options, then retry.",
            "integration_display_name": integration.display_name,
            "auth_options": auth_options(integration, context.shared.settings.base_url),
        }
    )


async def _run(context: ToolContext, plan: Plan, step: Step) -> Observed:
    names = (plan.integration.name, plan.action.name)
    account = plan.account
    managed = account.managed and account.credential_id is not None
    receipt = Receipt(
        *names,
        effect=plan.effect.effect,
        credential_id=account.credential_id,
        managed=managed,
        arguments_digest=plan.digest,
        idempotency_key=_sent_key(plan),
    )
    if managed:
        broke = await context.shared.charge_tool(context.organization_id, ToolUse(*names, context.run_id, step.number))
        if broke is not None:
            return _result(names, "credit_limit", message=broke.message, reason=broke.reason)
    if plan.effect.effect not in REPEATABLE:
        await context.intents.intend(step.number, receipt)
    try:
        invoked = await _invoke(context, plan)
    except Refusal as refusal:
        return _error(names, refusal.detail, receipt)
    except ActionFailed as failed:
        if failed.attempted:  # the words of a failure are the provider's too
            _taint(context, plan)
        return replace(_error(names, failed.public, receipt), tainted=failed.attempted)
    _taint(context, plan)
    output: JsonObject = {"status": "ok", "integration_name": names[0], "tool_name": names[1], "result": invoked.value}
    whole: Whole | None = None
    if len(as_text(invoked.value)) > RESULT_CHARACTERS:
        whole = Whole(new_id(), invoked.value)
        output |= {
            "result": shortened(invoked.value, RESULT_CHARACTERS),
            "truncated": True,
            "result_id": whole.id,
        }
    return Observed(output, failed=not invoked.succeeded, receipt=receipt, tainted=True, whole=whole)


def _taint(context: ToolContext, plan: Plan) -> None:
    context.taint.read, context.taint.source = True, f"{plan.integration.display_name} · {plan.action.name}"


async def _invoke(context: ToolContext, plan: Plan) -> Invoked:
    """Run the action; a refused OAuth token is renewed once, and a read then repeated (issue 2, sentence 7)."""
    shared = context.shared
    account = await shared.refresher.fresh(plan.account)
    try:
        invoked = await plan.call(account, plan.arguments)
        if not invoked.unauthorized:
            return invoked
    except ActionFailed as failed:
        if not failed.unauthorized:
            raise
        invoked = failed
    if account.auth_type == OAUTH and account.credential_id is not None:
        account = await shared.refresher.renew(account)
        if plan.effect.effect in REPEATABLE:
            return await plan.call(account, plan.arguments)
    elif account.credential_id is not None:
        await shared.credentials.mark_invalid(account, "the service answered 401")
    if isinstance(invoked, ActionFailed):
        raise invoked
    return invoked


def _idempotency_key(run_id: str, step: int, integration: str, action: str, parameters: JsonObject) -> str:
    """The same UUID for every try of this step of this run, in whatever process.

    Steps count anew in every run of a turn: the same action wanted again after an answer is not a repeat.
    """
    wanted = arguments_digest(integration, action, parameters, None)
    return str(UUID(bytes=hashlib.sha256(f"{run_id}|{step}|{wanted}".encode()).digest()[:16]))


def _sent_key(plan: Plan) -> str | None:
    """The key by which the provider knows a repeat, where it takes one."""
    name = plan.effect.idempotency_key
    return str(plan.arguments[name]) if name is not None and plan.arguments.get(name) else None


def _result(names: tuple[str, str], status: str, **extra: JsonValue) -> Observed:
    return Observed({"status": status, "integration_name": names[0], "tool_name": names[1], **extra})


def _error(names: tuple[str, str], text: str, receipt: Receipt | None = None) -> Observed:
    output: JsonObject = {
        "status": "error",
        "integration_name": names[0],
        "tool_name": names[1],
        "error": text[:ERROR_CHARACTERS],
        "success": False,
    }
    return Observed(output, failed=True, receipt=receipt)


EXECUTE_INTEGRATION_TOOL = tool(
    "execute_integration_tool",
    "Run exactly one action of one integration with the organization's credential. Returns a status: ok, cancelled, "
    "needs_credential, credit_limit or error. Destructive actions ask the user by themselves.",
    ExecuteArguments,
    _execute,
    resume=_approved,
    recover=_recover,
)
