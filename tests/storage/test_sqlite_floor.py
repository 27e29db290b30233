"""SQLite 3.40, the oldest that a supported Python comes with here, is enough (issue 3, sentence 1).

Where the Python that runs the tests has that SQLite, the whole suite shows it. Where it has a newer one, this does:
no statement of a store's life uses what came later.
"""

import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from parley.chats.upkeep import sweep
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from tests.contract.conftest import ORGANIZATION, furnish, github, model, model_port, open_house, proxy
from tests.stage import caller, calls, executes, faults, says

__all__ = ["github", "model", "model_port", "proxy"]

# What SQLite's release notes list from 3.41 on, as it would stand in a statement.
NEWER = {
    "3.41": r"\bunhex\s*\(",
    "3.42": r"\b(?:json_error_position|subsec(?:ond)?)\b",
    "3.43": r"\b(?:timediff|octet_length)\s*\(|contentless_delete",
    "3.44": r"\b(?:concat|concat_ws|string_agg)\s*\(|\b(?:sum|group_concat|json_group_\w+)\s*\([^()]*\border\s+by\b",
    "3.45": r"\bjsonb(?:_\w+)?\s*\(",
    "3.46": r"\bjson_pretty\s*\(|\b\d+_\d+\b|\bpragma\s+optimize\s*=",
    "3.47": r"\braise\s*\(\s*\w+\s*,\s*[^'\")]|contentless_unindexed",
    "3.48": r"\bif\s*\(",
    "3.50": r"\b(?:unistr|unistr_quote)\s*\(",
}
LITERALS = re.compile(r"'(?:[^']|'')*'")


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Every statement that any engine executes meanwhile."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        seen.append(LITERALS.sub("''", statement).strip())

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


async def test_no_statement_of_a_stores_life_needs_more_than_sqlite_3_40(
    statements: list[str], tmp_path: Path, proxy: ProviderProxy, model: ScriptedModel, github: FakeGitHub
) -> None:
    async with AsyncExitStack() as stack:
        house = await open_house(stack, f"sqlite:///{tmp_path / 'parley.db'}", tmp_path, proxy, {})
        client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
        stage = await furnish(house, client, model)
        await stage.connect_github(github.token)
        issue = {"owner": "octocat", "repo": "hello-world", "title": "Bug"}
        made = await stage.turn(executes("create_issue", issue), says("Made."))
        assert made.types[-1] == "done"
        asked = await stage.turn(calls("ask_user_yes_no", {"message": "Go on?"}), says("On."))
        assert (await stage.resume(asked, {"kind": "yes_no", "answer": True})).status == 200
        await stage.settled(asked.chat_id)
        stopped = await stage.turn(calls("ask_user_yes_no", {"message": "Go on?"}))
        assert (await client.post(f"/assistant/chat/{stopped.chat_id}/cancel")).status == 200
        base = await client.post("/knowledge-bases", {"name": "Papers"})
        assert base.status in (200, 201), base.body
        house.clock.advance(days=40)
        await sweep(house.parley.chats)
        assert await faults(house.parley) == []
    assert any(statement.startswith("CREATE TABLE") for statement in statements)
    assert any("run_events" in statement and statement.startswith("DELETE") for statement in statements)
    found = {
        (version, statement)
        for version, pattern in NEWER.items()
        for statement in set(statements)
        if re.search(pattern, statement, re.IGNORECASE)
    }
    assert found == set()


@pytest.mark.parametrize(
    ("version", "statement"),
    [
        ("3.44", "SELECT string_agg(name, '') FROM users"),
        ("3.44", "SELECT group_concat(name, '' ORDER BY id) FROM users"),
        ("3.45", "UPDATE runs SET llm = jsonb(?)"),
        ("3.42", "SELECT json_error_position(llm) FROM runs"),
    ],
)
def test_what_is_newer_is_known_when_it_is_seen(version: str, statement: str) -> None:
    assert re.search(NEWER[version], statement, re.IGNORECASE)
