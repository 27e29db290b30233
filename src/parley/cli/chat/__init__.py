"""``parley chat``: the Assistant in a terminal, over HTTP."""

import asyncio
import importlib
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from parley.cli.chat.ask import Person
from parley.cli.chat.client import Client, choose_organization, connected
from parley.cli.chat.conversation import Asked, Conversation, End, Left, Over
from parley.cli.chat.desk import Desk, chosen_llm
from parley.cli.chat.markdown import clean
from parley.cli.chat.problems import Trouble
from parley.cli.chat.screen import Screen
from parley.cli.chat.view import PlainView
from parley.cli.chat.wire import Llm

INTERRUPTED = 130
NO_KEY = """parley chat needs an API key, which tells the server who you are.

  The server printed one when it first started. Keep it in the environment:
      export PARLEY_API_KEY=mx_live_...
  It is gone? On the server's machine, make another one:
      parley keys create owner@localhost
  No server yet? Start one with: parley serve"""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What the command line says.

    ``organization`` and ``llm`` empty: the server's default. ``chat_id`` None: a new chat. ``message``
    None: talk, or read it from standard input in a script.
    """

    url: str
    key: str = field(repr=False)
    organization: str
    llm: str
    chat_id: str | None
    message: str | None


def chat(options: ChatOptions) -> int:
    """Talk until the person leaves, or do one turn; the exit code: 0, 1 for trouble, 130 for Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    if not options.key:
        print(NO_KEY, file=sys.stderr)
        return 1
    try:
        if sys.stdin.isatty() and sys.stdout.isatty():
            return _at_terminal(options)
        return asyncio.run(_in_script(options, options.message or sys.stdin.read()))
    except Trouble as trouble:
        print(f"parley: {clean(str(trouble))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


async def _in_script(options: ChatOptions, message: str) -> int:
    """One turn for a script: the answer on standard output, everything else on standard error."""
    if not message.strip():
        raise Trouble('There is no message. Write: parley chat "What to do", or pipe it in.')
    view = PlainView()
    async with connected(options.url, options.key, options.organization) as client:
        await choose_organization(client)
        conversation = Conversation(client, view, await _llm(client, options), options.chat_id)
        end = await conversation.send(message)
    if isinstance(end, Asked):
        view.note(f"The assistant asks: {clean(str(end.question.get('message', '')))}")
        view.note(f"Answer within seven days: parley chat --chat {conversation.chat_id}")
    return _exit_code(end)


def _at_terminal(options: ChatOptions) -> int:
    with suppress(ImportError):
        importlib.import_module("readline")  # line editing for every prompt
    console = Console(highlight=False)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        opening = connected(options.url, options.key, options.organization)
        client = runner.run(stack.enter_async_context(opening))
        try:
            return _converse(runner, client, options, console)
        finally:
            runner.run(stack.aclose())


def _converse(runner: asyncio.Runner, client: Client, options: ChatOptions, console: Console) -> int:
    organization = runner.run(choose_organization(client))
    llm = runner.run(_llm(client, options))
    conversation = Conversation(client, Screen(console), llm, options.chat_id)
    desk = Desk(runner, conversation, Person(console))
    if options.message is not None:
        return _exit_code(desk.once(options.message))
    where = f"Parley at {client.url} · {organization.name} · {llm.title}"
    console.print(Text(clean(where), style="bold"))
    console.print(Text("Say what you want done. /help lists the commands.", style="dim"))
    if options.chat_id is None or desk.open(runner.run(client.chat(options.chat_id))):
        desk.talk()
    later = f"Go on later with: parley chat --chat {conversation.chat_id}"
    console.print(Text(later if conversation.chat_id is not None else "Goodbye.", style="dim"))
    return 0


def _exit_code(end: End) -> int:
    match end:
        case Over(status="completed"):
            return 0
        case Left() | Over(status="cancelled"):
            return INTERRUPTED
        case _:
            return 1


async def _llm(client: Client, options: ChatOptions) -> Llm:
    return await (chosen_llm(client, options.llm) if options.llm else client.default_llm())
