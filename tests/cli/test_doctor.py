"""``parley doctor``: what is wrong, what mends it, and no secret on the way (issue 1, sentence 10)."""

import asyncio
import fcntl
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import web
from sqlalchemy import make_url

from parley.base.settings import read_settings
from parley.cli.doctor import examine, machine
from parley.cli.doctor.finding import Finding
from parley.cli.doctor.reach import check_store
from parley.cli.store import StoreFacts
from parley.integrations.house import TAKEN, make_sample
from parley.integrations.index import FORMAT, Index, write_index
from parley.storage.schema import head_revision
from parley.testing.server import server_process
from tests.cli.installation import Installation, installed
from tests.cli.test_chat_script import standing_in
from tests.conftest import POSTGRES

QUIET = {"OLLAMA_HOST": "http://127.0.0.1:9"}


@pytest.fixture
async def here(store_url: str, tmp_path: Path) -> AsyncIterator[Installation]:
    async with installed(store_url, tmp_path) as installation:
        yield installation


async def findings(environment: dict[str, str]) -> list[Finding]:
    async with asyncio.timeout(30):
        return [finding async for finding in examine({**QUIET, **environment})]


async def the_broken(environment: dict[str, str]) -> Finding:
    """The only thing that is broken."""
    (finding,) = [finding for finding in await findings(environment) if finding.state == "broken"]
    assert finding.mend
    return finding


async def the_finding(environment: dict[str, str], topic: str) -> Finding:
    (finding,) = [finding for finding in await findings(environment) if finding.topic == topic]
    return finding


async def test_a_sound_installation_has_nothing_broken_and_no_secret_is_printed(here: Installation) -> None:
    secrets = {
        "OPENAI_API_KEY": f"sk-canary-{uuid4().hex}",
        "STRIPE_SECRET_KEY": f"sk_test_{uuid4().hex}",
        "STRIPE_WEBHOOK_SECRET": f"whsec_{uuid4().hex}",
        "PARLEY_MASTER_KEYS": (here.settings.data_dir / "master.keys").read_text().strip(),
    }
    ended = await here.command("doctor", **secrets)
    assert (ended.code, ended.err) == (0, "")
    for topic in ("Settings", "Data folder", "Master keys", "Plans", "Payments", "Public address", "Integrations"):
        assert re.search(rf"^✓ {topic} ", ended.out, re.MULTILINE)
    for line in ("194 with 2140 actions", "everything is sealed under k1", "pooled keys for OpenAI", "1 person"):
        assert line in ended.out
    assert "neither Node nor a browser is needed" in ended.out
    assert "Nothing is broken." in ended.out
    for secret in (*secrets.values(), here.api_key):
        assert secret not in ended.out


async def test_something_broken_is_told_with_its_mend_and_the_code_is_1(here: Installation) -> None:
    ended = await here.command("doctor", PARLEY_PORT="eighty")
    assert ended.code == 1
    assert "✗ Settings" in ended.out
    assert "PARLEY_PORT must be a number, not 'eighty'" in ended.out
    assert "1 thing is broken." in ended.out


async def test_an_empty_folder_is_fine_and_stays_empty(tmp_path: Path) -> None:
    found = await findings({"PARLEY_DATA_DIR": str(tmp_path / "var"), "PARLEY_PORT": "0"})
    assert [finding.topic for finding in found if finding.state == "broken"] == []
    notes = {finding.topic: finding.text for finding in found if finding.state == "note"}
    assert {"Data folder", "Master keys", "Store", "Models"} <= set(notes)
    assert "the demo answers" in notes["Models"]
    assert list(tmp_path.iterdir()) == []


async def test_a_name_that_is_no_setting_is_noticed(tmp_path: Path) -> None:
    finding = await the_finding({"PARLEY_DATA_DIR": str(tmp_path), "PARLEY_PUBLIC_ULR": "x"}, "Settings")
    assert finding.state == "note"
    assert "PARLEY_PUBLIC_ULR" in finding.text


