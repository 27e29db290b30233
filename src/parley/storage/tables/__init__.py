"""Every table, for both dialects; importing the package puts each into the metadata.

Conventions: ids are UUID text; times are integer microseconds since 1970 UTC and end in ``_at`` or
``_until``; money is integer micro-credits and ends in ``_micro``; ``Json`` columns hold JSON text.
Invariants that must never break are unique indexes here, not checks in Python.
"""

from parley.storage.tables import accounts, billing, chats, columns, credentials, knowledge, own

__all__ = ["accounts", "billing", "chats", "columns", "credentials", "knowledge", "own"]
