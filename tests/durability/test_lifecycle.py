"""Any order of what can happen to a turn: start, listen, answer, wrong answer, cancel, kill, restart, expire, probe.

A model of a few lines says what the server must answer next; hypothesis looks for an order in which it does not.
Each example ends with what ``parley verify`` says. ``PARLEY_LIFECYCLE_EXAMPLES`` and ``PARLEY_LIFECYCLE_STEPS``
make it larger; without them the same few examples are played every time.
"""

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import aiohttp
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from sqlalchemy import func, select, update

from parley.base.settings import read_settings
from parley.billing import load_plans
from parley.billing.plans import MICRO
from parley.billing.verify import billing_faults
from parley.chats.verify import chat_faults
from parley.storage import Store, open_store
from parley.storage.tables.billing import ledger
from parley.storage.tables.chats import questions
from parley.testing.scripted_wire import ScriptedReply
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import Server, Site
from tests.fuzzing import bounded
from tests.stage import ENDS, Answer, Client, Json, caller, calls, new_model_key, says, shown_text

FULL = "PARLEY_LIFECYCLE_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("PARLEY_LIFECYCLE_EXAMPLES", "3"))
STEPS = int(os.environ.get("PARLEY_LIFECYCLE_STEPS", "12"))
WAIT_SECONDS = 120.0
CHATS = 2
WORDS = ["One ", "two ", "three."]
YES, TEXT = {"kind": "yes_no", "answer": True}, {"kind": "free_text", "text": "No such answer"}

type State = Literal["new", "idle", "running", "asking"]


@dataclass(slots=True)
class Talk:
    """One chat as it should be."""

    llm: Json
    model_key: str
    state: State = "new"
    chat_id: str = ""
    run_id: str = ""
    request_id: str = ""
    barrier: str = ""
    left: int = 0
    told: bool = False

    def goes_on(self) -> None:
        """Where a run that has begun must come to rest by itself."""
        self.state = "asking" if self.left else "running" if self.barrier else "idle"
        self.told = self.state == "idle"


@dataclass(slots=True)
class World:
    """A site whose server may be killed, an organization in it, and somebody who has no business there."""

    site: Site
    session: aiohttp.ClientSession
    store: Store
    server: Server
    intruder: Client
    owner: Client = field(init=False)

    async def enter(self) -> list[Talk]:
        """An organization of one example's own, with a model for each chat."""
        first = Client(self.server.base_url, self.session, self.site.key, ORGANIZATION)
        made = await first.post("/organizations", {"name": f"Team {uuid4().hex[:8]}"})
        assert made.status in (200, 201), made.body
        self.owner = Client(self.server.base_url, self.session, self.site.key, made.body["organization"]["id"])
        talks: list[Talk] = []
        for _ in range(CHATS):
            key = new_model_key()
            secret = {"api_key": key, "base_url": self.site.model.openai_url}
            body = {"integration_name": "openai", "auth_data": secret, "display_name": key[-6:]}
            credential = await self.owner.post("/credentials", body)
            assert credential.status == 201, credential.body
            talks.append(Talk({**self.site.llm, "credential_id": credential.body["credential_id"]}, key))
        return talks

    async def serve(self) -> None:
        """A server once more, after the last one went."""
        self.server = await self.site.serve()
        self.owner.base_url = self.intruder.base_url = self.server.base_url

    async def status(self, talk: Talk) -> Json:
        answer = await self.owner.get(f"/assistant/chat/{talk.chat_id}/status")
        assert answer.status == 200, answer.body
        return answer.body

    async def rests(self, talk: Talk) -> None:
        """Wait until the chat is where it must come to rest; nothing else may be seen for good."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                now = await self.status(talk)
                seen = "asking" if now["awaiting_input"] else "running" if now["is_running"] else "idle"
                if seen == talk.state:
                    break
                await asyncio.sleep(0.02)
        talk.request_id = now["pending_request_id"] or talk.request_id
        talk.run_id = now["run_status"]["run_id"]

    async def charged(self) -> int:
        """Credits that the organization's turns have cost."""
        mine = (ledger.c.kind == "turn") & (ledger.c.organization_id == self.owner.organization_id)
        work = select(func.coalesce(func.sum(ledger.c.amount_micro), 0)).where(mine)
        return abs(int(await self.store.read(lambda tx: tx.execute(work).scalar_one()))) // MICRO

    async def faults(self) -> list[str]:
        plans = load_plans("")
        return [*await self.store.read(chat_faults), *await self.store.read(lambda tx: billing_faults(tx, plans))]


