"""Credits over HTTP: plans, months, wallets, the dashboard; the four denials as the published client sees them."""

from collections.abc import AsyncIterator

import pytest
from modulex import BillingError, CreditExhaustedError, Modulex, QuotaExceededError, WalletError
from modulex import PermissionError as NotPermitted
from sqlalchemy import func, insert, select

from parley.accounts import User
from parley.base.clock import DAY
from parley.base.ids import new_id
from parley.billing.ledger import Charge, charge
from parley.billing.plans import MICRO
from parley.storage import ReadTx, WriteTx
from parley.storage.acting import acting_for
from parley.storage.tables.accounts import memberships, users
from parley.storage.tables.billing import ledger, rate_windows
from parley.storage.tables.chats import chats, messages, runs
from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedUsage
from parley.wiring import Parley
from tests.billing.office import put_on
from tests.contract.conftest import billed
from tests.stage import Client, Json, Stage, caller, calls, executes, new_model_key, says

POOLED_KEY = new_model_key()
MANAGED = {"integration_name": "modulexai", "provider_id": "openai", "model_id": "gpt-4o"}


@pytest.fixture(scope="module")
def settings_extra(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> dict[str, str]:
    return billed(tmp_path_factory.mktemp("plans"), model, POOLED_KEY)


@pytest.fixture
async def admin(stage: Stage) -> AsyncIterator[Client]:
    """Somebody who is an admin of the organization, not its owner."""
    organization_id = stage.client.organization_id
    key = await add_admin(stage.parley, organization_id)
    async with caller(stage.client.base_url, key, organization_id) as client:
        yield client


async def add_admin(parley: Parley, organization_id: str) -> str:
    """An admin of the organization, ``admin-…@example.test``; the text of an API key of theirs."""
    user_id, now = new_id(), parley.clock.now()
    email = f"admin-{user_id}@example.test"

    def work(tx: WriteTx) -> None:
        tx.execute(
            insert(users).values(
                id=user_id,
                email=email,
                username="admin",
                platform_role="USER",
                is_active=True,
                created_at=now,
            )
        )
        tx.execute(
            insert(memberships).values(organization_id=organization_id, user_id=user_id, role="admin", joined_at=now)
        )

    await parley.store.write(work)
    user = User(user_id, email, "admin", "USER", True, None, {organization_id: "admin"})
    made = await parley.accounts.keys.create(
        user, "admin's", organization_id=None, expires_at=None, rate_limit_per_minute=1000
    )
    return made.text


async def written(stage: Stage) -> int:
    """How many rows a turn could have left."""
    tables = (chats, messages, runs, ledger, rate_windows)

    def count(tx: ReadTx) -> int:
        return sum(tx.execute(select(func.count()).select_from(table)).scalar_one() for table in tables)

    return await stage.parley.store.read(count)


async def use_up(stage: Stage, credit: int) -> None:
    what = Charge(f"used-{credit}", "tool", credit * MICRO)

    def work(tx: WriteTx) -> None:
        assert charge(tx, stage.parley.plans, stage.client.organization_id, what, stage.clock.now()) is None

    await stage.parley.store.write(work)


async def text(client: Client, path: str) -> str:
    async with client.session.get(client.base_url + path, headers=client.headers) as response:
        assert response.status == 200
        assert response.content_type == "text/csv"
        return await response.text()


# ── denials ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_used_up_month_is_credit_exhausted_to_the_published_client_and_writes_nothing(
    stage: Stage, sdk: Modulex
) -> None:
    await stage.parley.store.write(put_on(stage.client.organization_id, "tiny"))
    await use_up(stage, 10)
    before = await written(stage)
    with pytest.raises(CreditExhaustedError) as caught:
        await sdk.assistant.chat("Hi", llm=stage.llm)
    error = caught.value
    assert (error.status_code, error.code, error.layer) == (402, "credit_plan_exhausted", "credit")
    assert (error.current, error.limit, error.reason) == (10, 10, "credit_plan_exhausted")
    assert set(error.body) == {"code", "layer", "key", "current", "limit", "reason"}
    assert await written(stage) == before


