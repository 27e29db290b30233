"""The clock that leases are measured by: the store's own, so that two machines' clocks are never compared."""

import time

from sqlalchemy import BigInteger, ColumnElement, bindparam, cast, func

from parley.base.clock import SECOND
from parley.storage.engine import ReadTx


def server_now(dialect: str) -> ColumnElement[int]:
    """The store's clock in microseconds.

    On SQLite it is this process's; statements with it need the parameters of ``now_parameters``.
    """
    if dialect == "postgresql":
        return cast(func.extract("epoch", func.clock_timestamp()) * SECOND, BigInteger)
    return bindparam("now", type_=BigInteger)


def now_parameters(tx: ReadTx) -> dict[str, int]:
    """What a statement with ``server_now`` has to be given."""
    return {} if tx.dialect.name == "postgresql" else {"now": time.time_ns() // 1_000}
