"""The committed build of the web app is the one its sources make. Needs no node."""

import hashlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
STATIC = ROOT / "src" / "parley" / "http" / "static"
FILES = ["index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts"]
FOLDERS = ["build", "public", "src"]
TEST = re.compile(r"\.test\.tsx?$")

KILOBYTE = 1024


def stamp_of_sources() -> str:
    """What web/build/stamp.mjs computes."""
    found = [path for folder in FOLDERS for path in (WEB / folder).rglob("*") if path.is_file()]
    names = [path.relative_to(WEB).as_posix() for path in found if not TEST.search(path.name)]
    whole = hashlib.sha256()
    for name in sorted([*FILES, *names], key=lambda each: each.encode("utf-16-be")):
        whole.update(f"{name}\n{hashlib.sha256((WEB / name).read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def test_the_build_was_made_from_these_sources() -> None:
    stamp = json.loads((STATIC / "build.json").read_text())["source"]
    assert stamp == stamp_of_sources(), "web/ changed since the build: run `npm run build` in web/ and commit static/"


def test_everything_the_first_page_names_is_there() -> None:
    page = (STATIC / "index.html").read_text()
    named = re.findall(r'(?:src|href)="/app/([^"]+)"', page)
    assert any(name.endswith(".js") for name in named)
    assert any(name.endswith(".css") for name in named)
    assert [name for name in named if not (STATIC / name).is_file()] == []


def test_everything_a_script_names_is_there() -> None:
    for script in STATIC.glob("assets/*.js"):
        named = re.findall(r"""["'`](?:\./|assets/)([\w.-]+\.(?:js|css))["'`]""", script.read_text())
        assert [name for name in named if not (STATIC / "assets" / name).is_file()] == [], script.name


def test_no_page_names_another_host() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r'(?:src|href)="(?!/app/)[^"]*"', page) == []


def test_the_lock_file_pins_what_the_package_file_asks_for() -> None:
    package = json.loads((WEB / "package.json").read_text())
    locked = json.loads((WEB / "package-lock.json").read_text())["packages"]
    wanted = {**package["dependencies"], **package["devDependencies"]}
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert locked[""]["dependencies"] == package["dependencies"]


@pytest.mark.parametrize(("pattern", "most"), [("index-*.js", 150), ("*.css", 12), ("*.js", 150)])
def test_what_a_browser_downloads_stays_small(pattern: str, most: int) -> None:
    for path in STATIC.glob(f"assets/{pattern}"):
        copy = path.with_name(f"{path.name}.gz")
        size = (copy if copy.exists() else path).stat().st_size
        assert size <= most * KILOBYTE, path.name


def test_pages_that_load_later_and_the_whole_build_stay_small() -> None:
    later = [path for path in STATIC.glob("assets/*.js.gz") if not path.name.startswith("index-")]
    assert max(path.stat().st_size for path in later) <= 60 * KILOBYTE
    served = [path for path in STATIC.rglob("*") if path.is_file() and path.suffix == ".gz"]
    assert sum(path.stat().st_size for path in served) <= 600 * KILOBYTE


def test_nothing_is_left_over_from_an_earlier_build() -> None:
    everything = "".join(path.read_text() for path in [STATIC / "index.html", *STATIC.glob("assets/*.js")])
    built = {path.name.removesuffix(".gz").removesuffix(".br") for path in (STATIC / "assets").iterdir()}
    assert sorted(name for name in built if name not in everything) == []
