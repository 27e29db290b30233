"""``parley backup`` and ``parley restore``: whole or not at all, while servers go on, from either store to either."""

import asyncio
import os
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import insert, select

from parley.base.settings import read_settings
from parley.cli.backup import backup, check, restore
from parley.cli.backup.archive import BackupUnusable
from parley.storage import WriteTx, open_store
from parley.storage.schema import revision
from parley.storage.tables.accounts import organizations
from parley.storage.tables.knowledge import document_pieces
from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel, ScriptedReply
from tests.cli.conftest import command
from tests.cli.installation import Installation, installed
from tests.conftest import fresh_database
from tests.contract.conftest import ORGANIZATION, House, furnish, open_house
from tests.stage import Json, Stage, Turn, caller, calls, faults, says

WAIT_SECONDS = 60
PASSPHRASE = "a passphrase of some length"


def environment(url: str, data_dir: Path) -> dict[str, str]:
    return {
        "PARLEY_DATABASE_URL": url,
        "PARLEY_DATA_DIR": str(data_dir),
        "PARLEY_BACKUP_PASSPHRASE": PASSPHRASE,
        "PARLEY_MASTER_KEYS": "",
    }


@pytest.fixture
async def here(store_url: str, tmp_path: Path) -> AsyncIterator[Installation]:
    async with installed(store_url, tmp_path) as installation:
        yield installation


@pytest.fixture
async def target_url(store_url: str, tmp_path: Path, postgres_template: str | None) -> AsyncIterator[str]:
    """A store without a schema, of the other kind; of the same kind where there is no PostgreSQL."""
    other = "postgresql" if store_url.startswith("sqlite") and postgres_template is not None else "sqlite"
    folder = tmp_path / "target"
    folder.mkdir()
    async with fresh_database(other, folder, "template1") as url:
        yield url


async def fill(installation: Installation, megabytes: int) -> None:
    """So much to copy that somebody can step in between."""

    def work(tx: WriteTx) -> None:
        for number in range(megabytes):
            row = {"document_id": "d", "seq": number, "body": os.urandom(1_000_000), "created_at": 2**60}
            tx.execute(insert(document_pieces), row)

    await installation.store.across.write(work)


# ── the whole story ─────────────────────────────────────────────────────────────────────────────


async def test_a_paused_turn_goes_on_in_the_restored_store(
    store_url: str, target_url: str, tmp_path: Path, proxy: ProviderProxy, model: ScriptedModel
) -> None:
    file = tmp_path / "backup.parley"
    async with AsyncExitStack() as stack:
        house = await open_house(stack, store_url, tmp_path, proxy, {})
        stage = await stage_in(stack, house, model)
        paused = await stage.turn(calls("ask_user_yes_no", {"message": "Shall I?"}), message="before the backup")
        running = await start_held(stage)
        variables = environment(store_url, house.parley.settings.data_dir)
        # The server works on: what is copied is one moment of it.
        async with asyncio.TaskGroup() as group:
            copying = group.create_task(command("backup", str(file), "--keys", environment=variables))
            turns = 0
            while not copying.done():
                await stage.turn(says("Meanwhile."))
                turns += 1
        assert copying.result().code == 0, copying.result().err
        assert turns > 0
        await model.release(stage.model_key)
        assert (await stage.follow(running)).text == "Done here."

    there = environment(target_url, tmp_path / "target" / "data")
    await restored(file, there)
    # What was running in that moment goes on here: that turn, and perhaps one of the others.
    await stage.script(says("Went on."), says("Went on."))
    async with AsyncExitStack() as stack:
        again = await open_house(stack, target_url, tmp_path / "target", proxy, {})
        assert await faults(again.parley) == []
        moved = Stage(again.parley, again.clock, stage.client, model, stage.model_key, stage.llm)
        moved.client.base_url, moved.client.key = again.base_url, house.key
        moved.client.session = (
            await stack.enter_async_context(caller(again.base_url, house.key, ORGANIZATION))
        ).session
        newest = (await moved.client.get("/assistant/chats?limit=1")).body["items"][0]
        for chat_id in (newest["id"], running["chat_id"]):
            await moved.settled(chat_id)
        assert await said(moved, running["chat_id"]) == ["in the middle", "Went on."]
        await answer_yes(moved, paused)
        assert (await moved.client.get(f"/assistant/chat/{paused.chat_id}")).body["messages"][0]["content"] == (
            "before the backup"
        )
        # Its credentials open too: a turn with the organization's own model key.
        fresh = await moved.turn(says("After."), message="after the restore")
        assert fresh.text == "After."


async def taken(here: Installation, file: Path, passphrase: str | None = None) -> None:
    """``parley backup``, in this process: the tests start enough others."""
    await asyncio.to_thread(backup, here.settings, file, passphrase)


