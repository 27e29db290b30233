"""``parley backup`` and ``parley restore``: a whole store in one file, and back (docs/decisions/0042)."""

from parley.cli.backup.restore import check, restore
from parley.cli.backup.write import backup

__all__ = ["backup", "check", "restore"]
