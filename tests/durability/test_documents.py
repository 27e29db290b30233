"""SIGKILL while a document is read: the child, the server, at every kind of write; read once, charged once."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from parley.base.settings import read_settings
from parley.storage import ReadTx, open_store
from parley.storage.tables.billing import ledger
from parley.storage.tables.knowledge import chunk_vectors, chunks
from tests.contract.conftest import ORGANIZATION
from tests.durability.conftest import Server, Site
from tests.knowledge.shelf import ended, find, make_base, upload
from tests.stage import Client, caller

# Two batches of passages and more, so that a document can be half stored.
RULES = "".join(f"## Rule {n}\n\nRule {n} says that door {n} of the house stays shut at night.\n\n" for n in range(300))
CHUNKING = {"chunk_size": 32, "chunk_overlap": 0}
DEATHS = (
    "after:Reader._pay:1",
    "after:Reader._keep.<locals>.<lambda>:1",
    "before:Reader._keep.<locals>.work:1",
)
ARMED = {"PARLEY_CRASH_ARMED": "1"}
# A busy machine may be late by seconds with a heartbeat, and every lease that runs out counts as a try.
LEASES = {"PARLEY_LEASE_SECONDS": "5", "PARLEY_HEARTBEAT_SECONDS": "0.5"}
CHILD_SECONDS = 20.0


async def counted(site: Site, document_id: str) -> tuple[int, int, int]:
    """Passages, their vectors, and how often reading was charged."""

    def work(tx: ReadTx) -> tuple[int, int, int]:
        passages = select(func.count(chunks.c.id)).where(chunks.c.document_id == document_id)
        vectors = select(func.coalesce(func.sum(chunk_vectors.c.count), 0)).where(
            chunk_vectors.c.document_id == document_id
        )
        charged = select(func.count(ledger.c.charge_key)).where(ledger.c.charge_key.like(f"ingest:{document_id}:%"))
        return (
            tx.execute(passages).scalar_one(),
            int(tx.execute(vectors).scalar_one()),
            tx.execute(charged).scalar_one(),
        )

    store = open_store(read_settings(site.environment).store_url).across
    try:
        return await store.read(work)
    finally:
        await store.close()


async def read_once(site: Site, client: Client, base: str, document_id: str) -> None:
    """The document ends as read, whole, without a passage or a charge twice, and can be found."""
    document = await ended(client, base, document_id)
    assert (document["status"], document["error_message"]) == ("completed", None)
    assert document["chunk_count"] > 256
    assert await counted(site, document_id) == (document["chunk_count"], document["chunk_count"], 1)
    best = (await find(client, base, "Which door does rule 17 keep shut?"))[0]
    assert "Rule 17 " in best["content"] or "door 17 " in best["content"]


def here(site: Site, server: Server) -> Any:
    return caller(server.base_url, site.key, ORGANIZATION)


@pytest.mark.parametrize("death", DEATHS)
async def test_a_document_whose_server_is_killed_at_a_write_is_read_by_the_next_one(site: Site, death: str) -> None:
    doomed = await site.serve(crash=death, **ARMED, **LEASES)
    async with here(site, doomed) as client:
        base = await make_base(client, chunking_config=CHUNKING)
        taken = await upload(client, base, "rules.md", RULES.encode())
        assert taken.status == 201
    await doomed.gone()
    heir = await site.serve(**LEASES)
    async with here(site, heir) as client:
        await read_once(site, client, base, taken.body["id"])
    assert await site.faults() == []


async def child_of(server: Server) -> int:
    """The process that reads a file for this server, as soon as there is one."""
    async with asyncio.timeout(CHILD_SECONDS):
        while True:
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    parent = folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]
                    if int(parent) == server.pid and b"knowledge.parsing" in folder.joinpath("cmdline").read_bytes():
                        return int(folder.name)
                except OSError:
                    continue
            await asyncio.sleep(0.002)


async def test_a_child_that_is_killed_is_started_again_and_one_without_a_server_ends(site: Site) -> None:
    first = await site.serve(**LEASES)
    async with here(site, first) as client:
        base = await make_base(client, chunking_config=CHUNKING)
        taken = await upload(client, base, "rules.md", RULES.encode())
        os.kill(await child_of(first), signal.SIGKILL)
        await read_once(site, client, base, taken.body["id"])
        taken = await upload(client, base, "more.md", f"More\n\n{RULES * 2}".encode())
        orphan = await child_of(first)
        first.signal(signal.SIGKILL)
        await first.gone()
    async with asyncio.timeout(CHILD_SECONDS):
        while Path(f"/proc/{orphan}/exe").exists():
            await asyncio.sleep(0.02)
    heir = await site.serve(**LEASES)
    async with here(site, heir) as client:
        await read_once(site, client, base, taken.body["id"])
    assert await site.faults() == []


async def test_a_document_whose_child_is_killed_every_time_ends_with_a_sentence(site: Site) -> None:
    server = await site.serve(**LEASES)
    async with here(site, server) as client:
        base = await make_base(client, chunking_config=CHUNKING)
        taken = await upload(client, base, "rules.md", RULES.encode())
        for _ in range(3):
            child = await child_of(server)
            os.kill(child, signal.SIGKILL)
            async with asyncio.timeout(CHILD_SECONDS):
                while Path(f"/proc/{child}").exists():
                    await asyncio.sleep(0.002)
        document = await ended(client, base, taken.body["id"])
        assert (document["status"], document["chunk_count"]) == ("failed", 0)
        assert "three times" in document["error_message"]
        assert await counted(site, taken.body["id"]) == (0, 0, 0)
