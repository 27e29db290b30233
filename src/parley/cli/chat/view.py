"""Where a turn is shown: what a view can do, and the plain one for scripts."""

import sys
from typing import Protocol, TextIO

from parley.cli.chat.stream import Event
from parley.cli.chat.tool_line import ASKING, called_title, outcome, returned_title, seconds


class View(Protocol):
    """Shows a turn as it comes. Fulfilled by ``PlainView`` and ``Screen``."""

    def begin(self) -> None:
        """A turn begins or goes on."""
        ...

    def draw(self) -> None:
        """Bring what moves up to date; called several times a second while a turn runs."""
        ...

    def say(self, text: str) -> None:
        """A piece of the answer, without control characters."""
        ...

    def start_tool(self, event: Event) -> None:
        """A ``tool_call``."""
        ...

    def end_tool(self, event: Event) -> None:
        """A ``tool_result``."""
        ...

    def note(self, sentence: str) -> None:
        """Something to know that is not the answer."""
        ...

    def restart(self) -> None:
        """Another server took the turn over: the text since the last tool comes again."""
        ...

    def cut(self) -> None:
        """The connection is lost; it is being tried again."""
        ...

    def rest(self) -> None:
        """Nothing comes for now: the turn is over, or a person is asked."""
        ...

    def finish(self, event: Event, took_seconds: float) -> None:
        """A ``done`` without an error."""
        ...


class PlainView:
    """The answer on standard output, everything else as lines on standard error.

    A piece of text is written once nothing can take it back: at the next tool call, or at the end.
    """

    def __init__(self, answer: TextIO = sys.stdout, rest: TextIO = sys.stderr) -> None:
        self._answer = answer
        self._rest = rest
        self._text: list[str] = []
        self._said_before = False
        self._titles: dict[str, str] = {}
        self._is_cut = False

    def begin(self) -> None:
        """Nothing to show."""

    def draw(self) -> None:
        """Nothing moves."""

    def say(self, text: str) -> None:
        self._is_cut = False
        self._text.append(text)

    def start_tool(self, event: Event) -> None:
        self._write_text()
        self._titles[event.text("tool_call_id")] = called_title(event)
        self._is_cut = False

    def end_tool(self, event: Event) -> None:
        shown = self._titles.pop(event.text("tool_call_id"), "") or returned_title(event)
        came = outcome(event.data.get("output"))
        if event.text("tool") in ASKING and came.state != "failed":
            return
        took = event.data.get("duration_ms")
        words = [came.summary, seconds(took) if isinstance(took, int) and took else ""]
        self._line(f"[{came.state}] {shown}{''.join(f', {word}' for word in words if word)}")

    def note(self, sentence: str) -> None:
        self._line(sentence)

    def restart(self) -> None:
        self._text.clear()

    def cut(self) -> None:
        if not self._is_cut:
            self._is_cut = True
            self._line("The connection was lost; trying again.")

    def rest(self) -> None:
        self._write_text()

    def finish(self, event: Event, took_seconds: float) -> None:  # noqa: ARG002 - scripts want the answer alone
        self._write_text()

    def _write_text(self) -> None:
        text = "".join(self._text).strip()
        self._text.clear()
        if not text:
            return
        between = "\n" if self._said_before else ""
        self._answer.write(f"{between}{text}\n")
        self._answer.flush()
        self._said_before = True

    def _line(self, text: str) -> None:
        self._rest.write(f"{text}\n")
        self._rest.flush()
