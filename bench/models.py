"""What issue 7 asks for: the Anthropic adapter beside the OpenAI one, and a chat's 500th turn beside its 10th."""

import asyncio
import json
from contextlib import AsyncExitStack
from statistics import median

import aiohttp

from bench.child import child, module
from bench.contestants import LLM, House
from bench.machine import cpu_seconds, on_core
from bench.report import Report
from bench.rounds import BenchFailed
from bench.scenario import CHARACTERS, CHUNKS, EVENT_SECONDS
from bench.turns import Ground
from parley.testing.scripted_wire import ScriptedReply, ScriptedUsage

WIRES = ("openai", "anthropic")
REPLIES, AT_ONCE = 100, 20
TURN_SECONDS = 30.0
SAMPLES = 12
"""Turns around the 10th and the last one that are measured; the kernel's figures are too coarse for one."""


async def measure_adapters(report: Report, ground: Ground, *, count: int) -> None:
    """CPU of each adapter for the same replies, one event every 20 ms, in turns on the measured core."""
    paced = ScriptedReply(text=["abc "] * CHUNKS, paced=EVENT_SECONDS)
    async with AsyncExitStack() as stack:
        with on_core(ground.measured_core):
            reader = await stack.enter_async_context(child(module("bench.reader")))
        cpu: dict[str, list[float]] = {wire: [] for wire in WIRES}
        for number in range(count + 1):
            for wire in WIRES if number % 2 else WIRES[::-1]:
                await ground.model.script(ground.key, *[paced] * REPLIES)
                url = ground.model.openai_url if wire == "openai" else ground.model.anthropic_url
                order = {"wire": wire, "url": url, "key": ground.key, "replies": REPLIES, "at_once": AT_ONCE}
                said = await reader.ask(order)
                if said["characters"] != [CHUNKS * CHARACTERS] * REPLIES:
                    raise BenchFailed(f"the {wire} adapter lost text")
                if number:  # the first round warms up
                    cpu[wire].append(said["cpu"] / (REPLIES * CHUNKS))
    for wire in WIRES:
        report.add(f"adapters: {wire}, CPU a chunk", f"{1e6 * median(cpu[wire]):.0f} µs")
    pairs = zip(cpu["anthropic"], cpu["openai"], strict=True)
    ratio = median(one / other for one, other in pairs)
    report.most("adapters: CPU, Anthropic to OpenAI", ratio, 1.2, "{:.2f} x")
    report.figures["adapters"] = {wire: [1e6 * each for each in cpu[wire]] for wire in WIRES}


async def measure_long_chat(report: Report, ground: Ground, *, turns: int) -> None:
    """CPU of the server for a turn around the 10th and around the last, in one chat that is summarised on its way."""
    async with AsyncExitStack() as stack:
        house = await ground.house(stack, "longchat")
        session = await stack.enter_async_context(aiohttp.ClientSession(headers=house.headers))
        await ground.model.script(ground.key, *[_reply(number) for number in range(2 * turns)])
        chat = LongChat(house, session)
        early = await chat.measured(around=10)
        until = turns - SAMPLES
        while chat.turns < until:
            await chat.play()
        late = await chat.measured(around=turns)
    report.add(f"a long chat: CPU of the 10th turn, of the {turns}th", f"{1e3 * early:.1f} ms, {1e3 * late:.1f} ms")
    report.most(f"a long chat: CPU, the {turns}th turn to the 10th", late / early, 1.5, "{:.2f} x")
    report.figures["longchat"] = {"turns": turns, "early_ms": 1e3 * early, "late_ms": 1e3 * late}


def _reply(number: int) -> ScriptedReply:
    """Every fiftieth answer says that the window is nearly full, so that the next turn begins with a summary."""
    tokens = 100_000 if number % 50 == 40 else 2_000
    return ScriptedReply(text=["abc "] * CHUNKS, usage=ScriptedUsage(input=tokens, output=CHUNKS))


class LongChat:
    """One chat of one person, turn after turn."""

    def __init__(self, house: House, session: aiohttp.ClientSession) -> None:
        self._house = house
        self._session = session
        self._chat_id: str | None = None
        self.turns = 0

    async def measured(self, *, around: int) -> float:
        """Seconds of CPU for each of the turns that end at ``around`` and half as many beyond."""
        while self.turns < around - SAMPLES // 2:
            await self.play()
        before = cpu_seconds(self._house.pid)
        for _ in range(SAMPLES):
            await self.play()
        return (cpu_seconds(self._house.pid) - before) / SAMPLES

    async def play(self) -> None:
        """One turn to its end."""
        self.turns += 1
        body = {"message": f"Question {self.turns}?", "llm": LLM, "chat_id": self._chat_id}
        async with self._session.post(f"{self._house.base_url}/assistant/chat", json=body) as response:
            started = await response.json()
        if response.status != 200:
            raise BenchFailed(f"turn {self.turns}: {response.status} {started}")
        self._chat_id = started["chat_id"]
        async with (
            asyncio.timeout(TURN_SECONDS),
            self._session.get(self._house.base_url + started["stream_url"]) as stream,
        ):
            last = (await stream.read()).strip().rpartition(b"data: ")[2]
        end = json.loads(last)
        if end["type"] != "done" or end["data"].get("error"):
            raise BenchFailed(f"turn {self.turns} ended with {end}")
