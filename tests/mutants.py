"""Whether the tests notice small faults in the code that everything depends on: ``make mutants``.

mutmut changes one thing at a time (a comparison, a constant, an argument) and runs the tests that reach
it; a mutant that no test notices has survived. Each part of the code has the tests that are its own.

    python -m tests.mutants [PART ...] [--processes N] [--again]

prints the score of each module, and ends with 1 below the score to reach. What was measured is kept in
``var/mutants``, so that a run which was stopped goes on; ``--again`` begins anew. docs/decisions/0032 tells
what is counted.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
WORK = ROOT / "var" / "mutants"
TO_REACH = 85.0
MUTMUT = "import sys; from mutmut.__main__ import cli; sys.exit(cli())"
# As mutmut's own process ends: see mutmut.stats.status_by_exit_code.
SURVIVED, UNTESTED, UNKNOWN, LATE = {0}, {5, 33}, {None, 2, 34}, {-24, 24, 36, 152, 255}
# Seconds for a mutant's start, of which mutmut allows fifteen times as many: on a busy machine a start takes
# longer than mutmut's own limit of 15 s, and a mutant that never ran would count as noticed.
START_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Part:
    """Modules of ``src/parley``, and the tests that are to notice."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


PARTS: Mapping[str, Part] = {
    "ledger": Part(
        ("billing/ledger.py",),
        ("tests/billing/test_gate.py", "tests/billing/test_ledger_at_once.py", "tests/billing/test_metering.py"),
    ),
    "gate": Part(
        ("billing/gate.py", "tools/approval.py", "integrations/effects/policy.py"),
        (
            "tests/billing/test_gate.py",
            "tests/integrations/test_effects_policy.py",
            "tests/contract/test_approvals.py",
        ),
    ),
    "egress": Part(
        ("egress/guard.py", "egress/ranges.py"), ("tests/egress/test_guard.py", "tests/egress/test_ranges.py")
    ),
    "vault": Part(
        ("credentials/vault.py", "keyring/keyring.py"),
        ("tests/credentials/test_vault.py",),
    ),
    "runs": Part(
        ("runs/settle.py", "chats/resume.py", "chats/cancel.py", "chats/expire.py"),
        ("tests/contract/test_questions.py", "tests/contract/test_cancel.py", "tests/contract/test_turn.py"),
    ),
}


def main() -> int:
    """Measure the chosen parts; 1 where one of them scores too low."""
    arguments = argparse.ArgumentParser(description="Mutation scores of what everything depends on")
    arguments.add_argument("parts", nargs="*", choices=PARTS, default=[*PARTS])
    arguments.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments.add_argument("--again", action="store_true", help="forget what was measured before")
    chosen = arguments.parse_args()
    gone = list(_missing())
    if gone:
        arguments.error(f"PARTS names what is not there: {', '.join(gone)}")
    if chosen.again:
        shutil.rmtree(WORK, ignore_errors=True)
    for name in chosen.parts:
        _measure(name, PARTS[name], chosen.processes)
    reached = [_report(name, PARTS[name]) for name in chosen.parts]
    return 0 if all(reached) else 1


def _missing() -> Iterator[str]:
    """The modules and tests of any part that are no files: mutmut would pass over them and score the rest."""
    for part in PARTS.values():
        for place in (*(f"src/parley/{module}" for module in part.modules), *part.tests):
            if not (ROOT / place).is_file():
                yield place


def _measure(name: str, part: Part, processes: int) -> None:
    """Run mutmut over a copy of the sources, in a folder of the part's own."""
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    for copied in ("src", "tests", "docs"):
        shutil.copytree(
            ROOT / copied, folder / copied, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    house = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (folder / "pyproject.toml").write_text(house + _configuration(part), encoding="utf-8")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", MUTMUT, "run", "--max-children", str(processes)]
    subprocess.run(command, cwd=folder, env=environment, check=True)


def _configuration(part: Part) -> str:
    modules = [f"src/parley/{module}" for module in part.modules]
    return "\n".join(
        (
            "",
            "[tool.mutmut]",
            'source_paths = ["src"]',
            'also_copy = ["docs"]',
            f"only_mutate = {json.dumps(modules)}",
            f"pytest_add_cli_args_test_selection = {json.dumps(part.tests)}",
            'pytest_add_cli_args = ["-p", "no:cacheprovider"]',
            "use_git_change_detection = false",
            f"timeout_constant = {START_SECONDS}",
            # From a process that has run no test: what is cached there would hide mutants.
            'process_isolation = "forkserver"',
            "",
        )
    )


def _report(name: str, part: Part) -> bool:
    """Print the scores of a part; whether each of its modules reaches the score."""
    reached = True
    for module in part.modules:
        counted = Counter(_outcomes(WORK / name / "mutants" / "src" / "parley" / f"{module}.meta"))
        killed, alive = counted["killed"] + counted["late"], counted["survived"] + counted["untested"]
        score = 100 * killed / max(1, killed + alive)
        reached &= score >= TO_REACH
        told = f"{killed} of {killed + alive}, {counted['late']} of them by running out of time"
        print(f"{name:8} {module:36} {score:5.1f} %  {told}, {counted['unknown']} not measured")
    return reached


def _outcomes(meta: Path) -> Iterator[str]:
    codes: Mapping[str, int | None] = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    for code in codes.values():
        known = "survived" if code in SURVIVED else "untested" if code in UNTESTED else "killed"
        yield "unknown" if code in UNKNOWN else "late" if code in LATE else known


if __name__ == "__main__":
    sys.exit(main())
