"""Drivers act with the tenant's credential or not at all: nothing of this machine is lent (T6, T8)."""

import asyncio
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiomysql.connection
import asyncpg
import boto3.session
import botocore.session
import pymongo
import pymssql
import pytest
import requests
import snowflake.connector
from snowflake.connector.cursor import SnowflakeCursor

from parley.egress import Refused, connection_problem
from parley.egress.isolation import moves_local_files
from tests.egress.sites import MakeEgress, close_server
from tests.egress.test_drivers import listener

OURS = "AKIAOPERATOROWNKEY00"


@pytest.fixture
def operators_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment and a home folder full of what belongs to the operator."""
    files = {
        "aws": f"[default]\naws_access_key_id = {OURS}\naws_secret_access_key = own\nendpoint_url = https://own.example\n",
        "netrc": "machine api.example.com login own password own\n",
        "pgpass": "*:*:*:*:own\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    variables = {
        "AWS_ACCESS_KEY_ID": OURS, "AWS_SECRET_ACCESS_KEY": "own", "AWS_SESSION_TOKEN": "own",
        "AWS_CONFIG_FILE": str(tmp_path / "aws"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "aws"),
        "AWS_ENDPOINT_URL": "https://own.example", "AWS_PROFILE": "nobody", "AWS_DEFAULT_REGION": "own-1",
        "PGPASSWORD": "own", "PGUSER": "own", "PGDATABASE": "own", "PGHOST": "own.example", "PGSSLMODE": "require",
        "PGPASSFILE": str(tmp_path / "pgpass"), "NETRC": str(tmp_path / "netrc"),
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return tmp_path


# ── AWS ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "keys",
    [{}, {"aws_access_key_id": "", "aws_secret_access_key": ""}, {"aws_access_key_id": None},
     {"aws_access_key_id": "AKIA1", "aws_secret_access_key": " "}],
)  # fmt: skip
@pytest.mark.usefixtures("operators_home")
async def test_aws_without_the_vaults_keys_is_refused_although_the_server_has_some(
    make_egress: MakeEgress, keys: dict[str, Any]
) -> None:
    with make_egress().install(), pytest.raises(Refused, match="AWS credential has no"):
        boto3.session.Session(botocore_session=botocore.session.Session()).client("s3", region_name="eu-west-1", **keys)


@pytest.mark.usefixtures("operators_home")
async def test_aws_with_the_vaults_keys_uses_those_and_the_public_endpoint(make_egress: MakeEgress) -> None:
    with make_egress().install():
        session = boto3.session.Session(botocore_session=botocore.session.Session())
        client = session.client(
            "s3", region_name="eu-west-1", aws_access_key_id="AKIATENANT", aws_secret_access_key="tenant"
        )
        url = client.generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"})
    assert "AKIATENANT" in url
    assert str(urlsplit(url).hostname).endswith(".amazonaws.com")
    assert OURS not in url
    assert "own" not in url


# ── databases ───────────────────────────────────────────────────────────────────────────────────

WHOLE: dict[str, Any] = {"host": "127.0.0.1", "user": "u", "password": "p", "database": "d"}


@pytest.mark.parametrize("missing", ["host", "user", "database"])
@pytest.mark.usefixtures("operators_home")
async def test_postgresql_takes_nothing_from_the_servers_environment(make_egress: MakeEgress, missing: str) -> None:
    given: dict[str, Any] = {**WHOLE, missing: ""}
    with make_egress("127.0.0.1", "own.example").install(), pytest.raises(Refused, match=f"has no {missing}"):
        await asyncpg.connect(**given, timeout=5)


@pytest.mark.parametrize("given", [{"password": None}, {"password": ""}, {}])
@pytest.mark.usefixtures("operators_home")
async def test_a_database_that_asks_for_a_password_is_not_told_the_servers_own(
    make_egress: MakeEgress, given: dict[str, Any]
) -> None:
    told: list[bytes] = []

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)) - 4)
        writer.write(b"R" + (8).to_bytes(4) + (3).to_bytes(4))  # the password, in the clear
        told.append(await reader.read(1_000))
        writer.close()

    server = await asyncio.start_server(ask, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    whole = {name: value for name, value in WHOLE.items() if name != "password"} | given
    with make_egress(f"127.0.0.1:{port}").install(), pytest.raises((OSError, asyncpg.PostgresError)):
        await asyncpg.connect(**whole, port=port, timeout=5)
    await close_server(server)
    assert told
    assert b"own" not in told[0]


@pytest.mark.parametrize("query", ["sslrootcert=/etc/passwd", "passfile=/etc/passwd", "service=own", ""])
async def test_a_postgresql_uri_is_refused_because_it_could_name_files(make_egress: MakeEgress, query: str) -> None:
    with make_egress("127.0.0.1").install(), pytest.raises(Refused, match="by host, user, password and database only"):
        await asyncpg.connect(f"postgresql://u:p@127.0.0.1/d?{query}", timeout=5)


@pytest.mark.usefixtures("operators_home")
async def test_postgresql_does_not_offer_the_servers_certificate(make_egress: MakeEgress) -> None:
    async with listener() as (port, called):
        with make_egress(f"127.0.0.1:{port}").install(), pytest.raises((OSError, asyncpg.PostgresError)) as failed:
            await asyncpg.connect(**WHOLE, port=port, timeout=5)
        assert called.is_set()
    assert "SSL" not in str(failed.value)  # PGSSLMODE=require is the operator's


@pytest.mark.parametrize("missing", ["user", "password"])
async def test_sql_server_without_a_password_is_no_single_sign_on(make_egress: MakeEgress, missing: str) -> None:
    given: dict[str, Any] = {"user": "u", "password": "p", missing: ""}
    with make_egress("127.0.0.1").install(), pytest.raises(Refused, match=f"has no {missing}"):
        pymssql.connect(server="127.0.0.1", **given)


@pytest.mark.parametrize("missing", ["user", "password"])
async def test_snowflake_without_a_password_is_no_single_sign_on(make_egress: MakeEgress, missing: str) -> None:
    given = {"user": "u", "password": "p", missing: None}
    with make_egress().install(), pytest.raises(Refused, match=f"has no {missing}"):
        snowflake.connector.connect(account="acme-x1", **given)


async def test_a_mysql_server_that_asks_for_a_local_file_gets_none(make_egress: MakeEgress) -> None:
    with make_egress().install():
        connection: Any = type("Agreed", (), {"_local_infile": True})()
        with pytest.raises(aiomysql.OperationalError, match="asked for a file of this machine"):
            await aiomysql.connection.MySQLResult(connection)._read_load_local_packet(None)  # pyright: ignore[reportPrivateUsage]


REACHING = [
    "tlsCAFile=/etc/passwd",
    "tlsCertificateKeyFile=/etc/passwd",
    "tlscrlfile=/etc/passwd",
    "ssl_ca_certs=/etc/passwd",
    "TLSCAFILE=%2Fetc%2Fpasswd",
    "w=1;tlsCAFile=/etc/passwd",
    "authMechanism=MONGODB-AWS",
    "authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s",
    "authMechanism=GSSAPI",
    "authMechanism=MONGODB-X509",
    "tlsInsecure=true",
    "tlsAllowInvalidCertificates=true",
    "tlsAllowInvalidHostnames=true",
    "anythingNew=1",
]


@pytest.mark.parametrize("option", REACHING)
async def test_a_mongodb_uri_that_reaches_into_this_machine_makes_no_client(
    make_egress: MakeEgress, option: str
) -> None:
    with make_egress().install():
        for make in (pymongo.AsyncMongoClient, pymongo.MongoClient):
            with pytest.raises(Refused, match="connection string must"):
                make(f"mongodb://u:p@db.example.com/?{option}")
        with pytest.raises(Refused, match="connection string must"):
            pymongo.AsyncMongoClient(None)  # it would try this machine


def test_what_atlas_hands_out_as_a_uri_is_fine() -> None:
    assert connection_problem("mongodb+srv://u:p@c.example.net/?retryWrites=true&w=majority&appName=Cluster0") is None
    assert (
        connection_problem("mongodb://u:p@a.example.net,b.example.net/d?tls=true&replicaSet=r&authSource=admin") is None
    )


@pytest.mark.parametrize(
    "statement",
    [
        "PUT file:///etc/passwd @~",
        "  put 'file:///etc/passwd' @~",
        "GET @~/x file:///root/.ssh/",
        "/* hello */ -- more\n PUT file:///etc/passwd @~",
        "// comment\nPUT file:///etc/passwd @~",
        ";;PUT $path @~",
        "SELECT 1; PUT file:///etc/passwd @~",
        "BEGIN\n  PuT file:///etc/passwd @~; END",
        "EXECUTE IMMEDIATE 'PUT file : //etc/passwd @~'",
        "GET\t@~/x 'FILE:///tmp/'",
    ],
)
async def test_snowflake_moves_no_file_of_this_machine(make_egress: MakeEgress, statement: str) -> None:
    cursor = SnowflakeCursor.__new__(SnowflakeCursor)
    with make_egress().install():
        for run in (cursor.execute, cursor.executemany, cursor.execute_async):
            with pytest.raises(Refused, match="PUT and GET move files"):
                run(statement)
        with pytest.raises(Refused, match="PUT and GET move files"):
            cursor.execute(operation=statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT GET(v, 'a') FROM t WHERE url = 'file:///x'",
        "INSERT INTO notes VALUES ('put the kettle on; get milk')",
        "SELECT 'see file:///x' FROM t",
        "COPY INTO @stage FROM t",
        "SELECT 1 -- PUT",
    ],
)
def test_ordinary_statements_pass(statement: str) -> None:
    assert not moves_local_files(statement)


@pytest.mark.usefixtures("operators_home")
async def test_no_password_is_read_from_netrc(make_egress: MakeEgress) -> None:
    assert os.environ["NETRC"]
    with make_egress().install():
        prepared = requests.Session().prepare_request(requests.Request("GET", "https://api.example.com/"))
    assert "Authorization" not in prepared.headers