async def restored(file: Path, variables: dict[str, str]) -> None:
    """``parley restore --keys``, in this process."""
    await asyncio.to_thread(restore, read_settings(variables), file, lambda: PASSPHRASE)


async def stage_in(stack: AsyncExitStack, house: House, model: ScriptedModel) -> Stage:
    client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
    return await furnish(house, client, model)


async def start_held(stage: Stage) -> Json:
    """A turn whose model does not answer before it is released."""
    await stage.script(ScriptedReply(text=["Done here."], barrier=stage.model_key))
    before = len(await stage.sent())
    started = await stage.start("in the middle")
    async with asyncio.timeout(WAIT_SECONDS):
        while len(await stage.sent()) == before:
            await asyncio.sleep(0.01)
    return started


async def said(stage: Stage, chat_id: str) -> list[str]:
    """The texts of a chat's messages."""
    return [message["content"] for message in (await stage.client.get(f"/assistant/chat/{chat_id}")).body["messages"]]


async def answer_yes(stage: Stage, paused: Turn) -> None:
    await stage.script(says("Then I did."))
    resumed = await stage.resume(paused, {"kind": "yes_no", "answer": True})
    assert resumed.status == 200, resumed.body
    assert (await stage.follow(resumed.body)).text == "Then I did."


# ── what is and is not in it ────────────────────────────────────────────────────────────────────


async def test_master_keys_are_in_a_backup_only_when_asked_for_and_only_sealed(
    here: Installation, tmp_path: Path
) -> None:
    key = (here.settings.data_dir / "master.keys").read_text().strip()
    plain, sealed = tmp_path / "plain", tmp_path / "sealed"
    made = await here.command("backup", str(plain))
    assert (made.code, "The master keys are not in it" in made.err) == (0, True)
    await taken(here, sealed, PASSPHRASE)
    for file in (plain, sealed):
        assert file.stat().st_mode & 0o077 == 0
        with zipfile.ZipFile(file) as archive:
            everything = b"".join(archive.read(name) for name in archive.namelist())
            assert ("master.keys.sealed" in archive.namelist()) == (file == sealed)
        assert key.encode() not in everything
        assert key.partition(":")[2].encode() not in everything
        assert here.api_key.encode() not in everything


async def test_a_short_passphrase_is_refused(here: Installation, tmp_path: Path) -> None:
    with pytest.raises(BackupUnusable, match="at least 12 characters"):
        await taken(here, tmp_path / "x", "short")
    assert list(tmp_path.glob("x*")) == []


