"""The vectors of one base in memory, and exact search among them. Loaded on first use only (numpy)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

type Place = tuple[str, int]
"""A passage by its document and its index there."""


def pack(rows: "NDArray[np.float32]") -> bytes:
    """Vectors as they are stored: little-endian float16."""
    return rows.astype("<f2").tobytes()


def unpack(bodies: Iterable[bytes], count: int) -> "NDArray[np.float16]":
    """Stored vectors, one row a passage."""
    return np.frombuffer(b"".join(bodies), "<f2").reshape(count, -1)


@dataclass(slots=True)
class Segment:
    """One document's vectors, and the epoch they are of."""

    epoch: int
    rows: "NDArray[np.float16]"


@dataclass(slots=True)
class Matrix:
    """All of a base's vectors as one float32 matrix, at the base's ``version``."""

    version: int
    segments: dict[str, Segment] = field(default_factory=dict[str, Segment])
    rows: "NDArray[np.float32]" = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    owners: Sequence[str] = ()
    starts: "NDArray[np.int64]" = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return self.rows.nbytes + sum(segment.rows.nbytes for segment in self.segments.values())

    def rebuilt(self, version: int, wanted: Mapping[str, int], fresh: Mapping[str, Segment]) -> "Matrix":
        """The same at another version: ``wanted`` documents by epoch, of which ``fresh`` were just read."""
        kept = {name: segment for name, segment in self.segments.items() if wanted.get(name) == segment.epoch}
        segments = {**kept, **fresh}
        filled = {name: segment for name, segment in segments.items() if len(segment.rows)}
        if not filled:
            return Matrix(version, segments)
        rows = np.concatenate([segment.rows for segment in filled.values()]).astype(np.float32)
        sizes = np.array([len(segment.rows) for segment in filled.values()])
        return Matrix(version, segments, rows, tuple(filled), np.cumsum(sizes) - sizes)

    def nearest(
        self, query: "NDArray[np.float32]", count: int, only: frozenset[str] | None
    ) -> list[tuple[Place, float]]:
        """The passages whose vectors are most like the query's, best first, with the cosine of each."""
        if not len(self.rows):
            return []
        scores = self.rows @ query
        if only is not None:
            sizes = np.diff(np.append(self.starts, len(self.rows)))
            allowed = np.repeat([owner in only for owner in self.owners], sizes)
            scores = np.where(allowed, scores, -np.inf)
        count = min(count, len(scores))
        best = np.argpartition(scores, -count)[-count:]
        best = best[np.argsort(scores[best])[::-1]]
        return [(self._place(int(row)), float(scores[row])) for row in best if np.isfinite(scores[row])]

    def _place(self, row: int) -> Place:
        owner = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.owners[owner], row - int(self.starts[owner])
