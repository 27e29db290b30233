"""A terminal with a program in it: what stands on its screen, and somebody who types."""

import asyncio
import codecs
import fcntl
import os
import re
import signal
import struct
import sys
import termios
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

ROWS, COLUMNS = 40, 100
PATIENCE_SECONDS = 20.0
PRESS_SECONDS = 2.0
# Gives the program the terminal as its own, so that Ctrl-C reaches it and hidden input works.
TAKES_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
ESCAPE = re.compile(r"\x1b(?:\[(?P<numbers>[?\d;]*)(?P<letter>[A-Za-z])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()=>78][B0]?)")


class Screen:
    """What a terminal shows, with everything that has scrolled away above it."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = [[]]
        self.row = 0
        self.column = 0
        self._held = ""

    @property
    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip()

    def write(self, text: str) -> None:
        text = self._held + text
        self._held = ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = ESCAPE.match(text, at)
                if found is None:
                    self._held = text[at:]
                    return
                self._obey(found)
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _put(self, character: str) -> None:
        match character:
            case "\r":
                self.column = 0
            case "\n":
                self._down()
            case "\b":
                self.column = max(0, self.column - 1)
            case "\t":
                self.column += 8 - self.column % 8
            case _ if character >= " ":
                if self.column == COLUMNS:
                    self.column = 0
                    self._down()
                line = self.lines[self.row]
                line.extend(" " * (self.column + 1 - len(line)))
                line[self.column] = character
                self.column += 1
            case _:
                pass

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])

    def _obey(self, found: re.Match[str]) -> None:
        raw = (found["numbers"] or "").split(";")[0]
        number = int(raw) if raw.isdecimal() else 0
        match found["letter"]:
            case "A":
                self.row = max(0, self.row - max(number, 1))
            case "C" | "D" | "G" as letter:
                self._move(letter, max(number, 1))
            case "K" | "J" as letter:
                self._erase(letter, number)
            case _:
                pass

    def _move(self, letter: str, count: int) -> None:
        column = {"C": self.column + count, "D": self.column - count, "G": count - 1}[letter]
        self.column = min(COLUMNS, max(0, column))

    def _erase(self, letter: str, what: int) -> None:
        del self.lines[self.row][0 if what == 2 else self.column :]
        if letter == "J":
            del self.lines[self.row + 1 :]


@dataclass(slots=True)
class Terminal:
    """A running program, its screen, and its keyboard."""

    process: Process
    keyboard: int
    screen: Screen = field(default_factory=Screen)
    raw: str = ""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _decoder: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))

    @property
    def text(self) -> str:
        return self.screen.text

    async def shows(self, *words: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until all of these stand on the screen at once."""
        await self._until(lambda: all(word in self.text for word in words), f"never showed {words}", seconds)

    async def ends_with(self, words: str) -> None:
        """Wait until the cursor stands right behind these words."""

        def before_cursor() -> str:
            return "".join(self.screen.lines[self.screen.row][: self.screen.column])

        await self._until(lambda: before_cursor().endswith(words), f"never waited behind {words!r}")

    def type(self, text: str) -> None:
        """Type a line and press Enter."""
        os.write(self.keyboard, f"{text}\r".encode())

    def press(self, character: str) -> None:
        """Press one key: ``\\x03`` is Ctrl-C, ``\\x04`` is Ctrl-D."""
        os.write(self.keyboard, character.encode())

    async def interrupt(self, *words: str) -> None:
        """Press Ctrl-C at a prompt until the words appear.

        A press in the instant between a prompt and its wait for keys is only seen with the next key:
        CPython's readline looks for signals while it waits, not before.
        """
        for _ in range(5):
            self.press("\x03")
            with suppress(AssertionError):
                return await self.shows(*words, seconds=PRESS_SECONDS)
        raise AssertionError(f"Ctrl-C never led to {words}; the screen:\n{self.text}")

    async def ended(self) -> int:
        """The exit code, once the program is over and all it wrote is on the screen."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()

    async def _until(self, holds: Callable[[], bool], complaint: str, seconds: float = PATIENCE_SECONDS) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{complaint}; the screen:\n{self.text}") from None

    def read(self) -> None:
        """Take in what the program wrote."""
        try:
            chunk = os.read(self.keyboard, 65_536)
        except OSError:  # Linux answers so once nobody has the other end any more
            chunk = b""
        if not chunk:
            asyncio.get_running_loop().remove_reader(self.keyboard)
            return
        text = self._decoder.decode(chunk)
        self.raw += text
        self.screen.write(text)
        self._changed.set()


@asynccontextmanager
async def in_terminal(*arguments: str, environment: Mapping[str, str]) -> AsyncGenerator[Terminal]:
    """``parley …`` in a terminal of its own; killed at the end if it still runs."""
    keyboard, program_side = os.openpty()
    fcntl.ioctl(program_side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", TAKES_TERMINAL, sys.executable, "-m", "parley", *arguments),
        env={**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment},
        stdin=program_side,
        stdout=program_side,
        stderr=program_side,
        start_new_session=True,
    )
    os.close(program_side)
    terminal = Terminal(process, keyboard)
    loop = asyncio.get_running_loop()
    loop.add_reader(keyboard, terminal.read)
    try:
        yield terminal
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        loop.remove_reader(keyboard)
        os.close(keyboard)
