"""Streams a long reply into real Chromium while somebody types, and holds the budgets of the web app.

    python -m bench.web

Twice: in a new chat, and at the end of a chat of 300 messages with every one of them on the page.
CPU per frame, the scroll gap and the sizes decide; frame rates and long tasks depend on what else the
machine does, so they are only printed.
"""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
from playwright.async_api import Browser, CDPSession, Page, async_playwright

from parley.base.settings import read_settings
from parley.testing.scripted_model import ScriptedModel, ScriptedReply, scripted_model
from parley.testing.server import served

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "parley" / "http" / "static"
SAMPLE = ROOT / "web" / "dev" / "sample.md"
ORGANIZATION = "11111111-1111-4111-8111-111111111111"
LLM = {"integration_name": "openai", "provider_id": "openai", "model_id": "gpt-4o"}

CHARACTERS = 30_000
PIECE = 6
PIECES_PER_SECOND = 200
EARLIER_TURNS = 150
LONG_TEXT = (SAMPLE.read_text() * (CHARACTERS // SAMPLE.stat().st_size + 1))[:CHARACTERS]
KEY_SECONDS = 0.15
PATIENCE_SECONDS = 30

WATCH = """
window.seen = { frames: 0, long: 0, keys: [] };
const count = () => { seen.frames += 1; requestAnimationFrame(count); };
requestAnimationFrame(count);
new PerformanceObserver((list) => { seen.long += list.getEntries().length; }).observe({ type: 'longtask' });
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) if (each.name === 'keydown') seen.keys.push(each.duration);
}).observe({ type: 'event', durationThreshold: 16 });
"""
# Looks at the last turn alone: to search the whole page so often would be measured along.
STREAMS = "document.querySelector('.thread').lastElementChild.querySelector('[aria-busy=true]') !== null"
GAP = """
(() => { const e = document.querySelector('.scroller'); return e.scrollHeight - e.scrollTop - e.clientHeight; })()
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure; without a ``budget`` it is only printed."""

    name: str
    value: float
    unit: str
    budget: float | None = None

    @property
    def holds(self) -> bool:
        return self.budget is None or self.value <= self.budget

    def __str__(self) -> str:
        limit = "" if self.budget is None else f"   budget {self.budget:g}{'' if self.holds else '   OVER'}"
        return f"{self.name:<44}{self.value:>9.1f} {self.unit}{limit}"


async def metrics(session: CDPSession) -> dict[str, float]:
    answer: dict[str, Any] = await session.send("Performance.getMetrics")
    return {each["name"]: each["value"] for each in answer["metrics"]}


async def measure(page: Page, session: CDPSession) -> list[Row]:
    """Send a message, type until its reply is complete, and count what that cost."""
    box = page.get_by_label("Message", exact=True)
    await page.evaluate(WATCH)
    await box.fill("Write the long report")
    await box.press("Enter")
    await page.locator("article[aria-busy=true] .markdown").wait_for()
    before, frames = await metrics(session), await page.evaluate("seen.frames")
    # Keys go to what has the focus: a locator would search the page by its labels before each, in the measured thread.
    while await page.evaluate(STREAMS):
        await page.keyboard.press("a")
        await asyncio.sleep(KEY_SECONDS)
    after, seen = await metrics(session), await page.evaluate("seen")
    drawn = max(1, seen["frames"] - frames)
    keys = sorted(seen["keys"]) or [0.0]
    seconds = after["Timestamp"] - before["Timestamp"]
    return [
        Row("script CPU per frame", 1000 * (after["ScriptDuration"] - before["ScriptDuration"]) / drawn, "ms", 4),
        Row("main thread CPU per frame", 1000 * (after["TaskDuration"] - before["TaskDuration"]) / drawn, "ms", 12),
        Row("scroll gap at the end", await page.evaluate(GAP), "px", 40),
        Row("frames per second", drawn / seconds, "fps"),
        Row("tasks over 50 ms", seen["long"], ""),
        Row("key press to paint, p95", keys[int(0.95 * (len(keys) - 1))], "ms"),
        Row("heap", after["JSHeapUsedSize"] / 2**20, "MB"),
    ]


@dataclass(frozen=True, slots=True)
class Bench:
    """A running server with a scripted model, and a browser to look at it."""

    base_url: str
    key: str
    model: ScriptedModel
    model_key: str
    browser: Browser

    @asynccontextmanager
    async def page(self) -> AsyncGenerator[tuple[Page, CDPSession]]:
        """A signed-in window whose CPU time is counted."""
        context = await self.browser.new_context(viewport={"width": 1280, "height": 860})
        await context.request.post(f"{self.base_url}/auth/session", data={"api_key": self.key})
        page = await context.new_page()
        session = await context.new_cdp_session(page)
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        yield page, session
        await context.close()

    async def script_long_reply(self) -> None:
        """The model streams the measured reply next."""
        pieces = [LONG_TEXT[at : at + PIECE] for at in range(0, len(LONG_TEXT), PIECE)]
        await self.model.script(self.model_key, ScriptedReply(text=pieces, paced=1 / PIECES_PER_SECOND))


async def new_chat(bench: Bench) -> list[Row]:
    """A long reply in a chat that holds nothing else."""
    await bench.script_long_reply()
    async with bench.page() as (page, session):
        await page.goto(f"{bench.base_url}/app/")
        await page.get_by_label("Message", exact=True).wait_for()
        return await measure(page, session)


async def long_chat(bench: Bench) -> list[Row]:
    """The same at the end of 300 messages, all of them shown; and what opening such a chat costs."""
    chat_id = await told(bench)
    await bench.script_long_reply()
    async with bench.page() as (page, session):
        await page.goto(f"{bench.base_url}/app/settings")
        await page.get_by_label("Theme").wait_for()
        before = await metrics(session)
        await page.locator(f"a[href$='{chat_id}']").click()
        await page.get_by_label("Copy reply").last.wait_for()
        opened = await metrics(session)
        while await page.locator(".earlier").count():
            await page.locator(".earlier").click()
        shown = await page.locator("article").count()
        if shown != 2 * EARLIER_TURNS:
            raise RuntimeError(f"{shown} messages are on the page, not {2 * EARLIER_TURNS}")
        await page.locator(".scroller").evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
        return [
            Row("main thread CPU to open it", 1000 * (opened["TaskDuration"] - before["TaskDuration"]), "ms"),
            *await measure(page, session),
        ]


async def told(bench: Bench) -> str:
    """A chat of 300 messages; its id."""
    replies = [ScriptedReply(text=[LONG_TEXT[:1_000]]) for _ in range(EARLIER_TURNS)]
    await bench.model.script(bench.model_key, *replies)
    chat: dict[str, str] = {}
    async with aiohttp.ClientSession(bench.base_url, headers=headers(bench.key), raise_for_status=True) as session:
        for number in range(EARLIER_TURNS):
            async with session.post("/assistant/chat", json={"message": f"Turn {number}", **chat}) as answer:
                started = await answer.json()
            chat = {"chat_id": started["chat_id"]}
            # The stream closes when the turn is over.
            async with session.get(f"/assistant/chat/{chat['chat_id']}/listen/{started['run_id']}") as stream:
                await asyncio.wait_for(stream.read(), PATIENCE_SECONDS)
    return chat["chat_id"]


def sizes() -> list[Row]:
    """What a browser downloads, as it is sent."""
    scripts = {path.name: path.stat().st_size / 1024 for path in STATIC.glob("assets/*.js.gz")}
    first = [size for name, size in scripts.items() if name.startswith("index-")]
    later = [size for name, size in scripts.items() if not name.startswith("index-")]
    styles = [path.stat().st_size / 1024 for path in STATIC.glob("assets/*.css.gz")]
    return [
        Row("first script, gzip", sum(first), "KB", 150),
        Row("largest later script, gzip", max(later), "KB", 60),
        Row("styles, gzip", sum(styles), "KB", 12),
    ]


async def run() -> dict[str, list[Row]]:
    """The rows under the title of what was measured."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no Chromium on this machine: only the sizes are measured")
        return {"Sizes": sizes()}
    key, model_key = f"mx_live_{uuid4().hex}", f"sk-scripted-{uuid4().hex}"
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings(
            {
                "PARLEY_PORT": "0",
                "PARLEY_DATA_DIR": folder,
                "PARLEY_BOOTSTRAP_API_KEY": key,
                "PARLEY_BOOTSTRAP_ORGANIZATION_ID": ORGANIZATION,
                "PARLEY_ALLOW_PRIVATE_HOSTS": "127.0.0.1",
                "OLLAMA_HOST": "http://127.0.0.1:9",
            }
        )
        async with scripted_model() as model, served(settings) as (_, base_url), async_playwright() as playwright:
            await connect(base_url, key, model, model_key)
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            bench = Bench(base_url, key, model, model_key, browser)
            rows = {"A new chat": await new_chat(bench), "After 300 messages": await long_chat(bench)}
            await browser.close()
            return {**rows, "Sizes": sizes()}


def headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", "X-Organization-ID": ORGANIZATION}


async def connect(base_url: str, key: str, model: ScriptedModel, model_key: str) -> None:
    """Make the scripted model the organization's own and its default."""
    auth_data = {"api_key": model_key, "base_url": model.openai_url}
    async with aiohttp.ClientSession(base_url, headers=headers(key), raise_for_status=True) as session:
        await session.post("/credentials", json={"integration_name": "openai", "auth_data": auth_data})
        await session.put("/organizations/settings/composer-llm", json=LLM)


def main() -> int:
    """Print every figure; 1 where a budget does not hold."""
    measured = asyncio.run(run())
    for title, rows in measured.items():
        print(title, *rows, sep="\n  ")
    return 0 if all(row.holds for rows in measured.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
