"""SIGKILL in the middle of turns: which are finished after a restart, and how often each did its one action.

Everybody is killed at the same three moments. Afterwards the server is started again, nobody asks it anything for a
while, and then the caller asks for what is not finished in the best way the server has for that.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import aiohttp
import asyncpg

from bench.contestants import LLM, new_owner_key, parley_house
from bench.load import ACTION
from bench.peers import peer
from bench.postgres import fresh_database
from bench.report import Report
from bench.scenario import MESSAGE
from bench.turns import Ground
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import ProviderProxy, provider_proxy
from parley.testing.scripted_wire import ScriptedCall, ScriptedReply

TURNS = 5
OWN_SECONDS = 40.0
"""How long a started server may take to finish what it finds; Parley's lease is 15 s."""
REACHED_SECONDS = 60.0
LOOK_SECONDS = 0.1
MOMENTS = ("in its first reply", "while its action is done", "in its last reply")
FIRST, ACTING, LAST = MOMENTS
BEFORE_BARRIER = 20
TEXT = ["abc "] * 50
PEERS_ACTION = ScriptedCall("create_issue", '{"title": "Bug"}')


@dataclass(slots=True)
class Case:
    """One contestant at one moment: what is around it, and where its store is."""

    folder: Path
    url: str
    ground: Ground
    key: str
    github: FakeGitHub
    variables: dict[str, str]
    turns: list[str] = field(default_factory=list[str])


class Server(Protocol):
    """A server that has been started, and how to speak with it."""

    pid: int

    async def begin(self, group: asyncio.TaskGroup) -> None:
        """Begin one turn, followed by a listener for as long as the server lives."""
        ...

    async def finished(self) -> int:
        """How many of the turns are kept as finished."""
        ...

    async def ask_again(self) -> None:
        """Ask for what is not finished."""
        ...


class ParleyServer:
    """Parley: a caller who comes back only listens."""

    def __init__(self, case: Case, pid: int, base_url: str, session: aiohttp.ClientSession) -> None:
        self.pid = pid
        self._case, self._base_url, self._session = case, base_url, session

    async def begin(self, group: asyncio.TaskGroup) -> None:
        body = {"message": MESSAGE, "llm": LLM}
        async with self._session.post(f"{self._base_url}/assistant/chat", json=body) as response:
            response.raise_for_status()
            path = (await response.json())["stream_url"]
        self._case.turns.append(path)
        group.create_task(_heard(self._session, "GET", self._base_url + path, None))

    async def finished(self) -> int:
        rows = await asyncpg.connect(self._case.url)
        try:
            return int(await rows.fetchval("SELECT count(*) FROM runs WHERE status = 'completed'") or 0)
        finally:
            await rows.close()

    async def ask_again(self) -> None:
        async with asyncio.TaskGroup() as group:
            for path in self._case.turns:
                group.create_task(_followed(self._session, "GET", self._base_url + path, None))


class PeerServer:
    """A peer: its turn lives in the request; a caller goes on with the thread where that can be, or asks anew."""

    def __init__(self, case: Case, pid: int, base_url: str, session: aiohttp.ClientSession, again: str) -> None:
        self.pid = pid
        self._case, self._base_url, self._session, self._again = case, base_url, session, again

    async def begin(self, group: asyncio.TaskGroup) -> None:
        thread = str(uuid4())
        self._case.turns.append(thread)
        body = {"thread_id": thread, "message": MESSAGE}
        group.create_task(_heard(self._session, "POST", f"{self._base_url}/chat", body))

    async def finished(self) -> int:
        return len(self._case.turns) - len(await self._unfinished())

    async def ask_again(self) -> None:
        async with asyncio.TaskGroup() as group:
            for thread in await self._unfinished():
                body = {"thread_id": thread, "message": MESSAGE}
                group.create_task(_followed(self._session, "POST", self._base_url + self._again, body))

    async def _unfinished(self) -> Sequence[str]:
        left: list[str] = []
        for thread in self._case.turns:
            async with self._session.get(f"{self._base_url}/finished/{thread}") as response:
                response.raise_for_status()
                if not await response.json():
                    left.append(thread)
        return left


async def _heard(session: aiohttp.ClientSession, method: str, url: str, body: dict[str, str] | None) -> None:
    """Listen to one stream to its end, or to the death of its server."""
    try:
        await _followed(session, method, url, body)
    except aiohttp.ClientError:
        return  # the server was killed, which is what this is about


async def _followed(session: aiohttp.ClientSession, method: str, url: str, body: dict[str, str] | None) -> None:
    """Listen to one stream to its end."""
    async with session.request(method, url, json=body) as response:
        await response.read()


