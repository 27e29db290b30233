"""``parley keys rotate``: online, resumable, and a key goes only where it seals nothing (trust T10)."""

import asyncio
import os
import secrets
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select, update

from parley.accounts import secret_context
from parley.base.clock import Clock
from parley.base.ids import new_id
from parley.credentials import rotate, seals
from parley.credentials import store as credential_rows
from parley.credentials.model import App, Draft, Flow, Opened, SealedFlow, Secrets, Stored, Wish
from parley.credentials.rotation import BATCH, SEALED
from parley.credentials.vault import CannotOpen, Vault
from parley.keyring import Keyring, SealBroken
from parley.storage import ReadTx, Store, WriteTx
from parley.storage.sealed import exchange_seal
from parley.storage.tables.accounts import instance_secrets, organizations, users
from parley.storage.tables.columns import metadata
from parley.storage.tables.credentials import credentials
from tests.cli.installation import Installation, installed

# T10 asks for 10,000 rows and 20 kills: `make rotation`.
ROWS, KILLS = (10_000, 20) if os.environ.get("PARLEY_ROTATION") == "full" else (2_000, 4)
OLD, NEW = secrets.token_bytes(32), secrets.token_bytes(32)
BEFORE, DURING, AFTER = Keyring({"k1": OLD}), Keyring({"k2": NEW, "k1": OLD}), Keyring({"k2": NEW})


@pytest.fixture
async def here(store_url: str, tmp_path: Path) -> AsyncIterator[Installation]:
    async with installed(store_url, tmp_path) as installation:
        yield installation


async def fill(here: Installation, keyring: Keyring, count: int) -> list[str]:
    """So many credentials sealed under a keyring's first key; their tokens, by position."""
    vault, now = Vault(keyring), Clock().now()
    tokens = [secrets.token_urlsafe(16) for _ in range(count)]
    owner = await here.store.read(lambda tx: tx.execute(select(users.c.id)).scalar_one())

    def draft(token: str) -> Draft:
        return Draft(
            organization_id=here.organization_id,
            user_id=owner,
            integration_name="github",
            integration_type="tool",
            auth_type="bearer_token",
            display_name=token,
            opened=Opened(Secrets({"token": token})),
            secret=token,
        )

    def work(tx: WriteTx) -> None:
        for token in tokens:
            credential_rows.add(tx, vault.sealed(draft(token), now))

    await here.store.write(work)
    return tokens


async def all_stored(here: Installation) -> list[Stored]:
    return await some_stored(here, None)


async def some_stored(here: Installation, count: int | None) -> list[Stored]:
    """So many credentials picked at random, or all of them."""
    picked = select(credentials.c.id).order_by(func.random()).limit(count)

    def work(tx: ReadTx) -> list[Stored]:
        ids = list(tx.execute(picked).scalars())
        return [found for each in ids if (found := credential_rows.find(tx, here.organization_id, each))]

    return await here.store.read(work)


def check(stored: Stored, keyring: Keyring) -> None:
    """The credential opens, and holds the token that it is called by."""
    assert Vault(keyring).open(stored).auth_data.text("token") == stored.credential.display_name


def nobody(_moved: int) -> None:
    pass


def test_every_table_that_holds_seals_is_rotated() -> None:
    assert {table.name for table in metadata.tables.values() if "sealed" in table.c} == {table.name for table in SEALED}


