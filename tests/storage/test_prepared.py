"""Prepared statements: what SQLAlchemy would have done, on both stores."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import bindparam, cast, func, insert, select, update
from sqlalchemy.exc import IntegrityError, InvalidRequestError

from parley.storage import ReadTx, Store, WriteTx
from parley.storage.prepared import PreparedChange, PreparedQuery
from parley.storage.tables.accounts import instance_secrets, organizations
from parley.storage.tables.columns import Json

INSERT = insert(organizations)
INSERTED = PreparedChange(INSERT)
NAMED = PreparedQuery(
    select(organizations.c.name, organizations.c.domain, organizations.c.is_active, organizations.c.settings)
    .where(organizations.c.slug.in_(("o1", "o2")), organizations.c.is_active, organizations.c.name != bindparam("but"))
    .order_by(organizations.c.slug)
    .limit(bindparam("most"))
)
RENAMED = PreparedChange(update(organizations).where(organizations.c.id == bindparam("of_organization")))
SWITCHED = PreparedQuery(
    update(organizations)
    .where(organizations.c.id == bindparam("of_organization"))
    .values(is_active=bindparam("active"), name=organizations.c.name + bindparam("more"))
    .returning(organizations.c.is_active, organizations.c.name)
)


def organization(number: int, **other: Any) -> dict[str, Any]:
    row = {"id": f"id{number}", "name": f"N{number}", "slug": f"o{number}", "domain": None, "is_active": True}
    return {**row, "settings": {"deep": [number, None, "ü\u2028"]}, "created_at": 2**60 + number, **other}


async def test_values_go_in_and_come_out_as_with_sqlalchemy(store: Store) -> None:
    def work(tx: WriteTx) -> None:
        tx.execute(INSERT, organization(1))
        assert INSERTED.run(tx, organization(2, is_active=False)) == 1

    await store.write(work)
    plain = await store.read(lambda tx: tx.execute(select(organizations).order_by(organizations.c.id)).all())
    ready = PreparedQuery(select(organizations).order_by(organizations.c.id))
    assert await store.read(lambda tx: ready.rows(tx, {})) == [tuple(row) for row in plain]
    first, second = await store.read(lambda tx: ready.records(tx, {}))
    assert (first.settings, first.is_active, second.is_active) == ({"deep": [1, None, "ü\u2028"]}, True, False)


async def test_fixed_and_given_conditions_hold_together(store: Store) -> None:
    rows = [organization(1), organization(2), organization(3), organization(4, is_active=False)]
    await store.write(lambda tx: INSERTED.run_many(tx, rows))

    def look(tx: ReadTx) -> list[list[str]]:
        return [
            [name for name, *_ in NAMED.rows(tx, {"but": but, "most": most})]
            for but, most in (("", 9), ("", 1), ("N1", 9))
        ]

    assert await store.read(look) == [["N1", "N2"], ["N1"], ["N2"]]
    assert await store.read(lambda tx: NAMED.first(tx, {"but": "", "most": 0})) is None


async def test_only_the_named_columns_change_and_the_rows_are_counted(store: Store) -> None:
    await store.write(lambda tx: INSERTED.run_many(tx, [organization(1, domain="a.example"), organization(2)]))

    def work(tx: WriteTx) -> tuple[int, int, int]:
        one = RENAMED.run(tx, {"of_organization": "id1", "name": "New", "settings": {}})
        other = RENAMED.run(tx, {"of_organization": "id1", "domain": None})
        return one, other, RENAMED.run(tx, {"of_organization": "nobody", "name": "New"})

    assert await store.write(work) == (1, 1, 0)
    rows = await store.read(lambda tx: tx.execute(select(organizations).order_by(organizations.c.id)).all())
    assert [(row.name, row.domain, row.settings) for row in rows] == [
        ("New", None, {}),
        ("N2", None, {"deep": [2, None, "ü\u2028"]}),
    ]


async def test_a_change_gives_back_what_it_made(store: Store) -> None:
    await store.write(lambda tx: INSERTED.run(tx, organization(1)))

    def work(tx: WriteTx) -> list[tuple[Any, ...] | None]:
        values = {"active": False, "more": "!"}
        return [SWITCHED.first(tx, {"of_organization": key, **values}) for key in ("id1", "nobody")]

    assert await store.write(work) == [(False, "N1!"), None]


async def test_what_the_store_refuses_is_raised_as_sqlalchemy_raises_it(store: Store) -> None:
    await store.write(lambda tx: INSERTED.run(tx, organization(1)))
    works: tuple[Callable[[WriteTx], object], ...] = (
        lambda tx: INSERTED.run(tx, organization(1)),
        lambda tx: INSERTED.run_many(tx, [organization(2), organization(1)]),
    )
    for work in works:
        with pytest.raises(IntegrityError) as raised:
            await store.write(work)
        assert "N1" not in str(raised.value)
    assert await store.read(lambda tx: tx.execute(select(func.count()).select_from(organizations)).scalar_one()) == 1


async def test_a_missing_value_is_a_fault_and_not_an_empty_column(store: Store) -> None:
    with pytest.raises(InvalidRequestError):
        await store.read(lambda tx: NAMED.rows(tx, {"but": ""}))
    rows = [organization(1), {"id": "id2"}]
    with pytest.raises(KeyError):
        await store.write(lambda tx: INSERTED.run_many(tx, rows))
    assert await store.read(lambda tx: PreparedQuery(select(organizations.c.id)).rows(tx, {})) == []


BY_NAME = select(organizations.c.name).where(organizations.c.name.in_(bindparam("names", expanding=True)))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
async def test_a_list_of_any_length_finds_its_rows(store: Store, count: int) -> None:
    listed = PreparedQuery(BY_NAME.order_by(organizations.c.slug), listed="names")
    rows = [organization(number) for number in range(6)]
    names = [row["name"] for row in rows[:count]]
    await store.write(lambda tx: INSERTED.run_many(tx, rows))
    assert await store.read(lambda tx: listed.rows(tx, {"names": names})) == [(name,) for name in names]


async def test_a_list_that_was_not_announced_is_refused(store: Store) -> None:
    listed = PreparedQuery(BY_NAME)
    with pytest.raises(TypeError, match="length"):
        await store.read(lambda tx: listed.rows(tx, {"names": ["a"]}))


async def test_bytes_and_none_pass(store: Store) -> None:
    put = PreparedChange(insert(instance_secrets))
    got = PreparedQuery(select(instance_secrets.c.sealed, cast(None, Json).label("none")))
    row = {"name": "n", "sealed": b"\0\xff", "key_id": "k", "created_at": 0}
    await store.write(lambda tx: put.run(tx, row))
    assert await store.read(lambda tx: got.rows(tx, {})) == [(b"\0\xff", None)]
