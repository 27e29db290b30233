"""Rows: the engine, the tables, the migrations, and the differences between the two dialects."""

from parley.storage.engine import (
    STORE_TROUBLE,
    ReadTx,
    SqliteStore,
    Store,
    StoreAway,
    StoreBusy,
    WriteTx,
    leave_no_trace,
    open_store,
)
from parley.storage.wake import EVENTS, RUNS, listen_for_notices, notify

__all__ = [
    "EVENTS",
    "RUNS",
    "STORE_TROUBLE",
    "ReadTx",
    "SqliteStore",
    "Store",
    "StoreAway",
    "StoreBusy",
    "WriteTx",
    "leave_no_trace",
    "listen_for_notices",
    "notify",
    "open_store",
]
