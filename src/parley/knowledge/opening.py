"""The parts of knowledge, put together."""

import asyncio
import logging
from dataclasses import dataclass

from parley.base.clock import Clock
from parley.base.settings import Settings
from parley.billing import Plans
from parley.credentials import Credentials
from parley.egress import Egress
from parley.knowledge.bases import Bases
from parley.knowledge.documents import Documents
from parley.knowledge.embedding.embedder import Embedder
from parley.knowledge.external.stores import ExternalStores
from parley.knowledge.reader import Reader
from parley.knowledge.search import Search
from parley.knowledge.vectors import Vectors
from parley.storage import STORE_TROUBLE, Store

SWEEP_SECONDS = 3_600.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The organization's documents: for routes, for tools, and the reader where this process works."""

    bases: Bases
    documents: Documents
    search: Search
    reader: Reader | None

    async def keep_sweeping(self) -> None:
        """Drop what uploads left behind that never ended, every hour, for ever."""
        while True:
            try:
                await self.documents.sweep()
            except STORE_TROUBLE:
                log.exception("could not drop the bytes of broken uploads; trying again in an hour")
            await asyncio.sleep(SWEEP_SECONDS)


def open_knowledge(
    store: Store,
    clock: Clock,
    *,
    plans: Plans,
    credentials: Credentials,
    egress: Egress,
    settings: Settings,
    beats: Store | None,
) -> Knowledge:
    """``beats`` is the store for heartbeats; None where this process reads no documents."""
    embedder = Embedder(credentials, egress)
    external = ExternalStores(credentials, egress, embedder)
    reader = None if beats is None else Reader(store.across, beats.across, clock, settings, plans, embedder)
    return Knowledge(
        bases=Bases(store, clock, plans, embedder, external),
        documents=Documents(store, clock, plans, _nobody if reader is None else reader.ring),
        search=Search(store, clock, plans, embedder, Vectors(store), external),
        reader=reader,
    )


def _nobody() -> None:
    """Another process reads: it looks for documents every second."""
