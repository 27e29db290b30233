"""Statements that every turn runs: turned into SQL once, and run by the driver itself.

SQLAlchemy prepares a statement anew for every execution, which costs ten times what SQLite takes to run it.
Here it is asked once, for each dialect and set of values, for the SQL and for the conversions of what goes in
and comes out; both are then used as they are (decision 0047).
"""

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Delete, Dialect, Insert, Select, Update
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import ReturningDelete, ReturningInsert, ReturningUpdate

from parley.storage.engine import ReadTx, WriteTx, as_raised

type Values = Mapping[str, Any]
type Convert = Callable[[Any], Any]
type Arguments = tuple[Any, ...]


class _Made:
    """A statement in one dialect's SQL, for values of these names."""

    __slots__ = ("_converts", "_fixed", "_slots", "sql")

    def __init__(self, statement: Any, dialect: Dialect, values: Values, listed: str | None) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(values))
        if not isinstance(compiled, SQLCompiler) or compiled.insert_prefetch or compiled.update_prefetch:
            raise TypeError(f"{statement}: its columns have defaults in Python, which would be left out")
        given = dict(values)
        if listed is not None:
            given[listed] = [values[name] for name in _members(listed, values)]
        state = compiled.construct_expanded_state(given)
        if any(name in values for name in state.parameter_expansion):
            raise TypeError(f"{statement}: a list of values has to be named: it makes other SQL for each length")
        if state.processors:
            raise TypeError(f"{statement}: a fixed list of values that need conversion")
        self.sql = state.statement
        # What stays the same, such as a LIMIT, in its place; None where a value of the caller goes.
        self._fixed: list[Any] = []
        self._slots: list[tuple[int, str]] = []
        self._converts: list[tuple[int, Convert]] = []
        for place, name in enumerate(state.positiontup or ()):
            # What a list of fixed values was made into has no bind parameter of its own, and needs no conversion.
            bind = compiled.binds.get(name)
            convert = None if bind is None else bind.type.dialect_impl(dialect).bind_processor(dialect)
            if name in values:
                self._fixed.append(None)
                self._slots.append((place, name))
                if convert is not None:
                    self._converts.append((place, convert))
            else:
                fixed = state.parameters[name]
                self._fixed.append(fixed if convert is None else convert(fixed))

    def arguments(self, values: Values) -> Arguments:
        """The values as the driver takes them. Raises KeyError where one is missing."""
        given = self._fixed.copy()
        for place, name in self._slots:
            given[place] = values[name]
        for place, convert in self._converts:
            given[place] = convert(given[place])
        return tuple(given)


class _Prepared:
    """A statement and what was made of it so far. ``listed``: the one bind parameter that takes a list."""

    def __init__(self, statement: Any, listed: str | None) -> None:
        self._statement = statement
        self._listed = listed
        self._made: dict[tuple[str, ...], _Made] = {}

    def _ready(self, tx: ReadTx, values: Values) -> tuple[str, Arguments]:
        """The SQL and what goes with it."""
        if self._listed is not None:
            values = _padded(self._listed, values)
        made = self._for(tx.dialect, values)
        return made.sql, made.arguments(values)

    def _for(self, dialect: Dialect, values: Values) -> _Made:
        key = (dialect.name, *values)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = _Made(self._statement, dialect, values, self._listed)
        return made


def _padded(listed: str, values: Values) -> Values:
    """The list's members as values of their own, the last one repeated up to a power of two.

    So a list of any length up to a thousand leads to one of eleven statements.
    """
    given = dict(values)
    members = list(given.pop(listed))
    if members:
        members += members[-1:] * ((1 << (len(members) - 1).bit_length()) - len(members))
    return given | {f"{listed}_{number}": member for number, member in enumerate(members, 1)}


def _members(listed: str, values: Values) -> list[str]:
    """The names that ``_padded`` gave the list's members."""
    return [name for name in values if name.startswith(f"{listed}_") and name[len(listed) + 1 :].isdecimal()]


