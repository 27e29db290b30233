"""One chat: sending, following, answering, stopping. Knows no keyboard; Ctrl-C reaches it as a signal."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from parley.cli.chat.client import Client, JsonBody
from parley.cli.chat.markdown import clean
from parley.cli.chat.problems import Refused, Trouble
from parley.cli.chat.stream import Event, RunStream
from parley.cli.chat.view import View
from parley.cli.chat.wire import Llm

type Status = Literal["completed", "failed", "cancelled"]

DRAW_SECONDS = 0.08
CANCELLED = {
    "user_cancelled": "Stopped.",
    "expired": "The question was open for seven days; the turn is over.",
    "chat_deleted": "The chat was deleted.",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The turn waits for a person. ``question`` is the wire's UserInputRequest (contract §5.2)."""

    stream: RunStream
    question: dict[str, Any]

    @property
    def request_id(self) -> str:
        """What an answer names."""
        return str(self.question.get("request_id"))


@dataclass(frozen=True, slots=True)
class Over:
    """The turn is over."""

    status: Status


@dataclass(frozen=True, slots=True)
class Left:
    """The person pressed Ctrl-C again: they want to go, whatever the turn does."""


type End = Asked | Over | Left


class Conversation:
    """A chat, and the turn in it. Every method raises Trouble."""

    def __init__(self, client: Client, view: View, llm: Llm, chat_id: str | None = None) -> None:
        self.client = client
        self.view = view
        self.llm = llm
        self.chat_id = chat_id
        self._began = 0.0
        self._running = asyncio.Event()

    async def send(self, message: str) -> End:
        """Begin a turn with a message and follow it."""

        async def turn() -> End:
            running = await self.client.start(message, self.chat_id, self.llm)
            self.chat_id = running.chat_id
            return await self._follow(self._stream(running.run_id))

        self._began = asyncio.get_running_loop().time()
        return await self._interruptible(turn(), self._stop)

    async def attach(self, run_id: str) -> End:
        """Follow a turn that runs or waits already."""
        self._began = asyncio.get_running_loop().time()
        return await self._interruptible(self._follow(self._stream(run_id)), self._stop)

    async def answer(self, asked: Asked, response: JsonBody) -> End:
        """Answer the question and follow the turn on.

        Raises Refused 400 and 422 for an answer that does not fit; the question is still open then.
        """
        chat_id = self._named_chat()

        async def turn() -> End:
            try:
                running = await self.client.resume(chat_id, asked.request_id, response, self.llm)
            except Refused as refused:
                if refused.status != 410:
                    raise
                self.view.note("The question is no longer open: it was answered elsewhere, or its turn is over.")
                return await self._follow(asked.stream)
            return await self._follow(self._stream(running.run_id))

        return await self._interruptible(turn(), self._stop)

    async def wait(self, asked: Asked) -> End:
        """Wait until the question is answered elsewhere, as a sign-in does; Ctrl-C gives the question back."""

        async def no_more(reading: asyncio.Task[End | Trouble]) -> None:
            reading.cancel()

        end = await self._interruptible(self._follow(asked.stream), no_more)
        return asked if isinstance(end, Left) else end

    async def give_up(self, asked: Asked) -> End:
        """Stop a turn that waits."""
        await self.client.cancel(self._named_chat())
        return await self._interruptible(self._follow(asked.stream), self._stop)

    # ── following ───────────────────────────────────────────────────────────────────────────────

    async def _follow(self, stream: RunStream) -> End:
        """Show the run, and those that it goes on as, until the turn is over or asks."""
        self._running.set()
        self.view.begin()
        try:
            while True:
                end = await self._read(stream)
                if not isinstance(end, str):
                    return end
                stream = self._stream(end)
        finally:
            self._running.clear()
            self.view.rest()

    async def _read(self, stream: RunStream) -> End | str:
        """Show one run's further events; the id of the run it goes on as, or how the turn ends."""
        reading = _Reading(self.view, self._began)
        async with aclosing(stream.events()) as events:
            async for event in events:
                if event.type == "user_input_request":
                    return Asked(stream, event.data)
                if event.type == "run_resumed":
                    return event.text("new_run_id")
                status = reading.show(event)
                if status is not None:
                    return Over(status)
        raise Trouble("The server ended the stream without saying how the turn ended. Try again.")

    def _stream(self, run_id: str) -> RunStream:
        return RunStream(self.client, self._named_chat(), run_id, self.view.cut)

    def _named_chat(self) -> str:
        if self.chat_id is None:
            raise RuntimeError("nothing was sent in this chat yet")
        return self.chat_id

    # ── stopping ────────────────────────────────────────────────────────────────────────────────

    async def _stop(self, _reading: "asyncio.Task[End | Trouble]") -> None:
        """Stop the turn on the server; its stream tells the rest."""
        await self._running.wait()
        self.view.note("Stopping…")
        try:
            await self.client.cancel(self._named_chat())
        except Trouble as trouble:
            self.view.note(f"The turn could not be stopped: {trouble}")

    async def _interruptible(
        self,
        turn: Coroutine[None, None, End],
        on_first: "Callable[[asyncio.Task[End | Trouble]], Awaitable[None]]",
    ) -> End:
        """Run the turn while Ctrl-C is watched for: the first press is handed on, the second one leaves."""
        with _presses() as presses:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(_caught(turn))
                beside = [
                    group.create_task(_watch(presses, reading, on_first)),
                    group.create_task(self._keep_drawing()),
                ]
                await asyncio.wait({reading})
                for task in beside:
                    task.cancel()
        if reading.cancelled():
            return Left()
        end = reading.result()
        if isinstance(end, Trouble):
            raise end
        return end

    async def _keep_drawing(self) -> None:
        while True:
            self.view.draw()
            await asyncio.sleep(DRAW_SECONDS)


