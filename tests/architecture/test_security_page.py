"""docs/security.md speaks of tests that exist, and says where there are none."""

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT, THREATS
from tests.integrations.test_pins import HOSTS_ONLY
from tests.trust.test_injection import ARRIVALS, DEMANDS

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = {found[1]: found[0] for found in re.finditer(r"^\| (T\d+) \|.*$", PAGE, re.MULTILINE)}


def test_every_row_of_the_threat_table_is_there_once() -> None:
    assert list(ROWS) == [f"T{number}" for number in range(1, 31)]
    assert list(THREATS) == list(ROWS)


@pytest.mark.parametrize("row", list(THREATS))
def test_the_tests_of_a_row_exist_or_the_page_says_that_there_are_none(row: str) -> None:
    for place in THREATS[row]:
        path, _, name = place.partition("::")
        tree = ast.parse(Path(ROOT / path).read_text(encoding="utf-8"))
        names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert name in names if name else any(one.startswith("test_") for one in names), place
    assert THREATS[row] or "Not shown" in ROWS[row]


def test_the_figures_of_the_page_are_those_of_the_tests() -> None:
    scenarios = f"{len(ARRIVALS) * len(DEMANDS)} scripted scenarios"
    assert scenarios in ROWS["T4"]
    assert f"({len(ARRIVALS)} arrivals × {len(DEMANDS)} demands)" in ROWS["T4"]
    assert f"**{len(HOSTS_ONLY)} actions are pinned by host only**" in PAGE
