"""Imported APIs in the app: looked at, taken over, connected, used, reviewed, looked at again, deleted."""

from playwright.async_api import Locator, expect

from parley.testing.provider_proxy import Answer, Asked, ProviderProxy, json_answer
from tests.contract.test_openapi import HOST, KEY, TasksApi, bring, spec_of
from tests.stage import Json, executes, says
from tests.web.visitor import ROOT, Visitor

SAMPLE = ROOT / "docs" / "samples" / "tasks.yaml"
SITE = "docs.site.example"


def action(place: Locator, name: str) -> Locator:
    return place.locator("details.action").filter(has_text=name)


async def test_an_api_is_imported_from_a_file_as_it_was_seen(visitor: Visitor) -> None:
    page, client = visitor.page, visitor.stage.client
    await visitor.go("/integrations")
    await page.get_by_role("tab", name="Own APIs").click()
    await page.get_by_role("button", name="Import an API").click()
    dialog = page.get_by_role("dialog", name="Import an API")
    await dialog.get_by_role("tab", name="In a file").click()
    await expect(dialog.get_by_role("button", name="Look at it")).to_be_disabled()
    await dialog.get_by_label("Document", exact=True).set_input_files(SAMPLE)
    await dialog.get_by_role("button", name="Look at it").click()
    await expect(dialog.get_by_role("heading", name="6 actions")).to_be_visible()
    await expect(dialog).to_contain_text(f"https://{HOST}/v2 · connected by key")
    await expect(action(dialog, "Remove a task")).to_contain_text("Destructive")
    await action(dialog, "Read one task").locator("summary").click()
    await dialog.get_by_label("What get_task does").select_option("egress")
    assert (await client.get("/integrations/openapi")).body["total_count"] == 0
    await dialog.get_by_role("button", name="Import", exact=True).click()

    await expect(page.get_by_role("heading", level=1)).to_have_text("Tasks")
    await expect(page.get_by_text("All of them are reviewed.")).to_be_visible()
    await expect(action(page.locator("main"), "Read one task")).to_contain_text("Sends out")
    shown = (await client.get("/integrations/openapi/api_tasks")).body["actions"]
    effects = {each["name"]: each["effect"] for each in shown}
    assert (effects["get_task"], effects["list_tasks"], effects["remove_task"]) == ("egress", "read", "destructive")


async def test_an_imported_api_is_connected_used_reviewed_and_deleted(visitor: Visitor, proxy: ProviderProxy) -> None:
    page, client, tasks = visitor.page, visitor.stage.client, TasksApi()
    proxy.answer(HOST, tasks)
    await bring(visitor.stage)
    await visitor.go("/integrations/api/api_tasks")
    await page.get_by_label("key", exact=True).fill(KEY)
    await page.get_by_role("button", name="Connect Tasks").click()
    await expect(page.get_by_role("heading", name="Connections")).to_be_visible()
    assert KEY not in await page.content()
    await visitor.stage.script(executes("list_tasks", integration="api_tasks"), says("There are some."))
    await visitor.go("/")
    await visitor.say("What is there to do?")
    await visitor.finished()
    assert (tasks.last.method, tasks.last.path) == ("GET", "/v2/tasks")

    # A connection in the list leads to the API's page, where an action is asked about again from now on.
    await visitor.go("/integrations?tab=connections")
    await page.get_by_role("main").get_by_role("link", name="Tasks").first.click()
    await action(page.locator("main"), "List tasks").locator("summary").click()
    await page.get_by_label("What list_tasks does").select_option("")
    await expect(page.get_by_text("1 of them is not reviewed and asks first.")).to_be_visible()
    shown = (await client.get("/integrations/openapi/api_tasks")).body["actions"]
    assert {each["name"]: each["effect"] for each in shown}["list_tasks"] is None
    await visitor.go("/integrations?tab=apis")
    await expect(page.get_by_role("link", name="Tasks")).to_contain_text("1 to review")
    await page.get_by_role("link", name="Tasks").click()
    await page.get_by_role("button", name="More for the API Tasks").click()
    await page.get_by_role("menuitem", name="Delete").click()
    await page.get_by_role("dialog", name="Delete Tasks?").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("No API imported yet")).to_be_visible()
    assert (await client.get("/credentials?integration_name=api_tasks")).body["credentials"] == []


