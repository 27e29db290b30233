"""Giving a run its model and its tools, from its chat's kind and its own row."""

from functools import partial
from itertools import count

from parley.accounts import Accounts
from parley.base.settings import ApprovalPolicy
from parley.billing import Plans
from parley.equipment.fallback import FallbackModel
from parley.equipment.finishing import WINDOW_TOKENS, Finishing, is_direct
from parley.equipment.llms import LlmChoice, Llms, choice_from_json, saved_choice
from parley.equipment.metered import CappedTools, MeteredModel
from parley.runs.journal import RunJournal
from parley.runs.rebuild import Rebuilt
from parley.runs.run_store import Lease, unsettled_call
from parley.storage import Store
from parley.tools import PROFILES, Taint, Toolbox, ToolContext, Workshop
from parley.turn import loop
from parley.turn.model import Model, Receipt

STRICTNESS: tuple[ApprovalPolicy, ...] = ("documented", "catalog", "guarded", "strict")


class RunIntents:
    """The side of a run's journal that tools may use; fulfils ``tools.Intents``."""

    def __init__(self, store: Store, journal: RunJournal) -> None:
        self._store = store
        self._journal = journal

    async def intend(self, step: int, receipt: Receipt) -> None:
        """Write the intent under the fence, right before the effect."""
        await self._journal.intend(step, receipt)

    async def unsettled(self, digest: str) -> bool:
        """Whether exactly this was sent before in the chat, with an unknown outcome."""
        chat_id = self._journal.lease.chat_id
        return await self._store.read(lambda tx: unsettled_call(tx, chat_id, digest))


class Equipment:
    """Fulfils ``worker.Equip``."""

    def __init__(self, store: Store, llms: Llms, workshop: Workshop, accounts: Accounts, plans: Plans) -> None:
        self._store = store
        self._llms = llms
        self._workshop = workshop
        self._accounts = accounts
        self._plans = plans

    @property
    def systems(self) -> dict[str, str]:
        """The system prompt of each kind of chat."""
        return {kind: profile.prompt for kind, profile in PROFILES.items()}

    async def __call__(self, lease: Lease, rebuilt: Rebuilt, journal: RunJournal) -> tuple[Model, loop.Toolbox]:
        """The model and tools of a run. Raises ModelError where the chosen model cannot be used."""
        settings = await self._accounts.organizations.settings(lease.organization_id)
        fallback = settings.fallback_llm
        model = await self._model(lease, rebuilt, journal, fallback and saved_choice(fallback))
        context = ToolContext(
            organization_id=lease.organization_id,
            user_id=lease.user_id,
            chat_id=lease.chat_id,
            run_id=lease.run_id,
            policy=stricter(self._workshop.settings.approval_policy, settings.approval_policy),
            taint=Taint(rebuilt.tainted),
            shared=self._workshop,
            intents=RunIntents(self._store, journal),
        )
        return model, CappedTools(Toolbox(PROFILES[rebuilt.kind].tools, context), lease, self._store)

    async def _model(self, lease: Lease, rebuilt: Rebuilt, journal: RunJournal, fallback: LlmChoice | None) -> Model:
        """The chosen model, metered; with the organization's fall-back behind it where that is another one."""
        if is_direct(lease.llm):
            rebuilt.turn.window_tokens = WINDOW_TOKENS
            return Finishing()
        choice = choice_from_json(lease.llm)
        opened = await self._llms.open(lease.organization_id, choice)
        rebuilt.turn.window_tokens = opened.window_tokens
        metered = partial(
            MeteredModel,
            journal=journal,
            numbers=count(rebuilt.turn.model_calls + 1),
            store=self._store,
            plans=self._plans,
            clock=self._workshop.clock,
        )
        if fallback is None or fallback.same_model(choice):
            return metered(opened)
        second = partial(self._llms.open, lease.organization_id, fallback)
        return FallbackModel(opened, second, metered, rebuilt.turn, journal)


def stricter(operator: ApprovalPolicy, organization: ApprovalPolicy | None) -> ApprovalPolicy:
    """The policy that counts: an organization may choose a stricter one than the operator's, never a looser."""
    if organization is None:
        return operator
    return STRICTNESS[max(STRICTNESS.index(operator), STRICTNESS.index(organization))]
