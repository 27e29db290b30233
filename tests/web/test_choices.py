"""What an organization chooses for all its chats: which actions ask first, and which models they offer."""

import re

from playwright.async_api import Browser, Locator, expect

from tests.stage import Json, says
from tests.web.test_members import joined, row_of
from tests.web.visitor import Visitor

POLICY = "**/organizations/settings/approval-policy"
SHOWN = "**/organizations/settings/llm-model-visibility"
# The policy itself, and not the one whose description speaks of every change, too.
STRICT = re.compile("^Every change")
UNREACHABLE = "Not saved. The server could not be reached. Check your connection and try again."


def policies(visitor: Visitor) -> Locator:
    return visitor.page.get_by_role("region", name="Which actions ask first")


async def opened(visitor: Visitor) -> Locator:
    """OpenAI's models in the settings."""
    await visitor.go("/settings")
    provider = visitor.page.locator("details.action").filter(has_text="OpenAI")
    await provider.locator("summary").click()
    return provider


async def settings(visitor: Visitor) -> Json:
    return (await visitor.stage.client.get("/organizations/settings")).body


async def test_an_organization_is_made_to_ask_more_by_keyboard_and_the_integration_says_so(visitor: Visitor) -> None:
    page = visitor.page
    creates = page.locator("details.action", has_text="Create issue").first
    await visitor.go("/integrations/github")
    note = page.get_by_text("Approval policy of Acme Works: by what they do.")
    await expect(note).to_be_visible()
    await expect(creates).not_to_contain_text("Asks first")
    await note.get_by_role("link", name="Change it in the settings").click()
    panel = policies(visitor)
    await expect(panel.get_by_role("button", name="Save")).to_be_disabled()
    await panel.get_by_role("radio", name="As this server does").focus()
    for _ in range(3):
        await page.keyboard.press("ArrowDown")
    await expect(panel.get_by_role("radio", name=STRICT)).to_be_checked()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("The approval policy is set.")).to_be_visible()
    assert (await settings(visitor))["approval_policy"] == "strict"
    await page.go_back()
    await expect(page.get_by_text("Approval policy of Acme Works: every change.")).to_be_visible()
    await expect(creates).to_contain_text("Asks first")
    await visitor.go("/settings")
    await expect(panel.get_by_role("radio", name=STRICT)).to_be_checked()
    await panel.get_by_role("radio", name="As this server does").check()
    await panel.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("The approval policy is set.")).to_be_visible()
    assert (await settings(visitor))["approval_policy"] is None


async def test_a_policy_that_is_looser_than_the_servers_cannot_be_chosen(visitor: Visitor) -> None:
    await visitor.stage.client.call("PUT", "/organizations/settings/approval-policy", {"approval_policy": "documented"})
    await visitor.go("/settings")
    looser = policies(visitor).get_by_role("radio", name="By name This server is stricter")
    await expect(looser).to_be_disabled()
    await expect(looser).to_be_checked()
    await visitor.go("/integrations/github")
    await expect(visitor.page.get_by_text("Approval policy of Acme Works: by what they do.")).to_be_visible()


async def test_a_policy_that_was_not_saved_says_what_to_do_and_stays_chosen(visitor: Visitor) -> None:
    await visitor.page.route(POLICY, lambda route: route.abort())
    await visitor.go("/settings")
    panel = policies(visitor)
    await panel.get_by_role("radio", name=STRICT).check()
    await panel.get_by_role("button", name="Save").click()
    await expect(panel.get_by_role("alert")).to_have_text(UNREACHABLE)
    await expect(panel.get_by_role("radio", name=STRICT)).to_be_checked()
    assert (await settings(visitor))["approval_policy"] is None
    await visitor.page.unroute(POLICY)
    await panel.get_by_role("button", name="Save").click()
    await expect(visitor.page.get_by_text("The approval policy is set.")).to_be_visible()
    await expect(panel.get_by_role("alert")).to_have_count(0)


