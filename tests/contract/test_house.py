"""House integrations: the operator's folders in real turns, and what is broken in them (issue 9, 3)."""

import json
from pathlib import Path
from typing import Any

import pytest

from parley.integrations.house import make_sample
from parley.testing.provider_proxy import Answer, Asked, ProviderProxy, json_answer
from tests.stage import Json, Stage, executes, says

KEY = "house-key-of-the-vault-1"
# A way to connect whose second field has a name that is harmless elsewhere, and is declared sensitive here.
GUARDED = {
    "auth_type": "api_key",
    "display_name": "Key and domain",
    "description": "Both are secret.",
    "setup_environment_variables": [
        {"name": f"GUARDED_{name}", "display_name": name, "description": "Secret.", "sensitive": True}
        for name in ("API_KEY", "API_DOMAIN")
    ],
    "test_endpoint": None,
}
ADDRESS = "https://items.example.com"


@pytest.fixture(scope="module")
def settings_extra(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A server with one good house integration among bad ones."""
    folder = tmp_path_factory.mktemp("house") / "own"
    furnish_folder(folder)
    return {"PARLEY_INTEGRATIONS_DIR": str(folder)}


def furnish_folder(root: Path) -> None:
    change_manifest(make_sample(root, "our_items"), effects={"list_items": "read"})
    change_manifest(make_sample(root, "later"), effects={"list_items": "read", "rename_item": "write"})
    change_manifest(make_sample(root, "guarded"), effects={"list_items": "read"}, auth_schemas=[GUARDED])
    make_sample(root, "github")
    make_sample(root, "torn")
    (root / "torn" / "manifest.json").write_text("{", encoding="utf-8")
    make_sample(root, "falls")
    (root / "falls" / "actions.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    make_sample(root, "leaves")
    (root / "leaves" / "actions.py").write_text("import os\nos._exit(3)\n", encoding="utf-8")
    (root / ".hidden").mkdir()


def change_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


class Items:
    """The service that the sample speaks to."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    async def __call__(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if asked.headers.get("authorization") != f"Bearer {KEY}":
            return json_answer({"said": asked.headers.get("authorization")}, 401)
        return json_answer([{"id": "1", "key": KEY}])


@pytest.fixture
def items(proxy: ProviderProxy) -> Items:
    service = Items()
    proxy.answer("items.example.com", service)
    return service


async def connect(stage: Stage, name: str = "our_items", base_url: str = ADDRESS) -> None:
    values = {"api_key": KEY, "base_url": base_url}
    made = await stage.client.post("/credentials", {"integration_name": name, "auth_data": values})
    assert made.status == 201, made.body


async def run(stage: Stage, action: str, parameters: Json | None = None, name: str = "our_items") -> Any:
    turn = await stage.turn(executes(action, parameters, integration=name), says("Ok."))
    assert turn.types[-1] == "done", turn.events
    return turn.data("tool_result")["output"]


# This one first: a later one changes a folder under the running server, and the detail tells that too.
async def test_the_health_detail_counts_the_catalog_and_the_good_folders(stage: Stage) -> None:
    told = (await stage.client.get("/system/health")).body["integrations"]
    assert set(told["failed"]) == {"house/github", "torn", "falls", "leaves"}
    assert told["loadable"] == 194 + len({"our_items", "later", "guarded"})


async def test_a_house_integration_runs_in_a_turn_with_the_key_of_the_vault(stage: Stage, items: Items) -> None:
    assert (await run(stage, "list_items"))["status"] == "needs_credential"
    await connect(stage)
    mine = {"limit": 3, "auth_data": {"base_url": "https://evil.example"}, "base_url": "https://evil.example"}
    output = await run(stage, "list_items", mine)
    assert output["status"] == "ok", output
    assert KEY not in json.dumps(output)
    assert output["result"]["items"][0]["id"] == "1"
    assert [(asked.host, asked.query) for asked in items.asked] == [("items.example.com", {"limit": "3"})]


async def test_it_stands_in_the_catalog_with_its_declared_effects(stage: Stage) -> None:
    shown = (await stage.client.get("/integrations/tools/our_items")).body
    gates = {action["name"]: (action["effect"], action["asks_first"] is None) for action in shown["actions"]}
    assert gates == {"list_items": ("read", True), "rename_item": ("destructive", False)}
    assert [field["name"] for field in shown["auth_schemas"][0]["setup_environment_variables"]] == [
        "OUR_ITEMS_API_KEY", "OUR_ITEMS_BASE_URL",
    ]  # fmt: skip


async def test_an_effect_that_is_not_declared_asks_first(stage: Stage, items: Items) -> None:
    await connect(stage)
    turn = await stage.turn(executes("rename_item", {"item_id": "1", "title": "New"}, integration="our_items"))
    assert "has not reviewed" in turn.question["message"]
    assert items.asked == []


async def test_wrong_arguments_are_said_in_words_and_nothing_is_sent(stage: Stage, items: Items) -> None:
    await connect(stage)
    output = await run(stage, "list_items", {"limit": "many"})
    assert "limit" in output["error"]
    assert items.asked == []


async def test_the_guard_stands_in_front_of_a_house_integration(stage: Stage) -> None:
    await connect(stage, base_url="http://169.254.169.254")
    output = await run(stage, "list_items")
    assert (output["status"], "private network" in output["error"]) == ("error", True)


async def test_a_field_that_is_declared_sensitive_is_not_shown_in_an_export(stage: Stage) -> None:
    domain = "domain-of-the-vault-77"
    wish = {"integration_name": "guarded", "auth_data": {"api_key": KEY, "api_domain": domain}}
    made = await stage.client.post("/credentials", wish)
    assert made.status == 201, made.body
    turn = await stage.turn(says("Noted."), message=f"Mine are {KEY} and {domain}.")
    for form in ("json", "markdown"):
        url = f"{stage.client.base_url}/assistant/chat/{turn.chat_id}/export?format={form}"
        async with stage.client.session.get(url, headers=stage.client.headers) as response:
            document = await response.text()
        assert "Mine are" in document
        assert KEY not in document
        assert domain not in document


async def test_files_that_changed_since_the_start_are_not_run(stage: Stage, items: Items) -> None:
    await connect(stage, "later")
    folder = stage.parley.settings.house
    assert folder is not None
    code = folder / "later" / "actions.py"
    code.write_text(code.read_text(encoding="utf-8") + "\n# another line\n", encoding="utf-8")
    assert "changed since this server started" in (await run(stage, "list_items", None, "later"))["error"]
    assert items.asked == []
    told = (await stage.client.get("/system/health")).body["integrations"]["failed"]
    assert "changed since this server started" in told["later"]


@pytest.mark.parametrize(
    ("name", "word"),
    [("torn", "no JSON"), ("falls", "nothing_of_this_name"), ("leaves", "ended the process")],
)
async def test_a_broken_one_is_told_by_the_health_detail_and_the_server_serves(
    stage: Stage, name: str, word: str
) -> None:
    failed = (await stage.client.get("/system/health")).body["integrations"]["failed"]
    assert word in failed[name]
    assert (await run(stage, "list_items", None, name))["error"].startswith("Integration")


async def test_a_folder_with_a_name_of_the_catalog_does_not_take_its_place(stage: Stage) -> None:
    shown = (await stage.client.get("/integrations/tools/github")).body
    assert len(shown["actions"]) > 10
    assert (await run(stage, "list_issues", None, "github"))["status"] == "needs_credential"