async def test_an_api_is_imported_from_its_address_and_looked_at_again(visitor: Visitor, proxy: ProviderProxy) -> None:
    page = visitor.page
    paths: Json = {"/x": {"get": {"operationId": "look", "summary": "Looks."}}}

    async def site(asked: Asked) -> Answer:
        return json_answer(spec_of(paths=paths)) if asked.path == "/openapi.json" else Answer(404)

    proxy.answer(SITE, site)
    await visitor.go("/integrations?tab=apis")
    await page.get_by_role("button", name="Import an API").click()
    dialog = page.get_by_role("dialog", name="Import an API")
    address = dialog.get_by_label("Address of the document")
    await address.fill(f"https://{SITE}/elsewhere.json")
    await dialog.get_by_role("button", name="Look at it").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("answered 404")
    await address.fill(f"https://{SITE}/openapi.json")
    await dialog.get_by_role("button", name="Look at it").click()
    await expect(dialog).to_contain_text("needs no connection")
    await dialog.get_by_label("Name (optional)").fill("Ours")
    await dialog.get_by_role("button", name="Import", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Ours")

    await page.get_by_role("button", name="Look again").click()
    await expect(page.get_by_role("heading", name="Nothing has changed")).to_be_visible()
    await expect(page.get_by_role("button", name="Take the changes over")).to_have_count(0)
    paths["/x"] = {"get": {"operationId": "look", "summary": "Looks, and remembers."}}
    paths["/y"] = {"get": {"operationId": "count", "summary": "Counts."}}
    await page.get_by_role("button", name="Look again").click()
    changes = page.get_by_role("status").filter(has_text="Since the last look")
    for line in ("Newcount", "Changed, to be reviewed againlook"):
        await expect(changes.locator("dl > div", has_text=line)).to_be_visible()
    await expect(page.get_by_role("heading", name="1 action")).to_be_visible()
    await page.get_by_role("button", name="Take the changes over").click()
    await expect(page.get_by_role("heading", name="2 actions")).to_be_visible()
    await expect(page.get_by_text("2 of them are not reviewed and ask first.")).to_be_visible()


def signing_in_at(token_url: str, **more: Json) -> Json:
    """A document whose one action takes a token from there."""
    flows = {"clientCredentials": {"tokenUrl": token_url, "scopes": {}}}
    schemes = {"app": {"type": "oauth2", "flows": flows}, **more}
    paths = {"/x": {"get": {"operationId": "look", "summary": "Looks.", "security": [{"app": []}]}}}
    return spec_of(paths=paths, components={"securitySchemes": schemes})


async def test_a_sign_in_that_moved_is_shown_before_it_is_taken_over(visitor: Visitor, proxy: ProviderProxy) -> None:
    page, client = visitor.page, visitor.stage.client
    shown = signing_in_at("https://login.plain.example/token")

    async def site(asked: Asked) -> Answer:
        return json_answer(shown)

    async def token_url() -> str:
        (way,) = (await client.get("/integrations/openapi/api_plain")).body["connect_by"]
        return way["sent_as"][0]["token_url"]

    proxy.answer(SITE, site)
    wish = {"url": f"https://{SITE}/openapi.json"}
    seen = await client.post("/integrations/openapi", wish)
    assert (await client.post("/integrations/openapi", {**wish, "digest": seen.body["digest"]})).status == 201
    await visitor.go("/integrations/api/api_plain")
    again = page.get_by_role("button", name="Look again")
    take = page.get_by_role("button", name="Take the changes over")
    await again.click()
    await expect(page.get_by_role("heading", name="Nothing has changed")).to_be_visible()
    await expect(take).to_have_count(0)

    shown = signing_in_at("https://elsewhere.example/token", sso={"type": "openIdConnect"})
    await again.click()
    found = page.get_by_role("status").filter(has_text="Its actions are the same")
    await expect(found).to_contain_text("Signing in works differently")
    await expect(found).to_contain_text("Signing in would go to https://elsewhere.example/token from now on.")
    await expect(page.get_by_text("Not offered (1)")).to_be_visible()
    await expect(page.get_by_role("heading", name="Nothing has changed")).to_have_count(0)

    # What is taken over is what was seen: another document by now is refused, until it is looked at too.
    shown = signing_in_at("https://third.example/token")
    await take.click()
    refused = page.get_by_role("alert").filter(has_text="Look again, then confirm")
    await expect(refused).to_be_visible()
    assert await token_url() == "https://login.plain.example/token"
    await again.click()
    await expect(page.get_by_role("status").filter(has_text="https://third.example/token")).to_be_visible()
    await expect(refused).to_have_count(0)
    await take.click()
    await expect(take).to_have_count(0)
    assert await token_url() == "https://third.example/token"


async def test_an_api_that_is_gone_says_so(visitor: Visitor) -> None:
    await visitor.go("/integrations/api/api_nothing")
    await expect(visitor.page.get_by_text("There is no such API")).to_be_visible()
