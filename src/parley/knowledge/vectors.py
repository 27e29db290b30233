"""Searching by meaning: each process holds the vectors of the bases it searches (decision 0020).

A base's ``version`` tells whether the copy here is old; then only documents that are new are read.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from parley.knowledge.chunk_store import finished_documents, vectors_of
from parley.knowledge.model import Base
from parley.storage import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parley.knowledge.matrix import Matrix, Place, Segment

MOST_BYTES = 1024 * 1024 * 1024
DOCUMENTS_AT_ONCE = 50


class Vectors:
    """The bases in memory, the one used longest ago let go first."""

    def __init__(self, store: Store, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._held: OrderedDict[str, Matrix] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def nearest(
        self, base: Base, query: "NDArray[np.float32]", count: int, only: frozenset[str] | None = None
    ) -> "list[tuple[Place, float]]":
        """The passages of a base most like the query, best first, each with its cosine.

        ``only`` narrows it to these documents.
        """
        matrix = await self._current(base)
        return await asyncio.to_thread(matrix.nearest, query, count, only)

    async def _current(self, base: Base) -> "Matrix":
        held = self._held.get(base.id)
        if held is None or held.version < base.version:
            async with self._locks.setdefault(base.id, asyncio.Lock()):
                held = self._held.get(base.id)
                if held is None or held.version < base.version:
                    held = await self._load(base, held)
                    self._held[base.id] = held
                    self._let_go()
        self._held.move_to_end(base.id)
        return held

    def _let_go(self) -> None:
        while len(self._held) > 1 and sum(matrix.bytes for matrix in self._held.values()) > self._most_bytes:
            gone, _ = self._held.popitem(last=False)
            self._locks.pop(gone, None)

    async def _load(self, base: Base, old: "Matrix | None") -> "Matrix":
        from parley.knowledge.matrix import Matrix  # noqa: PLC0415 - numpy is no part of start-up

        old = old or Matrix(version=-1)
        wanted = await self._store.read(lambda tx: finished_documents(tx, base.id))
        segments = old.segments
        missing = [name for name, epoch in wanted.items() if name not in segments or segments[name].epoch != epoch]
        fresh: dict[str, Segment] = {}
        for start in range(0, len(missing), DOCUMENTS_AT_ONCE):
            fresh |= await self._read(missing[start : start + DOCUMENTS_AT_ONCE], wanted)
        return await asyncio.to_thread(old.rebuilt, base.version, wanted, fresh)

    async def _read(self, names: Sequence[str], epochs: dict[str, int]) -> "dict[str, Segment]":
        from parley.knowledge.matrix import Segment, unpack  # noqa: PLC0415

        rows = await self._store.read(lambda tx: vectors_of(tx, names))
        bodies: dict[str, list[bytes]] = {name: [] for name in names}
        counts = dict.fromkeys(names, 0)
        for name, _, count, body in rows:
            bodies[name].append(body)
            counts[name] += count
        return {name: Segment(epochs[name], unpack(bodies[name], counts[name])) for name in names if counts[name]}
