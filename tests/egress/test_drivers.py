"""Database drivers: they dial vetted addresses of databases only, and the store stays as it is (T7)."""

import asyncio
import gc
import socket
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

import aiomysql
import asyncpg
import dns.asyncresolver
import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset
import pymongo
import pymssql
import pytest
import snowflake.connector
from pymongo.errors import ServerSelectionTimeoutError
from sqlalchemy import make_url, text

from parley.egress import Refused
from parley.storage import Store, open_store
from parley.storage.wake import RUNS, listen_for_notices, notify
from tests.conftest import POSTGRES
from tests.egress.sites import HOSTILE, Dials, MakeEgress, Names, close_server

PUBLIC = "93.184.216.34"
HOSTS = tuple(host.strip("[]") for host in HOSTILE if "%25" not in host)

type Dial = Callable[[str, int], Awaitable[object]]


async def by_asyncpg(host: str, port: int) -> object:
    return await asyncpg.connect(host=host, port=port, user="u", password="p", database="d", timeout=5)


async def by_asyncpg_pool(host: str, port: int) -> object:
    return await asyncpg.create_pool(host=host, port=port, user="u", password="p", database="d", timeout=5, min_size=1)


async def by_aiomysql(host: str, port: int) -> object:
    return await aiomysql.connect(host=host, port=port, user="u", password="p", db="d", connect_timeout=5)


async def by_pymongo(host: str, port: int) -> object:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    async with pymongo.AsyncMongoClient(f"mongodb://{address}", serverSelectionTimeoutMS=50) as client:
        return await client.list_database_names()


async def by_pymongo_blocking(host: str, port: int) -> object:
    def ask() -> object:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        with pymongo.MongoClient(f"mongodb://{address}", serverSelectionTimeoutMS=50) as client:
            return client.list_database_names()

    return await asyncio.to_thread(ask)


async def by_pymssql(host: str, port: int) -> object:
    def ask() -> object:
        return pymssql.connect(server=host, port=str(port), user="u", password="p", database="d", login_timeout=2)

    return await asyncio.to_thread(ask)


PORTS: dict[Dial, int] = {
    by_asyncpg: 5432,
    by_asyncpg_pool: 5432,
    by_aiomysql: 3306,
    by_pymongo: 27017,
    by_pymongo_blocking: 27017,
    by_pymssql: 1433,
}
DRIVERS = list(PORTS)


@asynccontextmanager
async def listener() -> AsyncGenerator[tuple[int, asyncio.Event]]:
    """A port that hangs up on whoever calls, and the event that somebody did."""
    called = asyncio.Event()

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], called
    finally:
        await close_server(server)


