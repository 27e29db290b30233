"""Settings, read once from the environment (README decision 10). All start with ``PARLEY_``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Literal, get_args

type ApprovalPolicy = Literal["documented", "catalog", "guarded", "strict"]
type LogFormat = Literal["json", "text"]
type Role = Literal["all", "api", "worker"]


LEAST_THINKING_TOKENS = 1_024
MOST_PORT = 65_535


class SettingsError(Exception):
    """A setting is wrong; the message names it, says why and what to write instead."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything an operator can choose.

    Times are seconds; ``thinking_tokens`` is how much a model may think in one reply. ``environment``
    keeps the non-Parley variables that other parts read by name: the pooled provider keys and the
    proxy variables. ``log_format`` None is text at a terminal, else JSON. ``metrics_bind`` is a host and a
    port for Prometheus, None for none; ``trace_content`` puts what was said into traces.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    data_dir: Path = Path("var")
    database_url: str = ""
    master_keys: str = field(default="", repr=False)
    public_url: str = ""
    allow_private_hosts: tuple[str, ...] = ()
    lease_seconds: float = 15.0
    heartbeat_seconds: float = 3.0
    stream_heartbeat_seconds: float = 15.0
    stalled_reader_seconds: float = 30.0
    max_turn_seconds: float = 0.0
    action_seconds: float = 60.0
    turns_per_organization: int = 20
    turns_per_process: int = 500
    event_retention_days: int = 30
    streams_per_key: int = 200
    streams_per_organization: int = 500
    requests_per_address: int = 600
    trusted_proxies: tuple[str, ...] = ()
    log_format: LogFormat | None = None
    approval_policy: ApprovalPolicy = "catalog"
    bootstrap_api_key: str = field(default="", repr=False)
    bootstrap_organization_id: str = ""
    bootstrap_email: str = ""
    plans_file: str = ""
    thinking_tokens: int = 4_096
    mcp_servers: str = ""
    metrics_bind: tuple[str, int] | None = None
    trace_content: bool = False
    integrations_dir: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def store_url(self) -> str:
        """The database URL, SQLite in the data folder unless chosen."""
        return self.database_url or f"sqlite:///{self.data_dir / 'parley.db'}"

    @property
    def house(self) -> Path | None:
        """The folder of the operator's own integrations, None where there is none."""
        return Path(self.integrations_dir).absolute() if self.integrations_dir else None

    @property
    def base_url(self) -> str:
        """How browsers and providers reach this server, without a trailing slash."""
        return (self.public_url or f"http://{self.host}:{self.port}").rstrip("/")


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Settings from environment variables.

    Raises SettingsError, naming the variable, for a value that cannot be used.
    """
    return Settings(
        host=environment.get("PARLEY_HOST", "") or "127.0.0.1",
        port=int(_number(environment, "PARLEY_PORT", 8000, least=0)),
        data_dir=Path(environment.get("PARLEY_DATA_DIR", "") or "var"),
        database_url=environment.get("PARLEY_DATABASE_URL", ""),
        master_keys=environment.get("PARLEY_MASTER_KEYS", ""),
        public_url=environment.get("PARLEY_PUBLIC_URL", ""),
        allow_private_hosts=_words(environment, "PARLEY_ALLOW_PRIVATE_HOSTS"),
        lease_seconds=_number(environment, "PARLEY_LEASE_SECONDS", 15.0, least=0.5),
        heartbeat_seconds=_number(environment, "PARLEY_HEARTBEAT_SECONDS", 3.0, least=0.1),
        stream_heartbeat_seconds=_number(environment, "PARLEY_STREAM_HEARTBEAT_SECONDS", 15.0, least=0.05),
        stalled_reader_seconds=_number(environment, "PARLEY_STALLED_READER_SECONDS", 30.0, least=0.1),
        max_turn_seconds=_number(environment, "PARLEY_MAX_TURN_SECONDS", 0.0, least=0.0),
        action_seconds=_number(environment, "PARLEY_ACTION_SECONDS", 60.0, least=0.1),
        turns_per_organization=int(_number(environment, "PARLEY_TURNS_PER_ORGANIZATION", 20, least=1)),
        turns_per_process=int(_number(environment, "PARLEY_TURNS_PER_PROCESS", 500, least=1)),
        event_retention_days=int(_number(environment, "PARLEY_EVENT_RETENTION_DAYS", 30, least=7)),
        streams_per_key=int(_number(environment, "PARLEY_STREAMS_PER_KEY", 200, least=1)),
        streams_per_organization=int(_number(environment, "PARLEY_STREAMS_PER_ORGANIZATION", 500, least=1)),
        requests_per_address=int(_number(environment, "PARLEY_REQUESTS_PER_ADDRESS", 600, least=1)),
        trusted_proxies=_networks(environment, "PARLEY_TRUSTED_PROXIES"),
        log_format=_log_format(environment),
        approval_policy=_policy(environment),
        bootstrap_api_key=environment.get("PARLEY_BOOTSTRAP_API_KEY", ""),
        bootstrap_organization_id=environment.get("PARLEY_BOOTSTRAP_ORGANIZATION_ID", ""),
        bootstrap_email=environment.get("PARLEY_BOOTSTRAP_EMAIL", ""),
        plans_file=environment.get("PARLEY_PLANS_FILE", ""),
        thinking_tokens=_thinking(environment),
        mcp_servers=environment.get("PARLEY_MCP_SERVERS", ""),
        metrics_bind=_bind(environment, "PARLEY_METRICS_BIND"),
        trace_content=_flag(environment, "PARLEY_TRACE_CONTENT"),
        integrations_dir=environment.get("PARLEY_INTEGRATIONS_DIR", ""),
        environment={name: value for name, value in environment.items() if not name.startswith("PARLEY_")},
    )


def _number(environment: Mapping[str, str], name: str, default: float, *, least: float) -> float:
    raw = environment.get(name, "")
    if not raw:
        return default
    try:
        value = float(raw)
    except ValueError:
        raise SettingsError(f"{name} must be a number, not {raw!r}") from None
    if not math.isfinite(value):
        raise SettingsError(f"{name} must be a number, not {raw!r}")
    if value < least:
        raise SettingsError(f"{name} must be at least {least:g}, not {value:g}")
    return value


def _bind(environment: Mapping[str, str], name: str) -> tuple[str, int] | None:
    raw = environment.get(name, "")
    if not raw:
        return None
    host, _, port = raw.rpartition(":")
    if not port.isdecimal() or int(port) > MOST_PORT:
        raise SettingsError(f"{name} must be host:port, such as 127.0.0.1:9464, not {raw!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _flag(environment: Mapping[str, str], name: str) -> bool:
    match environment.get(name, ""):
        case "" | "0":
            return False
        case "1":
            return True
        case raw:
            raise SettingsError(f"{name} must be 1 or 0, not {raw!r}")


def _thinking(environment: Mapping[str, str]) -> int:
    tokens = int(_number(environment, "PARLEY_THINKING_TOKENS", 4_096, least=0))
    if 0 < tokens < LEAST_THINKING_TOKENS:
        raise SettingsError(f"PARLEY_THINKING_TOKENS must be 0 or at least {LEAST_THINKING_TOKENS}, not {tokens}")
    return tokens


def _words(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in environment.get(name, "").split(",") if word.strip())


def _networks(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    words = _words(environment, name)
    for word in words:
        try:
            ip_network(word)
        except ValueError as error:
            raise SettingsError(f"{name} must be addresses or networks, such as 10.0.0.0/8: {error}") from None
    return words


def _log_format(environment: Mapping[str, str]) -> LogFormat | None:
    match environment.get("PARLEY_LOG_FORMAT", ""):
        case "json" | "text" as form:
            return form
        case "":
            return None
        case raw:
            raise SettingsError(f"PARLEY_LOG_FORMAT must be json or text, not {raw!r}")


def _policy(environment: Mapping[str, str]) -> ApprovalPolicy:
    raw = environment.get("PARLEY_APPROVAL_POLICY", "") or "catalog"
    for policy in get_args(ApprovalPolicy.__value__):
        if raw == policy:
            return policy
    raise SettingsError(f"PARLEY_APPROVAL_POLICY must be documented, catalog, guarded or strict, not {raw!r}")