@pytest.mark.parametrize(
    ("changes", "topic", "words", "mend"),
    [
        ({"PARLEY_DATA_DIR": "/proc/version/var"}, "Data folder", "is no folder", "PARLEY_DATA_DIR="),
        ({"PARLEY_MASTER_KEYS": "k1:c2hvcnQ="}, "Master keys", "must be 32 bytes", "parley keys master"),
        ({"PARLEY_PLANS_FILE": "/nowhere.toml"}, "Plans", "/nowhere.toml cannot be used", "unset PARLEY_PLANS_FILE"),
        ({"STRIPE_SECRET_KEY": "sk_test_canary"}, "Payments", "its companion is not", "STRIPE_WEBHOOK_SECRET"),
        ({"PARLEY_HOST": "0.0.0.0"}, "Public address", "lets other machines in", "PARLEY_PUBLIC_URL=https://"),
        ({"PARLEY_PUBLIC_URL": "parley.example.com"}, "Public address", "no web address", "PARLEY_PUBLIC_URL=https://"),
        ({"PARLEY_DATABASE_URL": "postgresql://u:canary@127.0.0.1:9/x"}, "Store", "u:***@", "PARLEY_DATABASE_URL"),
        ({"PARLEY_DATABASE_URL": "mysql://x/y"}, "Store", "not in mysql", "PARLEY_DATABASE_URL"),
        ({"PARLEY_INTEGRATIONS_DIR": "/nowhere"}, "House", "which is no folder", "mkdir -p /nowhere"),
        (
            {"PARLEY_INTEGRATIONS_DIR": f"/{'long' * 100}"},
            "House",
            "cannot be listed: File name too long",
            "PARLEY_INTEGRATIONS_DIR=",
        ),
        ({"PARLEY_HOST": "192.0.2.1"}, "Server", "Nothing can listen on 192.0.2.1", "PARLEY_HOST"),
    ],
)
async def test_what_is_broken_is_named_with_what_mends_it(
    tmp_path: Path, changes: dict[str, str], topic: str, words: str, mend: str
) -> None:
    environment = {"PARLEY_DATA_DIR": str(tmp_path), "PARLEY_PORT": "0", "PARLEY_PUBLIC_URL": "", **changes}
    if changes.get("PARLEY_HOST") == "192.0.2.1":
        environment["PARLEY_PUBLIC_URL"] = "https://parley.example.com"
    finding = await the_broken(environment)
    assert finding.topic == topic
    assert words in finding.text
    assert mend in finding.mend
    assert "canary" not in finding.text + finding.mend


async def test_a_house_is_compared_with_every_name_of_the_index_and_a_broken_index_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index.json.gz"
    monkeypatch.setattr(machine, "SHIPPED", index)
    make_sample(tmp_path / "own", "our_items")
    environment = {"PARLEY_DATA_DIR": str(tmp_path / "data"), "PARLEY_INTEGRATIONS_DIR": str(tmp_path / "own")}
    write_index(Index(FORMAT, "0", {"our_items": "ImportError: no"}, ()), index)
    told = [finding.text for finding in await findings(environment) if finding.topic == "House"]
    assert f"our_items does not load: {TAKEN}" in told
    index.write_bytes(b"no")
    told = [finding.text for finding in await findings(environment) if finding.state == "broken"]
    assert ["cannot be read" in text for text in told] == [True, True]


async def test_an_address_without_encryption_is_a_note(tmp_path: Path) -> None:
    environment = {"PARLEY_DATA_DIR": str(tmp_path), "PARLEY_PUBLIC_URL": "http://parley.example.com"}
    finding = await the_finding(environment, "Public address")
    assert (finding.state, "not encrypted" in finding.text) == ("note", True)


async def test_a_key_file_that_others_can_read_is_broken_and_chmod_mends_it(here: Installation) -> None:
    path = here.settings.data_dir / "master.keys"
    path.chmod(0o644)
    found = [finding for finding in await findings(here.environment) if finding.state == "broken"]
    assert [finding.topic for finding in found] == ["Master keys", "Seals"]
    assert found[0].mend == f"chmod 600 {path}"


async def test_a_store_that_others_can_read_is_a_note_and_its_command_mends_it(tmp_path: Path) -> None:
    data = tmp_path / "var"
    variables = {"PARLEY_DATA_DIR": str(data)}
    async with server_process(variables | QUIET):
        files = {path.name: path.stat().st_mode & 0o777 for path in data.glob("parley.db*")}
        assert files == dict.fromkeys(("parley.db", "parley.db-wal", "parley.db-shm"), 0o600)
        assert data.stat().st_mode & 0o777 == 0o700
    assert (await the_finding(variables, "Data folder")).state == "good"
    data.chmod(0o755)
    (data / "parley.db").chmod(0o644)
    finding = await the_finding(variables, "Data folder")
    assert (finding.state, f"{data}, {data / 'parley.db'}." in finding.text) == ("note", True)
    process = await asyncio.create_subprocess_exec(*finding.mend.split())
    assert await process.wait() == 0
    assert (await the_finding(variables, "Data folder")).state == "good"