async def test_everything_sealed_is_sealed_anew_and_opens_as_before(here: Installation) -> None:
    await move_first_secret(here.store, here.keyring, BEFORE)
    await fill(here, BEFORE, BATCH + 3)
    state_hash, flow = secrets.token_bytes(32), await begun_sign_in(here)
    wish = Wish(App("client", "hidden"), "verifier", "repo", "GitHub", make_default=False, values=Secrets())
    box = Vault(BEFORE).seal_flow(flow, wish, state_hash)
    await here.store.write(lambda tx: credential_rows.add_flow(tx, SealedFlow(flow, state_hash, box, 1, 2)))

    heard: list[int] = []
    rotated = await rotate(here.store, DURING, heard.append)
    assert (rotated.moved, dict(rotated.broken), rotated.sealed) == (BATCH + 5, {}, {"k2": BATCH + 5})
    assert heard == sorted(heard)
    for stored in await all_stored(here):
        check(stored, AFTER)
    sealed = await here.store.write(lambda tx: credential_rows.take_flow(tx, state_hash))
    assert sealed is not None
    opened = Vault(AFTER).open_flow(sealed)[1]
    assert (opened.verifier, opened.app) == ("verifier", App("client", "hidden"))
    assert await seals(here.store) == {"k2": BATCH + 4}

    again = await rotate(here.store, DURING, nobody)
    assert again.moved == 0


async def move_first_secret(store: Store, old: Keyring, new: Keyring) -> None:
    """Seal the installation's own secret under another keyring."""
    row = await store.read(lambda tx: tx.execute(select(instance_secrets)).one())
    context = secret_context(row.name)
    sealed, key_id = new.seal(old.open(row.sealed, key_id=row.key_id, context=context), context=context)
    await store.write(lambda tx: tx.execute(update(instance_secrets).values(sealed=sealed, key_id=key_id)))


async def begun_sign_in(here: Installation) -> Flow:
    owner = await here.store.read(lambda tx: tx.execute(select(users.c.id)).scalar_one())
    return Flow(here.organization_id, owner, "github", "http://127.0.0.1/callback")


async def test_what_was_killed_half_way_is_finished_by_the_next(here: Installation) -> None:
    await move_first_secret(here.store, here.keyring, BEFORE)
    await fill(here, BEFORE, 3 * BATCH)

    class Killed(BaseException):
        pass

    def kill(moved: int) -> None:
        if moved > BATCH:
            raise Killed

    with pytest.raises(Killed):
        await rotate(here.store, DURING, kill)
    left = await seals(here.store)
    assert left == {"k1": 2 * BATCH, "k2": BATCH + 1}
    for stored in await all_stored(here):
        check(stored, DURING)
    finished = await rotate(here.store, DURING, nobody)
    assert (finished.moved, finished.sealed) == (2 * BATCH, {"k2": 3 * BATCH + 1})


async def test_a_row_that_changed_meanwhile_keeps_its_change(here: Installation) -> None:
    (token,) = await fill(here, BEFORE, 1)
    (stored,) = await all_stored(here)
    assert stored.credential.display_name == token
    refreshed = Vault(BEFORE).seal(Opened(Secrets({"token": "refreshed"})), stored.credential)
    credential_id = stored.credential.credential_id
    values = {"sealed": refreshed.sealed, "key_id": refreshed.key_id}
    await here.store.write(lambda tx: credential_rows.change(tx, here.organization_id, credential_id, values))
    mine, key_id = DURING.seal(b"{}", context="x")
    exchanged = await here.store.write(
        lambda tx: exchange_seal(tx, credentials, credential_id, old=stored.box.sealed, new=mine, key_id=key_id)
    )
    assert exchanged is False
    await rotate(here.store, DURING, nobody)
    (stored,) = await all_stored(here)
    assert Vault(AFTER).open(stored).auth_data.text("token") == "refreshed"


async def test_rows_that_do_not_open_stay_and_are_named(here: Installation) -> None:
    await move_first_secret(here.store, here.keyring, BEFORE)
    await fill(here, Keyring({"lost": secrets.token_bytes(32)}), 2)
    await fill(here, BEFORE, 1)
    rotated = await rotate(here.store, DURING, nobody)
    assert (rotated.moved, dict(rotated.broken), rotated.sealed) == (2, {"lost": 2}, {"k2": 2, "lost": 2})
    for stored in await all_stored(here):
        if stored.box.key_id == "lost":
            with pytest.raises(CannotOpen):
                Vault(DURING).open(stored)


