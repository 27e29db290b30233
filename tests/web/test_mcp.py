"""MCP servers in the app: one is added, its tools are shown and reviewed, looked at again, used, and deleted."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from playwright.async_api import Locator, expect

from parley.testing.mcp_server import ScriptedMcpServer, mcp_server
from parley.testing.oauth_server import OAuthServer, oauth_server
from tests.contract.test_mcp_servers import guarded
from parley.testing.ports import free_port, listens
from tests.stage import executes, says
from tests.web.visitor import ROOT, Visitor

SECRET = "not-a-real-header-value"


@dataclass(frozen=True, slots=True)
class Box:
    """The SDK's server, a process of its own."""

    address: str
    process: asyncio.subprocess.Process

    def change(self) -> None:
        """Let it offer other tools from now on."""
        self.process.send_signal(signal.SIGUSR1)


@asynccontextmanager
async def box() -> AsyncGenerator[Box]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.web.mcp_box", str(port), cwd=ROOT)
    try:
        await listens(port)
        yield Box(f"http://127.0.0.1:{port}/mcp", process)
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedMcpServer]:
    async with mcp_server() as running:
        yield running


@pytest.fixture
async def provider() -> AsyncIterator[OAuthServer]:
    async with oauth_server() as running:
        yield running


async def add(visitor: Visitor, address: str, name: str) -> None:
    """Fill the form and send it."""
    page = visitor.page
    await visitor.go("/integrations?tab=servers")
    await page.get_by_role("button", name="Add a server").click()
    dialog = page.get_by_role("dialog", name="Add an MCP server")
    await dialog.get_by_label("Address").fill(address)
    await dialog.get_by_label("Name").fill(name)
    await dialog.get_by_role("button", name="Add the server").click()


def tool(visitor: Visitor, name: str) -> Locator:
    return visitor.page.locator("details.action").filter(has_text=name)


async def test_a_server_is_added_reviewed_used_looked_at_again_and_deleted(visitor: Visitor) -> None:
    page = visitor.page
    async with box() as server:
        await add(visitor, server.address, "Box")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Box")
        await expect(page.get_by_role("heading", name="2 tools")).to_be_visible()
        await expect(tool(visitor, "Wipes the board")).to_contain_text("Not reviewed")
        await tool(visitor, "Looks at something").locator("summary").click()
        await expect(tool(visitor, "Looks at something").get_by_role("table")).to_contain_text("at required")
        await page.get_by_label("What look does").select_option("read")
        await expect(tool(visitor, "Looks at something")).to_contain_text("Looks up")
        await visitor.stage.script(executes("look", {"at": "sky"}, integration="mcp_box"), says("It is blue."))
        await visitor.go("/")
        await visitor.say("Look at the sky")
        await visitor.finished()
        await visitor.reply.locator("summary", has_text="Look").first.click()
        await expect(visitor.reply.get_by_role("region", name="Result")).to_contain_text("sky is blue")
        server.change()
        await visitor.go("/integrations?tab=servers")
        await page.get_by_role("link", name="Box").click()
        await page.get_by_role("button", name="Look again").click()
        changes = page.get_by_role("status").filter(has_text="Since the last look")
        for line in ("Newcount", "Changed, to be reviewed againlook", "Gonewipe"):
            await expect(changes.locator("dl > div", has_text=line)).to_be_visible()
        await expect(tool(visitor, "as often as you like")).to_contain_text("Not reviewed")
        await page.get_by_role("button", name="Look again").click()
        await expect(page.get_by_role("heading", name="Nothing has changed")).to_be_visible()
    await page.get_by_role("button", name="Look again").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(page.get_by_role("heading", name="2 tools")).to_be_visible()
    await page.get_by_role("button", name="More for Box").click()
    await page.get_by_role("menuitem", name="Delete").click()
    await page.get_by_label("Name of the connection").fill("Box")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("No MCP server yet")).to_be_visible()
    left = await visitor.stage.client.get("/credentials?integration_name=mcp_server")
    assert left.body["credentials"] == []


async def test_an_address_that_is_no_server_is_refused_in_the_form_and_headers_go_along(
    visitor: Visitor, server: ScriptedMcpServer
) -> None:
    page = visitor.page
    server.fault = "html"
    await add(visitor, server.url, "")
    dialog = page.get_by_role("dialog", name="Add an MCP server")
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await expect(dialog.get_by_label("Address")).to_have_value(server.url)
    server.fault = None
    await dialog.get_by_role("button", name="Add a header").click()
    await dialog.get_by_label("Header", exact=True).fill("X-Box-Key")
    await dialog.get_by_label("Value").fill(SECRET)
    await expect(dialog.get_by_label("Value")).to_have_attribute("type", "password")
    await dialog.get_by_role("button", name="Add the server").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("scripted")
    assert server.headers[-1]["X-Box-Key"] == SECRET
    assert SECRET not in await page.content()


async def test_a_server_that_wants_a_sign_in_is_connected_by_signing_in_at_its_provider(
    visitor: Visitor, server: ScriptedMcpServer, provider: OAuthServer
) -> None:
    page = visitor.page
    guarded(server, provider)
    await add(visitor, server.url, "Box")
    dialog = page.get_by_role("dialog", name="Add an MCP server")
    await expect(dialog.get_by_text("lets in only who is known there")).to_be_visible()
    async with page.expect_popup() as opened:
        await dialog.get_by_role("button", name="Sign in at Box").click()
    await (await opened.value).locator("#allow").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Box")
    await expect(page.get_by_role("heading", name="2 tools")).to_be_visible()
    assert provider.exchanges == 1
    assert {url.partition("?")[0] for url in visitor.foreign} == {provider.authorization_url}
    visitor.foreign.clear()
