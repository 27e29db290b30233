"""The plan file: what an operator may write, and what is said when it cannot be used."""

from pathlib import Path

import pytest

from parley.base.settings import SettingsError
from parley.billing import credits_text, load_plans
from parley.billing.plans import MICRO
from parley.turn.model import Usage

LEAST = """
default_plan = "one"
[[plans]]
slug = "one"
name = "One"
[[models]]
match = ""
input = 1
cached = 1
output = 1
"""


def written(path: Path, text: str) -> str:
    file = path / "plans.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_the_shipped_file_has_the_four_plans_and_a_default_that_stops_nobody() -> None:
    plans = load_plans("")
    assert [plan.slug for plan in plans.plans] == ["free", "pro", "max", "enterprise"]
    default = plans.of(None)
    assert (default.slug, default.allowance_micro) == ("enterprise", None)
    assert default.quotas.concurrent_turns is None and default.rates.sync_exec is None
    assert plans.turn_micro == plans.tool_micro("github") == MICRO
    assert plans.cents_to_micro(100) == 100 * MICRO
    assert plans.cents(100 * MICRO) == 100
    assert not plans.of("free").overage and plans.of("pro").overage and plans.of("max").overage


def test_the_longest_match_prices_a_model() -> None:
    plans = load_plans("")
    dear = plans.model_micro("claude-opus-4.8", Usage(1_000_000, 0))
    usual = plans.model_micro("something-else", Usage(1_000_000, 0))
    assert (dear, usual) == (500 * MICRO, 300 * MICRO)


@pytest.mark.parametrize(
    ("micro", "shown"),
    [
        (0, "0"),
        (12 * MICRO, "12"),
        (500_000, "0.5"),
        (1, "0.000001"),
        (-1_000_001, "-1.000001"),
        (10**18, "1" + "0" * 12),
    ],
)
def test_micro_credits_are_written_as_credits_exactly(micro: int, shown: str) -> None:
    assert credits_text(micro) == shown


def test_an_operators_own_file_replaces_the_shipped_one(tmp_path: Path) -> None:
    plans = load_plans(written(tmp_path, LEAST))
    assert [plan.slug for plan in plans.plans] == ["one"]
    assert plans.of("pro").slug == "one"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("default_plan = ", "Invalid value"),
        (LEAST.replace('default_plan = "one"', 'default_plan = "two"'), "no plan has that slug"),
        (LEAST + '[[plans]]\nslug = "one"\nname = "Again"\n', "same slug"),
        (LEAST.replace('match = ""', 'match = "gpt"'), 'match = ""'),
        (LEAST.replace("input = 1", "input = -1"), "negative"),
        (LEAST.replace('name = "One"', 'name = "One"\nmonthly_credit = 5'), "monthly_credit"),
        (LEAST.replace('name = "One"', 'name = "One"\nmonthly_credits = "many"'), "monthly_credits"),
        ("credits_per_usd = 0\n" + LEAST, "credits_per_usd"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_what_is_wrong(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(SettingsError, match="PARLEY_PLANS_FILE") as caught:
        load_plans(written(tmp_path, text))
    assert fault in str(caught.value)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        load_plans(str(tmp_path / "nowhere.toml"))
