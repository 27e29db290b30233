"""The columns that every table is made of, and the metadata they all hang on."""

from typing import Any

import msgspec
from sqlalchemy import BigInteger, Column, Dialect, ForeignKey, MetaData, String, Text, TypeDecorator

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Json(TypeDecorator[Any]):
    """JSON kept as text: the same bytes on both stores."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else msgspec.json.encode(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        return None if value is None else msgspec.json.decode(value)


def identity(name: str = "id") -> Column[str]:
    """A primary key of UUID text."""
    return Column(name, String(36), primary_key=True)


def reference(name: str, target: str, *, nullable: bool = False, index: bool = False) -> Column[str]:
    """A foreign key to a UUID; the row goes when its target goes."""
    return Column(name, String(36), ForeignKey(target, ondelete="CASCADE"), nullable=nullable, index=index)


def moment(name: str, *, nullable: bool = False) -> Column[int]:
    """A time, in microseconds since 1970 UTC."""
    return Column(name, BigInteger, nullable=nullable)
