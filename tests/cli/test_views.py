"""What a turn looks like when something goes wrong in the middle of it, and how markdown is cut as it comes."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from parley.cli.chat.markdown import Blocks, clean, visible
from parley.cli.chat.screen import Screen
from parley.cli.chat.stream import Event
from parley.cli.chat.tool_line import outcome, seconds
from parley.cli.chat.view import PlainView
from tests.cli.terminal import Screen as Emulator

MARKDOWN = """# Head

Some words
over two lines.

1. one

   still one

2. two

```python
x = 1

```

~~~
``` not the end
~~~
Last words"""


def blocks_of(pieces: list[str]) -> list[str]:
    blocks = Blocks()
    whole = [block for piece in pieces for block in blocks.feed(piece)]
    rest = blocks.rest()
    return [*whole, rest] if rest else whole


def test_a_block_ends_at_a_blank_line_that_nothing_indented_follows_or_with_its_fence() -> None:
    assert blocks_of([MARKDOWN]) == [
        "# Head",
        "Some words\nover two lines.",
        "1. one\n\n   still one",
        "2. two",
        "```python\nx = 1\n\n```",
        "~~~\n``` not the end\n~~~",
        "Last words",
    ]


@given(st.text(st.sampled_from("a #`~\n-1. ")), st.data())
def test_however_the_text_is_cut_the_blocks_are_the_same_and_nothing_is_lost(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    blocks = blocks_of(pieces)
    assert blocks == blocks_of([text])
    assert "".join("".join(blocks).split()) == "".join(text.split())


def test_the_end_of_a_long_open_code_block_is_still_shown_as_code() -> None:
    blocks = Blocks()
    assert blocks.feed("```python\n" + "".join(f"x{number} = 1\n" for number in range(500))) == []
    lines = blocks.tail.split("\n")
    assert lines[0] == "```python"
    assert lines[-1] == "x499 = 1"
    assert len(lines) < 70


@given(st.text())
def test_cleaned_text_holds_no_control_characters_but_breaks_and_tabs(text: str) -> None:
    assert not {character for character in clean(text) if character < " " or "\x7f" <= character <= "\x9f"} - {
        "\n",
        "\t",
    }


def test_what_is_approved_hides_nothing() -> None:
    assert visible("safe\u202etxt.exe\u200b\x1b[31m\n") == "safe\\u{202e}txt.exe\\u{200b}\\u{1b}[31m\n"


def event(kind: str, **data: object) -> Event:
    return Event(kind, data)


CALL = event(
    "tool_call",
    tool="execute_integration_tool",
    tool_call_id="c1",
    input={"integration_name": "github", "tool_name": "list_repositories"},
)
RESULT = event(
    "tool_result",
    tool="execute_integration_tool",
    tool_call_id="c1",
    output={"status": "ok", "result": [1]},
    duration_ms=1_234,
)


def test_a_script_never_gets_text_twice_when_another_server_takes_over() -> None:
    answer, rest = io.StringIO(), io.StringIO()
    view = PlainView(answer, rest)
    view.say("I look")
    view.start_tool(CALL)
    view.end_tool(RESULT)
    view.say("There are ")
    view.restart()
    view.say("There are two.")
    view.rest()
    assert answer.getvalue() == "I look\n\nThere are two.\n"
    assert rest.getvalue() == "[ok] github · list repositories, 1 item, 1.2 s\n"


def test_the_screen_drops_what_was_open_and_says_so_of_what_already_stood_there() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, force_terminal=True, width=100, height=40, highlight=False))
    screen.begin()
    screen.say("One whole block.\n\nAn open ")
    screen.say("one.")
    screen.draw()
    screen.restart()
    screen.draw()
    screen.say("Begun anew.")
    screen.rest()
    shown = Emulator()
    shown.write(out.getvalue().replace("\n", "\r\n"))
    assert [line for line in shown.text.splitlines() if line.strip()] == [
        "One whole block.",
        "Another server took over; its answer begins anew.",
        "Begun anew.",
    ]


def test_an_open_tool_is_shown_while_it_runs_and_as_one_line_after() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, force_terminal=True, width=100, height=40, highlight=False))
    shown = Emulator()

    def text() -> str:
        shown.write(out.getvalue().replace("\n", "\r\n"))
        out.seek(0)
        out.truncate()
        return shown.text

    screen.begin()
    screen.start_tool(CALL)
    screen.draw()
    assert "github · list repositories" in text()
    assert "✓" not in text()
    screen.cut()
    screen.draw()
    assert "Reconnecting" in text()
    screen.end_tool(RESULT)
    screen.rest()
    assert text().strip() == "✓ github · list repositories  1 item  1.2 s"


def test_what_came_of_a_tool_is_said_in_a_few_words() -> None:
    assert outcome({"status": "needs_credential", "message": "…"}).summary == "not connected yet"
    assert outcome({"status": "cancelled", "reason": "…"}).state == "declined"
    assert outcome({"status": "error", "error": "outcome_unknown", "success": False}).state == "unknown"
    assert (
        outcome({"error": "invalid_arguments", "success": False, "message": "x is missing"}).summary == "x is missing"
    )
    assert outcome({"status": "ok", "result": {"repositories": [1, 2, 3]}}).summary == "3 repositories"
    for name, one in (("repositories", "repository"), ("matches", "match"), ("issues", "issue"), ("files", "file")):
        assert outcome({"status": "ok", "result": {name: [1]}}).summary == f"1 {one}"
    assert outcome({"status": "ok", "result": "word " * 100}).summary.endswith("…")
    assert outcome(None).summary == ""
    assert [seconds(value) for value in (12, 400, 12_000, 125_000)] == ["12 ms", "0.4 s", "12 s", "2 m 05 s"]
