"""The usage page tells what turns took: in figures, plots, tables and files."""

import csv
import io
from pathlib import Path

from playwright.async_api import Browser, Locator, expect

from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedReply, ScriptedUsage
from tests.stage import Stage, executes
from tests.web.visitor import NARROW, Visitor, visiting

DRAWN = """
(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((each) => each > 0)
"""


async def one_turn(stage: Stage, github: FakeGitHub) -> None:
    """A turn of two model calls and one tool call; 40 of 100 tokens in came from the cache."""
    await stage.connect_github(github.token)
    last = ScriptedReply(text=["Done."], usage=ScriptedUsage(input=90, output=25, cached=40))
    turn = await stage.turn(executes("list_repositories"), last)
    assert turn.types[-1] == "done"


def figure(person: Visitor, name: str) -> Locator:
    return person.page.locator(".figure-card", has=person.page.get_by_text(name, exact=True)).locator("dd")


async def test_figures_plots_and_tables_tell_what_a_turn_took(visitor: Visitor, github: FakeGitHub) -> None:
    await one_turn(visitor.stage, github)
    await visitor.go("/usage")
    await expect(figure(visitor, "Turns")).to_have_text("1")
    await expect(figure(visitor, "Model calls")).to_have_text("2")
    await expect(figure(visitor, "Tokens")).to_have_text("130")
    await expect(figure(visitor, "Input from the provider's cache")).to_have_text("40 %")
    await expect(figure(visitor, "Tool calls")).to_have_text("1")
    await expect(figure(visitor, "Tool calls that worked")).to_have_text("100 %")
    for title, sentence in {
        "Credits per day": "1 credit in 30 days",
        "Tokens per day": "100 tokens in and 30 out in 30 days.",
        "Tool calls that failed, in percent": "0 of 1 tool calls failed in 30 days.",
    }.items():
        panel = visitor.page.get_by_role("region", name=title)
        drawing = panel.get_by_role("img")
        assert sentence in (await drawing.get_attribute("aria-label") or "")
        assert await drawing.locator("canvas").evaluate(DRAWN)
        await panel.get_by_role("button", name=f"Table of {title}").click()
        await expect(panel.get_by_role("table").get_by_role("row")).to_have_count(31)
    tokens = visitor.page.get_by_role("region", name="Tokens per day", exact=True)
    await expect(tokens.get_by_role("row").last.get_by_role("cell").nth(1)).to_have_text("100")
    shares = visitor.page.get_by_role("region", name="Tool calls by integration", exact=True)
    await expect(shares.get_by_role("listitem")).to_contain_text(["github1"])


async def test_the_period_is_chosen_and_a_plot_is_kept_as_a_file(
    visitor: Visitor, github: FakeGitHub, tmp_path: Path
) -> None:
    await one_turn(visitor.stage, github)
    await visitor.go("/usage")
    await visitor.page.get_by_role("button", name="7 days").click()
    await expect(visitor.page.get_by_role("button", name="7 days")).to_have_attribute("aria-pressed", "true")
    tokens = visitor.page.get_by_role("region", name="Tokens per day", exact=True)
    await expect(tokens).to_contain_text("in 7 days.")
    async with visitor.page.expect_download() as download:
        await tokens.get_by_role("button", name="CSV").click()
    kept = tmp_path / "tokens.csv"
    await (await download.value).save_as(kept)
    head, *rows = csv.reader(io.StringIO(kept.read_text()))
    assert head == ["Day", "In", "Out"]
    assert [row[1:] for row in rows] == [["0", "0"]] * 6 + [["100", "30"]]


async def test_an_organization_that_did_nothing_sees_plots_of_nothing(visitor: Visitor) -> None:
    await visitor.go("/usage")
    await expect(figure(visitor, "Model calls")).to_have_text("0")
    await expect(figure(visitor, "Input from the provider's cache")).to_have_text("—")
    await expect(visitor.page.get_by_text("No tool was called in this time.")).to_be_visible()
    await expect(visitor.page.locator("canvas")).to_have_count(3)


async def test_plots_follow_the_theme_and_the_width_and_stay_accessible(
    browser: Browser, stage: Stage, github: FakeGitHub, axe: None
) -> None:
    await one_turn(stage, github)
    async with visiting(browser, stage, theme="dark", width=NARROW, may_inject=True) as person:
        await person.go("/usage")
        canvas = person.page.locator("canvas").first
        await expect(canvas).to_be_visible()
        assert (await canvas.bounding_box() or {"width": 0})["width"] <= NARROW
        before = await canvas.evaluate("(canvas) => canvas.toDataURL()")
        await person.page.evaluate("document.documentElement.dataset.theme = 'light'")
        await expect(canvas).to_be_visible()
        assert await person.page.locator("canvas").first.evaluate("(canvas) => canvas.toDataURL()") != before
        for name in ("Credits per day", "Tool calls by integration"):
            await person.page.get_by_role("button", name=f"Table of {name}").click()
        assert await person.faults() == []
        await person.picture("usage-tables")
