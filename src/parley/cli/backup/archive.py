"""What a backup file is: a zip of one member a table, and a manifest that ends it.

A member ``tables/<name>.jsonl`` has one JSON array a row, in the order of the manifest's columns; bytes
are base64. The manifest is written last: a file without one is no backup. Columns are told by their
kind only, so the rows of one store fit the other.
"""

import hashlib
import zipfile
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from sqlalchemy import Boolean, Connection, LargeBinary, MetaData, Table

from parley.base.settings import SettingsError

FORMAT = 1
MANIFEST = "manifest.json"
KEYS = "master.keys.sealed"
# Of the schema's own, of living processes, and what triggers make of the passages.
NOT_KEPT = ("alembic_version", "workers", "chunk_words")

type Kind = Literal["value", "bytes", "flag"]


class BackupUnusable(SettingsError):
    """The file is not a backup that this Parley can restore; the message says why and what to do."""


class TablePart(msgspec.Struct, frozen=True):
    """One table of a backup: its columns with their kinds, its number of rows, the SHA-256 of its member."""

    name: str
    columns: dict[str, Kind]
    rows: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a backup says of itself. ``seals`` are the ids of the master keys that open its secrets."""

    format: int
    parley: str
    revision: str
    dialect: str
    made_at: str
    seals: list[str]
    tables: list[TablePart]
    keys_sha256: str | None = None


def kept_tables(connection: Connection) -> list[Table]:
    """The tables of a store whose rows a backup has, each after those that it refers to."""
    found = MetaData()
    found.reflect(connection, only=lambda name, _: not name.startswith(NOT_KEPT))
    return found.sorted_tables


def kinds_of(table: Table) -> dict[str, Kind]:
    """How each column of a table travels."""
    kinds: dict[str, Kind] = {}
    for column in table.columns:
        match column.type:
            case LargeBinary():
                kinds[str(column.name)] = "bytes"
            case Boolean():
                kinds[str(column.name)] = "flag"
            case _:
                kinds[str(column.name)] = "value"
    return kinds


def row_line(row: Sequence[Any], kinds: Sequence[Kind]) -> bytes:
    """A row as one line."""
    values = [
        b64encode(value).decode() if kind == "bytes" and value is not None else value
        for value, kind in zip(row, kinds, strict=True)
    ]
    return msgspec.json.encode(values) + b"\n"


def parse_line(line: bytes, columns: dict[str, Kind]) -> dict[str, Any]:
    """A row from its line. Raises BackupUnusable."""
    try:
        values = msgspec.json.decode(line, type=list[str | int | float | bool | None])
        return {name: _value(value, kind) for (name, kind), value in zip(columns.items(), values, strict=True)}
    except (msgspec.DecodeError, ValueError):
        raise BackupUnusable("A row of the backup is damaged. Use another backup.") from None


def _value(value: str | float | bool | None, kind: Kind) -> object:
    if kind == "bytes" and isinstance(value, str):
        return b64decode(value, validate=True)
    return value


def member(table: str) -> str:
    """The name of a table's member."""
    return f"tables/{table}.jsonl"


def read_manifest(archive: zipfile.ZipFile) -> Manifest:
    """What the backup says of itself. Raises BackupUnusable."""
    try:
        manifest = msgspec.json.decode(archive.read(MANIFEST), type=Manifest)
    except (KeyError, msgspec.DecodeError, zipfile.BadZipFile, OSError):
        raise BackupUnusable("This file is no whole backup: its manifest is missing or damaged.") from None
    if manifest.format != FORMAT:
        raise BackupUnusable(f"The backup has format {manifest.format}, and this Parley reads {FORMAT}: use its own.")
    return manifest


def check_members(archive: zipfile.ZipFile, manifest: Manifest) -> None:
    """Every member is there and unchanged. Raises BackupUnusable."""
    expected = {member(part.name): part.sha256 for part in manifest.tables}
    if manifest.keys_sha256 is not None:
        expected[KEYS] = manifest.keys_sha256
    for name, sha256 in expected.items():
        try:
            with archive.open(name) as part:
                found = hashlib.file_digest(cast("zipfile.ZipExtFile", part), "sha256").hexdigest()
        except (KeyError, zipfile.BadZipFile, OSError, EOFError):
            found = ""
        if found != sha256:
            raise BackupUnusable(f"{name} of the backup is missing or was changed. Use another backup.")
