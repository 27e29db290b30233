"""``parley chat`` without a terminal: plain text, exit codes, and errors in plain words (issue 1, sentence 10)."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from aiohttp import web

from parley.billing.ledger import Charge, charge
from parley.testing.fake_github import FakeGitHub
from parley.testing.scripted_wire import ScriptedReply
from tests.cli.conftest import Finished, access, command
from tests.stage import Stage, calls, executes, says

type Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

NOBODY = "http://127.0.0.1:9"


async def chat(stage: Stage, *arguments: str, given: str = "", **changes: str) -> Finished:
    return await command("chat", *arguments, environment=access(stage) | changes, given=given)


async def test_the_answer_alone_is_on_standard_output(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    await stage.script(executes("list_repositories", text="I look."), says("There is **one**.\n", "\nIt is public."))
    ended = await chat(stage, "Which repositories?")
    assert (ended.code, ended.out) == (0, "I look.\n\nThere is **one**.\n\nIt is public.\n")
    assert ended.err.startswith("[ok] github · list repositories")
    assert "\x1b" not in ended.out + ended.err


async def test_the_message_can_be_piped_in(stage: Stage) -> None:
    await stage.script(says("Read."))
    ended = await chat(stage, given="a message\nof two lines\n")
    assert (ended.code, ended.out) == (0, "Read.\n")
    sent = (await stage.model.requests(stage.model_key))[-1].body
    assert "of two lines" in str(sent)


async def test_a_chat_goes_on_by_its_id_and_with_the_named_model(stage: Stage) -> None:
    first = await stage.turn(says("Ready."))
    await stage.script(says("Still here."))
    ended = await chat(stage, "And now?", "--chat", first.chat_id, "--llm", "openai/gpt-4o-mini")
    assert (ended.code, ended.out) == (0, "Still here.\n")
    sent = (await stage.model.requests(stage.model_key))[-1].body
    assert "Ready." in str(sent)
    assert sent["model"] == "gpt-4o-mini"


async def test_a_question_ends_the_script_with_1_and_says_how_to_answer(stage: Stage) -> None:
    await stage.script(calls("ask_user_yes_no", {"message": "Shall I?"}, text="First."))
    ended = await chat(stage, "Do it")
    chat_id = (await stage.client.get("/assistant/chats")).body["items"][0]["id"]
    assert (ended.code, ended.out) == (1, "First.\n")
    assert "Shall I?" in ended.err
    assert f"parley chat --chat {chat_id}" in ended.err
    assert (await stage.client.get(f"/assistant/chat/{chat_id}/status")).body["awaiting_input"] is True


async def test_a_failed_turn_is_1_with_the_servers_sentence(stage: Stage) -> None:
    await stage.script(ScriptedReply(status=401, raw=b'{"error":{"message":"no"}}'))
    ended = await chat(stage, "Do it")
    assert (ended.code, ended.out) == (1, "")
    assert "key" in ended.err
    assert stage.model_key not in ended.err


async def test_sigint_stops_the_turn_and_the_code_is_130(stage: Stage) -> None:
    await stage.script(
        calls("no_such_tool", {}), says("Beginning", "never said", barrier=f"never-{uuid4().hex}", barrier_after=2)
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley", "chat", "Talk for ever"), env=access(stage), stdout=PIPE, stderr=PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(20):
        # By then the next reply streams, for ever.
        assert b"no such tool" in await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert process.returncode == 130
    assert "Stopped." in err.decode()
    assert "never said" not in out.decode()


# ── what is wrong, and what to do ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({"PARLEY_API_KEY": ""}, (), ["needs an API key", "export PARLEY_API_KEY", "parley keys create"]),
        ({"PARLEY_API_KEY": "mx_live_wrong"}, (), ["does not accept this API key", "parley keys create"]),
        ({"PARLEY_URL": NOBODY}, (), [f"No Parley answers at {NOBODY}", "parley serve", "PARLEY_URL"]),
        ({"PARLEY_URL": "127.0.0.1:8000"}, (), ["is no web address", "PARLEY_URL"]),
        ({"PARLEY_ORGANIZATION_ID": str(uuid4())}, (), ["cannot act in organization", "It can act in:", "Acme Works"]),
        ({}, ("--llm", "gpt-4o"), ["is no model", "openai/gpt-4o"]),
        ({}, ("--llm", "openai/gpt-4o@Other"), ["no credential 'Other' for openai", "Scripted"]),
        ({}, ("--llm", "anthropic/claude-opus-4-1"), ["needs an API key"]),
        ({}, ("--chat", str(uuid4())), ["Chat not found", "Check the id"]),
        ({}, ("--chat", "../x"), ["Chat not found"]),
    ],
)
async def test_trouble_is_one_sentence_that_says_what_to_do(
    stage: Stage, changes: dict[str, str], arguments: tuple[str, ...], words: list[str]
) -> None:
    ended = await chat(stage, "Hello", *arguments, **changes)
    assert ended.code == 1
    assert ended.out == ""
    for word in words:
        assert word in ended.err
    assert "Traceback" not in ended.err
    assert stage.client.key not in ended.err


async def test_nothing_to_say_is_explained(stage: Stage) -> None:
    ended = await chat(stage, given="  \n")
    assert ended.code == 1
    assert 'parley chat "What to do"' in ended.err


async def test_without_an_organization_the_keys_own_is_used(stage: Stage) -> None:
    ended = await chat(stage, "what can you do", "--llm", "demo/demo", PARLEY_ORGANIZATION_ID="")
    assert ended.code == 0
    assert "Demo model" in ended.out


async def test_used_up_credits_are_said_in_words_with_the_figures(stage: Stage) -> None:
    await spend_the_month(stage)
    ended = await chat(stage, "Hello")
    assert ended.code == 1
    assert "This month's credits are used up (" in ended.err
    assert f"{stage.client.base_url}/app/usage" in ended.err


async def spend_the_month(stage: Stage) -> None:
    """Use the whole allowance at once."""
    parley, organization_id = stage.parley, stage.client.organization_id
    allowance = (await parley.subscriptions.grant_plan(organization_id, "free")).allowance_micro
    assert allowance is not None
    what = Charge(f"test:{uuid4()}", "retrieval", allowance)
    await parley.store.write(lambda tx: charge(tx, parley.plans, organization_id, what, parley.clock.now()))


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (402, {"code": "wallet_insufficient", "layer": "wallet"}, "the wallet cannot pay for more"),
        (
            403,
            {"code": "quota_exceeded", "layer": "quota", "key": "concurrent_turns", "current": 2, "limit": 2},
            "no more concurrent turns (2 of 2)",
        ),
        (429, {"code": "rate_limit_exceeded", "layer": "rate", "current": 9, "limit": 9}, "Try again in 7 seconds."),
        (429, {"detail": {"code": "rate_limit_exceeded", "layer": "rate"}}, "Try again in 7 seconds."),
        (429, {"detail": "API key rate limit exceeded"}, "API key rate limit exceeded Try again in 7 seconds."),
        (422, {"detail": [{"loc": ["body", "message"], "msg": "is too long", "type": "x"}]}, "message: is too long."),
        (409, {"detail": "A turn is already running in this chat."}, "A turn is already running"),
        (503, {"detail": "Usage cannot be checked right now."}, "Usage cannot be checked"),
        (500, {}, "The server had a problem."),
        (404, "<html>nginx</html>", "is not a Parley server"),
        (200, "<html>hello</html>", "is not a Parley server"),
        (302, "", "is not a Parley server"),
    ],
)
async def test_every_refusal_is_said_in_words(status: int, body: object, words: str) -> None:
    async def answer(_request: web.Request) -> web.Response:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text, headers={"Retry-After": "7"} if status == 429 else {})

    async with standing_in(answer) as url:
        environment = {"PARLEY_URL": url, "PARLEY_API_KEY": "mx_live_x", "PARLEY_ORGANIZATION_ID": ""}
        ended = await command("chat", "Hello", environment=environment)
    assert ended.code == 1
    assert words in ended.err


@asynccontextmanager
async def standing_in(answer: Handler) -> AsyncGenerator[str]:
    """The address of something that answers every request in the place of a Parley."""
    application = web.Application()
    application.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
