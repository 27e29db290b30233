"""Accounts within the whole server: real models, real credentials, the paths of the surface (contract §0, §1)."""

from uuid import uuid4

import aiohttp

from tests.stage import Stage

FIELDS = {"integration_name", "integration_display_name", "default_credential_display_name", "id", "display_name"}


async def test_a_provider_with_a_credential_is_active_and_the_others_wait_for_one(stage: Stage) -> None:
    listed = (await stage.client.get("/organizations/llms")).body
    assert listed["total"] == listed["active_llm_total"] + listed["inactive_llm_total"]
    assert (len(listed["active_llms"]), len(listed["inactive_llms"])) == (
        listed["active_llm_total"],
        listed["inactive_llm_total"],
    )
    assert all(set(model) >= FIELDS for model in listed["active_llms"] + listed["inactive_llms"])
    ours = [model for model in listed["active_llms"] if model["integration_name"] == "openai"]
    assert {model["default_credential_display_name"] for model in ours} == {"Scripted"}
    assert "anthropic" in {model["integration_name"] for model in listed["inactive_llms"]}
    assert "openai" not in {model["integration_name"] for model in listed["inactive_llms"]}


async def test_the_default_model_takes_only_a_credential_of_the_organization(stage: Stage) -> None:
    held = (await stage.client.get("/credentials?integration_name=openai")).body["credentials"][0]
    for credential_id, expected in ((held["credential_id"], 200), (str(uuid4()), 400)):
        answer = await stage.client.call(
            "PUT", "/organizations/settings/composer-llm", {**stage.llm, "credential_id": credential_id}
        )
        assert answer.status == expected, answer.body


async def test_a_key_made_here_starts_a_turn_until_it_is_revoked(stage: Stage) -> None:
    made = (await stage.client.post("/api-keys", {"name": "ci", "organization_id": stage.client.organization_id})).body
    key = {"Authorization": f"Bearer {made['key']}"}
    assert (await stage.client.call("GET", "/assistant/chats", **key)).status == 200
    assert (await stage.client.call("DELETE", f"/api-keys/{made['id']}")).status == 200
    refused = await stage.client.call("GET", "/assistant/chats", **key)
    assert (refused.status, refused.body) == (401, {"detail": "Invalid API key"})


async def test_paths_are_taken_to_the_letter(stage: Stage) -> None:
    for path in ("/api-keys/", "/v1/auth/me", "/organizations/settings/"):
        answer = await stage.client.get(path)
        assert (answer.status, answer.body) == (404, {"detail": "Not found"})


async def test_a_session_cookie_opens_the_assistant_from_our_own_pages_only(stage: Stage) -> None:
    base = stage.client.base_url
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as page:
        opened = await page.post(f"{base}/auth/session", json={"api_key": stage.client.key})
        assert opened.status == 200
        organization = {"X-Organization-ID": stage.client.organization_id}
        listed = await page.get(f"{base}/assistant/chats", headers=organization)
        assert listed.status == 200
        for site, expected in (("cross-site", 403), ("same-origin", 400)):
            headers = {**organization, "Sec-Fetch-Site": site}
            answer = await page.post(f"{base}/assistant/chat", json={"message": "  "}, headers=headers)
            assert answer.status == expected
