"""A chat of 2,000 messages: a turn costs what is sent of it, not what was ever said in it (issue 7).

Most turns are written by the code that writes them in production, without a model in between; the
measured ones are played over HTTP. ``PARLEY_LONG_TURNS=1000`` plays every one of them.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.base.ids import new_id
from parley.runs import chat_store
from parley.storage import ReadTx, Store, WriteTx, open_store
from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedUsage
from parley.turn.model import AssistantEntry, UserEntry
from tests.conftest import STORES, fresh_database
from tests.contract.conftest import ORGANIZATION, House, furnish, open_house
from tests.stage import Stage, Turn, caller, faults, says

TURNS = 1_000
PLAYED = int(os.environ.get("PARLEY_LONG_TURNS", "0"))
BATCH = 100
FULL = ScriptedUsage(input=100_000, output=10)
SAMPLES = 3


@dataclass(slots=True)
class Counts:
    """Statements sent to the store, and rows that came back, once ``open``."""

    open: bool = False
    statements: int = 0
    rows: int = 0


class NoDriver:
    """In place of the driver's connection: prepared statements then pass by ``exec_driver_sql`` and are counted."""

    driver_connection = None


@dataclass(slots=True)
class CountedTx:
    """A connection that counts; as much of one as units of work use."""

    tx: Any
    counts: Counts

    @property
    def dialect(self) -> Any:
        return self.tx.dialect

    @property
    def connection(self) -> NoDriver:
        return NoDriver()

    def execute(self, *arguments: Any) -> Any:
        return self._counted(self.tx.execute(*arguments))

    def exec_driver_sql(self, *arguments: Any) -> Any:
        return self._counted(self.tx.exec_driver_sql(*arguments))

    def _counted(self, result: Any) -> Any:
        self.counts.statements += 1
        if not result.returns_rows:
            return result
        frozen = result.freeze()
        self.counts.rows += len(frozen.data)
        return frozen()


class CountedStore:
    """A store that counts."""

    def __init__(self, store: Store, counts: Counts | None = None) -> None:
        self.store = store
        self.dialect = store.dialect
        self.counts = counts or Counts()

    @property
    def across(self) -> Store:
        return CountedStore(self.store.across, self.counts)

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        return await self.store.write(self._counted(work))

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        return await self.store.read(self._counted(work))

    async def close(self) -> None:
        await self.store.close()

    def _counted(self, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        # The half-minute upkeep shortens the histories of all runs; it is not a turn's.
        counts = self.counts.open and work.__module__ != "parley.chats.upkeep"
        return (lambda tx: work(CountedTx(tx, self.counts))) if counts else work


@dataclass(slots=True)
class Cost:
    """What one turn took: of the store, and of the model."""

    statements: int
    rows: int
    sent_entries: int
    sent_bytes: int


@dataclass(slots=True)
class LongChat:
    """One chat that grows."""

    stage: Stage
    counts: Counts
    chat_id: str
    turns: int = 0

    async def play(self, usage: ScriptedUsage | None = None, *before: str) -> Turn:
        """A turn over HTTP; texts ``before`` are what the model says first, such as a summary."""
        self.turns += 1
        answer = says(f"Answer {self.turns} of many.", **({"usage": usage} if usage else {}))
        replies = [*map(says, before), answer]
        return await self.stage.turn(*replies, message=f"Question {self.turns}?", chat_id=self.chat_id or None)

    async def grow(self, until: int) -> None:
        """Turns up to a number, written as production writes them."""
        while self.turns < until:
            if PLAYED:
                await self.play()
                continue
            numbers = range(self.turns + 1, min(self.turns + BATCH, until) + 1)
            now = self.stage.clock.now()
            await self.stage.parley.store.write(lambda tx, those=numbers, at=now: self._write(tx, those, at))
            self.turns = numbers[-1]

    def _write(self, tx: WriteTx, numbers: range, now: int) -> None:
        for number in numbers:
            run_id, question, answer = new_id(), f"Question {number}?", f"Answer {number} of many."
            chat_store.append_message(tx, self.chat_id, role="human", content=question, run_id=run_id, now=now)
            entries = [UserEntry(question), AssistantEntry(answer, provider="openai")]
            chat_store.append_entries(tx, self.chat_id, run_id, 1, entries, now)
            chat_store.append_message(
                tx, self.chat_id, role="ai", content=answer, run_id=run_id, running_status="completed", now=now
            )

    async def compact(self) -> None:
        """A turn that fills the window, and one that begins with a summary."""
        await self.play(FULL)
        await self.play(None, f"What was said in {self.turns} turns.")

    async def cost(self) -> Cost:
        """The cheapest of a few turns: what runs in the background counts too."""
        costs: list[Cost] = []
        for _ in range(SAMPLES):
            statements, rows = self.counts.statements, self.counts.rows
            turn = await self.play()
            assert turn.types[-1] == "done"
            body = (await self.stage.sent())[-1]
            costs.append(
                Cost(
                    self.counts.statements - statements,
                    self.counts.rows - rows,
                    len(body["messages"]),
                    len(msgspec.json.encode(body)),
                )
            )
        return min(costs, key=lambda cost: (cost.statements, cost.rows))


@pytest.fixture(scope="module", params=STORES)
async def counted(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres_template: str | None,
    proxy: ProviderProxy,
) -> AsyncIterator[tuple[House, Counts]]:
    folder: Path = tmp_path_factory.mktemp("counted")
    stores: list[CountedStore] = []

    def counting(url: str) -> Store:
        stores.append(CountedStore(open_store(url)))
        return stores[-1]

    async with fresh_database(str(request.param), folder, postgres_template) as url, AsyncExitStack() as stack:
        house = await open_house(stack, url, folder, proxy, {}, counting)
        stores[0].counts.open = True
        yield house, stores[0].counts


@pytest.fixture
async def long_chat(counted: tuple[House, Counts], model: ScriptedModel) -> AsyncIterator[LongChat]:
    house, counts = counted
    async with caller(house.base_url, house.key, ORGANIZATION) as client:
        stage = await furnish(house, client, model)
        chat = LongChat(stage, counts, "")
        chat.chat_id = (await chat.play()).chat_id
        yield chat
        assert await faults(house.parley) == []


async def test_a_turn_costs_no_more_at_the_end_of_two_thousand_messages(long_chat: LongChat) -> None:
    await long_chat.grow(10)
    tenth = await long_chat.cost()
    await long_chat.grow(TURNS // 2)
    uncut = await long_chat.cost()
    assert uncut.statements <= tenth.statements + 2
    # Without a summary every entry is sent, and nothing else is read.
    assert uncut.sent_entries > TURNS
    assert uncut.rows - uncut.sent_entries <= tenth.rows - tenth.sent_entries + 4
    await long_chat.compact()
    middle = await long_chat.cost()
    await long_chat.grow(TURNS - 2 - SAMPLES)
    await long_chat.compact()
    last = await long_chat.cost()
    for later in (middle, last):
        assert later.statements <= tenth.statements + 3, (tenth, later)
        assert later.rows <= 1.5 * tenth.rows + 5, (tenth, later)
        assert later.sent_bytes <= 1.5 * tenth.sent_bytes, (tenth, later)
    detail = (await long_chat.stage.client.get(f"/assistant/chat/{long_chat.chat_id}")).body
    spoken = [message for message in detail["messages"] if message["role"] != "system"]
    assert len(spoken) == 2 * TURNS
    assert len(detail["messages"]) - len(spoken) == 2, "one note for each summary"
    sent = str((await long_chat.stage.sent())[-1])
    assert "What was said in" in sent
    assert "Question 10?" not in sent
