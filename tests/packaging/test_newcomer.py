"""A newcomer's way through the README, as it is written there: from an empty folder to a first turn, on every surface.

The server is the wheel's, with nothing set; what it prints at its first start is all that is known. Only addresses,
the key and the organization are put where the page leaves them out. ``make serve`` itself is the one step that is not
played: it makes the environment that these tests run in.
"""

import asyncio
import re
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.packaging.test_wheel import serving, wheel

__all__ = ["wheel"]

README = (ROOT / "README.md").read_text(encoding="utf-8")
SECONDS = 50
ADDRESS = "http://127.0.0.1:8000"
# How the answer begins where no model has a key.
DEMO = "**Demo "


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Somebody who has read what the first start printed."""

    url: str
    key: str
    organization: str
    folder: Path

    async def types(self, *command: str, given: str = "") -> str:
        """A command in the newcomer's folder, which must end well; what it printed."""
        environment = {
            "PATH": f"{self.folder}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "PARLEY_URL": self.url,
            "PARLEY_API_KEY": self.key,
            "PARLEY_ORGANIZATION_ID": self.organization,
            "PARLEY_PORT": self.url.rpartition(":")[2],
            "OLLAMA_HOST": "http://127.0.0.1:9",
        }
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.folder, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate(given.encode())
        assert process.returncode == 0, err.decode()
        return out.decode()

    def filled(self, text: str) -> str:
        """A snippet with what the page leaves out."""
        for left_out, value in (
            (ADDRESS, self.url),
            ("mx_live_…", self.key),
            ('organization_id="…"', f'organization_id="{self.organization}"'),
            ("PARLEY_ORGANIZATION_ID=…", f"PARLEY_ORGANIZATION_ID={self.organization}"),
            (".venv/bin/parley", f"{sys.executable} -m parley"),
        ):
            text = text.replace(left_out, value)
        assert "…" not in text, text
        return text


@pytest.fixture(scope="module")
async def newcomer(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Newcomer]:
    folder = tmp_path_factory.mktemp("newcomer")
    async with serving(wheel, folder) as served:
        (key,) = re.findall(r"^  API key +(\S+)$", served.said, re.MULTILINE)
        (organization,) = re.findall(r"^  Organization +(\S+)$", served.said, re.MULTILINE)
        yield Newcomer(served.url, key, organization, folder / "empty")


def snippet(after: str, language: str = "") -> str:
    """The first snippet of the README after these words."""
    found = re.search(rf"^```{language}\n(.*?)^```", README.partition(after)[2], re.DOTALL | re.MULTILINE)
    assert found is not None, after
    return found[1]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
async def test_the_first_turn_with_curl_is_answered_as_the_page_says(newcomer: Newcomer) -> None:
    start, listen = snippet("**With curl.**").split("\n\n")
    started = await newcomer.types("bash", "-c", newcomer.filled(start.replace("…", "")))
    (path,) = re.findall(r'"stream_url":"([^"]+)"', started)
    shape = re.sub(r'"(\w+_id)":"[^"]+"', r'"\1":"…"', started)
    assert re.sub(r"(chat|listen)/[0-9a-f-]{36}", r"\1/…", shape).strip() in start
    heard = await newcomer.types("bash", "-c", newcomer.filled(listen.replace("<stream_url>", path)))
    assert DEMO in heard
    assert '"type":"done"' in heard.replace(": ", ":")


async def test_the_first_turn_with_the_published_client_is_the_snippet_of_the_page(newcomer: Newcomer) -> None:
    script = newcomer.folder / "first.py"
    script.write_text(newcomer.filled(snippet("**With the published Python client**", "python")), encoding="utf-8")
    heard = await newcomer.types(sys.executable, str(script))
    assert DEMO in heard
    assert re.search(r"^done ", heard, re.MULTILINE)


async def test_the_first_turn_in_the_terminal_is_the_snippet_of_the_page(newcomer: Newcomer) -> None:
    line = newcomer.filled(snippet("**In the terminal.**"))
    assert DEMO in await newcomer.types("bash", "-c", line, given="What can you do?\n")


async def test_the_doctor_finds_nothing_broken_where_a_newcomer_stands(newcomer: Newcomer) -> None:
    told = await newcomer.types(sys.executable, "-m", "parley", "doctor")
    assert "Nothing is broken." in told
