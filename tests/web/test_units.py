"""The web app's own unit tests, so that one command runs everything."""

import shutil
import subprocess

import pytest

from tests.web.visitor import ROOT

WEB = ROOT / "web"
SECONDS = 120


def run(*command: str) -> None:
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules").is_dir():
        pytest.skip("the web app's tools are not installed: run `npm ci` in web/")
    done = subprocess.run([node, *command], cwd=WEB, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(SECONDS)
def test_the_parser_the_reducer_the_store_and_the_renderer_pass_their_tests() -> None:
    run("node_modules/vitest/vitest.mjs", "run")


@pytest.mark.timeout(SECONDS)
def test_the_sources_are_well_typed() -> None:
    run("node_modules/typescript/bin/tsc", "--noEmit")
