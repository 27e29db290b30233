"""Issue 6 and the paper of the web app, sentence by sentence: each is tied to tests that run.

A test is a pytest node id without parameters, or ``web/….test.ts::title`` for a test of the app's own,
which ``test_units`` runs.
"""

from pathlib import Path

import msgspec
import pytest

from tests.contract.requirements import Requirement, exists, defined_in
from tests.web.visitor import ROOT

LIST = Path(__file__).with_name("requirements.toml")
ISSUE = "issue 6"
PAPER = "web.md"
SECTIONS = {
    ISSUE: {"Must be true 1", "Must be true 2", "Must be true 3", "Must be true 4", "Must be true 5", "Must be true 6",
            "Shown by"},
    PAPER: {"§3.2", "§3.3", "§4.1", "§4.2", "§4.3", "§4.4", "§5", "§5.1", "§6", "§7", "§8", "§9"},
}  # fmt: skip
LISTED = msgspec.toml.decode(LIST.read_bytes(), type=dict[str, Requirement])


def there_is(test: str) -> bool:
    path, _, title = test.partition("::")
    if not path.startswith("web/"):
        return exists(test)
    file = ROOT / path
    return file.is_file() and f"('{title}'" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", LISTED)
def test_a_sentence_is_kept_by_tests_that_are_there(name: str) -> None:
    listed = LISTED[name]
    assert listed.section in SECTIONS[listed.source]
    assert listed.behaviour.strip()
    assert listed.tests or listed.divergence
    assert not listed.deferred
    assert [test for test in listed.tests if not there_is(test)] == []


def test_every_section_has_its_sentences() -> None:
    covered = {(listed.source, listed.section) for listed in LISTED.values()}
    assert {(source, section) for source, sections in SECTIONS.items() for section in sections} == covered


@pytest.mark.parametrize("file", sorted(LIST.parent.glob("test_*.py")), ids=lambda file: file.name)
def test_every_test_of_the_app_is_in_the_list(file: Path) -> None:
    if file.name == Path(__file__).name:
        return
    path = file.relative_to(ROOT).as_posix()
    listed = {test for each in LISTED.values() for test in each.tests}
    assert sorted(f"{path}::{test}" for test in defined_in(path) if f"{path}::{test}" not in listed) == []


@pytest.mark.parametrize(
    "missing", ["tests/web/test_units.py::test_nothing", "web/src/chat/sse.test.ts::no such title"]
)
def test_a_test_that_is_not_there_is_noticed(missing: str) -> None:
    assert not there_is(missing)
