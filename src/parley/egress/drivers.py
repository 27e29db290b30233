"""The guard inside the database drivers that integrations use.

asyncpg, aiomysql and pymongo dial in Python: they are handed vetted addresses, and keep the name for
TLS. pymssql and snowflake dial in native code, where an address cannot be pinned; a hostile SQL Server
can even send its client elsewhere. They reach only hosts whose operator is known.
"""

import asyncio
import os
import socket
from functools import wraps
from types import SimpleNamespace
from typing import Any

from parley.egress.guard import MONGODB, MYSQL, POSTGRESQL, SQL_SERVER, Guard, NotConnected, Refused
from parley.egress.isolation import require
from parley.egress.patches import Patches, first_that_answers, first_that_answers_now

SQL_SERVER_SERVICES = (".database.windows.net",)
SNOWFLAKE_ELSEWHERE = frozenset({"host", "port", "protocol", "connection_name", "connections_file_path", "config"})
CANNOT_CONNECT = 2003  # MySQL's number for it
POSTGRESQL_NEEDS = ("host", "user", "database")
# What asyncpg would otherwise take from the environment and the home folder. "prefer" would offer TLS with this
# machine's certificate; and there is no single sign-on of this machine (the other library is for Windows).
POSTGRESQL_INSTEAD = {
    "passfile": os.devnull,
    "target_session_attrs": "any",
    "krbsrvname": "postgres",
    "gsslib": "sspi",
    "direct_tls": False,
}
LOCAL_SOCKET = "Parley connects to databases over the network only. Use the host name of the database."


class DialingLoop:
    """The running loop as asyncpg sees it: the same, except that it dials vetted addresses only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, guard: Guard) -> None:
        self._loop = loop
        self._guard = guard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, factory: Any, host: str, port: int, **options: Any) -> Any:
        """As the loop's own, for one named host; TLS from the first byte still checks the name."""
        if options.get("ssl"):
            options.setdefault("server_hostname", host)
        return await first_that_answers(
            await self._guard.vet(host, port, POSTGRESQL),
            lambda address: self._loop.create_connection(factory, address, port, **options),
            OSError,
        )

    async def create_unix_connection(self, *_args: Any, **_options: Any) -> Any:
        """A socket of this machine is never a tenant's database."""
        raise Refused(LOCAL_SOCKET)


def guard_asyncpg(module: Any, guard: Guard, patches: Patches) -> None:
    """``asyncpg``: every connection made from now on through the name ``asyncpg.connect``.

    Parley's own store holds on to the driver's function from before, and so stays as it is.
    """

    def make(connect: Any) -> Any:
        @wraps(connect)
        async def guarded(dsn: Any = None, **options: Any) -> Any:
            if dsn is not None:  # its query may name files and services of this machine
                raise Refused("Parley connects to PostgreSQL by host, user, password and database only.")
            if str(options.get("host") or "").startswith("/"):
                raise Refused(LOCAL_SOCKET)
            require("PostgreSQL", {name: options.get(name) for name in POSTGRESQL_NEEDS})
            options["loop"] = DialingLoop(asyncio.get_running_loop(), guard)
            given = {**POSTGRESQL_INSTEAD, **options, "password": options.get("password") or ""}
            return await connect(**{**given, "ssl": options.get("ssl") or False})

        return guarded

    patches.replace(module, "connect", make)
    patches.replace(module.connection, "connect", make)


def guard_aiomysql(module: Any, guard: Guard, patches: Patches) -> None:
    """``aiomysql.connection``: a new connection; one that is only wrapped in TLS passes."""

    def make(open_connection: Any) -> Any:
        @wraps(open_connection)
        async def guarded(host: Any = None, port: Any = None, **options: Any) -> Any:
            if host is None:
                return await open_connection(**options)
            try:
                addresses = await guard.vet(host, port, MYSQL)
            except NotConnected as error:  # aiomysql would put its own words in place of an OSError's
                raise module.OperationalError(CANNOT_CONNECT, str(error)) from error
            return await first_that_answers(
                addresses, lambda address: open_connection(host=address, port=port, **options), OSError
            )

        return guarded

    async def refuse_local_socket(*_args: Any, **_options: Any) -> Any:
        raise module.OperationalError(CANNOT_CONNECT, LOCAL_SOCKET)

    patches.replace(module, "_open_connection", make)
    patches.replace(module, "_open_unix_connection", lambda _open: refuse_local_socket)


class ClosingLoop:
    """The running loop as pymongo sees it: the same, except that a dial which is given up closes its socket.

    pymongo closes it after an OSError only. Its monitors are cancelled whenever a client closes, and each one that was
    dialling would keep a descriptor until the next garbage collection.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def sock_connect(self, dialling: socket.socket, address: Any) -> None:
        """As the loop's own."""
        try:
            await self._loop.sock_connect(dialling, address)
        except asyncio.CancelledError:
            dialling.close()
            raise


def guard_pymongo(module: Any, guard: Guard, patches: Patches) -> None:
    """``pymongo.pool_shared``: every member of a cluster, whether named by the user, by SRV or by a server."""

    def make_asyncio(whole: Any) -> Any:
        def get_running_loop() -> ClosingLoop:
            return ClosingLoop(whole.get_running_loop())

        return SimpleNamespace(**{**vars(whole), "get_running_loop": get_running_loop})

    def make_async(create: Any) -> Any:
        @wraps(create)
        async def guarded(address: tuple[str, int], options: Any) -> Any:
            host, port = address
            return await first_that_answers(
                await guard.vet(host, port, MONGODB), lambda vetted: create((vetted, port), options), OSError
            )

        return guarded

    def make(create: Any) -> Any:
        @wraps(create)
        def guarded(address: tuple[str, int], options: Any) -> Any:
            host, port = address
            return first_that_answers_now(
                guard.vet_now(host, port, MONGODB), lambda vetted: create((vetted, port), options)
            )

        return guarded

    patches.replace(module, "asyncio", make_asyncio)
    patches.replace(module, "_async_create_connection", make_async)
    patches.replace(module, "_create_connection", make)


def guard_pymssql(module: Any, guard: Guard, patches: Patches) -> None:
    """``pymssql``: Azure SQL, and servers that the operator opened."""

    def make(connect: Any) -> Any:
        @wraps(connect)
        def guarded(server: str = ".", *args: Any, **options: Any) -> Any:
            guard.vet_native(
                options.get("host") or server, int(options.get("port", 1433)), SQL_SERVER, SQL_SERVER_SERVICES
            )
            require("SQL Server", {name: options.get(name) for name in ("user", "password")})
            return connect(server, *args, **options)

        return guarded

    patches.replace(module, "connect", make)


def guard_snowflake(module: Any, guard: Guard, patches: Patches) -> None:
    """``snowflake.connector``: one account at Snowflake, whose names only Snowflake gives out."""

    def make(connect: Any) -> Any:
        @wraps(connect)
        def guarded(*, account: str, **options: Any) -> Any:
            if not options.keys().isdisjoint(SNOWFLAKE_ELSEWHERE):
                raise Refused("Parley connects to Snowflake by its account identifier only. Use the field account.")
            guard.check(f"{account}.snowflakecomputing.com", 443)
            require("Snowflake", {name: options.get(name) for name in ("user", "password")})
            return connect(account=account, **options)

        return guarded

    patches.replace(module, "connect", make)


DRIVERS = {
    "aiomysql.connection": (guard_aiomysql,),
    "asyncpg": (guard_asyncpg,),
    "pymongo.pool_shared": (guard_pymongo,),
    "pymssql": (guard_pymssql,),
    "snowflake.connector": (guard_snowflake,),
}
