"""What a check comes to."""

from dataclasses import dataclass
from typing import Literal

START = "Start it, which makes what is missing: parley serve"

type State = Literal["good", "note", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``text`` says how it is, ``mend`` which command or change mends it.

    A ``note`` is worth knowing; only ``broken`` makes the command fail. Neither text holds a secret.
    """

    topic: str
    state: State
    text: str
    mend: str = ""


def good(topic: str, text: str) -> Finding:
    """As it should be."""
    return Finding(topic, "good", text)


def note(topic: str, text: str, mend: str) -> Finding:
    """Works, and should be known; ``mend`` is what makes the note go away."""
    return Finding(topic, "note", text, mend)


def broken(topic: str, text: str, mend: str) -> Finding:
    """Does not work."""
    return Finding(topic, "broken", text, mend)