class _Reading:
    """What has been heard of one run."""

    def __init__(self, view: View, began: float) -> None:
        self._view = view
        self._began = began
        self._begun = False
        self._spoke = False
        self._error = ""

    def show(self, event: Event) -> Status | None:
        """Show an event; how the turn ended, if it did. Unknown events are left out."""
        match event.type:
            case "error":
                self._error = event.text("message")
            case "cancelled":
                self._view.note(CANCELLED.get(event.text("reason"), "The turn was stopped."))
                return "cancelled"
            case "done":
                return self._done(event)
            case _:
                self._show_step(event)
        return None

    def _show_step(self, event: Event) -> None:
        view = self._view
        match event.type:
            case "metadata":
                if self._begun:
                    view.restart()
                self._begun = True
            case "response_chunk":
                self._spoke = True
                view.say(clean(event.text("chunk")))
            case "tool_call":
                self._spoke = False
                view.start_tool(event)
            case "tool_result":
                view.end_tool(event)
            case "guidance":
                view.note(event.text("message"))
            case _:
                pass

    def _done(self, event: Event) -> Status:
        if event.data.get("error"):
            self._view.note(self._error or "The turn failed. Try again.")
            return "failed"
        if not self._spoke:
            self._view.say(clean(event.text("response")))
        self._view.finish(event, asyncio.get_running_loop().time() - self._began)
        return "completed"


async def _caught(turn: Coroutine[None, None, End]) -> End | Trouble:
    # As a value: raised, it would come out of the task group in a group of its own.
    try:
        return await turn
    except Trouble as trouble:
        return trouble


@contextmanager
def _presses() -> Generator[asyncio.Queue[None]]:
    """Ctrl-C as items of a queue, for as long as the block lasts."""
    presses: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, presses.put_nowait, None)
    try:
        yield presses
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _watch(
    presses: asyncio.Queue[None],
    reading: asyncio.Task[End | Trouble],
    on_first: Callable[[asyncio.Task[End | Trouble]], Awaitable[None]],
) -> None:
    await presses.get()
    async with asyncio.TaskGroup() as group:
        acting = group.create_task(_awaited(on_first(reading)))
        await presses.get()
        acting.cancel()
        reading.cancel()


async def _awaited(work: Awaitable[None]) -> None:
    await work
