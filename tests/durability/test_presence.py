"""Who serves a store is listed while it lives, and no longer (issue 3, sentence 2)."""

import asyncio
import signal
import socket
from collections.abc import Sequence

import pytest

from parley.base.settings import read_settings
from parley.cli.doctor import examine
from parley.runs.presence import Process, living
from parley.storage import Store, open_store
from tests.durability.conftest import LEASE, PATIENCE, Site, only_postgres

LEASE_SECONDS = float(LEASE["PARLEY_LEASE_SECONDS"])


async def listed(store: Store, count: int) -> Sequence[Process]:
    """The live processes, once there are so many."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await store.read(lambda tx: living(tx, LEASE_SECONDS))
            if len(found) == count:
                return found
            await asyncio.sleep(0.02)


async def test_live_processes_are_listed_and_dead_or_ended_ones_are_not(site: Site) -> None:
    only_postgres(site)
    front = await site.serve("api")
    doomed = await site.serve("worker")
    leaving = await site.serve("all")
    store = open_store(read_settings(site.environment).store_url).across
    try:
        found = await listed(store, 3)
        assert [(each.role, each.pid) for each in found] == [
            ("api", front.pid), ("worker", doomed.pid), ("all", leaving.pid)
        ]  # fmt: skip
        assert {each.host for each in found} == {socket.gethostname()}
        leaving.signal(signal.SIGTERM)
        await leaving.gone()
        assert {each.role for each in await listed(store, 2)} == {"api", "worker"}
        doomed.signal(signal.SIGKILL)
        assert [each.role for each in await listed(store, 1)] == ["api"]
    finally:
        await store.close()


async def test_a_process_that_was_away_is_listed_again(site: Site) -> None:
    only_postgres(site)
    await site.serve("api")
    away = await site.serve("worker")
    store = open_store(read_settings(site.environment).store_url).across
    try:
        await listed(store, 2)
        away.signal(signal.SIGSTOP)
        await listed(store, 1)
        away.signal(signal.SIGCONT)
        assert {each.pid for each in await listed(store, 2)} >= {away.pid}
    finally:
        await store.close()


async def test_doctor_lists_the_processes_and_says_when_none_executes_turns(site: Site) -> None:
    only_postgres(site)
    front = await site.serve("api")
    store = open_store(read_settings(site.environment).store_url).across
    try:
        await listed(store, 1)
        told = [finding async for finding in examine(site.environment) if finding.topic == "Processes"]
        assert [finding.state for finding in told] == ["good", "broken"]
        assert f"{socket.gethostname()}:{front.pid} (0 running)" in told[0].text
        assert "parley serve --role worker" in told[1].mend
        await site.serve("worker")
        await listed(store, 2)
        told = [finding async for finding in examine(site.environment) if finding.topic == "Processes"]
        assert [finding.state for finding in told] == ["good"]
    finally:
        await store.close()


async def test_the_one_process_on_sqlite_replaces_the_row_of_the_one_that_was_killed(site: Site) -> None:
    if not site.environment["PARLEY_DATABASE_URL"].startswith("sqlite"):
        pytest.skip("PostgreSQL takes any number of processes")
    first = await site.serve()
    first.signal(signal.SIGKILL)
    await first.gone()
    second = await site.serve()
    store = open_store(read_settings(site.environment).store_url).across
    try:
        async with asyncio.timeout(PATIENCE):
            while [each.pid for each in await store.read(lambda tx: living(tx, 3_600))] != [second.pid]:
                await asyncio.sleep(0.02)
    finally:
        await store.close()
