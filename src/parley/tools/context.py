"""What the tools of one run work with."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from parley.base.clock import Clock
from parley.base.settings import ApprovalPolicy, Settings
from parley.billing import CreditExhausted, ToolUse
from parley.credentials import Credentials, Refresher
from parley.integrations import Catalog
from parley.knowledge.search import Search
from parley.tools.actions import Actions
from parley.turn.model import JsonObject, Receipt


class Intents(Protocol):
    """Where a side effect is announced before it leaves."""

    async def intend(self, step: int, receipt: Receipt) -> None:
        """Write the intent under the fence. Raises when this process may no longer act for the run."""
        ...

    async def unsettled(self, digest: str) -> bool:
        """Whether exactly this action was sent before in this chat and its outcome is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Workshop:
    """What every run's tools share."""

    catalog: Catalog
    actions: Actions
    credentials: Credentials
    refresher: Refresher
    llm_providers: Callable[[], Sequence[JsonObject]]
    settings: Settings
    clock: Clock
    charge_tool: Callable[[str, ToolUse], Awaitable[CreditExhausted | None]]
    knowledge: Search


@dataclass(slots=True)
class Taint:
    """Whether the turn has read text that somebody outside may have written, and where last."""

    read: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One run's tools: whose they are, what they may do, and what they work with."""

    organization_id: str
    user_id: str
    chat_id: str
    run_id: str
    policy: ApprovalPolicy
    taint: Taint
    shared: Workshop
    intents: Intents