@contextmanager
def silent_listener() -> Generator[int]:
    """A port where every dial waits for an answer: the queue before it is full, and nobody takes from it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as callers:
        for _ in range(2):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@pytest.mark.parametrize("dial", DRIVERS)
async def test_no_driver_dials_a_hostile_destination(dial: Dial, make_egress: MakeEgress, dials: Dials) -> None:
    hosts = HOSTS if dial not in {by_pymongo, by_pymongo_blocking} else HOSTS[::20]  # it retries for half a second
    with make_egress().install(), dials.recorded() as dialled:
        for host in hosts:
            with pytest.raises(Exception, match=r"."):
                await dial(host, PORTS[dial])
        with pytest.raises(Exception, match="private network"):
            await dial("169.254.169.254", PORTS[dial])
    assert dialled == []


@pytest.mark.parametrize("dial", DRIVERS)
async def test_a_database_name_is_refused_when_any_of_its_addresses_is_private(
    dial: Dial, make_egress: MakeEgress, names: Names, dials: Dials
) -> None:
    names.answers = {"db.database.windows.net": [[PUBLIC, "10.0.0.5"]]}
    with make_egress().install(), dials.recorded() as dialled, pytest.raises(Exception, match="private network"):
        await dial("db.database.windows.net", PORTS[dial])
    assert dialled == []


@pytest.mark.parametrize("dial", DRIVERS)
async def test_a_database_driver_keeps_to_the_ports_of_its_database(
    dial: Dial, make_egress: MakeEgress, names: Names, dials: Dials
) -> None:
    names.answers = {"db.example.com": [[PUBLIC]]}
    with make_egress().install(), dials.recorded() as dialled:
        for port in (22, 443, 6379):
            with pytest.raises(Exception, match=f"does not connect to port {port}"):
                await dial("db.example.com", port)
    assert dialled == []


@pytest.mark.parametrize("dial", [dial for dial in DRIVERS if dial is not by_pymssql])
async def test_a_database_that_the_operator_opened_is_dialled_at_its_vetted_address(
    dial: Dial, make_egress: MakeEgress, names: Names, dials: Dials
) -> None:
    async with listener() as (port, called):
        names.answers = {"db.example.com": [["127.0.0.9", "127.0.0.1"]]}
        with make_egress(f"db.example.com:{port}").install(), dials.recorded() as dialled:
            with pytest.raises(Exception, match=r"."):
                await dial("db.example.com", port)
            async with asyncio.timeout(20):
                await called.wait()
    assert set(dialled) == {("127.0.0.9", port), ("127.0.0.1", port)}


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
@pytest.mark.parametrize("dial", DRIVERS)
async def test_the_drivers_are_guarded_on_uvloop_too(dial: Dial, make_egress: MakeEgress, names: Names) -> None:
    assert type(asyncio.get_running_loop()).__module__ == "uvloop"
    async with listener() as (port, called):
        names.answers = {"db.example.com": [["127.0.0.1"]]}
        with make_egress().install():
            for host in ("127.0.0.1", "db.example.com"):
                with pytest.raises(Exception, match=r"."):
                    await dial(host, port)
            assert not called.is_set()
        with make_egress(f"db.example.com:{port}", f"127.0.0.1:{port}").install():
            with pytest.raises(Exception, match=r"."):
                await dial("127.0.0.1" if dial is by_pymssql else "db.example.com", port)
            async with asyncio.timeout(20):
                await called.wait()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": fast}) for fast in (False, True)])
@pytest.mark.parametrize("limit", ["serverSelectionTimeoutMS=300", "connectTimeoutMS=100&serverSelectionTimeoutMS=400"])
async def test_a_dial_that_is_given_up_leaves_no_socket_behind(limit: str, make_egress: MakeEgress) -> None:
    gc.collect()  # what other tests left is not looked for here
    told = "timed out" if "connect" in limit else "No servers found yet"
    with (
        silent_listener() as port,
        make_egress(f"127.0.0.1:{port}").install(),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always", ResourceWarning)
        async with pymongo.AsyncMongoClient(f"mongodb://127.0.0.1:{port}/?{limit}") as client:
            with pytest.raises(ServerSelectionTimeoutError, match=told):
                await client.list_database_names()
        async with asyncio.timeout(20):
            while any(task.get_name().startswith("pymongo") for task in asyncio.all_tasks()):
                await asyncio.sleep(0.01)
        del client
        gc.collect()
    assert [str(one.message) for one in warned] == []


async def test_sql_server_is_reached_at_azure_and_at_opened_hosts_only(make_egress: MakeEgress, names: Names) -> None:
    names.answers = {"sql.example.com": [[PUBLIC]]}
    async with listener() as (port, called):
        with make_egress(f"127.0.0.1:{port}").install():
            # A public server could send the driver elsewhere by a routing token, behind our back.
            with pytest.raises(Refused, match="only if its operator says so"):
                await by_pymssql("sql.example.com", 1433)
            for server in ("127.0.0.1,1433", "127.0.0.1\\INSTANCE", "127.0.0.1:1433", ""):
                with pytest.raises(Refused):
                    await by_pymssql(server, 1433)
            with pytest.raises(Refused):
                pymssql.connect(host="10.0.0.5")
            with pytest.raises(Refused):
                pymssql.connect()
            with pytest.raises(pymssql.OperationalError):
                await by_pymssql("127.0.0.1", port)
            async with asyncio.timeout(20):
                await called.wait()


async def test_local_sockets_are_no_databases(make_egress: MakeEgress, dials: Dials) -> None:
    with make_egress("localhost", "127.0.0.1").install(), dials.recorded() as dialled:
        with pytest.raises(Refused, match="over the network only"):
            await asyncpg.connect(host="/var/run/postgresql", user="u")
        with pytest.raises(Exception, match="over the network only"):
            await aiomysql.connect(unix_socket="/var/run/mysqld/mysqld.sock", user="u")
        async with pymongo.AsyncMongoClient("mongodb://%2Ftmp%2Fm.sock", serverSelectionTimeoutMS=50) as client:
            with pytest.raises(Exception, match="is not a plain host"):
                await client.list_database_names()
    assert dialled == []


async def test_a_snowflake_account_is_nothing_but_an_account(make_egress: MakeEgress) -> None:
    with make_egress().install():
        for account in ("evil.example/", "127.0.0.1/#", "a@b", "evil.example?x=", "", "a b", "[::1]", "evil.example\\"):
            with pytest.raises(Refused, match="is not a plain host"):
                snowflake.connector.connect(account=account, user="u", password="p")
        for other in ("host", "port", "protocol", "connection_name", "connections_file_path", "config"):
            with pytest.raises(Refused, match="by its account identifier only"):
                snowflake.connector.connect(account="acme-x1", user="u", password="p", **{other: "x"})
        with pytest.raises(snowflake.connector.Error):
            snowflake.connector.connect(
                account="acme-x1",
                user="u",
                password="p",
                authenticator="?",
                enable_server_session_keep_alive_auto_detection=True,
            )


class NameServer(threading.Thread):
    """Answers one SRV question over UDP, and knows nothing else."""

    def __init__(self, target: str) -> None:
        super().__init__(daemon=True)
        self.target = target
        self.running = True
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]

    def run(self) -> None:
        while True:
            question, sender = self.socket.recvfrom(4_096)
            if not self.running:
                return
            answer = dns.message.make_response(dns.message.from_wire(question))
            answer.flags |= dns.flags.AA | dns.flags.RA
            asked = answer.question[0]
            if asked.rdtype == dns.rdatatype.SRV:
                answer.answer.append(dns.rrset.from_text(asked.name, 60, "IN", "SRV", f"0 0 27017 {self.target}"))
            self.socket.sendto(answer.to_wire(), sender)

    def close(self) -> None:
        self.running = False
        self.socket.sendto(b"", ("127.0.0.1", self.port))
        self.join(5)
        self.socket.close()


async def test_a_member_that_an_srv_record_names_is_vetted_too(
    make_egress: MakeEgress, names: Names, dials: Dials, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = NameServer("member.cluster.example.com.")
    server.start()
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = ["127.0.0.1"], server.port
    monkeypatch.setattr(dns.asyncresolver, "default_resolver", resolver)
    names.answers = {"member.cluster.example.com": [["10.0.0.5"]]}
    url = "mongodb+srv://cluster.example.com"
    with make_egress().install(), dials.recorded() as dialled:
        async with pymongo.AsyncMongoClient(url, serverSelectionTimeoutMS=300) as client:
            with pytest.raises(Exception, match=r"member\.cluster\.example\.com leads to a private network"):
                await client.list_database_names()
    server.close()
    assert ("10.0.0.5", 27017) not in dialled


async def test_a_postgresql_that_the_operator_opened_works_by_name(make_egress: MakeEgress, names: Names) -> None:
    if POSTGRES is None:
        pytest.skip("no PostgreSQL answers")
    url = make_url(POSTGRES)
    port = url.port or 5432
    names.answers = {"db.example.com": [[url.host or "127.0.0.1"]]}
    with make_egress(f"db.example.com:{port}").install():
        connection = await asyncpg.connect(
            host="db.example.com", port=port, user=url.username, password=url.password, database="postgres", timeout=5
        )
        assert await connection.fetchval("SELECT 1") == 1
        with pytest.raises(TimeoutError):  # cancelling dials again
            await connection.execute("SELECT pg_sleep(30)", timeout=0.1)
        assert await connection.fetchval("SELECT 2") == 2
        await connection.close()


async def test_the_store_reaches_its_own_private_server_while_tenants_do_not(
    store_url: str, make_egress: MakeEgress
) -> None:
    heard = asyncio.Event()

    async def notify_until_heard(store: Store) -> None:
        while not heard.is_set():  # the listener connects on its own time
            await store.write(lambda tx: notify(tx, RUNS))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await heard.wait()

    with make_egress().install():
        store = open_store(store_url)
        assert await store.read(lambda tx: tx.execute(text("SELECT 1")).scalar()) == 1
        if store.dialect == "postgresql":
            with pytest.raises(Refused):
                await asyncpg.connect(store_url)
            async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                listening = group.create_task(listen_for_notices(store_url, lambda _channel, _words: heard.set()))
                await notify_until_heard(store)
                listening.cancel()
        await store.close()