class Lifecycle(RuleBasedStateMachine):
    """The rules. They run in a thread of hypothesis; everything they await runs in the test's own loop."""

    def __init__(self, world: World, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.world = world
        self.loop = loop
        self.talks: list[Talk] = []
        self.begun = 0

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(2 * WAIT_SECONDS)

    def known(self) -> list[Talk]:
        return [talk for talk in self.talks if talk.chat_id]

    @initialize()
    def enters(self) -> None:
        self.talks = self.run(self.world.enter())

    @rule(which=st.integers(0, CHATS - 1), asks=st.integers(0, 2), held=st.booleans())
    def starts(self, which: int, asks: int, held: bool) -> None:
        self.run(self._start(self.talks[which], asks, held))

    async def _start(self, talk: Talk, asks: int, held: bool) -> None:
        busy = talk.state in ("running", "asking")
        barrier = uuid4().hex if held else ""
        if not busy:
            ask = calls("ask_user_yes_no", {"message": "Go on?"})
            last = ScriptedReply(text=WORDS, barrier=barrier, barrier_after=1) if held else says(*WORDS)
            await self.world.site.model.script(talk.model_key, *[ask] * asks, last, by_step=True)
        body = {"message": "Go", "llm": talk.llm, **({"chat_id": talk.chat_id} if talk.chat_id else {})}
        answer = await self.world.owner.post("/assistant/chat", body)
        assert answer.status == (409 if busy else 200), answer.body
        if busy:
            return
        self.begun += 1
        talk.chat_id, talk.run_id = answer.body["chat_id"], answer.body["run_id"]
        talk.left, talk.barrier = asks, barrier
        talk.goes_on()
        await self.world.rests(talk)

    @precondition(lambda self: self.known())
    @rule(data=st.data(), right=st.booleans())
    def answers(self, data: st.DataObject, right: bool) -> None:
        self.run(self._answer(data.draw(st.sampled_from(self.known()), "chat"), right))

    async def _answer(self, talk: Talk, right: bool) -> None:
        asking = talk.state == "asking"
        answer = await self._send(self.world.owner, talk, YES if right else TEXT)
        if asking and right:
            assert answer.status == 200, answer.body
            talk.left -= 1
            talk.run_id = answer.body["run_id"]
            talk.goes_on()
        else:
            assert answer.status == (400 if asking else 410), answer.body
        await self.world.rests(talk)

    async def _send(self, client: Client, talk: Talk, response: Json) -> Answer:
        body = {"request_id": talk.request_id or str(uuid4()), "response": response, "llm": talk.llm}
        return await client.post(f"/assistant/chat/{talk.chat_id}/resume", body)

    @precondition(lambda self: self.known())
    @rule(data=st.data())
    def cancels(self, data: st.DataObject) -> None:
        self.run(self._cancel(data.draw(st.sampled_from(self.known()), "chat")))

    async def _cancel(self, talk: Talk) -> None:
        live = talk.state in ("running", "asking")
        answer = await self.world.owner.post(f"/assistant/chat/{talk.chat_id}/cancel")
        assert answer.status == (200 if live else 400), answer.body
        if live:
            talk.state, talk.told = "idle", False
        await self.world.rests(talk)

    @precondition(lambda self: any(talk.state == "running" for talk in self.talks))
    @rule(data=st.data())
    def finishes(self, data: st.DataObject) -> None:
        running = [talk for talk in self.talks if talk.state == "running"]
        self.run(self._finish(data.draw(st.sampled_from(running), "chat")))

    async def _finish(self, talk: Talk) -> None:
        await self.world.site.model.release(talk.barrier)
        talk.barrier = ""
        talk.goes_on()
        await self.world.rests(talk)

    @precondition(lambda self: any(talk.state == "asking" for talk in self.talks))
    @rule(data=st.data())
    def expires(self, data: st.DataObject) -> None:
        asking = [talk for talk in self.talks if talk.state == "asking"]
        self.run(self._expire(data.draw(st.sampled_from(asking), "chat")))

    async def _expire(self, talk: Talk) -> None:
        past = update(questions).where(questions.c.id == talk.request_id).values(expires_at=1)
        await self.world.store.write(lambda tx: tx.execute(past))
        talk.state, talk.told = "idle", False
        assert (await self._send(self.world.owner, talk, YES)).status == 410
        await self.world.rests(talk)

    @precondition(lambda self: self.known())
    @rule(data=st.data())
    def listens(self, data: st.DataObject) -> None:
        self.run(self._listen(data.draw(st.sampled_from(self.known()), "chat")))

    async def _listen(self, talk: Talk) -> None:
        events = await self._heard(talk, None)
        ids = [event["_id"] for event in events]
        assert len(set(ids)) == len(ids), ids
        ends = [event["type"] for event in events if event["type"] in ENDS]
        if talk.state == "idle":
            assert len(ends) == 1 and events[-1]["type"] in ENDS, events
        if talk.told:
            assert shown_text(events) == "".join(WORDS), events
            for at in range(len(events) - 1):
                again = await self._heard(talk, ids[at])
                assert [event["_id"] for event in again] == ids[at + 1 :], (at, ids)

    async def _heard(self, talk: Talk, after: str | None) -> list[Json]:
        """The run's events up to its end, its question or, where it is held, its first words."""
        heard: list[Json] = []
        async with asyncio.timeout(WAIT_SECONDS):
            async for event in self.world.owner.stream(talk.chat_id, talk.run_id, after):
                if event["type"] == "heartbeat":
                    continue
                heard.append(event)
                if event["type"] == "user_input_request" or (talk.state == "running" and len(heard) == 2):
                    break
        return heard

    @rule()
    def is_killed(self) -> None:
        self.run(self._again(signal.SIGKILL))

    @rule()
    def is_restarted(self) -> None:
        self.run(self._again(signal.SIGTERM))

    async def _again(self, number: signal.Signals) -> None:
        self.world.server.signal(number)
        await self.world.server.gone()
        await self.world.serve()
        for talk in self.known():
            await self.world.rests(talk)

    @precondition(lambda self: self.known())
    @rule(data=st.data())
    def is_probed(self, data: st.DataObject) -> None:
        self.run(self._probe(data.draw(st.sampled_from(self.known()), "chat")))

    async def _probe(self, talk: Talk) -> None:
        client, chat = self.world.intruder, f"/assistant/chat/{talk.chat_id}"
        message = {"message": "Go", "llm": self.world.site.llm, "chat_id": talk.chat_id}
        told = [
            await client.get(chat),
            await client.get(f"{chat}/status"),
            await client.get(f"{chat}/listen/{talk.run_id}"),
            await client.get(f"{chat}/runs/{talk.run_id}"),
            await client.post(f"{chat}/cancel"),
            await client.call("PATCH", chat, {"title": "Mine"}),
            await client.call("DELETE", f"{chat}?permanent=true"),
            await client.post("/assistant/chat", message),
            await self._send(client, talk, YES),
        ]
        assert {answer.status for answer in told} == {404}, [answer.body for answer in told]
        await self.world.rests(talk)

    def teardown(self) -> None:
        if self.talks:
            self.run(self._end())

    async def _end(self) -> None:
        for talk in self.known():
            if talk.state in ("running", "asking"):
                await self._cancel(talk)
        assert await self.world.charged() == self.begun
        assert await self.world.faults() == []


async def an_intruder(first: Client) -> Client:
    """Somebody who came, left, and has an organization of their own."""
    invited = await first.post("/organizations/invite", {"invited_email": f"{uuid4().hex[:8]}@example.com"})
    way = {"invitation_token": invited.body["invitation"]["token"], "username": "intruder"}
    page = {"Sec-Fetch-Site": "same-origin"}
    async with aiohttp.ClientSession(first.base_url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.post("/auth/session", json=way, headers=page) as signed_in:
            assert signed_in.status == 200
        wish = {"name": "mine", "rate_limit_per_minute": 1_000}
        async with browser.post("/api-keys", json=wish, headers=page) as made:
            key = (await made.json())["key"]
    client = Client(first.base_url, first.session, key, first.organization_id)
    assert (await client.post("/auth/organizations/leave")).status == 200
    made_own = await client.post("/organizations", {"name": "Other"})
    client.organization_id = made_own.body["organization"]["id"]
    return client


@pytest.mark.timeout(7_200 if FULL else 400)
async def test_any_order_of_events_leaves_every_turn_as_it_should_be(site: Site) -> None:
    async with AsyncExitStack() as stack:
        server = await site.serve()
        first = await stack.enter_async_context(caller(server.base_url, site.key, ORGANIZATION))
        store = open_store(read_settings(site.environment).store_url)
        stack.push_async_callback(store.close)
        world = World(site, first.session, store.across, server, await an_intruder(first))
        await asyncio.to_thread(play, world, asyncio.get_running_loop())


def play(world: World, loop: asyncio.AbstractEventLoop) -> None:
    """Let hypothesis try orders of the rules."""

    class Here(Lifecycle):
        def __init__(self) -> None:
            super().__init__(world, loop)

    run_state_machine_as_test(Here, settings=bounded(EXAMPLES, at_random=FULL, steps=STEPS))
