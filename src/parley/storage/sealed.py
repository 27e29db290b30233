"""The SQL of sealed columns, whatever table they are in: which master key seals how much, and changing the seal.

Every such table has the columns ``sealed`` and ``key_id`` and a primary key of one column.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Column, Row, Table, func, select, update

from parley.storage.engine import ReadTx, WriteTx

type RowKey = str | bytes


def rows_by_key(tx: ReadTx, tables: Iterable[Table]) -> Counter[str]:
    """How many rows each master key seals, by the key's id."""
    counted: Counter[str] = Counter()
    for table in tables:
        for key_id, rows in tx.execute(select(table.c.key_id, func.count()).group_by(table.c.key_id)):
            counted[key_id] += rows
    return counted


def sealed_otherwise(
    tx: ReadTx, table: Table, key_id: str, *, after: RowKey | None, limit: int
) -> Sequence[Row[tuple[Any, ...]]]:
    """Whole rows that another key than this one seals, by primary key, from after one on; ``row_key`` is that key."""
    own = _key(table)
    query = select(own.label("row_key"), table).where(table.c.key_id != key_id).order_by(own).limit(limit)
    return tx.execute(query if after is None else query.where(own > after)).all()


def exchange_seal(tx: WriteTx, table: Table, key: RowKey, *, old: bytes, new: bytes, key_id: str) -> bool:
    """Put the new seal in the place of the old one; False when the row holds something else by now."""
    changed = tx.execute(
        update(table).where(_key(table) == key, table.c.sealed == old).values(sealed=new, key_id=key_id)
    )
    return changed.rowcount == 1


def _key(table: Table) -> Column[Any]:
    (column,) = table.primary_key.columns
    return column