@dataclass(frozen=True, slots=True)
class Entrant:
    """Who is killed, and the call by which its model asks for the action."""

    title: str
    action: ScriptedCall
    again: str
    foreign: peer.Peer | None = None

    @asynccontextmanager
    async def serve(self, case: Case, owner_key: str) -> AsyncGenerator[Server]:
        """Its server on the case's store; a second one goes on where the first was killed."""
        async with AsyncExitStack() as stack:
            if self.foreign is None:
                house = await stack.enter_async_context(
                    parley_house(
                        case.folder, None, database_url=case.url, owner_key=owner_key, variables=case.variables
                    )
                )
                if not case.turns:
                    await house.connect_model(case.ground.model, case.key)
                    token = {"token": case.github.token}
                    body = {"integration_name": "github", "auth_type": "bearer_token", "auth_data": token}
                    await house.call("POST", "/credentials", body)
                session = await stack.enter_async_context(aiohttp.ClientSession(headers=house.headers))
                yield ParleyServer(case, house.pid, house.base_url, session)
            else:
                variables = {**case.variables, "BENCH_GITHUB_TOKEN": case.github.token}
                served = await stack.enter_async_context(
                    peer.served(self.foreign, case.url, case.ground.model, case.key, None, variables)
                )
                session = await stack.enter_async_context(aiohttp.ClientSession())
                yield PeerServer(case, served.process.pid, served.base_url, session, self.again)


ENTRANTS = (
    Entrant("Parley", ACTION, ""),
    Entrant(peer.LANGCHAIN.title, PEERS_ACTION, "/again", peer.LANGCHAIN),
    Entrant(peer.PYDANTIC_AI.title, PEERS_ACTION, "/chat", peer.PYDANTIC_AI),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of ``TURNS`` turns: finished by the started server alone, then with asking; actions done by then."""

    alone: int
    asked: int
    effects_alone: int
    effects_asked: int


async def measure_crashes(report: Report, ground: Ground) -> None:
    """Kill everybody at every moment."""
    figures: dict[str, dict[str, list[int]]] = {}
    for moment in MOMENTS:
        for entrant in ENTRANTS:
            found = await kill(ground, entrant, moment)
            report.add(
                f"killed {moment}: {entrant.title}, {TURNS} turns",
                f"{found.alone} finished after the restart, {found.asked} once asked for; "
                f"{found.effects_alone} actions, {found.effects_asked} then",
            )
            print(f"    {moment}, {entrant.title}: {found}", flush=True)
            counts = [found.alone, found.asked, found.effects_alone, found.effects_asked]
            figures.setdefault(entrant.title, {})[moment] = counts
    report.figures["crashes"] = {"turns": TURNS, "alone_asked_effects_effects": figures}


async def kill(ground: Ground, entrant: Entrant, moment: str) -> Outcome:
    """Kill one of them at one moment, start it again, and see what becomes of its turns."""
    async with AsyncExitStack() as stack:
        name = uuid4().hex
        folder = ground.folder / name
        folder.mkdir()
        url = await stack.enter_async_context(fresh_database())
        proxy = await stack.enter_async_context(provider_proxy(folder))
        github = FakeGitHub(f"ghp_{name}")
        proxy.answer("api.github.com", github)
        case = Case(folder / "house", url, ground, f"sk-{name}", github, proxy.environment)
        await _script(case, entrant, moment, name)
        owner_key = new_owner_key()
        async with entrant.serve(case, owner_key) as doomed, asyncio.TaskGroup() as group:
            for _ in range(TURNS):
                await doomed.begin(group)
            await _reached(case, proxy, moment)
            os.kill(doomed.pid, signal.SIGKILL)
        await ground.model.release(name)
        github.let_go()
        async with entrant.serve(case, owner_key) as server:
            alone = await _finished(server)
            effects = len(github.created)
            if alone < TURNS:
                async with asyncio.timeout(REACHED_SECONDS):
                    await server.ask_again()
            return Outcome(alone, await server.finished(), effects, len(github.created))


async def _script(case: Case, entrant: Entrant, moment: str, barrier: str) -> None:
    """The model's two replies; one of them stops half-way, or the provider waits, until the server is dead."""
    first = ScriptedReply(text=TEXT, calls=[entrant.action])
    last = ScriptedReply(text=TEXT)
    if moment == FIRST:
        first.barrier, first.barrier_after = barrier, BEFORE_BARRIER
    elif moment == LAST:
        last.barrier, last.barrier_after = barrier, BEFORE_BARRIER
    else:
        case.github.hold()
    await case.ground.model.script(case.key, first, last, by_step=True)


async def _reached(case: Case, proxy: ProviderProxy, moment: str) -> None:
    """Wait until every turn is where it is to be killed. Raises TimeoutError when one does not get there."""
    async with asyncio.timeout(REACHED_SECONDS):
        while True:
            asked = len(await case.ground.model.requests(case.key))
            acting = sum(one.method == "POST" and one.path.endswith("/issues") for one in proxy.asked)
            if {FIRST: asked, ACTING: acting, LAST: asked - TURNS}[moment] >= TURNS:
                # What was said before the barrier is on its way.
                await asyncio.sleep(1.0)
                return
            await asyncio.sleep(LOOK_SECONDS)


async def _finished(server: Server) -> int:
    """How many are finished without anybody asking, once all are or the time is over."""
    deadline = asyncio.get_running_loop().time() + OWN_SECONDS
    while (count := await server.finished()) < TURNS and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
    return count
