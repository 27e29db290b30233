"""The requirements lists: every sentence of the seeds, of contract §2-§6 and §17 and of issues, tied to its tests.

The lists are ``requirements.toml``, here and in the folders of ``LISTS``. A requirement has a test, or the issue that
will bring it, or a divergence that was decided; it may have several of these.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
PARTS = ("contract", "durability", "llm", "packaging", "trust")
LISTS = tuple(ROOT / "tests" / part / "requirements.toml" for part in PARTS)
ISSUE = re.compile(r"issue [1-9]")

# Every part of every paper that asks for something. Each needs at least one requirement.
SOURCES: Mapping[str, frozenset[str]] = {
    "seeds/how-it-works.md": frozenset(
        {
            "Introduction",
            "The reason, act, observe loop",
            "Storage and execution model",
            "Turns and runs",
            "The three run-id identities",
            "How a turn is admitted, charged, and tracked",
            "Termination and limits",
            "Loop limits",
            "Events emitted during a turn",
            "Credit impact",
            "When a turn is denied",
            "A worked example",
        }
    ),
    "seeds/using-tools.md": frozenset(
        {
            "Introduction",
            "The Assistant's toolset",
            "Browse the catalog",
            "Read an integration's actions",
            "See existing credentials",
            "execute_integration_tool",
            "Return shape",
            "The approval gate",
            "request_credential",
            "How you respond, and how the run resumes",
            "BYOK vs managed credentials",
            "Credit impact of a tool call",
            "Errors and denials",
            "A worked example",
        }
    ),
    "contract.md": frozenset(
        {
            "§2",
            *(f"§2.{number}" for number in range(1, 10)),
            "§3",
            *(f"§4.{number}" for number in range(1, 5)),
            *(f"§5.{number}" for number in range(1, 5)),
            "§6",
            "§6.1",
            "§6.2",
            *(f"§9.{number}" for number in range(1, 5)),
            "§10",
            "§12",
            "§17",
            "§17.1",
        }
    ),
    "issue 3": frozenset({*map(str, range(1, 9)), "Shown by"}),
    "issue 4": frozenset({*map(str, range(1, 7)), "Shown by"}),
    "issue 5": frozenset({*map(str, range(1, 9)), "Shown by"}),
    "issue 7": frozenset({*map(str, range(1, 9)), "Shown by"}),
    "issue 9": frozenset({*map(str, range(1, 8)), "Shown by"}),
}


class Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that is asked for. ``tests`` are node ids, ``deferred`` is ``issue N``, ``divergence`` says why."""

    source: str
    section: str
    behaviour: str
    tests: tuple[str, ...] = ()
    deferred: str = ""
    divergence: str = ""


def requirements() -> dict[str, Requirement]:
    """The lists, by id, in their order. Raises msgspec.ValidationError for a field that is none."""
    listed: dict[str, Requirement] = {}
    for path in LISTS:
        listed |= msgspec.toml.decode(path.read_bytes(), type=dict[str, Requirement])
    return listed


def faults(listed: Mapping[str, Requirement]) -> list[str]:
    """What is wrong with a list; empty when every requirement is kept, deferred or decided against."""
    return [
        *(f"{name}: {fault}" for name, each in listed.items() for fault in _faults_of(each)),
        *_missing_sections(listed.values()),
    ]


def _faults_of(each: Requirement) -> Iterator[str]:
    if each.section not in SOURCES.get(each.source, ()):
        yield f"there is no {each.section!r} in {each.source!r}"
    if not each.behaviour.strip():
        yield "it says nothing"
    if not (each.tests or each.deferred or each.divergence):
        yield "it has neither a test nor an issue nor a divergence"
    if each.deferred and not ISSUE.fullmatch(each.deferred):
        yield f"{each.deferred!r} is not an issue"
    for test in each.tests:
        if not exists(test):
            yield f"there is no test {test}"


def _missing_sections(listed: Iterable[Requirement]) -> Iterator[str]:
    covered = {(each.source, each.section) for each in listed}
    for source, sections in SOURCES.items():
        for section in sorted(sections):
            if (source, section) not in covered:
                yield f"nothing is listed for {section!r} of {source}"


def exists(test: str) -> bool:
    """Whether a test of that node id, without parameters, is defined."""
    path, _, name = test.partition("::")
    return name in defined_in(path)


@cache
def defined_in(path: str) -> frozenset[str]:
    """The tests that a file defines, as their node ids name them; none where there is no file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    groups = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    within = {f"{group.name}::{name}" for group in groups for name in _tests_in(group.body)}
    return frozenset(within.union(_tests_in(tree.body)))


def _tests_in(body: Iterable[ast.stmt]) -> Iterator[str]:
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return (node.name for node in functions if node.name.startswith("test_"))
