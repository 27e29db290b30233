"""Files that are text: txt, md, csv, json."""

import codecs
import csv
import io
import json
from collections.abc import Iterator

import msgspec

from parley.knowledge.parsing.draft import Draft, Unreadable

SAMPLE_CHARACTERS = 4_096
MOST_CELL_CHARACTERS = 1_000_000
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
OTHER_KINDS = (
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "an Office or zip file"),
    (b"\xd0\xcf\x11\xe0", "an old Office file"),
)


def decoded(data: bytes) -> str:
    """The text of bytes, by their mark, as UTF-8, or as Windows text. Raises Unreadable for what is no text."""
    for start, kind in OTHER_KINDS:
        if data.startswith(start):
            raise Unreadable(f"By its name the file is text, but it is {kind}. Give it the right ending and try again.")
    for mark, encoding in MARKS:
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError:
                raise Unreadable("The file's text is damaged. Save it again as UTF-8 and try again.") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    if "\x00" in text[:SAMPLE_CHARACTERS]:
        raise Unreadable("By its name the file is text, but it holds binary data. Give it the right ending.")
    return text


def read_text(data: bytes, draft: Draft) -> None:
    """Text and Markdown, as they are."""
    draft.raw(decoded(data))


def read_csv(data: bytes, draft: Draft) -> None:
    """Rows of cells, whatever separates them."""
    text = decoded(data)
    csv.field_size_limit(MOST_CELL_CHARACTERS)
    try:
        dialect = csv.Sniffer().sniff(text[:SAMPLE_CHARACTERS], ",;\t|")
    except csv.Error:
        dialect = csv.excel
    draft.table(_rows(text, dialect))


def _rows(text: str, dialect: type[csv.Dialect]) -> Iterator[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), dialect)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield row
    except csv.Error as error:
        raise Unreadable(f"Line {reader.line_num} of the CSV file cannot be read: {error}.") from None


def read_json(data: bytes, draft: Draft) -> None:
    """JSON, indented so that it can be cut where its values begin."""
    text = decoded(data)
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise Unreadable("The JSON is nested too deeply to be read. Flatten it and try again.") from None
    except msgspec.DecodeError as error:
        raise Unreadable(f"The file is not valid JSON: {error}.") from None
    draft.raw(json.dumps(value, ensure_ascii=False, indent=1))
