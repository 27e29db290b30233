"""A person in a browser: one window, in an organization of their own; what a page may not do is noticed."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request, expect

from tests.stage import Stage

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = ROOT / "artifacts" / "web"

type Theme = Literal["light", "dark"]
WIDE, NARROW, NARROWEST = 1280, 390, 320
HEIGHTS = {WIDE: 860, NARROW: 800, NARROWEST: 640}
# A refused request is written to the console by the browser itself, whatever the page does about it.
REFUSED = re.compile(r"Failed to load resource: .*\b(4\d\d|ERR_|5\d\d)")


@dataclass
class Visitor:
    """One browser window. ``foreign`` and ``complaints`` must be empty at the end of every story."""

    context: BrowserContext
    page: Page
    stage: Stage
    base_url: str
    foreign: list[str] = field(default_factory=list[str])
    complaints: list[str] = field(default_factory=list[str])

    def watch(self, page: Page) -> None:
        """Notice foreign requests, security reports and script errors of a page."""
        page.on("request", self._requested)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((f"{self.base_url}/", "data:", "blob:", "about:")):
            self.foreign.append(request.url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not REFUSED.search(message.text):
            self.complaints.append(message.text)

    async def go(self, path: str) -> None:
        """Open a page of the app and wait for its heading."""
        await self.page.goto(f"{self.base_url}/app{path}")
        await expect(self.page.locator("main[aria-busy=true]")).to_have_count(0)
        await expect(self.page.locator("h1").first).not_to_have_text("Loading")

    async def say(self, text: str) -> None:
        """Type a message and send it with Enter."""
        await self.box.fill(text)
        await self.box.press("Enter")

    @property
    def box(self) -> Locator:
        return self.page.get_by_label("Message", exact=True)

    @property
    def reply(self) -> Locator:
        """The newest reply."""
        return self.page.get_by_role("article", name="Assistant").last

    @property
    def card(self) -> Locator:
        """The open question."""
        return self.page.locator("[data-question]")

    @property
    def chat_id(self) -> str:
        return self.page.url.rpartition("/c/")[2]

    async def finished(self) -> None:
        """Wait until the newest turn is over."""
        await expect(self.reply.get_by_label("Copy reply")).to_be_visible()

    async def look(self, theme: Theme, width: int) -> None:
        """Change the system's theme and the window's width under the page as it stands."""
        await self.page.emulate_media(color_scheme=theme)
        await self.page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
        await expect(self.page.locator("html")).to_have_attribute("data-theme", theme)
        await self.settled()

    async def settled(self) -> None:
        """Wait until nothing on the page is loading."""
        await expect(self.page.locator(".skeleton")).to_have_count(0)
        await expect(self.page.locator("[aria-busy=true]")).to_have_count(0)

    async def picture(self, name: str) -> None:
        """Keep a picture of the page for people to look at."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")

    async def faults(self) -> list[str]:
        """What axe finds on the page as it is now, and whether it scrolls sideways."""
        await self.page.evaluate(AXE.read_text())
        found: list[dict[str, Any]] = await self.page.evaluate("axe.run().then((result) => result.violations)")
        faults = [f"{each['id']}: {node['html'][:160]}" for each in found for node in each["nodes"]]
        if await self.sideways():
            faults.append("the page scrolls sideways")
        return faults

    async def sideways(self) -> bool:
        """Whether the page, or its content, is wider than the window."""
        wide = "(e) => e.scrollWidth > e.clientWidth"
        parts = await self.page.locator("html, .scroller, .dialog, .drawer").evaluate_all(f"(all) => all.some({wide})")
        return bool(parts)


@asynccontextmanager
async def visiting(
    browser: Browser,
    stage: Stage,
    *,
    theme: Theme = "light",
    width: int = WIDE,
    zoom: int = 1,
    may_inject: bool = False,
    signed_in: bool = True,
    moving: bool = False,
    forced_colors: bool = False,
) -> AsyncGenerator[Visitor]:
    """A window of its own. ``may_inject`` lets axe in, past the security policy; stories go without.

    ``zoom`` gives the page that much fewer pixels of its own on the same screen, as a browser does.
    """
    base_url = stage.client.base_url
    context = await browser.new_context(
        viewport={"width": width // zoom, "height": HEIGHTS[width] // zoom},
        device_scale_factor=zoom,
        color_scheme=theme,
        reduced_motion="no-preference" if moving else "reduce",
        forced_colors="active" if forced_colors else "none",
        bypass_csp=may_inject,
        locale="en-GB",
    )
    try:
        if signed_in:
            answer = await context.request.post(f"{base_url}/auth/session", data={"api_key": stage.client.key})
            assert answer.ok, await answer.text()
        chosen = f"localStorage.setItem('parley.organization', '{stage.client.organization_id}')"
        await context.add_init_script(f"try {{ {chosen} }} catch {{}}")
        page = await context.new_page()
        visitor = Visitor(context, page, stage, base_url)
        visitor.watch(page)
        context.on("page", visitor.watch)
        yield visitor
    finally:
        await context.close()
