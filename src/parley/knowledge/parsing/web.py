"""HTML, without what is not shown: scripts, styles, templates."""

from collections.abc import Iterator
from typing import Any

from lxml import etree, html  # pyright: ignore[reportAttributeAccessIssue]

from parley.knowledge.parsing.draft import Draft, Unreadable
from parley.knowledge.parsing.plain import decoded

SILENT = {"script", "style", "noscript", "template", "svg", "head", "iframe", "object", "nav"}
BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "br", "dd", "div", "dl", "dt", "figcaption", "figure",
    "footer", "form", "header", "hr", "li", "main", "ol", "p", "pre", "section", "ul",
}  # fmt: skip
HEADINGS = {f"h{level}": level for level in range(1, 7)}


def read_html(data: bytes, draft: Draft) -> None:
    """A page, in reading order."""
    text = decoded(data)
    parser = html.HTMLParser(remove_comments=True, remove_pis=True, no_network=True, huge_tree=False)
    try:
        root = html.document_fromstring(text.encode("utf-8"), parser=parser, base_url=None)
    except (etree.ParserError, etree.XMLSyntaxError, ValueError):
        raise Unreadable("The file is not HTML that can be read. Open it in a browser and save it again.") from None
    title = root.findtext("head/title")
    if title:
        draft.heading(1, title)
    _Page(draft).walk(root)


class _Page:
    """Collects words until their block ends."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._words: list[str] = []

    def walk(self, root: Any) -> None:
        walker = etree.iterwalk(root, events=("start", "end"))
        for event, element in walker:
            tag = element.tag if isinstance(element.tag, str) else ""
            if event == "start":
                if tag in SILENT or tag == "table" or tag in HEADINGS:
                    self._whole(tag, element)
                    walker.skip_subtree()
                    continue
                if tag in BLOCKS:
                    self._flush()
                self._say(element.text)
            else:
                if tag in BLOCKS:
                    self._flush()
                self._say(element.tail)
        self._flush()

    def _whole(self, tag: str, element: Any) -> None:
        """An element that is told as one thing."""
        if tag in HEADINGS:
            self._flush()
            self._draft.heading(HEADINGS[tag], "".join(element.itertext()))
        elif tag == "table":
            self._flush()
            self._draft.table(_rows(element))

    def _say(self, text: str | None) -> None:
        if text:
            self._words.append(text)

    def _flush(self) -> None:
        text = " ".join("".join(self._words).split())
        self._words.clear()
        if text:
            self._draft.paragraph(text)


def _rows(table: Any) -> Iterator[list[str]]:
    for row in table.iter("tr"):
        cells = [" ".join("".join(cell.itertext()).split()) for cell in row if cell.tag in {"td", "th"}]
        if any(cells):
            yield cells
