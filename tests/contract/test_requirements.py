"""The requirements list names a test, an issue or a decision for everything that the papers ask."""

import pytest
from msgspec.structs import replace

from tests.contract.requirements import SOURCES, Requirement, faults, requirements

HERE = "tests/contract/test_requirements.py"
KEPT = Requirement("contract.md", "§3", "A behaviour.", (f"{HERE}::test_every_requirement_is_kept",))
REST = {
    f"{source} {section}": replace(KEPT, source=source, section=section)
    for source, sections in SOURCES.items()
    for section in sections
}


def test_every_requirement_is_kept() -> None:
    assert faults(requirements()) == []


def test_no_sentence_is_listed_twice() -> None:
    said = [(each.source, each.section, each.behaviour) for each in requirements().values()]
    assert len(said) == len(set(said))


@pytest.mark.parametrize(
    "good",
    [KEPT, replace(KEPT, tests=(), deferred="issue 8"), replace(KEPT, tests=(), divergence="Decided otherwise.")],
)
def test_a_test_an_issue_or_a_decision_is_enough(good: Requirement) -> None:
    assert faults({**REST, "good": good}) == []


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (replace(KEPT, tests=()), "it has neither a test nor an issue nor a divergence"),
        (replace(KEPT, tests=(f"{HERE}::test_nothing",)), f"there is no test {HERE}::test_nothing"),
        (replace(KEPT, tests=(f"{HERE}x::test_every_requirement_is_kept",)), "there is no test"),
        (replace(KEPT, tests=("tests/contract/requirements.py::faults",)), "there is no test"),
        (replace(KEPT, source="contract"), "there is no '§3' in 'contract'"),
        (replace(KEPT, section="§99"), "there is no '§99' in 'contract.md'"),
        (replace(KEPT, deferred="later"), "'later' is not an issue"),
        (replace(KEPT, behaviour=" "), "it says nothing"),
    ],
)
def test_what_is_wrong_with_a_requirement_is_named(broken: Requirement, said: str) -> None:
    (fault,) = faults({**REST, "broken": broken})
    assert fault.startswith(f"broken: {said}")


def test_a_section_that_nothing_is_listed_for_is_named() -> None:
    rest = {name: each for name, each in REST.items() if each.section != "§17.1"}
    assert faults(rest) == ["nothing is listed for '§17.1' of contract.md"]
