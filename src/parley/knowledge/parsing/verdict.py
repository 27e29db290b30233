"""What the child says of a file."""

from collections.abc import Sequence

import msgspec

from parley.knowledge.model import Piece


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """Its passages; or, in ``fault``, why there are none, with the ``reason`` for the log."""

    pieces: Sequence[Piece] = ()
    fault: str = ""
    reason: str = ""
