"""``parley backup``: everything in the store at one moment, while servers go on."""

import asyncio
import hashlib
import os
import sys
import zipfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec
from sqlalchemy import Table, select

from parley.base.settings import Settings
from parley.cli.backup.archive import (
    FORMAT,
    KEYS,
    MANIFEST,
    BackupUnusable,
    Manifest,
    TablePart,
    kept_tables,
    kinds_of,
    member,
    row_line,
)
from parley.cli.backup.sealed_keys import seal_keys
from parley.cli.opening import existing_keyring, read_rows
from parley.credentials.rotation import SEALED
from parley.keyring import key_text
from parley.storage import ReadTx
from parley.storage.schema import head_revision
from parley.storage.sealed import rows_by_key

ROWS_AT_ONCE = 200


def backup(settings: Settings, target: Path, passphrase: str | None) -> None:
    """Write the backup; the file appears under its name only when it is whole and on disk.

    The master keys are in it, sealed, only where there is a passphrase. Raises StoreTrouble, KeyringError
    or BackupUnusable; nothing that existed is touched.
    """
    if target.exists():
        raise BackupUnusable(f"{target} exists already. Choose another name: backups are not overwritten.")
    keys = None if passphrase is None else seal_keys(_keys(settings), passphrase)
    try:
        rows = _write_whole(settings, target, keys)
    except OSError as error:
        raise BackupUnusable(f"{target} cannot be written: {error.strerror}. Choose another place.") from None
    print(f"{target}: {rows} rows, {target.stat().st_size} bytes. Check it with: parley restore --check {target}")
    if keys is None:
        print("The master keys are not in it. Keep them elsewhere: without them no credential opens.", file=sys.stderr)


def _write_whole(settings: Settings, target: Path, keys: bytes | None) -> int:
    """The number of rows in it, once it is on disk under its name."""
    scratch = target.with_name(f"{target.name}.{os.getpid()}.partial")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                rows = asyncio.run(read_rows(settings, lambda tx: _write(tx, archive, keys)))
            file.flush()
            os.fsync(file.fileno())
        os.link(scratch, target)  # never replaces one that another command made meanwhile
    finally:
        scratch.unlink()
    _sync_folder(target.parent)
    return rows


def _keys(settings: Settings) -> str:
    existing_keyring(settings)
    return key_text(settings.master_keys, settings.data_dir)[0]


def _write(tx: ReadTx, archive: zipfile.ZipFile, keys: bytes | None) -> int:
    parts = [_write_table(tx, archive, table) for table in kept_tables(tx)]
    if keys is not None:
        archive.writestr(KEYS, keys)
    manifest = Manifest(
        format=FORMAT,
        parley=version("parley"),
        revision=head_revision(),
        dialect=tx.dialect.name,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seals=sorted(rows_by_key(tx, SEALED)),
        tables=parts,
        keys_sha256=None if keys is None else hashlib.sha256(keys).hexdigest(),
    )
    archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    return sum(part.rows for part in parts)


def _write_table(tx: ReadTx, archive: zipfile.ZipFile, table: Table) -> TablePart:
    columns = kinds_of(table)
    kinds = list(columns.values())
    digest, count = hashlib.sha256(), 0
    query = select(table).order_by(*table.primary_key.columns).execution_options(yield_per=ROWS_AT_ONCE)
    with archive.open(member(table.name), "w", force_zip64=True) as part:
        for row in tx.execute(query):
            line = row_line(row, kinds)
            digest.update(line)
            part.write(line)
            count += 1
    return TablePart(str(table.name), columns, count, digest.hexdigest())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
