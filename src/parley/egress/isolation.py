"""What drivers would take from this machine, and may not: its files, its environment, its identity.

A driver that is not told who it is looks around: boto3 for AWS keys in the environment and in the
metadata service, asyncpg for ``PGPASSWORD`` and ``~/.pgpass``, requests for ``~/.netrc``. What it finds
belongs to the operator and would act for a tenant. And some statements and options name local files.
"""

import os
import re
from collections.abc import Mapping
from functools import wraps
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from parley.egress.guard import Guard, Refused
from parley.egress.patches import Patches

LOCAL_FILES = "PUT and GET move files of the machine that Parley runs on, and are refused. Use COPY INTO with a stage."
# Options of a MongoDB URI that choose neither a file, nor an identity of this machine, nor less than full TLS.
MONGODB_OPTIONS = frozenset(
    {
        "appname",
        "authsource",
        "compressors",
        "connecttimeoutms",
        "directconnection",
        "heartbeatfrequencyms",
        "journal",
        "loadbalanced",
        "localthresholdms",
        "maxconnecting",
        "maxidletimems",
        "maxpoolsize",
        "maxstalenessseconds",
        "minpoolsize",
        "readconcernlevel",
        "readpreference",
        "readpreferencetags",
        "replicaset",
        "retryreads",
        "retrywrites",
        "servermonitoringmode",
        "serverselectiontimeoutms",
        "sockettimeoutms",
        "srvmaxhosts",
        "srvservicename",
        "ssl",
        "timeoutms",
        "tls",
        "tlsdisableocspendpointcheck",
        "uuidrepresentation",
        "w",
        "waitqueuetimeoutms",
        "wtimeoutms",
        "wtimeout",
        "zlibcompressionlevel",
    }
)
MONGODB_MECHANISMS = frozenset({"", "DEFAULT", "SCRAM-SHA-1", "SCRAM-SHA-256", "PLAIN"})
SQL_LEAD = re.compile(r"(?:\s|;|\(|--[^\n]*(?:\n|$)|//[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
SQL_TRANSFER = re.compile(r"(?:PUT|GET)\b", re.IGNORECASE)
SQL_FILE = re.compile(r"file\s*:\s*/", re.IGNORECASE)
SQL_MENTION = re.compile(r"\b(?:PUT|GET)\b(?!\s*\()", re.IGNORECASE)  # GET(…) is a function
# botocore's own settings by name: where each is looked for (file, variable), its default, its conversion.
BOTO_ISOLATED = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
    "region": (None, None, None, None),
    "ignore_configured_endpoint_urls": (None, None, True, None),
}


def connection_problem(uri: str) -> str | None:
    """Why a MongoDB URI is not used, as the end of "It must …"; None where nothing is wrong with it."""
    try:
        options = parse_qsl(urlsplit(uri).query.replace(";", "&"), keep_blank_values=True)
    except ValueError:
        return "be a connection string"
    for name, value in options:
        if name.lower() == "authmechanism":
            if value.upper() not in MONGODB_MECHANISMS:
                return "sign in with a user name and a password (SCRAM), not as the machine Parley runs on"
        elif name.lower() not in MONGODB_OPTIONS:
            return f"do without {name[:40]!a}: it could name a file of this machine or turn off the certificate check"
    return None


def moves_local_files(statement: str) -> bool:
    """Whether Snowflake's client would read or write a local file for this text.

    That is a statement that begins with PUT or GET, behind whatever comments; and, because a text may
    hold several statements, any mention of both a transfer and a ``file:`` address.
    """
    lead = SQL_LEAD.match(statement)
    if SQL_TRANSFER.match(statement, lead.end() if lead else 0):
        return True
    return bool(SQL_FILE.search(statement) and SQL_MENTION.search(statement))


def isolate_boto(module: Any, _guard: Guard, patches: Patches) -> None:
    """``botocore.session``: keys are given with each client or there is none; no profile, file or variable counts."""

    def make_init(init: Any) -> Any:
        @wraps(init)
        def __init__(self: Any, session_vars: Mapping[str, Any] | None = None, *args: Any, **options: Any) -> None:  # noqa: N807
            init(self, {**(session_vars or {}), **BOTO_ISOLATED}, *args, **options)

        return __init__

    def make_client(create: Any) -> Any:
        @wraps(create)
        def create_client(self: Any, *args: Any, **options: Any) -> Any:
            given = {"access_key_id": options.get("aws_access_key_id")}
            given["secret_access_key"] = options.get("aws_secret_access_key")
            require("AWS", given)
            return create(self, *args, **options)

        return create_client

    patches.replace(module.Session, "__init__", make_init)
    patches.replace(module.Session, "create_client", make_client)


def isolate_pymongo(module: Any, _guard: Guard, patches: Patches) -> None:
    """``pymongo.*.mongo_client``: a URI with options that reach into this machine makes no client."""

    def make(init: Any) -> Any:
        @wraps(init)
        def __init__(self: Any, host: Any = None, *args: Any, **options: Any) -> None:  # noqa: N807
            for uri in [host] if isinstance(host, str) or host is None else host:
                problem = connection_problem(uri) if uri else "name a cluster"
                if problem is not None:
                    raise Refused(f"The MongoDB connection string must {problem}.")
            init(self, host, *args, **options)

        return __init__

    for name in ("AsyncMongoClient", "MongoClient"):
        if name in vars(module):
            patches.replace(vars(module)[name], "__init__", make)


def isolate_aiomysql(module: Any, _guard: Guard, patches: Patches) -> None:
    """``aiomysql.connection``: a server that asks for a local file gets none, whatever was agreed on."""

    async def refuse(*_args: Any, **_options: Any) -> None:
        raise module.OperationalError(2068, "The server asked for a file of this machine, and is refused.")

    patches.replace(module.MySQLResult, "_read_load_local_packet", lambda _read: refuse)


def isolate_snowflake(module: Any, _guard: Guard, patches: Patches) -> None:
    """``snowflake.connector.cursor._base``: no statement that moves files between a stage and this machine."""

    def make(execute: Any) -> Any:
        @wraps(execute)
        def guarded(self: Any, *args: Any, **options: Any) -> Any:
            if any(moves_local_files(str(value)) for value in (*args[:1], options.get("operation", ""))):
                raise Refused(LOCAL_FILES)
            return execute(self, *args, **options)

        return guarded

    for name in ("execute", "executemany", "execute_async"):
        patches.replace(module.SnowflakeCursorBase, name, make)


def isolate_requests(module: Any, _guard: Guard, patches: Patches) -> None:
    """``requests.sessions``: no password out of ``~/.netrc``."""

    def nothing(_url: str, *_args: Any, **_options: Any) -> None:
        return None

    patches.replace(module, "get_netrc_auth", lambda _read: nothing)


def require(service: str, values: Mapping[str, object]) -> None:
    """Refuse to connect without the values that a driver would otherwise look for on this machine.

    Raises Refused, naming what is missing.
    """
    missing = [name for name in values if not str(values.get(name) or "").strip()]
    if missing:
        raise Refused(
            f"The {service} credential has no {' and no '.join(missing)}. Connect {service} again with it: "
            "Parley never lends its own."
        )


ISOLATED = {
    "aiomysql.connection": (isolate_aiomysql,),
    "botocore.session": (isolate_boto,),
    "pymongo.asynchronous.mongo_client": (isolate_pymongo,),
    "pymongo.synchronous.mongo_client": (isolate_pymongo,),
    "requests.sessions": (isolate_requests,),
    "snowflake.connector.cursor._base": (isolate_snowflake,),
}
