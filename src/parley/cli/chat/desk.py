"""The conversation with a person at the keyboard: their lines, their commands, their answers."""

import asyncio
from collections.abc import Coroutine, Sequence

from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from parley.cli.chat.ask import Person, ask
from parley.cli.chat.client import Client
from parley.cli.chat.connect import Binding, Connecting
from parley.cli.chat.conversation import Asked, Conversation, End, Left
from parley.cli.chat.markdown import clean
from parley.cli.chat.problems import Refused, Trouble
from parley.cli.chat.screen import markdown
from parley.cli.chat.wire import Chat, Llm, OfferedModel

PROMPT = "> "
LATEST_MESSAGES = 6
HELP = (
    ("/new", "begin a new chat"),
    ("/models", "list the models you can use"),
    ("/model NAME", "go on with another model, such as openai/gpt-4o"),
    ("/quit", "leave; so does Ctrl-D"),
    ("Ctrl-C", "stop the turn that runs or asks; again: leave"),
)
KEEPS = "The question stays open for seven days. Answer it later with: parley chat --chat {chat_id}"


class Desk:
    """Leads one conversation at a terminal."""

    def __init__(self, runner: asyncio.Runner, conversation: Conversation, person: Person) -> None:
        self._runner = runner
        self._conversation = conversation
        self._person = person

    @property
    def _client(self) -> Client:
        return self._conversation.client

    def talk(self) -> None:
        """Until the person leaves."""
        pressed = False
        while True:
            try:
                line = self._person.line(PROMPT)
            except KeyboardInterrupt:
                if pressed:
                    return
                pressed = True
                self._person.say("Ctrl-C again, Ctrl-D or /quit leaves.", "dim")
                continue
            except EOFError:
                self._person.show(Text())
                return
            pressed = False
            if line and not self._hear(line):
                return

    def once(self, message: str) -> End:
        """One turn, with its questions, to its end."""
        return self._settle(self._run(self._conversation.send(message)))

    def open(self, chat: Chat) -> bool:
        """Show an existing chat, and take up what runs or waits in it; False when the person left."""
        self._person.show(Rule(Text(clean(chat.title)), align="left", style="dim"))
        for message in chat.messages[-LATEST_MESSAGES:]:
            if message.role == "human":
                self._person.say(f"{PROMPT}{message.content}", "bold")
            elif message.content.strip():
                self._person.show(markdown(message.content))
            self._person.show(Text())
        if chat.running_id is None:
            return True
        return self._go_on(chat.running_id)

    # ── lines ───────────────────────────────────────────────────────────────────────────────────

    def _hear(self, line: str) -> bool:
        """Act on a line; False when the person leaves."""
        command, _, rest = line.partition(" ")
        try:
            match command:
                case "/quit" | "/exit":
                    return False
                case "/new":
                    self._conversation.chat_id = None
                    self._person.say("A new chat begins with your next message.", "dim")
                case "/models":
                    self._list_models(self._run(self._client.models()))
                case "/model":
                    self._conversation.llm = self._run(chosen_llm(self._client, rest.strip()))
                    self._person.say(f"From now on: {self._conversation.llm.title}", "dim")
                case _ if command.startswith("/"):
                    self._help()
                case _:
                    return self._send(line)
        except Trouble as trouble:
            self._person.say(str(trouble), "red")
        except KeyboardInterrupt:
            self._person.say("Given up.", "dim")
        return True

    def _send(self, message: str) -> bool:
        conversation = self._conversation
        try:
            end = self._run(conversation.send(message))
        except Refused as refused:
            if refused.status != 409 or conversation.chat_id is None:
                raise
            self._person.say(f"Your message was not sent. {refused}", "yellow")
            chat = self._run(self._client.chat(conversation.chat_id))
            return chat.running_id is None or self._go_on(chat.running_id)
        return not isinstance(self._settle(end), Left)

    def _go_on(self, run_id: str) -> bool:
        return not isinstance(self._settle(self._run(self._conversation.attach(run_id))), Left)

    def _help(self) -> None:
        table = Table.grid(padding=(0, 3))
        for command, meaning in HELP:
            table.add_row(Text(f"  {command}", style="cyan"), meaning)
        self._person.show(table)

    def _list_models(self, models: Sequence[OfferedModel]) -> None:
        now = self._conversation.llm
        table = Table.grid(padding=(0, 2))
        for model in models:
            is_now = (model.integration_name, model.id) == (now.integration_name, now.model_id)
            name = Text(f"{model.integration_name}/{model.id}", style="bold green" if is_now else "cyan")
            table.add_row("→" if is_now else " ", name, Text(clean(model.description), style="dim"))
        self._person.show(table)
        self._person.say("Change it with: /model NAME", "dim")

    # ── questions ───────────────────────────────────────────────────────────────────────────────

    def _settle(self, end: End) -> End:
        """Put every question to the person until the turn is over."""
        while isinstance(end, Asked):
            try:
                end = self._put(end)
            except KeyboardInterrupt:
                self._person.show(Text())
                end = self._run(self._conversation.give_up(end))
            except EOFError:
                self._person.say("\n" + KEEPS.format(chat_id=self._conversation.chat_id), "dim")
                return Left()
        return end

    def _put(self, asked: Asked) -> End:
        conversation = self._conversation
        if asked.question.get("kind") == "credential_request":
            binding = Binding(str(conversation.chat_id), asked.request_id, conversation.llm)
            response = Connecting(self._person, self._client, self._run, binding).ask(asked.question)
            if response is None:
                return self._run(conversation.wait(asked))
        else:
            response = ask(self._person, asked.question)
        try:
            return self._run(conversation.answer(asked, response))
        except Refused as refused:
            if refused.status not in {400, 422}:
                raise
            self._person.say(str(refused), "yellow")
            return asked

    def _run[T](self, work: Coroutine[None, None, T]) -> T:
        return self._runner.run(work)


async def chosen_llm(client: Client, text: str) -> Llm:
    """The model that ``provider/model[@credential]`` names; the credential by its id or its name.

    Raises Trouble, saying what is there.
    """
    provider, _, model = text.partition("/")
    model, _, credential = model.partition("@")
    if not provider or not model:
        raise Trouble(f"{text!r} is no model. Write provider/model, such as openai/gpt-4o; /models lists them.")
    if not credential:
        return Llm(provider, provider, model)
    known = await client.credentials(provider)
    for each in known:
        if credential in {each.credential_id, each.display_name}:
            return Llm(provider, provider, model, each.credential_id)
    names = ", ".join(each.display_name for each in known) or "none"
    raise Trouble(f"There is no credential {credential!r} for {provider}. There is: {names}.")
