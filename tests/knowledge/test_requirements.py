"""Everything that the issue on knowledge asks is shown by a test that is there."""

from pathlib import Path

import msgspec

from tests.contract.requirements import exists

LIST = Path(__file__).with_name("requirements.toml")


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sentence, and the node ids of the tests that show it."""

    behaviour: str
    tests: tuple[str, ...]


def test_every_sentence_of_the_issue_has_tests_that_are_there() -> None:
    asked = msgspec.toml.decode(LIST.read_bytes(), type=dict[str, Asked])
    assert len(asked) >= 15
    assert [name for name, each in asked.items() if not each.tests] == []
    assert [test for each in asked.values() for test in each.tests if not exists(test)] == []
