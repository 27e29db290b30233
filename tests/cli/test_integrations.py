"""``parley integrations``: a new one works, what is wrong is said in words, an API is imported (issue 9, 3)."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from parley.base.settings import read_settings
from parley.integrations.house import TAKEN, make_sample, open_house
from parley.integrations.house.checking import check
from parley.testing.server import served
from tests.cli.conftest import command

SAMPLE = Path(__file__).parents[2] / "docs" / "samples" / "tasks.yaml"


def environment(folder: Path) -> dict[str, str]:
    return {"PARLEY_DATA_DIR": str(folder / "data"), "PARLEY_INTEGRATIONS_DIR": str(folder / "own")}


async def test_the_steps_of_the_page_make_a_working_integration(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    made = await command("integrations", "new", "our_items", environment=variables)
    assert made.code == 0, made.err
    checked = await command("integrations", "check", "our_items", environment=variables)
    assert checked.code == 0, checked.out
    assert "our_items: good, 2 actions" in checked.out
    tests = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "own" / "our_items"),
        cwd=tmp_path, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await tests.communicate()
    assert tests.returncode == 0, output.decode()
    again = await command("integrations", "new", "our_items", environment=variables)
    assert again.code == 1
    assert "there already" in again.err


@pytest.mark.parametrize("name", ["Our", "../out", "mcp_x", "api_x", "a-b", ""])
async def test_a_name_that_is_none_makes_nothing(tmp_path: Path, name: str) -> None:
    refused = await command("integrations", "new", name, environment=environment(tmp_path))
    assert refused.code != 0
    assert not (tmp_path / "own").exists()


async def test_a_name_of_the_catalog_is_refused_by_new_and_named_by_check(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    refused = await command("integrations", "new", "github", environment=variables)
    assert (refused.code, "the catalog has an integration of this name" in refused.err) == (1, True)
    assert not (tmp_path / "own").exists()
    make_sample(tmp_path / "own", "github")
    checked = await command("integrations", "check", "github", environment=variables)
    assert (checked.code, "github: broken" in checked.out) == (1, True)
    assert "the catalog has an integration of this name" in checked.out


def manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def code(folder: Path, old: str, new: str) -> None:
    path = folder / "actions.py"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


BREAKS: list[tuple[Callable[[Path], object], str]] = [
    (lambda f: (f / "manifest.json").unlink(), "no manifest.json"),
    (lambda f: (f / "actions.py").unlink(), "no actions.py"),
    (lambda f: (f / "manifest.json").write_text("[1]"), "no JSON object"),
    (lambda f: manifest(f, lambda m: m.pop("description")), "description: Field required"),
    (lambda f: manifest(f, lambda m: m.update(typo=1)), "typo: Extra inputs"),
    (lambda f: manifest(f, lambda m: m.update(name="other")), "Use one name"),
    (lambda f: manifest(f, lambda m: m.update(actions=[], effects={})), "has no actions"),
    (lambda f: manifest(f, lambda m: m["effects"].update(list_items="red")), "one of read, write"),
    (lambda f: manifest(f, lambda m: m["effects"].update(no_such="read")), "there is no action 'no_such'"),
    (
        lambda f: manifest(f, lambda m: m["effects"].update(list_items={"effect": "read", "paths": ["nope"]})),
        "there is no parameter 'nope'",
    ),
    (
        lambda f: manifest(f, lambda m: m["effects"].update(list_items={"effect": "read", "schema": "x"})),
        "Parley's to set",
    ),
    (lambda f: manifest(f, lambda m: m.update(auth_schemas=[])), "no auth_schemas to make one"),
    (lambda f: manifest(f, lambda m: m["actions"][0]["parameters"].clear()), "takes 'limit', which manifest.json"),
    (
        lambda f: manifest(
            f, lambda m: m["actions"][0]["parameters"].update(more={"type": "string", "description": "x"})
        ),
        "'more', which the function does not take",
    ),
    (
        lambda f: manifest(
            f, lambda m: m["actions"][0]["parameters"].update(base_url={"type": "string", "description": "x"})
        ),
        "comes from the credential",
    ),
    (
        lambda f: manifest(f, lambda m: m["actions"][0]["parameters"]["limit"].update(type="string")),
        "'limit' is integer in the function, string in",
    ),
    (
        lambda f: manifest(f, lambda m: m["actions"][0]["parameters"]["limit"].update(required=True)),
        'say "required": false',
    ),
    (lambda f: code(f, "async def list_items", "async def list_things"), "no `async def list_items`"),
    (lambda f: code(f, "limit: int = 20", "*limit: int"), "Name each of its parameters"),
    (lambda f: code(f, "limit: int = 20", "limit: Nothing = 20"), "Nothing"),
    (lambda f: code(f, "SECONDS = 20.0", "SECONDS = 1 / 0"), "cannot be imported, line 8: ZeroDivisionError"),
    (lambda f: code(f, "SECONDS = 20.0", "SECONDS = ("), "SyntaxError"),
    (lambda f: code(f, "SECONDS = 20.0", "raise SystemExit(0)"), "SystemExit"),
]


@pytest.mark.parametrize(("break_it", "words"), BREAKS)
def test_what_is_wrong_is_said_in_words(tmp_path: Path, break_it: Callable[[Path], object], words: str) -> None:
    folder = make_sample(tmp_path, "our_items")
    break_it(folder)
    report = check(folder)
    assert report.integration is None
    assert words in " ".join(report.problems), report.problems
    assert str(tmp_path) not in " ".join(report.problems)


def test_what_is_only_odd_is_a_note(tmp_path: Path) -> None:
    folder = make_sample(tmp_path, "our_items")
    manifest(folder, lambda value: value["effects"].pop("list_items"))
    code(folder, "async def rename_item", "async def unnamed() -> None:\n    pass\n\n\nasync def rename_item")
    report = check(folder)
    assert report.problems == []
    assert ["nobody can call it" in report.notes[0], "declares no effect" in report.notes[1]] == [True, True]


async def test_a_start_with_nothing_changed_imports_nothing(tmp_path: Path) -> None:
    folder = make_sample(tmp_path / "own", "our_items")
    witness = tmp_path / "imported"
    code(folder, "SECONDS = 20.0", f"SECONDS = 20.0\nwith open({str(witness)!r}, 'a') as file:\n    file.write('x')")
    for _ in range(3):
        house = await open_house(tmp_path / "own", tmp_path / "data", set())
        assert list(house.integrations) == ["our_items"]
    assert witness.read_text() == "x"
    code(folder, "SECONDS = 20.0", "SECONDS = 21.0")
    await open_house(tmp_path / "own", tmp_path / "data", set())
    assert witness.read_text() == "xx"
    assert len(list((tmp_path / "data" / "house").iterdir())) == 1


async def test_a_folder_with_a_name_of_the_catalog_is_never_looked_into(tmp_path: Path) -> None:
    folder, witness = make_sample(tmp_path / "own", "our_items"), tmp_path / "imported"
    code(folder, "SECONDS = 20.0", f"SECONDS = 20.0\nopen({str(witness)!r}, 'a').close()")
    house = await open_house(tmp_path / "own", tmp_path / "data", {"our_items"})
    assert (dict(house.integrations), dict(house.failures)) == ({}, {"our_items": TAKEN})
    assert not witness.exists()
    assert not (tmp_path / "data").exists()


async def test_a_folder_that_cannot_be_listed_is_a_named_failure_and_the_server_serves(tmp_path: Path) -> None:
    # No user can list a folder of such a name, root neither.
    folder = tmp_path / ("long" * 100)
    key = f"mx_live_{'k' * 32}"
    settings = read_settings(
        {
            "PARLEY_PORT": "0",
            "PARLEY_DATA_DIR": str(tmp_path / "data"),
            "PARLEY_BOOTSTRAP_API_KEY": key,
            "PARLEY_INTEGRATIONS_DIR": str(folder),
            "PARLEY_ALLOW_PRIVATE_HOSTS": "127.0.0.1",
        }
    )
    async with (
        served(settings) as (_, base_url),
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session,
        session.get(f"{base_url}/system/health") as response,
    ):
        told = (await response.json())["integrations"]
    assert told["failed"] == {"PARLEY_INTEGRATIONS_DIR": "its folder cannot be listed: File name too long"}
    checked = await command("integrations", "check", "--dir", str(folder), environment=environment(tmp_path))
    assert (checked.code, "cannot be listed: File name too long" in checked.err) == (1, True)


async def test_the_doctor_names_a_broken_one(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    (make_sample(tmp_path / "own", "our_items") / "actions.py").unlink()
    seen = await command("doctor", environment=variables)
    assert "our_items does not load" in seen.out
    assert "parley integrations check our_items" in seen.out
    checked = await command("integrations", "check", environment=variables)
    assert (checked.code, "our_items: broken" in checked.out) == (1, True)


async def test_an_api_is_shown_and_imported_once_somebody_agrees(tmp_path: Path) -> None:
    key = f"mx_live_{'k' * 32}"
    settings = read_settings(
        {"PARLEY_PORT": "0", "PARLEY_DATA_DIR": str(tmp_path / "data"), "PARLEY_BOOTSTRAP_API_KEY": key}
    )
    async with served(settings) as (_, base_url):
        variables = {"PARLEY_URL": base_url, "PARLEY_API_KEY": key}
        arguments = ("integrations", "import", str(SAMPLE))
        unsure = await command(*arguments, environment=variables)
        assert (unsure.code, "Nothing was imported" in unsure.out) == (1, True)
        made = await command(*arguments, "--yes", environment=variables)
        assert made.code == 0, made.err
        assert "destructive remove_task  DELETE /tasks/{id}" in made.out
        assert "Imported as api_tasks with 6 actions" in made.out
        elsewhere = {**variables, "PARLEY_ORGANIZATION_ID": str(uuid4())}
        refused = await command(*arguments, "--yes", environment=elsewhere)
        assert (refused.code, "cannot act in organization" in refused.err) == (1, True)
        missing = await command("integrations", "import", str(tmp_path / "no.yaml"), "--yes", environment=variables)
        assert (missing.code, "cannot be read" in missing.err) == (1, True)
