"""PDF, page by page."""

import pypdfium2

from parley.knowledge.parsing.archive import DAMAGED, LOCKED
from parley.knowledge.parsing.draft import Draft, Unreadable

MOST_PAGES = 5_000
HEAD_BYTES = 1_024
HYPHEN = "\ufffe"
"""What PDFium writes for a hyphen that only divides a word at the end of a line."""


def read_pdf(data: bytes, draft: Draft) -> None:
    """The text of each page. Raises Unreadable, also for scans, which have none."""
    if b"%PDF-" not in data[:HEAD_BYTES]:
        raise Unreadable("By its name the file is a PDF, but it is something else. Give it the right ending.")
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise Unreadable(LOCKED if "password" in str(error).lower() else DAMAGED) from None
    pages = len(document)
    if pages > MOST_PAGES:
        raise Unreadable(f"The PDF has more than {MOST_PAGES:,} pages. Split it into smaller files.")
    found = False
    for number in range(pages):
        text = _page_text(document, number)
        if text.strip():
            found = True
            draft.page(number + 1)
            draft.paragraph(text)
    if not found:
        raise Unreadable(
            "No text was found in the PDF. If it is a scan, run text recognition (OCR) on it and upload the result."
        )


def _page_text(document: pypdfium2.PdfDocument, number: int) -> str:
    try:
        page = document[number]
    except pypdfium2.PdfiumError:
        return ""  # one damaged page does not cost the others
    words = page.get_textpage()
    text: str = words.get_text_bounded()
    words.close()
    page.close()
    return text.replace(HYPHEN + "\r\n", "").replace(HYPHEN, "")
