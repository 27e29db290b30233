"""Text from models and services on its way to a terminal: made harmless, and cut into blocks as it comes."""

import re
import unicodedata

# Everything but a line break and a tab could move the cursor, recolour or retitle the terminal.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})(.*)$")
LIVE_LINES = 60


def clean(text: str) -> str:
    """The text without control characters."""
    return CONTROLS.sub("", text)


def visible(text: str) -> str:
    """The text with every character that shows as nothing, or turns the writing direction, spelled out.

    For what a person approves: nothing in it may hide.
    """
    return "".join(character if _shows(character) else f"\\u{{{ord(character):x}}}" for character in text)


def _shows(character: str) -> bool:
    return character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"}


class Blocks:
    """Markdown that arrives in pieces: whole blocks are given out once, the open one can be looked at.

    A block ends at a blank line that nothing indented follows, or with its code fence.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial = ""
        self._fence: re.Match[str] | None = None
        self._after_blank = False

    def feed(self, text: str) -> list[str]:
        """The blocks that are whole now."""
        *lines, self._partial = (self._partial + text).split("\n")
        done = [block for line in lines for block in self._take(line)]
        if self._begins_block(self._partial):
            done += self._flush()
        return done

    def rest(self) -> str:
        """What is left when nothing more comes; the block that was open."""
        block = "\n".join([*self._lines, self._partial]).strip("\n")
        self.__init__()
        return block

    @property
    def tail(self) -> str:
        """The end of the open block, at most 60 lines of it."""
        lines = self._lines[-LIVE_LINES:]
        if self._fence is not None and len(lines) < len(self._lines):
            lines = [self._fence.group(0), *lines]
        return "\n".join([*lines, self._partial]).strip("\n")

    def _take(self, line: str) -> list[str]:
        if self._fence is not None:
            self._lines.append(line)
            return self._close_fence(line)
        done = self._flush() if self._begins_block(line) else []
        self._lines.append(line)
        self._fence = FENCE.match(line)
        self._after_blank = not line.strip()
        return done

    def _begins_block(self, line: str) -> bool:
        return self._after_blank and line[:1].strip() != ""

    def _close_fence(self, line: str) -> list[str]:
        opened, closing = self._fence, FENCE.match(line)
        if opened is None or closing is None or closing.group(3).strip():
            return []
        if not closing.group(2).startswith(opened.group(2)):
            return []
        self._fence = None
        return [] if opened.group(1) else self._flush()

    def _flush(self) -> list[str]:
        block = "\n".join(self._lines).strip("\n")
        self._lines = []
        self._after_blank = False
        return [block] if block.strip() else []
