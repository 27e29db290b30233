"""Word, Excel and PowerPoint; the old Word format as far as its text goes."""

from collections.abc import Iterator
from datetime import date, datetime, time
from io import BytesIO
from typing import Any

import legacy_doc
from docx import Document as WordDocument
from docx.table import Table
from docx.text.paragraph import Paragraph
from legacy_doc.types import ExtractionOptions
from openpyxl import load_workbook
from pptx import Presentation

from parley.knowledge.model import MOST_FILE_BYTES
from parley.knowledge.parsing.archive import LOCKED, OLE, look_into
from parley.knowledge.parsing.draft import MOST_CHARACTERS, Draft, Unreadable

HEADING_STYLES = {"Title": 1, **{f"Heading {level}": level for level in range(1, 10)}}


def read_docx(data: bytes, draft: Draft) -> None:
    """Paragraphs and tables in their order; pages where Word noted its page breaks."""
    look_into(data, "word/document.xml", "a Word document (docx)")
    document = WordDocument(BytesIO(data))
    # Word notes where its pages ended when it last laid the text out; other writers do not.
    page = 1
    paged = bool(document.element.xpath("//w:lastRenderedPageBreak"))
    if paged:
        draft.page(page)
    for block in document.iter_inner_content():
        if isinstance(block, Table):
            draft.table([cell.text for cell in row.cells] for row in block.rows)
            continue
        _word_paragraph(draft, block)
        if paged and block.rendered_page_breaks:
            page += len(block.rendered_page_breaks)
            draft.page(page)


def _word_paragraph(draft: Draft, block: Paragraph) -> None:
    style = block.style.name if block.style is not None else None
    level = HEADING_STYLES.get(style or "")
    if level is not None:
        draft.heading(level, block.text)
    else:
        draft.paragraph(block.text)


def read_doc(data: bytes, draft: Draft) -> None:
    """The running text of a Word 97 document; its tables and headings are lost with its formatting."""
    if not data.startswith(OLE):
        raise Unreadable("By its name the file is an old Word document (doc), but it is something else.")
    options = ExtractionOptions(max_file_bytes=MOST_FILE_BYTES, max_text_bytes=4 * MOST_CHARACTERS)
    try:
        text = legacy_doc.extract_text(data, options=options).text
    except legacy_doc.LegacyDocError as error:
        if "ncrypted" in str(error):
            raise Unreadable(LOCKED) from None
        raise Unreadable(
            "This old Word document cannot be read. Open it in Word, save it as docx, and upload that."
        ) from None
    draft.paragraph(text)


def read_xlsx(data: bytes, draft: Draft) -> None:
    """Each sheet as a table under its name; formulas as their last values."""
    look_into(data, "xl/workbook.xml", "an Excel workbook (xlsx)")
    book = load_workbook(BytesIO(data), read_only=True, data_only=True, keep_links=False)
    for sheet in book.worksheets:
        draft.heading(2, sheet.title)
        draft.table(_sheet_rows(sheet))


def _sheet_rows(sheet: Any) -> Iterator[list[str]]:
    for row in sheet.iter_rows(values_only=True):
        cells = [_cell(value) for value in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            yield cells


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case datetime() | date() | time():
            return value.isoformat()
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


def read_pptx(data: bytes, draft: Draft) -> None:
    """Each slide is a page: its title, its texts, its tables, its notes."""
    look_into(data, "ppt/presentation.xml", "a PowerPoint presentation (pptx)")
    for number, slide in enumerate(Presentation(BytesIO(data)).slides, 1):
        draft.page(number)
        title = slide.shapes.title
        draft.heading(2, title.text_frame.text if title is not None else f"Slide {number}")
        shapes: list[Any] = list(slide.shapes)
        for shape in shapes:
            if shape.has_text_frame and (title is None or shape.shape_id != title.shape_id):
                draft.paragraph(shape.text_frame.text)
            if shape.has_table:
                draft.table([cell.text for cell in row.cells] for row in shape.table.rows)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            draft.paragraph(slide.notes_slide.notes_text_frame.text)