async def test_an_admin_may_choose_and_who_was_taken_out_may_not(visitor: Visitor, browser: Browser) -> None:
    async with joined(visitor, browser) as grace:
        await grace.page.get_by_role("link", name="Settings").click()
        panel = policies(grace)
        await panel.get_by_role("radio", name=STRICT).check()
        await panel.get_by_role("button", name="Save").click()
        await expect(grace.page.get_by_text("The approval policy is set.")).to_be_visible()
        models = grace.page.locator("details.action").filter(has_text="OpenAI")
        await models.locator("summary").click()
        await visitor.page.reload()
        await row_of(visitor, "Grace").get_by_role("button", name="Remove").click()
        dialog = visitor.page.get_by_role("dialog", name="Remove Grace?")
        await dialog.get_by_role("button", name="Remove", exact=True).click()
        await expect(row_of(visitor, "Grace")).to_have_count(0)
        await panel.get_by_role("radio", name="As this server does").check()
        await panel.get_by_role("button", name="Save").click()
        await expect(panel.get_by_role("alert")).to_have_text("Not saved. You are not in this organization.")
        await models.get_by_label("GPT-4o mini").uncheck()
        await models.get_by_role("button", name="Save").click()
        await expect(models.get_by_role("alert")).to_have_text("Not saved. You are not in this organization.")
    kept = await settings(visitor)
    assert (kept["approval_policy"], kept["llm_model_visibility"]) == ("strict", {})


async def test_chats_offer_the_models_that_were_ticked_and_all_of_them_again(visitor: Visitor) -> None:
    page = visitor.page
    provider = await opened(visitor)
    await expect(provider).to_contain_text("Chats offer every model")
    await expect(provider.get_by_role("button", name="Save")).to_be_disabled()
    default = provider.get_by_label("GPT-4o — the default of new chats")
    await expect(default).to_be_disabled()
    await provider.get_by_role("button", name="Tick none").focus()
    await page.keyboard.press("Enter")
    await expect(default).to_be_checked()
    await provider.get_by_label("Search models").fill("4o")
    await provider.get_by_label("GPT-4o mini").focus()
    await page.keyboard.press("Space")
    await provider.get_by_role("button", name="Save").click()
    await expect(provider).to_contain_text("Chats offer 2 of")
    await expect(page.get_by_label("New chats begin with").locator("option", has_text="OpenAI")).to_have_count(2)
    shown = (await settings(visitor))["llm_model_visibility"]
    assert sorted(each["id"] for each in shown["openai"]) == ["gpt-4o", "gpt-4o-mini"]
    await visitor.stage.script(says("Here."))
    await visitor.go("/")
    await page.get_by_role("button", name="Model:").click()
    await expect(page.get_by_role("menuitemradio", name="GPT")).to_have_count(2)
    provider = await opened(visitor)
    await provider.get_by_role("button", name="Tick all").click()
    await provider.get_by_role("button", name="Save").click()
    await expect(provider).to_contain_text("Chats offer every model")
    assert (await settings(visitor))["llm_model_visibility"] == {}


async def test_a_name_that_the_organization_gave_a_model_stays(visitor: Visitor) -> None:
    named = {"integration_name": "openai", "models": [{"id": "gpt-4o"}, {"id": "gpt-4.1", "display_name": "Ours"}]}
    await visitor.stage.client.call("PUT", "/organizations/settings/llm-model-visibility", named)
    provider = await opened(visitor)
    await expect(provider.get_by_label("Ours")).to_be_checked()
    await provider.get_by_role("button", name="Tick all").click()
    await provider.get_by_role("button", name="Save").click()
    await expect(visitor.page.get_by_text("The models to choose from are set.")).to_be_visible()
    shown = (await settings(visitor))["llm_model_visibility"]["openai"]
    assert [each["id"] for each in shown if each["display_name"] == "Ours"] == ["gpt-4.1"]
    assert len(shown) > len(named["models"])


async def test_of_a_provider_that_is_shown_one_model_stays_and_a_failed_save_says_what_to_do(visitor: Visitor) -> None:
    chosen = {"integration_name": "demo", "provider_id": "demo", "model_id": "demo"}
    await visitor.stage.client.call("PUT", "/organizations/settings/composer-llm", chosen)
    await visitor.page.route(SHOWN, lambda route: route.abort())
    provider = await opened(visitor)
    save = provider.get_by_role("button", name="Save")
    await provider.get_by_role("button", name="Tick none").click()
    await expect(provider.get_by_text("At least one. To offer none of them, delete the connection.")).to_be_visible()
    await expect(save).to_be_disabled()
    await provider.get_by_label("GPT-4o mini").check()
    await save.click()
    await expect(provider.get_by_role("alert")).to_have_text(UNREACHABLE)
    await expect(provider.get_by_label("GPT-4o mini")).to_be_checked()
    assert (await settings(visitor))["llm_model_visibility"] == {}


async def test_without_a_model_the_settings_say_what_will_be_chosen_there(visitor: Visitor) -> None:
    nothing = {"active_llms": [], "inactive_llms": []}
    await visitor.page.route("**/organizations/llms", lambda route: route.fulfill(json=nothing))
    await visitor.go("/settings")
    await expect(visitor.page.get_by_text("Connect a model provider; which of its models")).to_be_visible()