async def test_a_backup_replaces_nothing(here: Installation, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("mine")
    with pytest.raises(BackupUnusable, match="exists already"):
        await taken(here, file)
    assert file.read_text() == "mine"
    assert list(tmp_path.glob("x.*")) == []


async def test_where_nothing_can_be_written_one_sentence_says_so(here: Installation, tmp_path: Path) -> None:
    (tmp_path / "no folder").write_text("")
    for folder in (tmp_path / "nowhere", tmp_path / "no folder"):
        refused = await here.command("backup", str(folder / "x.zip"))
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(f"parley: {folder / 'x.zip'} cannot be written: ")
        assert refused.err.count("\n") == 1


async def test_without_a_terminal_the_variable_for_the_passphrase_is_named(here: Installation, tmp_path: Path) -> None:
    refused = await here.command("backup", "--keys", str(tmp_path / "x"), PARLEY_BACKUP_PASSPHRASE="")
    assert (refused.code, "PARLEY_BACKUP_PASSPHRASE" in refused.err) == (2, True)
    assert list(tmp_path.glob("x*")) == []


# ── where a restore refuses ─────────────────────────────────────────────────────────────────────


async def test_a_store_that_holds_rows_is_not_restored_into(here: Installation, tmp_path: Path) -> None:
    file = tmp_path / "x"
    await taken(here, file)
    with pytest.raises(BackupUnusable, match="holds rows already"):
        await asyncio.to_thread(restore, here.settings, file, None)
    assert await here.store.read(lambda tx: len(tx.execute(select(organizations)).all())) == 1


async def test_without_its_master_keys_a_backup_is_not_restored(tmp_path: Path) -> None:
    file = tmp_path / "x"
    url = f"sqlite:///{tmp_path / 'target.db'}"
    async with installed(f"sqlite:///{tmp_path / 'parley.db'}", tmp_path) as here:
        await taken(here, file, PASSPHRASE)
        other = "k9:" + (here.settings.data_dir / "master.keys").read_text().partition(":")[2].strip()
    there = environment(url, tmp_path / "there")
    for changes, passphrase, words in (
        ({}, None, "Take them from it with --keys"),
        ({"PARLEY_MASTER_KEYS": other}, None, "need the master keys k1"),
        ({}, lambda: "another passphrase", "do not open with this passphrase"),
    ):
        with pytest.raises(BackupUnusable, match=words):
            await asyncio.to_thread(restore, read_settings(there | changes), file, passphrase)
        assert not (tmp_path / "target.db").exists()
        assert not (tmp_path / "there" / "master.keys").exists()


async def test_a_backup_without_keys_says_so_with_keys_wanted_and_goes_in_with_the_old_ones(tmp_path: Path) -> None:
    file = tmp_path / "x"
    async with installed(f"sqlite:///{tmp_path / 'parley.db'}", tmp_path) as here:
        await taken(here, file)
        old = (here.settings.data_dir / "master.keys").read_text().strip()
    there = environment("", tmp_path / "there") | {"PARLEY_BACKUP_PASSPHRASE": ""}
    refused = await command("restore", "--keys", str(file), environment=there)
    assert (refused.code, refused.out) == (2, "")
    assert "This backup holds no keys; put those of the old installation (var/master.keys)" in refused.err
    assert "Passphrase" not in refused.err
    assert not (tmp_path / "there").exists()
    done = await command("restore", "--keys", str(file), environment=there | {"PARLEY_MASTER_KEYS": old})
    assert (done.code, "parley verify" in done.out) == (0, True), done.err
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "there" / "parley.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["cut", "changed", "newer", "another format", "a row less"])
async def test_a_damaged_backup_is_refused_and_nothing_is_written(tmp_path: Path, damage: str) -> None:
    file, broken = tmp_path / "x", tmp_path / "broken"
    async with installed(f"sqlite:///{tmp_path / 'parley.db'}", tmp_path) as here:
        await taken(here, file)
        check(file)
        damaged(file, broken, damage)
        with pytest.raises(BackupUnusable):
            check(broken)
        there = environment(f"sqlite:///{tmp_path / 'target.db'}", here.settings.data_dir)
        with pytest.raises(BackupUnusable):
            await asyncio.to_thread(restore, read_settings(there), broken, None)
        assert not (tmp_path / "target.db").exists()


async def test_a_file_that_is_no_backup_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("Dear diary")
    refused = await command("restore", "--check", str(tmp_path / "diary"), environment={})
    assert (refused.code, refused.err.startswith("parley: "), "Traceback" in refused.err) == (2, True, False)


def damaged(file: Path, broken: Path, damage: str) -> None:
    whole = file.read_bytes()
    if damage == "cut":
        broken.write_bytes(whole[: len(whole) // 2])
        return
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(broken, "w") as target:
        for name in source.namelist():
            target.writestr(name, changed(name, source.read(name), damage))


def changed(name: str, content: bytes, damage: str) -> bytes:
    if name == "tables/organizations.jsonl" and damage == "changed":
        return content.replace(b"true", b"false", 1)
    if name == "tables/users.jsonl" and damage == "a row less":
        return b""
    if name == "manifest.json" and damage in ("newer", "another format"):
        manifest = msgspec.json.decode(content)
        manifest |= {"revision": "9999"} if damage == "newer" else {"format": 2}
        return msgspec.json.encode(manifest)
    return content


# ── kills ───────────────────────────────────────────────────────────────────────────────────────


async def killed(until: asyncio.Event, *arguments: str, variables: dict[str, str]) -> None:
    """Start a command and SIGKILL it at the moment; it must not have ended before."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley", *arguments), env={**os.environ, **variables}
    )
    await until.wait()
    assert process.returncode is None
    process.kill()
    await process.wait()


async def test_a_backup_that_is_killed_leaves_no_backup_and_the_next_one_works(
    here: Installation, tmp_path: Path
) -> None:
    await fill(here, 30)
    file, moment = tmp_path / "x", asyncio.Event()

    async def watch() -> None:
        while not any(part.stat().st_size > 1_000_000 for part in tmp_path.glob("x.*.partial")):
            await asyncio.sleep(0.005)
        moment.set()

    async with asyncio.timeout(50), asyncio.TaskGroup() as group:
        group.create_task(watch())
        group.create_task(killed(moment, "backup", str(file), variables=here.environment))
    assert not file.exists()
    await taken(here, file)
    check(file)


async def test_a_restore_that_is_killed_leaves_an_empty_store_and_the_next_one_works(
    here: Installation, target_url: str, tmp_path: Path
) -> None:
    await fill(here, 30)
    file, moment = tmp_path / "x", asyncio.Event()
    await taken(here, file, PASSPHRASE)
    there = environment(target_url, tmp_path / "target" / "data")
    store = open_store(target_url).across

    async def watch() -> None:
        while await store.read(revision) is None:
            await asyncio.sleep(0.005)
        moment.set()

    try:
        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            group.create_task(watch())
            group.create_task(killed(moment, "restore", str(file), "--keys", variables=there))
        assert await store.read(lambda tx: tx.execute(select(organizations)).all()) == []
    finally:
        await store.close()
    await restored(file, there)
    verified = await command("verify", environment=there)
    assert (verified.code, verified.out) == (0, "Everything fits together.\n")