async def test_master_keys_of_another_store_are_noticed(here: Installation) -> None:
    path = here.settings.data_dir / "master.keys"
    other = (await here.command("keys", "master", "--id", "k1")).out.strip()
    path.write_text(other)
    assert "those of another store" in (await the_broken(here.environment)).text
    path.write_text(other.replace("k1:", "k9:"))
    finding = await the_broken(here.environment)
    assert (finding.topic, "missing: k1 (1)" in finding.text) == ("Seals", True)
    path.unlink()
    finding = await the_broken(here.environment)
    assert "There is no master key" in finding.text
    assert not path.exists()


async def test_rows_under_an_older_key_are_a_note_that_names_the_command(here: Installation) -> None:
    path = here.settings.data_dir / "master.keys"
    path.write_text(f"{(await here.command('keys', 'master')).out.strip()},{path.read_text()}")
    finding = await the_finding(here.environment, "Seals")
    assert (finding.state, finding.mend) == ("note", "Seal them anew with: parley keys rotate")


async def test_a_store_of_another_schema_is_broken(here: Installation) -> None:
    await here.store.write(lambda tx: tx.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'"))
    finding = await the_broken(here.environment)
    assert finding.topic == "Store"
    assert "schema 0000" in finding.text
    assert "parley serve" in finding.mend


async def test_whether_postgresql_itself_keeps_organizations_apart_is_told(here: Installation) -> None:
    own = {"PARLEY_DATABASE_URL": here.settings.store_url, "PARLEY_DATA_DIR": str(here.settings.data_dir)}
    told = [finding for finding in await findings(own) if finding.topic == "Organizations"]
    if here.settings.store_url.startswith("sqlite"):
        assert told == []
        return
    [kept] = told
    assert kept.state == "good"
    assert POSTGRES is not None
    database = make_url(here.settings.store_url).database
    superuser = await the_finding({**own, "PARLEY_DATABASE_URL": f"{POSTGRES}/{database}"}, "Organizations")
    assert superuser.state == "note"
    assert "CREATE ROLE" in superuser.mend


async def test_a_running_server_is_recognized(here: Installation) -> None:
    await here.store.close()
    async with server_process(here.environment) as server:
        port = server.base_url.rpartition(":")[2]
        finding = await the_finding({**here.environment, "PARLEY_PORT": port}, "Server")
        assert (finding.state, "answers on" in finding.text) == ("good", True)
        if here.settings.store_url.startswith("sqlite"):
            elsewhere = await the_finding({**here.environment, "PARLEY_PORT": "1"}, "Server")
            assert (elsewhere.state, "on another port" in elsewhere.text) == ("note", True)


async def test_another_program_on_the_port_is_broken(tmp_path: Path) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async with standing_in(answer) as url:
        port = url.rpartition(":")[2]
        finding = await the_broken({"PARLEY_DATA_DIR": str(tmp_path), "PARLEY_PORT": port})
    assert (finding.topic, "Another program" in finding.text) == ("Server", True)
    assert finding.mend == f"Choose another port: PARLEY_PORT={int(port) + 1} parley serve"


async def test_a_local_ollama_is_found(tmp_path: Path) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "llama"}, {"id": "qwen"}]})

    async with standing_in(answer) as url:
        environment = {"PARLEY_DATA_DIR": str(tmp_path), "PARLEY_PORT": "0", "OLLAMA_HOST": url}
        finding = await the_finding(environment, "Models")
    assert (finding.state, finding.text) == ("good", "Ollama with 2 models")


async def test_the_lock_of_a_server_that_is_gone_says_nothing(here: Installation) -> None:
    path = here.settings.data_dir / "serve.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)
    finding = await the_finding(here.environment, "Server")
    assert (finding.state, "none runs here" in finding.text) == ("good", True)


@pytest.mark.parametrize(("skew", "state"), [(0.2, "good"), (-1.5, "note"), (4.0, "broken"), (-9.0, "broken")])
async def test_a_clock_apart_from_the_databases_is_noticed(skew: float, state: str) -> None:
    settings = read_settings({"PARLEY_DATABASE_URL": "postgresql://u@localhost/x"})
    facts = StoreFacts(head_revision(), skew, people=1)
    (clock,) = [finding async for finding in check_store(settings, facts) if finding.topic == "Clock"]
    assert clock.state == state
    if state != "good":
        assert f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'}" in clock.text
        assert "timedatectl" in clock.mend
