"""A PostgreSQL to measure on: PARLEY_TEST_POSTGRES_URL, or one on this machine."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg

from bench.machine import cpu_seconds, processes_that_say

DEFAULT = "postgresql://postgres@127.0.0.1:5432"


def server_url() -> str:
    """The server's URL without a database."""
    return (os.environ.get("PARLEY_TEST_POSTGRES_URL") or DEFAULT).rstrip("/")


async def answers() -> bool:
    """Whether there is one."""
    try:
        connection = await asyncpg.connect(f"{server_url()}/postgres", timeout=2)
    except (OSError, TimeoutError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


async def required(program: str) -> bool:
    """As ``answers``; where there is none, says so on standard error, and what to do."""
    if await answers():
        return True
    print(f"{program}: no PostgreSQL answers; name one in PARLEY_TEST_POSTGRES_URL", file=sys.stderr)
    return False


@asynccontextmanager
async def fresh_database() -> AsyncGenerator[str]:
    """The URL of an empty database, dropped afterwards."""
    name = f"parley_bench_{uuid4().hex[:12]}"
    await _admin(f"CREATE DATABASE {name}")
    try:
        yield f"{server_url()}/{name}"
    finally:
        await _admin(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def server_cpu(url: str) -> dict[int, float]:
    """Seconds of CPU of each process that serves this database; empty when it runs on another machine."""
    used: dict[int, float] = {}
    for pid in processes_that_say(url.rpartition("/")[2]):
        try:
            used[pid] = cpu_seconds(pid)
        except FileNotFoundError:  # a connection has just ended
            continue
    return used


async def table_bytes(url: str) -> dict[str, int]:
    """Bytes of each table with its indexes and its long values, by name."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        found = await connection.fetch(
            "SELECT relname, pg_total_relation_size(relid) AS bytes FROM pg_stat_user_tables"
        )
        return {str(row["relname"]): int(row["bytes"]) for row in found}
    finally:
        await connection.close()


def spent(before: dict[int, float], after: dict[int, float]) -> float:
    """Seconds of CPU between two looks."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


async def _admin(statement: str) -> None:
    connection = await asyncpg.connect(f"{server_url()}/postgres", timeout=10)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
