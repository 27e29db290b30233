"""The embedding model that comes with Parley: one learned vector a token, averaged. Needs no network.

Loaded on first use only: numpy and the tokenizer are no part of start-up.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from parley.knowledge.embedding.weights import DIMENSION, tokenizer_file, vectors_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH = 256


class StaticModel:
    """The model in memory, about 20 MB. Its methods are for a thread: they compute, and release the lock as they do."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer_file()))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        (self._vectors,) = load_file(str(vectors_file())).values()

    def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """One row of length one for each text; a text without a token gives zeros."""
        rows = [self._batch(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        return np.concatenate(rows) if rows else np.zeros((0, DIMENSION), np.float32)

    def _batch(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        counts = np.array([len(one.ids) for one in encoded])
        ids = np.concatenate([np.asarray(one.ids, np.int64) for one in encoded])
        sums = np.zeros((len(texts), DIMENSION), np.float32)
        filled = counts > 0
        starts = (np.cumsum(counts) - counts)[filled]
        if len(starts):
            tokens = self._vectors[np.minimum(ids, len(self._vectors) - 1)].astype(np.float32)
            sums[filled] = np.add.reduceat(tokens, starts)
        return unit_rows(sums)


def unit_rows(rows: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Every row at length one; zeros stay zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