async def test_a_row_moved_to_another_organization_is_never_sealed_anew(here: Installation) -> None:
    await fill(here, BEFORE, 1)
    other = new_id()
    await here.store.write(lambda tx: add_organization(tx, other))
    await here.store.write(lambda tx: tx.execute(update(credentials).values(organization_id=other)))
    rotated = await rotate(here.store, DURING, nobody)
    assert rotated.broken["k1"] >= 1
    row = await here.store.read(lambda tx: tx.execute(select(credentials)).one())
    assert row.key_id == "k1"
    with pytest.raises(SealBroken):
        DURING.open(row.sealed, key_id="k1", context=f"credentials|{other}|{row.id}|auth_data")


def add_organization(tx: WriteTx, organization_id: str) -> None:
    tx.execute(
        insert(organizations).values(
            id=organization_id, name="Other", slug="other", is_active=True, settings={}, created_at=0
        )
    )


# ── as a command ────────────────────────────────────────────────────────────────────────────────


def with_keys(here: Installation, *names: str) -> dict[str, str]:
    """The operator's variables with these master keys, the first one sealing."""
    folder = Path(here.environment["PARLEY_DATA_DIR"])
    entries = [(folder / f"{name}.key").read_text().strip() for name in names]
    return here.environment | {"PARLEY_MASTER_KEYS": ",".join(entries)}


@pytest.mark.timeout(900)
async def test_killed_again_and_again_under_load_no_read_fails_and_it_is_finished_at_last(here: Installation) -> None:
    rows, kills, sample = ROWS, KILLS, 60
    folder = Path(here.environment["PARLEY_DATA_DIR"])
    (folder / "k1.key").write_text((folder / "master.keys").read_text())
    made = await here.command("keys", "master")
    assert made.out.startswith("k2:")
    (folder / "k2.key").write_text(made.out)
    both = with_keys(here, "k2", "k1")
    during = replace(here, environment=both).keyring
    await fill(here, here.keyring, rows)
    reading, reads = True, 0

    async def read_on() -> None:
        nonlocal reads
        while reading:
            for stored in await some_stored(here, sample):
                check(stored, during)
                reads += 1

    async with asyncio.timeout(800), asyncio.TaskGroup() as group:
        group.create_task(read_on())
        for _ in range(kills):
            await rotate_and_kill(both)
        ended = await here.command("keys", "rotate", **both)
        reading = False
    assert ended.code == 0, ended.err
    assert "k1 seals nothing any more" in ended.out
    assert reads > sample
    assert await seals(here.store) == {"k2": rows + 1}

    only = with_keys(here, "k2")
    checked = await here.command("keys", "rotate", **only)
    assert (checked.code, checked.out) == (0, "Sealed anew under k2: 0 rows.\n")
    async with replace(here, environment=only).accounts() as accounts:
        assert await accounts.callers.by_key(here.api_key, address="test")


async def rotate_and_kill(environment: dict[str, str]) -> None:
    """SIGKILL after the first batch that it tells of, if there is one."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley", "keys", "rotate"), env=environment, stdout=PIPE, stderr=PIPE
    )
    assert process.stderr is not None
    await process.stderr.readline()
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)
    await process.wait()


async def test_the_command_names_what_it_could_not_open_and_ends_with_1(here: Installation) -> None:
    folder = Path(here.environment["PARLEY_DATA_DIR"])
    (folder / "k1.key").write_text((folder / "master.keys").read_text())
    (folder / "k2.key").write_text((await here.command("keys", "master")).out)
    await fill(here, Keyring({"lost": secrets.token_bytes(32)}), 1)
    ended = await here.command("keys", "rotate", **with_keys(here, "k2", "k1"))
    assert ended.code == 1
    assert "they do not open: 1 row under lost. lost is not among the master keys." in ended.out
    assert "k1 seals nothing any more" in ended.out
