"""The shape of the code: sizes, names, and what may not be there (design §3.5, §3.8)."""

import ast
from pathlib import Path

import pytest

from parley import storage
from parley.storage.schema import head_revision

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for path in (ROOT / "src" / "parley").rglob("*.py") if "versions" not in path.parts)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
REFUSED = {
    "utils", "util", "helpers", "helper", "common", "misc", "core", "lib", "manager", "managers", "handler",
    "handlers", "service", "services", "processor", "processors",
}  # fmt: skip
MODULE_LINES = 500
LOOP_LINES = 120
PACKAGE_MODULES = 12
# Packages that are larger than the rule, with the size they may not grow beyond.
LARGER_PACKAGES = {"http/routes": 20, "billing": 14, "credentials": 13}
DECISION_LINES = 60


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_has_at_most_five_hundred_lines_and_a_name_that_says_something(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES
    assert path.stem not in REFUSED
    assert path.parent.name not in REFUSED


def test_the_loop_fits_on_a_page() -> None:
    loop = ROOT / "src" / "parley" / "turn" / "loop.py"
    assert len(loop.read_text(encoding="utf-8").splitlines()) <= LOOP_LINES


def test_a_package_has_few_modules() -> None:
    sizes: dict[str, int] = {}
    for path in SOURCES:
        if path.stem != "__init__":
            package = str(path.parent.relative_to(ROOT / "src" / "parley"))
            sizes[package] = sizes.get(package, 0) + 1
    assert {package for package, size in sizes.items() if size > LARGER_PACKAGES.get(package, PACKAGE_MODULES)} == set()


def test_base_is_frozen_at_five_files() -> None:
    assert len([path for path in SOURCES if path.parent.name == "base" and path.stem != "__init__"]) <= 5


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=name)
def test_nothing_is_mocked_and_no_task_is_spawned_outside_a_group(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom | ast.Import):
            modules = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            assert not [module for module in modules if module.startswith("unittest")]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "asyncio":
            assert node.attr not in {"create_task", "gather", "ensure_future"}


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=name)
def test_a_decision_fits_on_a_screen(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= DECISION_LINES


def test_the_newest_migration_is_the_one_the_code_expects() -> None:
    versions = Path(storage.__file__).parent / "migrations" / "versions"
    assert max(path.stem.partition("_")[0] for path in versions.glob("0*.py")) == head_revision()
