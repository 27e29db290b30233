"""Files that are wrong, locked, empty, or made to harm. All are made here; none is kept."""

import io
import json
import struct
import zipfile
from collections.abc import Iterator

from docx import Document as WordDocument
from openpyxl import Workbook
from pptx import Presentation

BILLION_LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><w:document>&c;</w:document>'
)


def docx(*paragraphs: str) -> bytes:
    """A Word document: a heading, paragraphs, a table."""
    document, out = WordDocument(), io.BytesIO()
    document.add_heading("Travel", 1)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    table = document.add_table(rows=2, cols=2)
    for row, cells in enumerate((("City", "Rate"), ("Lisbon", "82 euros"))):
        for column, cell in enumerate(cells):
            table.cell(row, column).text = cell
    document.save(out)
    return out.getvalue()


def xlsx(rows: list[list[object]]) -> bytes:
    """A workbook with one sheet."""
    book, out = Workbook(), io.BytesIO()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Prices"
    for row in rows:
        sheet.append(row)
    book.save(out)
    return out.getvalue()


def pptx(title: str, text: str) -> bytes:
    """A presentation of one slide."""
    presentation, out = Presentation(), io.BytesIO()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    assert slide.shapes.title is not None
    slide.shapes.title.text = title
    slide.placeholders[1].text = text  # pyright: ignore[reportAttributeAccessIssue]
    presentation.save(out)
    return out.getvalue()


def pdf(*pages: str, encrypted: bool = False) -> bytes:
    """A PDF with one line of text a page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {5 + 2 * number} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body, places = b"%PDF-1.4\n", list[int]()
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode()
    locked = ""
    if encrypted:
        locked = "/Encrypt << /Filter /Standard /V 1 /R 2 /O <" + "ab" * 32 + "> /U <" + "cd" * 32 + "> /P -44 >> "
        locked += "/ID [<" + "01" * 16 + "> <" + "01" * 16 + ">] "
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
    end += f"<< /Size {len(objects) + 1} /Root 1 0 R {locked}>>\nstartxref\n{len(body)}\n%%EOF\n"
    return body + end.encode()


def doc(text: str) -> bytes:
    """A Word 97 document: an OLE file with the text in one piece."""
    raw = text.encode("utf-16-le")
    word = bytearray(0x400)
    struct.pack_into("<H", word, 0x0A, 0x0200)
    struct.pack_into("<II", word, 0x18, 0x400, 0x400 + len(raw))
    word += raw
    word += b"\x00" * (max(4096, len(word)) - len(word))
    pieces = struct.pack("<II", 0, len(text)) + struct.pack("<HIH", 0, 0x400, 0)
    table = b"\x02" + struct.pack("<I", len(pieces)) + pieces
    table += b"\x00" * (4096 - len(table))
    return _ole({"WordDocument": bytes(word), "1Table": table})


def _ole(streams: dict[str, bytes]) -> bytes:
    size = 512
    sectors = [b""]  # the sector of the allocation table, filled last
    fat = [0xFFFFFFFD]

    def chain(data: bytes) -> int:
        first = len(sectors)
        parts = [data[at : at + size].ljust(size, b"\x00") for at in range(0, len(data), size)]
        for part in parts:
            sectors.append(part)
            fat.append(len(sectors))
        fat[-1] = 0xFFFFFFFE
        return first

    entries = [(name, 2, chain(data), len(data)) for name, data in streams.items()]
    folder = b"".join(_entry(*one) for one in [("Root Entry", 5, 0xFFFFFFFE, 0), *entries])
    folder_start = chain(folder.ljust(size, b"\x00"))
    sectors[0] = struct.pack(f"<{len(fat)}I", *fat).ljust(size, b"\xff")
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 16 + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6)
    head += b"\x00" * 6 + struct.pack("<IIIII", 0, 1, folder_start, 0, 4096)
    head += struct.pack("<IIII", 0xFFFFFFFE, 0, 0xFFFFFFFE, 0) + struct.pack("<I", 0)
    return head.ljust(size, b"\xff") + b"".join(sectors)


def _entry(name: str, kind: int, start: int, size: int) -> bytes:
    raw = (name + "\x00").encode("utf-16-le")
    first = raw.ljust(64, b"\x00") + struct.pack("<HBB", len(raw), kind, 1) + struct.pack("<III", *[0xFFFFFFFF] * 3)
    return first + b"\x00" * 36 + struct.pack("<IQ", start, size)


def repacked(data: bytes, name: str, content: bytes) -> bytes:
    """The same Office file with one entry replaced or added."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            if entry.filename != name:
                new.writestr(entry.filename, old.read(entry))
        new.writestr(name, content)
    return out.getvalue()


def corpus() -> Iterator[tuple[str, bytes, str]]:
    """A name, the file, and words its sentence must hold."""
    good = docx("Nothing.")
    yield "empty.txt", b"", "empty"
    yield "blank.md", b" \n\t\n ", "empty"
    yield "binary.txt", bytes(range(256)) * 20, "binary"
    yield "really-a-pdf.txt", pdf("Hi"), "a PDF"
    yield "really-text.pdf", b"Just words.", "something else"
    yield "really-text.docx", b"Just words.", "something else"
    yield "really-excel.docx", xlsx([["a"]]), "something else"
    yield "really-text.doc", b"Just words.", "something else"
    yield "locked.pdf", pdf("Secret", encrypted=True), "password"
    yield "locked.docx", _ole({"EncryptedPackage": b"x" * 5000}), "password"
    yield "scan.pdf", pdf("", ""), "recognition"
    yield "cut-off.docx", good[: len(good) // 2], "damaged"
    yield "cut-off.pdf", b"%PDF-1.7\n1 0 obj\n<< /Type /Cat", "damaged"
    yield "zip-bomb.docx", repacked(good, "word/media/image1.bin", b"\x00" * 60_000_000), "unpacks"
    yield "billion-laughs.docx", repacked(good, "word/document.xml", BILLION_LAUGHS.encode()), "declarations"
    yield "wide-laughs.docx", repacked(good, "word/document.xml", BILLION_LAUGHS.encode("utf-16")), "declarations"
    yield "many-entries.xlsx", _many_entries(), "unpacks"
    yield "deep.json", b"[" * 200_000 + b"]" * 200_000, "deep"
    yield "broken.json", b'{"a": ', "not valid JSON"
    yield "no-words.html", b"<html><script>alert(1)</script></html>", "No text"
    yield "broken.doc", _ole({"WordDocument": b"\x00" * 5000}), "docx"


def _many_entries() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
        for number in range(6_000):
            archive.writestr(f"xl/{number}.bin", b"")
    return out.getvalue()


def json_sample() -> bytes:
    """A small JSON document on one line."""
    return json.dumps({"opening_hours": {"monday": "closed", "tuesday": "nine to five"}}).encode()
