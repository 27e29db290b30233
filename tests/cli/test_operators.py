"""``parley billing``, ``parley policy check``, and how quickly ``parley --help`` answers."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from parley.billing import load_plans
from parley.billing.verify import billing_faults
from parley.cli.policy import Tally, tally
from parley.cli.store import PastCall, past_calls
from parley.integrations import Catalog
from parley.integrations.index import SHIPPED, read_index
from parley.testing.fake_github import FakeGitHub
from tests.cli.conftest import command
from tests.cli.installation import Installation, installed
from tests.stage import Stage, calls, executes, says


@pytest.fixture
async def here(store_url: str, tmp_path: Path) -> AsyncIterator[Installation]:
    async with installed(store_url, tmp_path) as installation:
        yield installation


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog(read_index(SHIPPED))


# ── billing ─────────────────────────────────────────────────────────────────────────────────────


async def test_plans_and_credits_are_granted_by_slug_or_id_and_shown(here: Installation) -> None:
    planned = await here.command("billing", "plan", "my-organization", "pro")
    assert (planned.code, planned.out) == (0, "My organization is on the plan Pro from now on.\n")
    for _ in range(2):
        granted = await here.command("billing", "grant", here.organization_id, "40", "--id", "invoice-7")
        assert granted.code == 0, granted.err
        assert "has 40.00 credits in its wallet" in granted.out
    more = await here.command("billing", "grant", "my-organization", "2")
    assert "has 42.00 credits" in more.out
    shown = await here.command("billing", "show")
    assert "Plan    Pro (pro)" in shown.out
    assert "0.00 credits used, of 2,500.00 credits" in shown.out
    assert "Wallet  42.00 credits" in shown.out
    plans = load_plans("")
    assert await here.store.read(lambda tx: billing_faults(tx, plans)) == []


async def test_what_is_not_there_is_answered_with_what_is(here: Installation) -> None:
    for arguments, words in (
        (("grant", "nobody", "1"), here.organization_id),
        (("show", "nobody"), "my-organization"),
        (("plan", "my-organization", "gold"), "There are: free, pro, max, enterprise"),
    ):
        ended = await here.command("billing", *arguments)
        assert ended.code == 1
        assert words in ended.err
        assert "Traceback" not in ended.err


async def test_a_grant_of_nothing_is_refused(here: Installation) -> None:
    assert (await here.command("billing", "grant", "my-organization", "0")).code == 2


# ── policy ──────────────────────────────────────────────────────────────────────────────────────


def past(integration: str, action: str, *, tainted: bool = False, **parameters: object) -> PastCall:
    return PastCall({"integration_name": integration, "tool_name": action, "parameters": parameters}, tainted)


def test_each_policy_is_held_against_what_was_called(catalog: Catalog) -> None:
    repository: dict[str, Any] = {"owner": "o", "repo": "r"}
    counted, tallies = tally(
        catalog,
        [
            past("github", "list_repositories"),
            past("github", "list_repositories", tainted=True),
            past("github", "create_issue", **repository, title="t"),
            past("github", "create_issue", tainted=True, **repository, title="t"),
            past("github", "delete_repository", **repository),
            past("stripe", "cancel_subscription", subscription_id="sub_1"),
            # Never got as far as a question.
            past("github", "no_such_action"),
            past("nowhere", "delete_everything"),
            PastCall("not even an object", tainted=False),
        ],
    )
    assert counted == 6
    assert names(tallies["documented"]) == {"github.delete_repository": 1}
    assert names(tallies["catalog"]) == {"github.delete_repository": 1, "stripe.cancel_subscription": 1}
    assert names(tallies["guarded"]) == names(tallies["catalog"]) | {"github.create_issue": 1}
    assert names(tallies["strict"]) == names(tallies["catalog"]) | {"github.create_issue": 2}
    assert "money" in tallies["catalog"].reasons["stripe.cancel_subscription"]


def names(found: Tally) -> dict[str, int]:
    return dict(found.asked)


async def test_the_calls_of_a_turn_are_what_the_check_looks_at(
    stage: Stage, github: FakeGitHub, catalog: Catalog
) -> None:
    await stage.connect_github(github.token)
    before = stage.parley.clock.now()
    await stage.turn(executes("list_repositories"), calls("get_available_integrations", {}), says("Done."))
    found = await stage.parley.store.read(lambda tx: past_calls(tx, since=before, limit=100))
    assert [call.input["tool_name"] for call in found] == ["list_repositories"]
    assert found[0].tainted is True
    assert tally(catalog, found)[0] == 1
    assert await stage.parley.store.read(lambda tx: past_calls(tx, since=stage.parley.clock.now(), limit=100)) == []


async def test_the_check_says_which_policy_is_this_servers(here: Installation) -> None:
    ended = await here.command("policy", "check", "--days", "7", PARLEY_APPROVAL_POLICY="strict")
    assert ended.code == 0, ended.err
    assert "0 calls of actions in 7 days." in ended.out
    assert "strict: would have asked 0 times  (this server's)" in ended.out


# ── the command itself ──────────────────────────────────────────────────────────────────────────


def test_help_loads_nothing_that_only_single_commands_need() -> None:
    probe = (
        "import sys; sys.argv = ['parley', '--help']\n"
        "from parley.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'sqlalchemy', 'aiohttp', 'fastapi', 'uvicorn', 'pydantic', 'alembic'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
    for name in ("serve", "chat", "doctor", "verify", "keys", "billing", "policy", "sign-in-link"):
        assert f"│ {name} " in ended.stdout


async def test_a_setting_that_cannot_be_used_is_one_sentence() -> None:
    ended = await command("verify", environment={"PARLEY_PORT": "eighty"})
    assert (ended.code, ended.err) == (2, "parley: PARLEY_PORT must be a number, not 'eighty'\n")