async def test_an_empty_wallet_is_a_wallet_error_to_the_published_client(stage: Stage, sdk: Modulex) -> None:
    await stage.parley.store.write(put_on(stage.client.organization_id, "paid", overage=True))
    await use_up(stage, 10)
    with pytest.raises(WalletError) as caught:
        await sdk.assistant.chat("Hi", llm=stage.llm)
    assert (caught.value.status_code, caught.value.code) == (402, "wallet_insufficient")


async def test_too_many_turns_at_once_are_a_quota_error_to_the_published_client(stage: Stage, sdk: Modulex) -> None:
    await stage.parley.store.write(put_on(stage.client.organization_id, "tiny"))
    barrier = f"quota-{stage.client.organization_id}"
    await stage.script(*(says("slow", barrier=barrier) for _ in range(3)))
    begun = [await stage.start() for _ in range(3)]
    with pytest.raises(QuotaExceededError) as caught:
        await sdk.assistant.chat("Hi", llm=stage.llm)
    assert (caught.value.status_code, caught.value.key, caught.value.limit) == (403, "concurrent_turns", 3)
    await stage.model.release(barrier)
    for each in begun:
        await stage.follow(each)


async def test_a_full_minute_is_a_billing_error_with_retry_after_to_the_published_client(
    stage: Stage, sdk: Modulex
) -> None:
    await stage.parley.store.write(put_on(stage.client.organization_id, "tiny"))
    window = {"rate_class": "sync_exec", "window_at": stage.clock.now(), "taken": 20}
    await stage.parley.store.write(
        lambda tx: tx.execute(insert(rate_windows).values(subject=stage.client.organization_id, **window))
    )
    with pytest.raises(BillingError) as caught:
        await sdk.assistant.chat("Hi", llm=stage.llm)
    error = caught.value
    assert type(error) is BillingError
    assert (error.status_code, error.code, error.layer) == (429, "rate_limit_exceeded", "rate")
    assert error.retry_after is not None and 1 <= error.retry_after <= 60
    assert error.response is not None
    assert error.response.headers["X-RateLimit-Limit"] == "20"
    assert error.response.headers["X-RateLimit-Remaining"] == "0"


async def test_a_full_plan_refuses_credentials_and_people_like_any_route_refuses(stage: Stage, sdk: Modulex) -> None:
    """One person and two credentials; the first credential is the model's."""
    await stage.parley.store.write(put_on(stage.client.organization_id, "tiny"))
    await stage.connect_github("ghp_first")
    body = {"integration_name": "github", "auth_type": "bearer_token", "auth_data": {"token": "ghp_second"}}
    for answer in (
        await stage.client.post("/credentials", body),
        await stage.client.post("/organizations/invite", {"invited_email": "grace@example.test"}),
    ):
        assert 400 <= answer.status < 500, answer.body
        assert set(answer.body) == {"detail"} and isinstance(answer.body["detail"], str)
    with pytest.raises(NotPermitted) as caught:
        await sdk.credentials.create("github", auth_type="bearer_token", auth_data={"token": "ghp_third"})
    assert "Your plan allows 2 credentials" in str(caught.value)


async def test_a_person_past_the_plans_requests_is_429_in_the_wrapped_envelope(stage: Stage) -> None:
    made = await stage.client.post("/organizations", {"name": "Busy"})
    busy = Client(stage.client.base_url, stage.client.session, stage.client.key, made.body["organization"]["id"])
    await stage.parley.store.write(put_on(busy.organization_id, "busy"))
    answers = [await busy.get("/billing/wallet") for _ in range(6)]
    assert [answer.status for answer in answers] == [200] * 5 + [429]
    detail = answers[-1].body["detail"]
    assert (detail["code"], detail["layer"], detail["key"]) == ("rate_limit_exceeded", "rate", "api_user")
    assert int(answers[-1].headers["Retry-After"]) >= 1
    assert (await stage.client.get("/billing/wallet")).status == 200


# ── what a turn costs ───────────────────────────────────────────────────────────────────────────


