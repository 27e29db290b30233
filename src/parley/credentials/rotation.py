"""Sealing everything anew under the first master key, while servers run (trust T10).

Nothing is kept beside the rows: what another key seals is what is left to do, so a rotation that was
killed is finished by the next one. A row that changes meanwhile keeps its change and comes again.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Table

from parley.accounts import secret_context
from parley.credentials.vault import credential_context, flow_context
from parley.keyring import Keyring, SealBroken
from parley.storage import Store, WriteTx
from parley.storage.sealed import RowKey, exchange_seal, rows_by_key, sealed_otherwise
from parley.storage.tables.accounts import instance_secrets
from parley.storage.tables.credentials import credentials, oauth_states

BATCH = 200
# A row can change as often as somebody uses it; a pass that moves nothing ends the rotation.
MOST_PASSES = 10


@dataclass(frozen=True, slots=True)
class Rotated:
    """What a rotation came to. ``moved`` rows were sealed anew; the two counts are rows by master key id.

    ``sealed`` is counted afterwards, over everything; ``broken`` rows do not open, and stay as they are.
    """

    moved: int
    broken: Mapping[str, int]
    sealed: Mapping[str, int]


# What each table's seals are bound to.
SEALED: Mapping[Table, Callable[[Row[Any]], str]] = {
    instance_secrets: lambda row: secret_context(row.name),
    credentials: lambda row: credential_context(row.organization_id, row.id),
    oauth_states: lambda row: flow_context(row.organization_id, row.state_hash),
}


async def rotate(store: Store, keyring: Keyring, on_progress: Callable[[int], None]) -> Rotated:
    """Seal every row under the keyring's first key. ``on_progress`` hears how many are done, after each batch.

    The running servers must know both keys before, and afterwards the old one may go only where
    ``sealed`` no longer has it.
    """
    moved, broken = 0, Counter[str]()
    for _ in range(MOST_PASSES):
        before, broken = moved, Counter[str]()
        for table in SEALED:
            moved = await _rotate_table(store, keyring, table, moved, broken, on_progress)
        if moved == before:
            break
    return Rotated(moved, broken, await seals(store))


async def seals(store: Store) -> Mapping[str, int]:
    """How many rows each master key seals, by its id."""
    return await store.read(lambda tx: rows_by_key(tx, SEALED))


async def _rotate_table(
    store: Store,
    keyring: Keyring,
    table: Table,
    moved: int,
    broken: Counter[str],
    on_progress: Callable[[int], None],
) -> int:
    after: RowKey | None = None
    while True:
        last = after
        rows = await store.read(
            lambda tx, last=last: sealed_otherwise(tx, table, keyring.primary, after=last, limit=BATCH)
        )
        if not rows:
            return moved
        after = rows[-1].row_key
        renewed = _renewed(keyring, table, rows, broken)
        moved += await store.write(lambda tx, renewed=renewed: _exchange(tx, table, renewed))
        on_progress(moved)


@dataclass(frozen=True, slots=True)
class _Renewed:
    key: RowKey
    old: bytes
    new: bytes
    key_id: str


def _renewed(keyring: Keyring, table: Table, rows: Sequence[Row[Any]], broken: Counter[str]) -> list[_Renewed]:
    renewed: list[_Renewed] = []
    for row in rows:
        context = SEALED[table](row)
        try:
            plain = keyring.open(row.sealed, key_id=row.key_id, context=context)
        except SealBroken:
            broken[row.key_id] += 1
            continue
        new, key_id = keyring.seal(plain, context=context)
        renewed.append(_Renewed(row.row_key, row.sealed, new, key_id))
    return renewed


def _exchange(tx: WriteTx, table: Table, renewed: Sequence[_Renewed]) -> int:
    return sum(exchange_seal(tx, table, each.key, old=each.old, new=each.new, key_id=each.key_id) for each in renewed)
