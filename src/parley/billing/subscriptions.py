"""Plans and prepaid credits: what is on offer, what an organization has, buying, granting, the sweeper.

Payments are optional. Without them an operator grants plans and credits, and buying is refused with a
sentence that says so.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parley.accounts import AuditEntry, Caller, record
from parley.base.clock import SECOND, Clock
from parley.base.errors import BadRequest, Conflict, NotFound
from parley.base.settings import SettingsError
from parley.billing import ledger, store, usage_store
from parley.billing.ledger import Charge, plan_of
from parley.billing.plans import MICRO, Interval, Plan, Plans
from parley.billing.store import WALLET_PERIOD, Subscription
from parley.egress import Egress
from parley.storage import STORE_TROUBLE, ReadTx, Store, WriteTx
from parley.storage.windows import forget_windows

if TYPE_CHECKING:
    from parley.billing.payments import Payments

SWEEP_SECONDS = 30.0
GRANT_ID_CHARACTERS = 100
KEEP_WINDOWS = 3_600 * SECOND

NOT_PAID: Mapping[str, str | int | bool | None] = {
    "status": "active",
    "billing_interval": None,
    "quantity": 1,
    "paid_from_at": None,
    "paid_until_at": None,
    "cancel_at_period_end": False,
    "stripe_subscription": None,
}
"""The columns of a subscription that nobody pays for."""

log = logging.getLogger(__name__)


class PaymentsOff(Conflict):
    """Payments are not set up on this server. Ask its operator for a plan or credits: parley billing grant."""


class NoSuchPlan(BadRequest):
    """There is no such plan. GET /subscriptions/organization-plans lists them."""


class NotForSale(BadRequest):
    """The plan cannot be bought for that interval. GET /subscriptions/organization-plans lists what can."""


class NothingBought(Conflict):
    """Nothing was bought for this organization yet, so there is nothing to manage. Choose a plan first."""


class NoOverage(Conflict):
    """Your plan does not let the wallet pay beyond the month. Move to a plan that does."""


class StillPaid(Conflict):
    """The organization pays for a subscription. End that on its billing page or at Stripe, then grant the plan."""

    def __init__(self, subscription_id: str) -> None:
        super().__init__(
            f"The organization pays for {subscription_id}. End that on its billing page or at Stripe, then grant the "
            f"plan. Where Stripe says that it is over, name it: --instead-of {subscription_id}"
        )


class GrantDiffers(Conflict):
    """Another number of credits was granted under this id before. Nothing was granted now; take another id."""


class OrganizationNotFound(NotFound):
    """Organization not found"""


@dataclass(frozen=True, slots=True)
class Wallet:
    """An organization's prepaid credits and their switches. ``overage_allowed``: the plan has overage at all."""

    balance_micro: int
    held_micro: int
    overage: bool
    overage_allowed: bool
    top_up_below_micro: int | None
    top_up_amount_micro: int | None
    turn_cap_micro: int | None


