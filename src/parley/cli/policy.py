"""``parley policy check``: what each approval policy would have asked about, over the calls of the past."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec

from parley.base.clock import DAY, Clock
from parley.base.settings import ApprovalPolicy, Settings
from parley.cli.opening import read_rows
from parley.cli.store import PastCall, past_calls
from parley.integrations import Catalog, load_catalog, model_arguments
from parley.integrations.effects import Effect, asks_first, raised_effect, refuse_dangerous
from parley.turn.model import JsonObject

MOST_CALLS = 100_000
EXAMPLES = 5
TAINTED = "It would act on text that outsiders may have written."


class _Asked(msgspec.Struct):
    """The arguments of ``execute_integration_tool``."""

    integration_name: str
    tool_name: str
    parameters: dict[str, Any] = {}  # msgspec cannot follow the recursive JsonValue


@dataclass(slots=True)
class Tally:
    """What one policy would have asked about: calls by action, and why the newest of each asks."""

    asked: Counter[str] = field(default_factory=Counter[str])
    reasons: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, action: str, reason: str) -> None:
        """Count one call."""
        self.asked[action] += 1
        self.reasons.setdefault(action, reason)


def check_policy(settings: Settings, days: int) -> None:
    """Print, for each policy, how many of the calls of so many days would have asked, with examples."""
    since = Clock().now() - days * DAY

    async def work() -> tuple[Catalog, Sequence[PastCall]]:
        calls = await read_rows(settings, lambda tx: past_calls(tx, since=since, limit=MOST_CALLS))
        return await load_catalog(settings.data_dir, house=settings.house), calls

    catalog, calls = asyncio.run(work())
    counted, tallies = tally(catalog, calls)
    print(f"{counted} calls of actions in {days} days.")
    for policy, found in tallies.items():
        _print(policy, found, is_chosen=policy == settings.approval_policy)


def tally(catalog: Catalog, calls: Iterable[PastCall]) -> tuple[int, dict[ApprovalPolicy, Tally]]:
    """How many calls could have run, and what each policy would have asked about.

    Whether a turn had read outside text is kept for its chat, not for each call, so ``guarded`` counts
    the most it could have asked.
    """
    tallies: dict[ApprovalPolicy, Tally] = {policy: Tally() for policy in get_args(ApprovalPolicy.__value__)}
    counted = 0
    for call in calls:
        planned = _planned(catalog, call)
        if planned is None:
            continue
        counted += 1
        integration, action, arguments, effect = planned
        for policy, found in tallies.items():
            reason = asks_first(policy, integration, action, arguments, effect)
            if reason is not None:
                found.add(f"{integration}.{action}", reason.sentence)
            elif policy == "guarded" and call.tainted and effect.effect != "read":
                found.add(f"{integration}.{action}", TAINTED)
    return counted, tallies


def _planned(catalog: Catalog, call: PastCall) -> tuple[str, str, JsonObject, Effect] | None:
    """The call as the choke point would see it; None where it would be refused before anybody is asked."""
    try:
        asked = msgspec.convert(call.input, _Asked)
    except msgspec.ValidationError:
        return None
    integration = catalog.find(asked.integration_name)
    action = None if integration is None else catalog.action(integration, asked.tool_name)
    if integration is None or action is None:
        return None
    arguments = model_arguments(action, asked.parameters)
    effect = raised_effect(catalog.listed_effect(integration, action), arguments)
    if refuse_dangerous(arguments, effect) is not None:
        return None
    return integration.name, action.name, arguments, effect


def _print(policy: ApprovalPolicy, found: Tally, *, is_chosen: bool) -> None:
    most = "at most " if policy == "guarded" else ""
    chosen = "  (this server's)" if is_chosen else ""
    print(f"\n{policy}: would have asked {most}{found.asked.total()} times{chosen}")
    for action, times in found.asked.most_common(EXAMPLES):
        print(f"  {times:>5} x {action}: {found.reasons[action]}")
    if len(found.asked) > EXAMPLES:
        print(f"        and {len(found.asked) - EXAMPLES} actions more")
