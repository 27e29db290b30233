"""Putting the guard into a process: explicit, once, lazily, and taken out again whole."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.egress.install import GUARDED
from tests.egress.sites import MakeEgress

IMPORT = re.compile(r"^[ \t]*(?:import ([\w.]+)(?: as \w+)?[ \t]*(?:#.*)?$|from ([\w.]+) import\b)", re.MULTILINE)
# What integrations import from elsewhere, and where each one's connections are guarded.
DIALS_THROUGH = {
    "aiomysql": "aiomysql.connection",
    "asyncpg": "asyncpg",
    "boto3": "urllib3.connectionpool",
    "elevenlabs": "httpcore._sync.connection_pool",
    "httpx": "httpcore._async.connection_pool",
    "hubspot": "urllib3.connectionpool",
    "langchain_tavily": "aiohttp.connector",
    "nasdaqdatalink": "requests.sessions",
    "pymongo": "pymongo.pool_shared",
    "pymssql": "pymssql",
    "snowflake": "snowflake.connector",
}
DIALS_NOBODY = {"bson", "cryptography", "langchain_core", "modulex_integrations", "pandas", "pydantic"}


def snapshot() -> dict[str, Any]:
    """Everything that the guard replaces, wherever it is loaded."""
    import aiohttp  # noqa: PLC0415
    import httpx  # noqa: PLC0415

    assert aiohttp
    assert httpx
    return {
        f"{name}.{attribute}": value
        for name in GUARDED
        if name in sys.modules
        for owner in [sys.modules[name], *vars(sys.modules[name]).values()]
        if owner is sys.modules[name] or (isinstance(owner, type) and owner.__module__ == name)
        for attribute, value in vars(owner).items()
        if callable(value)
    }


async def test_the_guard_leaves_no_trace_once_it_is_taken_out(
    make_egress: MakeEgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    before, finders = snapshot(), list(sys.meta_path)
    with make_egress(SSL_CERT_FILE="/tmp/ca.pem").install():
        assert snapshot() != before
        assert sys.meta_path != finders
        assert os.environ["REQUESTS_CA_BUNDLE"] == "/tmp/ca.pem"
    assert snapshot() == before
    assert sys.meta_path == finders
    assert "REQUESTS_CA_BUNDLE" not in os.environ


async def test_the_operators_own_bundle_variable_stays(
    make_egress: MakeEgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/tmp/own.pem")
    with make_egress(SSL_CERT_FILE="/tmp/ca.pem").install():
        assert os.environ["REQUESTS_CA_BUNDLE"] == "/tmp/own.pem"
    assert os.environ["REQUESTS_CA_BUNDLE"] == "/tmp/own.pem"


async def test_a_process_is_guarded_once(make_egress: MakeEgress) -> None:
    with make_egress().install(), pytest.raises(RuntimeError, match="installed in this process already"):
        make_egress().install().__enter__()
    with make_egress().install():
        pass


LAZY = """
import sys
from parley.egress import Egress

heavy = {"httpx", "httpcore", "requests", "urllib3", "boto3", "botocore", "pymongo", "aiomysql", "asyncpg", "snowflake"}
egress = Egress((), {})
with egress.install():
    loaded = heavy & sys.modules.keys()
    assert not loaded, loaded
    import httpx, asyncpg, asyncio, urllib3
    async def refused(dialling):
        try:
            await dialling
        except Exception as error:
            assert "private network" in str(error), error
        else:
            raise AssertionError("dialled")
    async def main():
        async with httpx.AsyncClient() as client:
            await refused(client.get("https://127.0.0.1/"))
        await refused(asyncpg.connect(host="127.0.0.1", user="u", password="p", database="d"))
        await refused(asyncio.to_thread(urllib3.PoolManager(retries=False).request, "GET", "https://127.0.0.1/"))
    asyncio.run(main())
print("guarded")
"""


def test_nothing_is_imported_for_the_guard_and_what_is_imported_later_is_guarded() -> None:
    ran = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, timeout=50, check=False)
    assert ran.stdout.strip() == "guarded", ran.stderr


def imports_of_integrations() -> set[str]:
    """Every module that the source of some integration imports."""
    spec = importlib.util.find_spec("modulex_integrations")
    assert spec is not None
    assert spec.origin is not None
    sources = [path for path in Path(spec.origin).parent.rglob("*.py") if "tests" not in path.parts]
    return {plain or named for path in sources for plain, named in IMPORT.findall(path.read_text())}


def test_every_library_that_integrations_import_is_known_to_the_guard() -> None:
    imported = imports_of_integrations()
    packages = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
    assert packages - DIALS_NOBODY == set(DIALS_THROUGH)
    assert set(DIALS_THROUGH.values()) <= set(GUARDED)
    assert not imported & {
        "socket",
        "http.client",
        "urllib.request",
        "smtplib",
        "ftplib",
        "imaplib",
        "poplib",
        "xmlrpc",
    }


def test_each_guarded_module_exists_where_the_guard_looks_for_it() -> None:
    for name in GUARDED:
        assert importlib.util.find_spec(name) is not None, name
