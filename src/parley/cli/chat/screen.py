"""The view for a terminal: whole blocks of markdown stay, below them the open one and what is being done."""

from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from parley.cli.chat.markdown import Blocks, clean
from parley.cli.chat.stream import Event
from parley.cli.chat.tool_line import ASKING, State, called_title, outcome, returned_title, seconds

# Lines of the terminal that the open block never takes.
SPARE_LINES = 4
MARKS: dict[State, tuple[str, str, str]] = {
    "ok": ("✓", "ok", "green"),
    "failed": ("✗", "failed", "red"),
    "declined": ("–", "declined", "yellow"),
    "needs": ("○", "needs", "yellow"),
    "unknown": ("?", "unknown", "yellow"),
}
WORKING = "Working"
RECONNECTING = "Reconnecting"

type Kind = Literal["start", "text", "tool", "note"]


def markdown(text: str) -> Markdown:
    """Rendered markdown; the address of a link is shown beside its words, not hidden behind them."""
    return Markdown(clean(text), hyperlinks=False)


class _Block:
    """Rendered markdown without blank lines around it; at most so many lines, the last ones."""

    def __init__(self, text: str, most_lines: int | None = None) -> None:
        self._markdown = markdown(text)
        self._most_lines = most_lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._markdown, options, pad=False)
        while lines and _is_blank(lines[0]):
            del lines[0]
        while lines and _is_blank(lines[-1]):
            del lines[-1]
        for line in lines if self._most_lines is None else lines[-self._most_lines :]:
            yield from line
            yield Segment.line()


def _is_blank(line: list[Segment]) -> bool:
    return not "".join(segment.text for segment in line).strip()


class Screen:
    """Shows a turn on a terminal. Only the open block is ever drawn again, so nothing flickers or doubles."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._blocks = Blocks()
        self._live: Live | None = None
        self._doing = WORKING
        self._titles: dict[str, str] = {}
        self._unsettled = 0
        self._last: Kind = "start"
        self._unicode = console.encoding.lower().startswith("utf")
        self._spinner = Spinner("dots" if self._unicode else "line", style="cyan")

    def begin(self) -> None:
        self._doing = WORKING
        if self._live is None:
            self._live = Live(
                console=self.console,
                get_renderable=self._moving,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def draw(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def say(self, text: str) -> None:
        self._doing = WORKING
        self._print_blocks(self._blocks.feed(text))

    def start_tool(self, event: Event) -> None:
        self._settle()
        shown = called_title(event)
        self._titles[event.text("tool_call_id")] = shown
        self._doing = WORKING if event.text("tool") in ASKING else shown

    def end_tool(self, event: Event) -> None:
        self._doing = WORKING
        shown = self._titles.pop(event.text("tool_call_id"), "") or returned_title(event)
        came = outcome(event.data.get("output"))
        if event.text("tool") in ASKING and came.state != "failed":
            return
        mark, word, colour = MARKS[came.state]
        line = Text(f"{mark if self._unicode else word} ", style=colour, no_wrap=True, overflow="ellipsis")
        line.append(shown, style="bold")
        took = event.data.get("duration_ms")
        for part in (came.summary, seconds(took) if isinstance(took, int) and took else ""):
            if part:
                line.append(f"  {part}", style="dim")
        self._print(line, "tool")

    def note(self, sentence: str) -> None:
        self._settle()
        self._print(Text(clean(sentence), style="dim italic"), "note")

    def restart(self) -> None:
        self._blocks.rest()
        if self._unsettled:
            self._unsettled = 0
            self._print(Text("Another server took over; its answer begins anew.", style="dim italic"), "note")

    def cut(self) -> None:
        self._doing = RECONNECTING

    def rest(self) -> None:
        self._settle()
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._last = "start"

    def finish(self, event: Event, took_seconds: float) -> None:
        self._settle()
        usage = event.object("usage")
        tokens, calls = usage.get("total_tokens"), usage.get("llm_calls")
        words = [seconds(took_seconds * 1_000)]
        if isinstance(tokens, int) and isinstance(calls, int):
            words = [f"{tokens:,} tokens", f"{calls} model call{'' if calls == 1 else 's'}", *words]
        self.rest()
        self.console.print(Text(" · ".join(words) if self._unicode else ", ".join(words), style="dim"))
        self.console.print()

    def _moving(self) -> Group:
        """What is drawn again and again: the open block, and a line that says what is being done."""
        tail = self._blocks.tail
        self._spinner.update(text=Text(f" {self._doing}", style="dim", no_wrap=True, overflow="ellipsis"))
        most_lines = max(1, self.console.height - SPARE_LINES)
        return Group(Text(), *([_Block(tail, most_lines)] if tail.strip() else []), self._spinner)

    def _settle(self) -> None:
        """What was said stays: nothing can take it back any more."""
        rest = self._blocks.rest()
        self._print_blocks([rest] if rest.strip() else [])
        self._unsettled = 0

    def _print_blocks(self, blocks: list[str]) -> None:
        for block in blocks:
            self._print(_Block(block), "text")
            self._unsettled += 1

    def _print(self, shown: _Block | Text, kind: Kind) -> None:
        if kind == "text" or kind != self._last:
            self.console.print()
        self.console.print(shown)
        self._last = kind
