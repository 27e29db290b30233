"""How long chats are kept, how they leave whole, and how they are erased without a trace."""

from parley.chats.keeping.export import Export, export_json, export_markdown, open_export
from parley.chats.keeping.retention import erase_outdated

__all__ = ["Export", "erase_outdated", "export_json", "export_markdown", "open_export"]
