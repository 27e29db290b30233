"""What the pages point at is there: files of the sources, decisions, and the figures they repeat."""

import re
from pathlib import Path

import pytest

from bench.peers.__main__ import NAMES
from bench.peers.crashes import MOMENTS
from tests.conftest import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SOURCES = [*(ROOT / "src" / "parley").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
FILE = re.compile(r"[\w./-]+\.(?:py|pyi|sql|toml|md|ts|tsx|mjs|sh|yml|yaml)")
# Commands make these.
MADE = {"artifacts/"}


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES = {
    path.name for top in ("src", "tests", "bench", "deploy", "docs", "web/src") for path in (ROOT / top).rglob("*.*")
}


def is_there(named: str, page: Path) -> bool:
    """A path counts from the repository, the package or the page; a bare file name, wherever the file is."""
    if "/" not in named:
        return named in FILES or (ROOT / named).is_file()
    return any((top / named).exists() for top in (ROOT, ROOT / "src" / "parley", page.parent))


@pytest.mark.parametrize("page", PAGES, ids=place)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    words = [word for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")) for word in code.split()]
    paths = {word.partition("::")[0] for word in words if not word.startswith(("/", "."))}
    named = {each for each in paths if FILE.fullmatch(each) or re.fullmatch(r"[\w-]+(/[\w-]+)*/", each)}
    assert [each for each in sorted(named - MADE) if not is_there(each, page)] == []


def test_the_readme_links_to_what_is_there() -> None:
    links = re.findall(r"\]\(([^)#\s]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    inside = [link for link in links if "://" not in link]
    assert inside
    assert [link for link in inside if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=place)
def test_the_decisions_that_are_referred_to_are_there(path: Path) -> None:
    numbers = re.findall(r"\bdecisions?[ /](\d{4})\b", path.read_text(encoding="utf-8"))
    assert [number for number in numbers if not list((DOCS / "decisions").glob(f"{number}-*.md"))] == []


def test_the_figures_of_the_sizing_page_are_those_of_the_benchmarks() -> None:
    sizing, benchmarks = ((DOCS / name).read_text(encoding="utf-8") for name in ("sizing.md", "benchmarks.md"))
    cells = "\n".join(re.findall(r"^\|[^|]+\|([^|]+)\|[^|]+\|$", sizing, re.MULTILINE))
    figures = re.findall(r"(?:(\d+(?:\.\d+)?) to )?(\d+(?:\.\d+)?) (ms|MB|KB|s)\b", cells)
    pairs = [(figure, unit) for *both, unit in figures for figure in both if figure]
    assert len(pairs) > 10
    assert [pair for pair in pairs if not is_measured(*pair, benchmarks)] == []


def test_the_benchmarks_tell_of_every_peer_what_its_bench_measures_how_and_where_parley_loses() -> None:
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    section = page.partition("(`make bench-peers`)")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", section, re.MULTILINE)
    ]
    for measured in (
        *("CPU a turn", "CPU of PostgreSQL a turn", "memory a turn in flight"),
        *("to the first text, p50 / p99", "to done, p50 / p99"),
    ):
        told = [row[1:] for row in rows if row[0] == measured]
        assert len(told) >= 2, measured
        assert {len([cell for cell in cells if re.search(r"\d", cell)]) for cells in told} == {len(NAMES)}, measured
    (store,) = re.findall(r"\*\*Store\*\*, 100 turns.*: (.*)\.\n", section)
    assert re.findall(r"(\S+) [\d,]+ KB", store) == ["Parley", "LangChain", "pydantic-ai"]
    for moment in MOMENTS:
        assert any(row[0].startswith(moment) for row in rows), moment
    killed = [row[1] for row in rows if len(row) == 5 and row[1] in NAMES]
    assert sorted(killed) == sorted(NAMES * len(MOMENTS))
    assert "load" in section
    assert "requirements/peers-*.lock" in section
    assert "**Parley loses**" in section


def is_measured(figure: str, unit: str, page: str) -> bool:
    """Whether the figure stands on the page with its unit, perhaps in a row of figures of which the last has it."""
    return bool(re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d.])[^|\n]{{0,30}} {unit}\b", page))