class PreparedChange(_Prepared):
    """An INSERT, UPDATE or DELETE of which only the number of rows is wanted."""

    def __init__(self, statement: Insert | Update | Delete, listed: str | None = None) -> None:
        super().__init__(statement, listed)

    def run(self, tx: WriteTx, values: Values) -> int:
        """Run it; how many rows it touched. Values go by the names of its columns and bind parameters."""
        sql, arguments = self._ready(tx, values)
        driver = tx.connection.driver_connection
        if not isinstance(driver, sqlite3.Connection):
            return tx.exec_driver_sql(sql, arguments).rowcount
        try:
            return driver.execute(sql, arguments).rowcount
        except sqlite3.Error as error:
            raise as_raised(error, sql) from error

    def run_many(self, tx: WriteTx, rows: Sequence[Values]) -> None:
        """Run it for each of these, which all have the same names; nothing for none."""
        if not rows:
            return
        made = self._for(tx.dialect, rows[0])
        many = [made.arguments(row) for row in rows]
        driver = tx.connection.driver_connection
        if not isinstance(driver, sqlite3.Connection):
            tx.exec_driver_sql(made.sql, many)
            return
        try:
            driver.executemany(made.sql, many)
        except sqlite3.Error as error:
            raise as_raised(error, made.sql) from error


class PreparedQuery[*Columns](_Prepared):
    """A SELECT, or a change with RETURNING, whose rows are wanted."""

    def __init__(
        self,
        statement: Select[*Columns] | ReturningInsert[*Columns] | ReturningUpdate[*Columns] | ReturningDelete[*Columns],
        listed: str | None = None,
    ) -> None:
        super().__init__(statement, listed)
        described = (
            statement.column_descriptions if isinstance(statement, Select) else statement.returning_column_descriptions
        )
        self._types = [column["type"] for column in described]
        names = [column["name"] or "unnamed" for column in described]
        self._record = namedtuple("Record", names, rename=True)  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]
        self._results: dict[str, list[tuple[int, Convert]]] = {}

    def rows(self, tx: ReadTx, values: Values) -> list[tuple[*Columns]]:
        """Run it; its rows."""
        sql, arguments = self._ready(tx, values)
        driver = tx.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            try:
                found: Iterable[Sequence[Any]] = driver.execute(sql, arguments).fetchall()
            except sqlite3.Error as error:
                raise as_raised(error, sql) from error
        else:
            found = tx.exec_driver_sql(sql, arguments).fetchall()
        converts = self._results.get(tx.dialect.name)
        if converts is None:
            converts = self._results[tx.dialect.name] = list(self._conversions(tx.dialect))
        return [_converted(row, converts) for row in found]  # pyright: ignore[reportReturnType]

    def first(self, tx: ReadTx, values: Values) -> tuple[*Columns] | None:
        """Run it; its first row."""
        found = self.rows(tx, values)
        return found[0] if found else None

    def records(self, tx: ReadTx, values: Values) -> list[Any]:
        """Run it; its rows, their columns by name."""
        return [self._record._make(row) for row in self.rows(tx, values)]

    def record(self, tx: ReadTx, values: Values) -> Any:
        """Run it; its first row, its columns by name; None without one."""
        found = self.rows(tx, values)
        return self._record._make(found[0]) if found else None

    def scalar(self, tx: ReadTx, values: Values) -> Any:
        """Run it; the first column of its first row; None without one."""
        found = self.rows(tx, values)
        return found[0][0] if found else None

    def _conversions(self, dialect: Dialect) -> Iterable[tuple[int, Convert]]:
        for place, kind in enumerate(self._types):
            convert = kind.dialect_impl(dialect).result_processor(dialect, None)
            if convert is not None:
                yield place, convert


def _converted(row: Sequence[Any], converts: Sequence[tuple[int, Convert]]) -> Arguments:
    if not converts:
        return tuple(row)
    values = list(row)
    for place, convert in converts:
        values[place] = convert(values[place])
    return tuple(values)