class Subscriptions:
    """What an organization has bought or was granted, and how it gets more."""

    def __init__(self, store_: Store, plans: Plans, clock: Clock, payments: "Payments | None") -> None:
        self._store = store_
        self._plans = plans
        self._clock = clock
        self._payments = payments

    @property
    def plans(self) -> Sequence[Plan]:
        """Every plan, in the order they are shown."""
        return sorted(self._plans.plans, key=lambda plan: plan.sort_order)

    def for_sale(self, plan: Plan) -> bool:
        """Whether an organization can buy the plan here."""
        return self._payments is not None and plan.selectable and bool(plan.prices)

    async def current(self, organization_id: str) -> tuple[Subscription | None, Plan]:
        """The organization's subscription, and the plan that counts now."""
        subscription = await self._store.read(lambda tx: store.peek(tx, organization_id))
        return subscription, plan_of(self._plans, subscription)

    async def wallet(self, organization_id: str) -> Wallet:
        """The organization's prepaid credits."""
        return await self._store.read(lambda tx: self._wallet(tx, organization_id))

    async def change_wallet(self, caller: Caller, changes: Mapping[str, bool | int | None]) -> Wallet:
        """Set ``overage``, ``top_up_below_micro``, ``top_up_amount_micro`` or ``turn_cap_micro``; the wallet after it.

        Raises NoOverage when the switch is turned on and the plan has none.
        """
        now = self._clock.now()

        def work(tx: WriteTx) -> Wallet:
            subscription = store.lock(tx, caller.organization_id, now)
            if changes.get("overage") and not plan_of(self._plans, subscription).overage:
                raise NoOverage
            if not changes:
                return self._wallet(tx, caller.organization_id)
            store.change_subscription(tx, caller.organization_id, changes)
            entry = AuditEntry(
                caller.organization_id,
                caller.user_id,
                "ORGANIZATION",
                "wallet_changed",
                "The wallet's settings changed",
                dict(changes),
                now,
            )
            record(tx, entry)
            return self._wallet(tx, caller.organization_id)

        return await self._store.write(work)

    async def checkout_link(self, caller: Caller, plan_slug: str, interval: Interval) -> str:
        """Where a browser buys a plan. Raises PaymentsOff, NoSuchPlan, NotForSale, AnotherCheckout, PaymentsDown."""
        payments = self._need_payments()
        plan = self._plans.find(plan_slug)
        if plan is None:
            raise NoSuchPlan
        if not plan.selectable or interval not in plan.prices:
            raise NotForSale
        return await payments.checkout_plan(caller, plan, interval)

    async def top_up_link(self, caller: Caller, credit: int) -> str:
        """Where a browser buys ``credit`` credits for the wallet. Raises PaymentsOff, PaymentsDown."""
        return await self._need_payments().checkout_credits(caller, credit)

    async def portal(self, organization_id: str) -> str:
        """Where a browser manages what was bought. Raises PaymentsOff, NothingBought, PaymentsDown."""
        return await self._need_payments().portal(organization_id)

    async def deliver(self, payload: bytes, signature: str) -> None:
        """Act on a signed payment event. Raises PaymentsOff, BadSignature, PaymentsDown."""
        await self._need_payments().deliver(payload, signature)

    async def grant_plan(self, organization_id: str, plan_slug: str, *, instead_of: str | None = None) -> Plan:
        """Put an organization on a plan from now on, without payment: the operator's command.

        ``instead_of`` names a Stripe subscription that is over though its end was never heard of.

        Raises NoSuchPlan, OrganizationNotFound, and StillPaid where Stripe would go on taking money for another one.
        """
        plan = self._plans.find(plan_slug)
        if plan is None:
            raise NoSuchPlan
        now = self._clock.now()

        def work(tx: WriteTx) -> None:
            present = store.lock(tx, organization_id, now)
            if present is None:
                raise OrganizationNotFound
            if present.stripe_subscription not in (None, instead_of):
                raise StillPaid(present.stripe_subscription)
            store.change_subscription(tx, organization_id, {**NOT_PAID, "plan_slug": plan.slug, "anchor_at": now})
            _record_grant(tx, organization_id, "plan_granted", f"The operator granted the plan {plan.name}", now)

        await self._store.write(work)
        return plan

    async def grant_credits(self, organization_id: str, credit: int, *, grant_id: str) -> Wallet:
        """Put prepaid credits into the wallet: the operator's command. The same ``grant_id`` counts once.

        Raises OrganizationNotFound, WalletFull, and GrantDiffers where the id stands for another number of credits.
        """
        if len(grant_id) > GRANT_ID_CHARACTERS:
            raise GrantDiffers(f"The id of a grant has at most {GRANT_ID_CHARACTERS} characters. Nothing was granted.")
        now = self._clock.now()

        def work(tx: WriteTx) -> Wallet:
            if store.lock(tx, organization_id, now) is None:
                raise OrganizationNotFound
            what = Charge(f"grant:{grant_id}", "grant", credit * MICRO)
            try:
                ledger.deposit(tx, self._plans, organization_id, what, now)
            except ledger.ChargeKeyReused:
                raise GrantDiffers from None
            _record_grant(tx, organization_id, "credits_granted", f"The operator granted {credit} credits", now)
            return self._wallet(tx, organization_id)

        return await self._store.write(work)

    async def sweep(self) -> None:
        """Release holds of dead runs, forget old rate windows, top up wallets that run low."""
        now = self._clock.now()
        for organization_id, run_id in await self._store.across.read(usage_store.dead_holds):
            await self._store.across.write(
                lambda tx, organization_id=organization_id, run_id=run_id: ledger.release(
                    tx, organization_id, run_id=run_id, now=now
                )
            )
        await self._store.across.write(lambda tx: forget_windows(tx, before=now - KEEP_WINDOWS))
        if self._payments is not None:
            await self._payments.top_up_low_wallets()

    async def keep_sweeping(self) -> None:
        """Sweep until cancelled; one of the server's own tasks. Every process may: what it does is done once."""
        while True:
            # At once: what a process that died had set aside is free again when the next one starts.
            try:
                await self.sweep()
            except STORE_TROUBLE as error:
                log.warning("billing was not swept: %s", type(error).__name__)
            await asyncio.sleep(SWEEP_SECONDS)

    def _need_payments(self) -> "Payments":
        if self._payments is None:
            raise PaymentsOff
        return self._payments

    def _wallet(self, tx: ReadTx, organization_id: str) -> Wallet:
        subscription = store.peek(tx, organization_id)
        found = store.balance(tx, organization_id, "wallet", WALLET_PERIOD)
        return Wallet(
            balance_micro=found.posted_micro if found else 0,
            held_micro=found.held_micro if found else 0,
            overage=subscription.overage if subscription else False,
            overage_allowed=plan_of(self._plans, subscription).overage,
            top_up_below_micro=subscription.top_up_below_micro if subscription else None,
            top_up_amount_micro=subscription.top_up_amount_micro if subscription else None,
            turn_cap_micro=subscription.turn_cap_micro if subscription else None,
        )


def open_payments(
    environment: Mapping[str, str], store_: Store, plans: Plans, clock: Clock, egress: Egress, base_url: str
) -> "Payments | None":
    """Payments through Stripe where ``STRIPE_SECRET_KEY`` and ``STRIPE_WEBHOOK_SECRET`` are set; else None.

    ``STRIPE_BASE_URL`` names another address than Stripe's own. Raises SettingsError when only one of the
    two keys is set.
    """
    secret, webhook_secret = environment.get("STRIPE_SECRET_KEY", ""), environment.get("STRIPE_WEBHOOK_SECRET", "")
    if not secret and not webhook_secret:
        return None
    if not secret or not webhook_secret:
        raise SettingsError("Set both STRIPE_SECRET_KEY and STRIPE_WEBHOOK_SECRET, or neither of them")
    # Stripe's library takes 0.6 s and 30 MB to import: only servers that take payments pay for it.
    from parley.billing.payments import Payments, StripeKeys  # noqa: PLC0415

    keys = StripeKeys(secret, webhook_secret, environment.get("STRIPE_BASE_URL", ""))
    if keys.base_url:
        egress.allow(keys.base_url)
    return Payments(store_, plans, clock, egress.session(), keys, f"{base_url}/app/usage")


def _record_grant(tx: WriteTx, organization_id: str, operation: str, message: str, now: int) -> None:
    record(tx, AuditEntry(organization_id, None, "ORGANIZATION", operation, message, {}, now))
