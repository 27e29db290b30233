"""``parley replay``: a turn without its secrets, decided anew, and nothing of it done again."""

import json
from pathlib import Path
from uuid import uuid4

from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_wire import ScriptedReply
from tests.cli.conftest import Finished, command
from tests.contract.conftest import House
from tests.stage import Stage, Turn, calls, executes, says

LIST = executes("list_repositories", {})
CREATE = {"owner": "octocat", "repo": "hello-world", "title": "Bug"}


async def recorded(stage: Stage, github: FakeGitHub, word: str) -> Turn:
    """A turn of two actions, whose message names two keys of the organization."""
    await stage.connect_github(github.token)
    return await stage.turn(
        LIST,
        executes("create_issue", CREATE, id="call_2"),
        says("It is ", "filed."),
        message=f"{word}: file a bug. Keys: {stage.model_key} {github.token}",
    )


async def parley(house: House, *arguments: str, **changes: str) -> Finished:
    """``parley …`` beside the running server."""
    settings = house.parley.settings
    environment = {
        "PARLEY_DATA_DIR": str(settings.data_dir),
        "PARLEY_DATABASE_URL": settings.database_url,
        "PARLEY_ALLOW_PRIVATE_HOSTS": "127.0.0.1",
        "OLLAMA_HOST": "http://127.0.0.1:9",
        "HTTPS_PROXY": "",
        "HTTP_PROXY": "",
    }
    return await command(*arguments, environment=environment | changes)


async def again(house: House, stage: Stage, file: Path, *replies: ScriptedReply) -> Finished:
    """Replay a bundle on a scripted model that only the operator's environment knows."""
    key = f"sk-operator-{uuid4().hex}"
    await stage.model.script(key, *replies)
    return await parley(
        house, "replay", str(file), "--llm", "openai/gpt-4o", OPENAI_API_KEY=key, OPENAI_BASE_URL=stage.model.openai_url
    )


async def test_a_bundle_has_the_turn_and_none_of_the_secrets(
    house: House, stage: Stage, github: FakeGitHub, tmp_path: Path
) -> None:
    word, file = uuid4().hex, tmp_path / "turn.json"
    turn = await recorded(stage, github, word)
    saved = await parley(house, "replay", turn.run_id, "--save", str(file))
    assert saved.code == 0, saved.err
    assert file.stat().st_mode & 0o077 == 0
    text = file.read_text()
    assert stage.model_key not in text
    assert github.token not in text
    bundle = json.loads(text)
    assert bundle["before"][-1]["body"]["text"].startswith(word)
    assert [json.loads(each["arguments"])["tool_name"] for each in bundle["decisions"]] == [
        "list_repositories",
        "create_issue",
    ]
    assert (bundle["outcome"], bundle["answer"], bundle["model"]) == ("completed", "It is filed.", "gpt-4o")
    refused = await parley(house, "replay", turn.run_id, "--save", str(file))
    assert (refused.code, file.read_text()) == (2, text)


async def test_the_same_decisions_are_told_as_the_same_and_nothing_is_done(
    house: House, stage: Stage, github: FakeGitHub, tmp_path: Path
) -> None:
    file = tmp_path / "turn.json"
    turn = await recorded(stage, github, "same")
    await parley(house, "replay", turn.run_id, "--save", str(file))
    before = list(github.created)
    spelled = '{"tool_name": "create_issue", "integration_name": "github", "parameters": ' + json.dumps(CREATE) + "}"
    ended = await again(house, stage, file, LIST, calls("execute_integration_tool", spelled), says("Filed."))
    assert ended.code == 0, ended.out + ended.err
    assert "2 of 2 decisions are the same; 2 were made now." in ended.out
    assert github.created == before


async def test_where_another_model_decides_otherwise_is_shown(
    house: House, stage: Stage, github: FakeGitHub, tmp_path: Path
) -> None:
    file = tmp_path / "turn.json"
    turn = await recorded(stage, github, "other")
    await parley(house, "replay", turn.run_id, "--save", str(file))
    other = executes("create_issue", {**CREATE, "title": "Another"}, id="call_2")
    ended = await again(house, stage, file, LIST, other, says("I could not."))
    assert ended.code == 1
    assert "1 of 2 decisions are the same; 2 were made now." in ended.out
    (minus,) = [line for line in ended.out.splitlines() if line.startswith("- github.")]
    (plus,) = [line for line in ended.out.splitlines() if line.startswith("+ github.")]
    assert minus == '- github.create_issue {"owner":"octocat","repo":"hello-world","title":"Bug"}'
    assert plus == minus.replace("- ", "+ ").replace("Bug", "Another")
    assert len(github.created) == 1


async def test_the_recorded_answer_reaches_the_other_model(
    house: House, stage: Stage, github: FakeGitHub, tmp_path: Path
) -> None:
    file, key = tmp_path / "turn.json", f"sk-operator-{uuid4().hex}"
    turn = await recorded(stage, github, "answers")
    await parley(house, "replay", turn.run_id, "--save", str(file))
    await stage.model.script(key, LIST, executes("delete_repository", {"owner": "x"}, id="call_2"), says("."))
    environment = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": stage.model.openai_url}
    await parley(house, "replay", str(file), "--llm", "openai/gpt-4o", **environment)
    _, second, third = [json.dumps(request.body) for request in await stage.model.requests(key)]
    assert "hello-world" in second
    assert "not_recorded" in third
    assert github.deleted == []


async def test_a_bundle_is_replayed_without_a_store_and_reaches_nobody_but_the_model(
    house: House, stage: Stage, github: FakeGitHub, proxy: ProviderProxy, tmp_path: Path
) -> None:
    file, nowhere, key = tmp_path / "turn.json", tmp_path / "nowhere", f"sk-operator-{uuid4().hex}"
    turn = await recorded(stage, github, "offline")
    await parley(house, "replay", turn.run_id, "--save", str(file))
    await stage.model.script(key, LIST, executes("create_issue", CREATE, id="call_2"), says("Filed."))
    environment = {
        "PARLEY_DATA_DIR": str(nowhere),
        "PARLEY_DATABASE_URL": "",
        "OPENAI_API_KEY": key,
        "OPENAI_BASE_URL": stage.model.openai_url,
        # Whatever leaves for another place is seen there.
        **proxy.environment,
    }
    before = len(proxy.asked)
    ended = await parley(house, "replay", str(file), "--llm", "openai/gpt-4o", **environment)
    assert ended.code == 0, ended.out + ended.err
    assert not nowhere.exists()
    assert len(proxy.asked) == before


async def test_a_model_that_fails_is_told_and_the_code_is_1(
    house: House, stage: Stage, github: FakeGitHub, tmp_path: Path
) -> None:
    file = tmp_path / "turn.json"
    turn = await recorded(stage, github, "fails")
    await parley(house, "replay", turn.run_id, "--save", str(file))
    ended = await again(house, stage, file, ScriptedReply(status=401))
    assert ended.code == 1
    assert "failed, model_auth" in ended.out


async def test_what_cannot_be_replayed_is_said_in_one_sentence(house: House, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("{}")
    for what in (str(uuid4()), str(tmp_path / "other")):
        ended = await parley(house, "replay", what)
        assert (ended.code, ended.err.startswith("parley: "), "Traceback" in ended.err) == (2, True, False)
