"""What serving loads is pinned for serving: an installation from serve.lock alone must start."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions

from tests.conftest import ROOT

SECONDS = 50.0
# What a server and each command import; and an engine, with which SQLAlchemy imports its asyncio side.
LOADED = """
import pkgutil, sys
from importlib import import_module
import parley.cli, parley.wiring

for module in pkgutil.walk_packages(parley.cli.__path__, "parley.cli."):
    import_module(module.name)
from sqlalchemy.ext.asyncio import create_async_engine

create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:9/nothing")
print(*sorted({name.partition(".")[0] for name in sys.modules}), sep="\\n")
"""
# Loaded by another package where it happens to be there, and not needed.
TAKEN_WHERE_THERE = {"linkify_it"}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(lock: str) -> set[str]:
    text = (ROOT / "requirements" / lock).read_text()
    return {plain(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)}


def test_what_a_server_and_the_commands_load_is_in_the_lock_for_serving() -> None:
    command = [sys.executable, "-c", LOADED]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    loaded, owners, locked = set(ended.stdout.split()), packages_distributions(), pinned("serve.lock") | {"parley"}
    # What a newcomer's server lacked once; if it is not loaded here, this test sees nothing.
    assert {"greenlet", "sqlalchemy", "asyncpg"} <= loaded
    # A module may be of several distributions that share its name: one of them is enough.
    lacking = {name for name in loaded & set(owners) if locked.isdisjoint(map(plain, owners[name]))}
    assert lacking <= TAKEN_WHERE_THERE


def test_the_lock_for_tests_has_the_same_versions() -> None:
    def lines(lock: str) -> set[str]:
        return set(re.findall(r"^[A-Za-z0-9._-]+==[^ ;]+", (ROOT / "requirements" / lock).read_text(), re.MULTILINE))

    assert lines("serve.lock") <= lines("dev.lock")
