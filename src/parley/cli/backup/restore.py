"""``parley restore``: a backup into an empty store, of either kind, in one transaction."""

import asyncio
import zipfile
from collections.abc import Callable
from itertools import batched
from pathlib import Path

from sqlalchemy import Table, insert, literal, select, text

from parley.base.settings import Settings
from parley.cli.backup.archive import (
    KEYS,
    BackupUnusable,
    Manifest,
    TablePart,
    check_members,
    kept_tables,
    member,
    parse_line,
    read_manifest,
)
from parley.cli.backup.sealed_keys import open_keys
from parley.cli.opening import in_plain_words, shown_url, sqlite_path
from parley.keyring import Keyring, has_keys, load_keyring, parse_keys, write_keys
from parley.storage import ReadTx, WriteTx, open_store
from parley.storage.schema import known_revisions, migrate, migrate_to, revision

ROWS_AT_ONCE = 200


class StoreNotEmpty(BackupUnusable):
    """A store that holds something is never restored into."""


def restore(settings: Settings, source: Path, passphrase: Callable[[], str] | None) -> None:
    """Everything of the backup, or nothing: a restore that is stopped leaves a store as empty as it was.

    With a ``passphrase`` the master keys come from the backup too; it is asked for only where it is needed.
    Raises BackupUnusable, StoreTrouble or KeyringError with what to do instead.
    """
    with _opened(source) as archive:
        manifest = checked(archive)
        keys = _keys(settings, archive, manifest, passphrase)
        asyncio.run(_restore(settings, archive, manifest, keys))
    rows = sum(part.rows for part in manifest.tables)
    print(f"{rows} rows of {manifest.made_at} are in {shown_url(settings)}. Check them with: parley verify")


def check(source: Path) -> None:
    """Whether a file is a whole backup that this Parley can restore. Raises BackupUnusable."""
    with _opened(source) as archive:
        manifest = checked(archive)
    kind = "with its master keys" if manifest.keys_sha256 else "without master keys"
    print(f"{source} is whole: {sum(part.rows for part in manifest.tables)} rows of {manifest.made_at}, {kind}.")


def checked(archive: zipfile.ZipFile) -> Manifest:
    """The manifest of a backup whose every member is as it was written. Raises BackupUnusable."""
    manifest = read_manifest(archive)
    if manifest.revision not in known_revisions():
        raise BackupUnusable(
            f"Parley {manifest.parley} made this backup, with schema {manifest.revision}, which this one does not "
            "know. Restore it with that version or a newer one."
        )
    check_members(archive, manifest)
    return manifest


def _opened(source: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(source)
    except (OSError, zipfile.BadZipFile) as error:
        raise BackupUnusable(f"{source} cannot be read as a backup: {error}") from None


def _keys(
    settings: Settings, archive: zipfile.ZipFile, manifest: Manifest, passphrase: Callable[[], str] | None
) -> str | None:
    """The keys to put into the data folder; None where the right ones are there. Nothing is restored without."""
    if has_keys(settings.master_keys, settings.data_dir):
        _need(load_keyring(settings.master_keys, settings.data_dir), manifest)
        return None
    if manifest.keys_sha256 is None:
        raise BackupUnusable(
            "This backup holds no keys; put those of the old installation (var/master.keys) into PARLEY_MASTER_KEYS."
        )
    if passphrase is None:
        raise BackupUnusable(
            f"The backup's secrets need the master keys {', '.join(manifest.seals)}. Take them from it with --keys."
        )
    keys = open_keys(archive.read(KEYS), passphrase())
    _need(Keyring(parse_keys(keys, "the backup")), manifest)
    return keys


def _need(keyring: Keyring, manifest: Manifest) -> None:
    missing = sorted(set(manifest.seals).difference(keyring.key_ids))
    if missing:
        raise BackupUnusable(
            f"The backup's secrets need the master keys {', '.join(missing)}, which are not here. Add them to "
            "PARLEY_MASTER_KEYS or the file master.keys."
        )


async def _restore(settings: Settings, archive: zipfile.ZipFile, manifest: Manifest, keys: str | None) -> None:
    sqlite_path(settings)
    with in_plain_words(settings):
        store = open_store(settings.store_url, connections=2)
        try:
            await store.across.read(lambda tx: _refuse_other(tx, manifest))
            # Before the rows: a restore that is stopped in between can be run again.
            if keys is not None:
                write_keys(keys, settings.data_dir)
            await migrate_to(store, manifest.revision)
            await store.across.write(lambda tx: _fill(tx, archive, manifest))
            await migrate(store)
        finally:
            await store.close()


def _refuse_other(tx: ReadTx, manifest: Manifest) -> None:
    _refuse_rows(tx)
    found = revision(tx)
    if found not in (None, manifest.revision):
        raise StoreNotEmpty(
            f"The store is empty but has schema {found}, and the backup {manifest.revision}. Restore into a new one."
        )


def _refuse_rows(tx: ReadTx) -> None:
    for table in kept_tables(tx):
        if tx.execute(select(literal(1)).select_from(table).limit(1)).first() is not None:
            raise StoreNotEmpty(
                f"The store holds rows already ({table.name}). Restore into an empty one: another PARLEY_DATABASE_URL "
                "or PARLEY_DATA_DIR."
            )


def _fill(tx: WriteTx, archive: zipfile.ZipFile, manifest: Manifest) -> None:
    _refuse_rows(tx)
    parts = {part.name: part for part in manifest.tables}
    for table in kept_tables(tx):
        part = parts.pop(table.name, None)
        if part is not None:
            _fill_table(tx, archive, table, part)
    if parts:
        raise BackupUnusable(f"The backup has tables that its schema does not: {', '.join(sorted(parts))}.")
    if tx.dialect.name == "postgresql":
        _count_on(tx)


def _fill_table(tx: WriteTx, archive: zipfile.ZipFile, table: Table, part: TablePart) -> None:
    count = 0
    with archive.open(member(part.name)) as lines:
        for rows in batched((parse_line(line, part.columns) for line in lines), ROWS_AT_ONCE):
            tx.execute(insert(table), list(rows))
            count += len(rows)
    if count != part.rows:
        raise BackupUnusable(f"The backup has {count} rows of {part.name} instead of {part.rows}.")


def _count_on(tx: WriteTx) -> None:
    """Passages made from now on are numbered after the restored ones."""
    tx.execute(
        text(
            "SELECT setval(pg_get_serial_sequence('chunks', 'number'), "
            "(SELECT coalesce(max(number), 0) + 1 FROM chunks), false)"
        )
    )