async def test_a_turn_with_own_keys_costs_one_credit_and_its_resume_none(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    asked = await stage.turn(
        executes("list_repositories"),
        calls("ask_user_yes_no", {"message": "Go on?"}, id="call_2"),
    )
    await stage.script(says("Done."))
    answered = await stage.resume(asked, {"kind": "yes_no", "answer": True})
    assert answered.status == 200, answered.body
    await stage.follow(answered.body)
    usage = (await stage.client.get("/billing/usage")).body
    assert (usage["used"], usage["credits"], usage["limit"]) == (1.0, 1.0, None)
    assert [(line["kind"], line["credits"]) for line in usage["spending"]] == [("turn", 1.0)]
    assert [day["credits"] for day in usage["by_day"] if day["credits"]] == [1.0]
    assert [(line["integration_name"], line["paid_by"], line["calls"]) for line in usage["models"]] == [
        ("openai", "own_key", 3)
    ]
    assert [(line["action_name"], line["paid_by"]) for line in usage["actions"]] == [("list_repositories", "own_key")]


async def test_a_managed_model_is_charged_by_its_tokens(stage: Stage) -> None:
    await stage.model.script(POOLED_KEY, says("Hello.", usage=ScriptedUsage(input=10, cached=4, output=3)))
    stage.llm = MANAGED
    turn = await stage.follow(await stage.start("Hi"))
    assert turn.types[-1] == "done"
    usage = (await stage.client.get("/billing/usage")).body
    lines = {line["kind"]: line for line in usage["spending"]}
    assert lines["model"]["credits"] == pytest.approx(6 * 1 + 4 * 0.1 + 3 * 2)
    assert (lines["model"]["integration_name"], lines["model"]["item"]) == ("modulexai", "gpt-4o")
    assert usage["models"][0]["paid_by"] == "credits"


async def test_a_managed_model_past_the_ceiling_ends_the_turn_with_a_clear_error(stage: Stage) -> None:
    await stage.parley.store.write(put_on(stage.client.organization_id, "tiny"))
    await use_up(stage, 9)
    stage.llm = MANAGED
    turn = await stage.follow(await stage.start("Hi"))
    assert turn.types[-2:] == ["error", "done"]
    assert "This month's credits are used up" in turn.data("error")["message"]


async def test_a_month_that_turns_while_a_question_is_open_opens_the_gate_and_charges_the_answer_nothing(
    stage: Stage,
) -> None:
    organization_id = stage.client.organization_id
    # The month ends within four days.
    anchor = stage.clock.now() - 27 * DAY
    await stage.parley.store.write(put_on(organization_id, "tiny", anchor_at=anchor))
    await use_up(stage, 9)
    asked = await stage.turn(calls("ask_user_yes_no", {"message": "Go on?"}))
    refused = await stage.client.post("/assistant/chat", {"message": "More", "llm": stage.llm})
    assert (refused.status, refused.body["layer"]) == (402, "credit")
    stage.clock.advance(days=5)
    await stage.script(says("Done."), says("And more."))
    answered = await stage.resume(asked, {"kind": "yes_no", "answer": True})
    assert (await stage.follow(answered.body)).types[-1] == "done"
    assert (await stage.client.get("/billing/usage")).body["used"] == 0.0
    await stage.follow(await stage.start("More"))
    assert (await stage.client.get("/billing/usage")).body["used"] == 1.0


# ── what people see ─────────────────────────────────────────────────────────────────────────────


async def test_the_dashboard_answers_the_published_client(stage: Stage, sdk: Modulex, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    await stage.turn(executes("list_repositories"), says("One."))
    overview = (await sdk.dashboard.analytics_overview()).data
    assert overview is not None and overview.overview is not None
    seen = overview.overview
    assert seen.active_member_count == 1
    assert seen.configured_integrations_count == seen.total_credentials_count == 2
    assert seen.total_integrations_count > 100
    assert seen.current_month_credit_usage is not None
    assert (seen.current_month_credit_usage.used_credit, seen.current_month_credit_usage.max_credit) == (1.0, None)
    assert [(log.service_name, log.success, log.auth_type) for log in seen.credential_usage_logs] == [
        ("list_repositories", True, "bearer_token")
    ]
    tools = (await sdk.dashboard.analytics_tools(period="24h")).data
    assert tools is not None and tools.most_used_action is not None
    assert (tools.total_tool_executions, tools.success_rate) == (1, 100.0)
    assert tools.most_used_action.action_name == "list_repositories"
    assert tools.tool_usages[0].status == "success"
    assert (tools.tool_usages[0].execution_duration_ms or 0) >= 0
    models = (await sdk.dashboard.analytics_llm_usage()).data
    assert models is not None
    assert (models.total_llm_call, models.current_month_total_llm_call) == (2, 2)
    assert models.total_prompt_tokens > 0
    assert (models.llm_usages[0].provider, models.llm_usages[0].model) == ("openai", "gpt-4o")
    assert models.llm_usages[0].credential_display_name == "Scripted"


async def test_a_day_of_the_daily_series_adds_up(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    await stage.turn(executes("list_repositories"), says("One."))
    answer = await stage.client.get("/dashboard/analytics/daily?period=7d")
    days: list[Json] = answer.body["data"]["days"]
    assert len(days) == 7
    assert [day["tool_calls"] for day in days[:-1]] == [0] * 6
    today = days[-1]
    assert (today["credits"], today["turns"]) == (1.0, 1)
    assert (today["llm_calls"], today["tool_calls"], today["failed_calls"]) == (2, 1, 0)
    assert today["integrations"] == {"github": 1}
    assert today["input_tokens"] > 0 and today["output_tokens"] > 0


async def test_people_are_listed_with_what_they_used(stage: Stage, sdk: Modulex, admin: Client) -> None:
    await stage.turn(says("Hello."))
    listed = await sdk.dashboard.users(sort_by="email", order="asc")
    assert [(user.role, user.current_month_credit_usage) for user in listed.users] == [("admin", 0.0), ("owner", 1.0)]
    assert (listed.total, listed.total_pages, listed.max_seats) == (2, 1, None)
    found = await sdk.dashboard.users(search="ADMIN-")
    assert [user.role for user in found.users] == ["admin"]
    nobody = await sdk.dashboard.users(status="inactive")
    assert nobody.users == []
    second = await sdk.dashboard.users(page=2, limit=1, sort_by="email", order="asc")
    assert [user.role for user in second.users] == ["owner"]
    assert (second.has_next, second.has_previous) == (False, True)


async def test_the_audit_log_is_the_owners(stage: Stage, sdk: Modulex, admin: Client) -> None:
    changed = await stage.client.call("PATCH", "/billing/wallet", {"turn_cap": 15})
    assert changed.status == 200, changed.body
    logs = (await sdk.dashboard.logs(category="ORGANIZATION", operation="wallet_changed")).data
    assert logs is not None
    assert [(log.operation, log.actor_email is not None) for log in logs.logs] == [("wallet_changed", True)]
    assert logs.total_count == 1
    past = (await sdk.dashboard.logs(end_date="2020-01-01")).data
    assert past is not None and past.logs == []
    refused = await admin.get("/dashboard/logs")
    assert refused.status == 403
    assert set(refused.body) == {"detail"}
    assert (await admin.get("/dashboard/analytics/overview")).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard/analytics/tools?period=1y",
        "/dashboard/analytics/overview?limit=0",
        "/dashboard/logs?start_date=yesterday",
        "/dashboard/users?sort_by=password_hash",
        "/billing/ledger?limit=5000",
    ],
)
async def test_a_wrong_filter_is_422_and_not_a_200_with_an_error(stage: Stage, path: str) -> None:
    assert (await stage.client.get(path)).status == 422


# ── plans, wallet, ledger ───────────────────────────────────────────────────────────────────────


async def test_the_published_client_sees_the_plans_and_the_organizations_own(stage: Stage, sdk: Modulex) -> None:
    with acting_for(stage.client.organization_id):
        await stage.parley.subscriptions.grant_plan(stage.client.organization_id, "paid")
    plans = await sdk.subscriptions.organization_plans()
    assert [(plan.plan_slug, plan.relation, plan.selectable) for plan in plans.plans if plan.plan_slug == "paid"] == [
        ("paid", "current", False)
    ]
    assert plans.total == 6
    billing = await sdk.subscriptions.organization_billing()
    assert billing.has_subscription and billing.subscription is not None and billing.plan is not None
    assert (billing.plan.plan_slug, billing.plan.prices[0].price) == ("paid", 20.0)
    assert billing.subscription.status == "active"


async def test_an_organization_nobody_put_on_a_plan_is_on_the_default_one(stage: Stage, sdk: Modulex) -> None:
    billing = await sdk.subscriptions.organization_billing()
    assert (billing.has_subscription, billing.subscription) == (False, None)
    assert billing.plan is not None and billing.plan.plan_slug == "open"


@pytest.mark.parametrize(
    "path",
    ["/subscriptions/checkout-link?plan_slug=paid&interval=month", "/subscriptions/customer-portal"],
)
async def test_buying_without_payments_says_what_to_do_instead(stage: Stage, path: str) -> None:
    refused = await stage.client.post(path)
    assert refused.status == 409
    assert "parley billing grant" in refused.detail


async def test_only_the_owner_spends_money(stage: Stage, admin: Client) -> None:
    assert (await admin.get("/billing/wallet")).status == 200
    assert (await admin.call("PATCH", "/billing/wallet", {"overage": True})).status == 403
    assert (await admin.post("/subscriptions/checkout-link?plan_slug=paid&interval=month")).status == 403


async def test_the_wallet_keeps_its_switches_and_refuses_what_the_plan_lacks(stage: Stage) -> None:
    wish = {"overage": True, "top_up_below": 50, "top_up_amount": 500, "turn_cap": 15}
    wallet = (await stage.client.call("PATCH", "/billing/wallet", wish)).body
    assert {name: wallet[name] for name in wish} == wish
    cleared = (await stage.client.call("PATCH", "/billing/wallet", {"turn_cap": None})).body
    assert (cleared["turn_cap"], cleared["overage"]) == (None, True)
    unchanged = await stage.client.call("PATCH", "/billing/wallet", {})
    assert (unchanged.status, unchanged.body) == (200, cleared)
    with acting_for(stage.client.organization_id):
        await stage.parley.subscriptions.grant_plan(stage.client.organization_id, "tiny")
    refused = await stage.client.call("PATCH", "/billing/wallet", {"overage": True})
    assert refused.status == 409
    with acting_for(stage.client.organization_id):
        await stage.parley.subscriptions.grant_credits(stage.client.organization_id, 25, grant_id="one")
        await stage.parley.subscriptions.grant_credits(stage.client.organization_id, 25, grant_id="one")
    assert (await stage.client.get("/billing/wallet")).body["balance"] == 25.0


async def test_the_ledger_pages_through_every_movement_once(stage: Stage) -> None:
    for number in range(5):
        await use_up(stage, number + 1)
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await stage.client.get(f"/billing/ledger?limit=2&cursor={cursor}")).body
        seen += [item["charge_key"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = page["next_cursor"]
    assert seen == [f"used-{number}" for number in range(5, 0, -1)]
    assert (await stage.client.get("/billing/ledger?cursor=nonsense")).status == 400
    csv = await text(stage.client, "/billing/ledger.csv")
    lines = csv.splitlines()
    assert lines[0] == "created_at,kind,account,credits,run_id,charge_key"
    assert lines[1].endswith("tool,plan,-5,,used-5")
    assert len(lines) == 6


async def test_an_admin_without_the_right_gets_no_billing_words_in_the_refusal(admin: Client) -> None:
    async with Modulex(
        api_key=admin.key, organization_id=admin.organization_id, base_url=admin.base_url, max_retries=0
    ) as client:
        with pytest.raises(NotPermitted):
            await client.dashboard.logs()
