"""The documentation builds, its links lead somewhere, and what it tells to type exists."""

import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import aiohttp
import pytest

from parley.base.settings import Settings, read_settings
from parley.testing.server import served
from tests.conftest import ROOT
from tests.packaging.test_deploy import accepted

DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]
SNIPPETS = [
    (page.name, line.strip())
    for page in PAGES
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    if language in ("", "sh")
    for line in block.splitlines()
]
OTHER_SETTINGS = {
    *("PARLEY_URL", "PARLEY_API_KEY", "PARLEY_ORGANIZATION_ID", "PARLEY_BACKUP_PASSPHRASE"),
    *("PARLEY_DATABASE_PASSWORD", "PARLEY_TEST_POSTGRES_URL"),
}
NO_OLLAMA = {"OLLAMA_HOST": "http://127.0.0.1:9", "PARLEY_ALLOW_PRIVATE_HOSTS": "127.0.0.1"}
KNOWN = {f"PARLEY_{each.name.upper()}" for each in fields(Settings)} | OTHER_SETTINGS


def commands() -> list[tuple[str, list[str]]]:
    """Every ``parley …`` line of a snippet, as words; settings in front are taken off."""
    found = list[tuple[str, list[str]]]()
    for page, line in SNIPPETS:
        if re.match(r"([A-Z_]+=\S* )*(\S*/)?parley ", line) is None:
            continue
        words = shlex.split(line.split("  #")[0].replace("…", "x"))
        while re.match(r"^[A-Z_]+=", words[0]):
            words.pop(0)
        found.append((page, words[1:]))
    return found


def test_every_parley_command_in_a_snippet_exists() -> None:
    assert len(commands()) > 8
    for page, words in commands():
        assert accepted(words), (page, words)


def test_every_make_command_in_a_page_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert {each[0] or each[1] for each in named} <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    assert set(re.findall(r"\bPARLEY_[A-Z_]*[A-Z]\b", page.read_text())) <= KNOWN


@pytest.fixture
async def routes(tmp_path: Path) -> list[str]:
    """Every route of a running server's OpenAPI document, as ``GET /path``."""
    settings = read_settings({"PARLEY_DATA_DIR": str(tmp_path / "var"), "PARLEY_PORT": "0", **NO_OLLAMA})
    async with (
        served(settings) as (_, url),
        aiohttp.ClientSession() as session,
        session.get(f"{url}/openapi.json") as answer,
    ):
        paths = (await answer.json())["paths"]
    return [f"{verb.upper()} {path}" for path, operations in paths.items() for verb in operations]


def test_the_upgrade_notes_have_a_row_for_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    notes = (DOCS / "operations.md").read_text().partition("## Upgrading")[2]
    (row,) = re.findall(rf"^\| {re.escape(version)} \| (.+) \|$", notes, re.MULTILINE)
    assert row.strip()


async def test_the_documentation_builds_and_has_every_route(tmp_path: Path, routes: list[str]) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    shown = re.findall(r"<h3[^>]*><code>([A-Z]+ /[^<]*)</code>", (tmp_path / "site" / "api.html").read_text())
    assert "PUT /organizations/settings/retention" in shown
    assert sorted(shown) == sorted(routes)
    decisions = (tmp_path / "site" / "decisions" / "index.html").read_text()
    for path in (DOCS / "decisions").glob("0*.md"):
        assert f'href="{path.stem}.html"' in decisions
