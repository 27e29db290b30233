"""Durable runs: who executes them, what they write down, and who follows them."""

from parley.runs.chat_store import Chat
from parley.runs.hub import Hub
from parley.runs.journal import Flusher
from parley.runs.listen import Cursor, Tail, parse_cursor
from parley.runs.worker import Worker

__all__ = ["Chat", "Cursor", "Flusher", "Hub", "Tail", "Worker", "parse_cursor"]
