"""Looking at an Office file as the zip it is, before anything unpacks it (trust T20)."""

import zipfile
from io import BytesIO
from typing import Final

from parley.knowledge.parsing.draft import Unreadable

MOST_ENTRIES: Final = 5_000
MOST_BYTES: Final = 200 * 1024 * 1024
MOST_RATIO: Final = 100
RATIO_FROM_BYTES: Final = 4 * 1024 * 1024
HEAD_BYTES: Final = 64 * 1024
OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
DAMAGED: Final = "The file is damaged and cannot be opened. Save it again and try again."
LOCKED: Final = "The file is protected with a password. Remove the password and upload it again."
PACKED_TOO_TIGHTLY: Final = "The file unpacks to far more than it should, as harmful files do. It was not opened."


def look_into(data: bytes, part: str, kind: str) -> None:
    """Refuse what is not this kind of Office file, and what would unpack without end.

    ``part`` is the entry that makes it one, such as ``word/document.xml``. Raises Unreadable.
    """
    if data.startswith(OLE):
        if "EncryptedPackage".encode("utf-16-le") in data:
            raise Unreadable(LOCKED)
        raise Unreadable(f"The file is in the old Office format, not {kind}. Save it in the new one and try again.")
    if not data.startswith(b"PK"):
        raise Unreadable(f"By its name the file is {kind}, but it is something else. Give it the right ending.")
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            _check(archive, part, kind)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, OSError, ValueError):
        raise Unreadable(DAMAGED) from None


def _check(archive: zipfile.ZipFile, part: str, kind: str) -> None:
    entries = archive.infolist()
    whole = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    if len(entries) > MOST_ENTRIES or whole > MOST_BYTES:
        raise Unreadable(PACKED_TOO_TIGHTLY)
    if whole > RATIO_FROM_BYTES and whole > MOST_RATIO * max(packed, 1):
        raise Unreadable(PACKED_TOO_TIGHTLY)
    if any(entry.flag_bits & 1 for entry in entries):
        raise Unreadable(LOCKED)
    names = {entry.filename for entry in entries}
    if part not in names:
        raise Unreadable(f"By its name the file is {kind}, but it is something else. Give it the right ending.")
    for entry in entries:
        if entry.filename.endswith((".xml", ".rels")):
            with archive.open(entry) as stream:
                head = stream.read(HEAD_BYTES)
            if b"<!DOCTYPE" in head or b"<!ENTITY" in head or _wide(head):
                raise Unreadable("The file holds XML declarations that Office never writes. It was not opened.")


def _wide(head: bytes) -> bool:
    """Whether the XML is UTF-16, where a declaration could hide; Office writes UTF-8."""
    return head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in head[:64]
