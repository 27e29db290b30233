"""``parley replay``: a turn taken out of the store without secrets, and run again against its recorded answers."""

from parley.cli.replay.command import replay

__all__ = ["replay"]
