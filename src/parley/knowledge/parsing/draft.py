"""The text of a document as it is being read, with what stands where: headings, pages, heads of tables."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

MOST_CHARACTERS: Final = 60_000_000
MOST_LEVELS: Final = 6

_SPACES = re.compile(r"\s+")
_MARKS = re.compile(r"^(?:(?P<marks>#{1,6}) (?P<title>[^\n]+)|[ \t]*(?P<fence>```|~~~)[^\n]*)$", re.MULTILINE)
_HALVES = re.compile("[\ud800-\udfff]")
_BLANK_LINES = re.compile(r"\n{3,}")


class Unreadable(Exception):
    """The file cannot be read; the message says why and what to do, for the person who uploaded it."""


class Draft:
    """Markdown-like text that grows at its end."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._pages: list[tuple[int, int]] = []
        self._headings: list[tuple[int, int, str]] = []
        self._tables: list[tuple[int, int, str]] = []

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self._parts)

    def page(self, number: int) -> None:
        """What follows is on this page, from 1."""
        self._pages.append((self._length, number))

    def heading(self, level: int, title: str) -> None:
        """What follows stands under this heading; level 1 is the highest."""
        title = one_line(title)
        if title:
            level = max(1, min(level, MOST_LEVELS))
            self._headings.append((self._length, level, title))
            self._add(f"{'#' * level} {title}\n\n")

    def paragraph(self, text: str) -> None:
        """A block of text with its own line breaks."""
        text = _BLANK_LINES.sub("\n\n", clean(text)).strip("\n")
        if text.strip():
            self._add(f"{text}\n\n")

    def table(self, rows: Iterable[Sequence[str]]) -> None:
        """Rows of cells; the first row is the head of those that follow."""
        start, head = self._length, ""
        for number, row in enumerate(rows):
            cells = [one_line(cell).replace("|", "/") for cell in row]
            line = f"| {' | '.join(cells)} |"
            if number == 0:
                head = line
                line = f"{line}\n|{' --- |' * len(cells)}"
            self._add(f"{line}\n")
        if self._length > start:
            self._tables.append((start, self._length, head))
            self._add("\n")

    def raw(self, text: str) -> None:
        """The whole text of a file that is text already; Markdown headings in it count."""
        text = clean(text)
        fenced = False
        for mark in _MARKS.finditer(text):
            if mark["fence"]:
                fenced = not fenced
            elif not fenced:
                title = one_line(mark["title"].rstrip("# "))
                self._headings.append((self._length + mark.start(), len(mark["marks"]), title))
        self._add(text)

    def page_at(self, offset: int) -> int | None:
        """The page that a place of the text is on; None where the file has no pages."""
        found = bisect_right(self._pages, offset, key=lambda page: page[0])
        return self._pages[found - 1][1] if found else None

    def headings_at(self, offset: int) -> tuple[str, ...]:
        """The headings that a place of the text stands under, from the highest down."""
        above: list[tuple[int, str]] = []
        index = bisect_right(self._headings, offset, key=lambda heading: heading[0]) - 1
        while index >= 0 and (not above or above[-1][0] > 1):
            _, level, title = self._headings[index]
            if not above or level < above[-1][0]:
                above.append((level, title))
            index -= 1
        return tuple(title for _, title in reversed(above))

    def table_head_at(self, offset: int) -> str | None:
        """The head of the table that a place is in; None outside of tables and in the head itself."""
        found = bisect_right(self._tables, offset, key=lambda table: table[0])
        if not found:
            return None
        start, end, head = self._tables[found - 1]
        return head if start + len(head) < offset < end else None

    def _add(self, text: str) -> None:
        self._length += len(text)
        if self._length > MOST_CHARACTERS:
            raise Unreadable(
                f"The file holds more than {MOST_CHARACTERS:,} characters of text. Split it into smaller files."
            )
        self._parts.append(text)


def clean(text: str) -> str:
    """Text that every store can hold: no NUL, no half characters, one kind of line end."""
    for found, instead in (("\r\n", "\n"), ("\r", "\n"), ("\x0c", "\n"), ("\x00", "")):
        text = text.replace(found, instead)
    return _HALVES.sub("", text)


def one_line(text: str) -> str:
    """The text with every run of white space as one space."""
    return _SPACES.sub(" ", clean(text)).strip()
