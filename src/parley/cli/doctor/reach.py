"""What can only be told by asking: the store, a server that may be running, the models."""

import fcntl
import os
import socket
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version

import aiohttp
import msgspec

from parley.accounts import PEPPER, secret_context
from parley.base.settings import Settings
from parley.cli.doctor.finding import START, Finding, broken, good, note
from parley.cli.opening import StoreTrouble, existing_keyring, in_plain_words, read_any_rows, shown_url, sqlite_path
from parley.cli.store import StoreFacts, store_facts
from parley.keyring import KeyringError, SealBroken
from parley.llm import PROVIDERS, find_ollama
from parley.llm.providers import OLLAMA, pooled_endpoint
from parley.runs.presence import Process
from parley.storage.schema import head_revision

HEALTH_SECONDS = 3.0
# Leases are compared between processes: clocks apart by this much of a lease take turns from each other.
SKEW_SHARE = 0.2
SLIGHT_SKEW_SECONDS = 1.0
RESTORE = "Put the master keys of this store back."


async def look_at_store(settings: Settings) -> StoreFacts | Finding:
    """The facts, or why there are none."""
    topic = "Store"
    try:
        path = sqlite_path(settings)
        if path is not None and not path.exists():
            return note(topic, f"{path} is not there yet.", START)
        with in_plain_words(settings):
            return await read_any_rows(settings, lambda tx: store_facts(tx, settings.lease_seconds))
    except StoreTrouble as trouble:
        mend = (
            "Start PostgreSQL, or correct PARLEY_DATABASE_URL."
            if settings.database_url
            else "Restore it from a backup: parley restore FILE"
        )
        return broken(topic, str(trouble), mend)


async def check_store(settings: Settings, facts: StoreFacts) -> AsyncIterator[Finding]:
    """Its schema, its people, its seals, its clock."""
    head = head_revision()
    if facts.revision != head:
        yield broken(
            "Store",
            f"{shown_url(settings)} has schema {facts.revision or 'none'}, and this Parley needs {head}.",
            "A start brings an older one up to date: parley serve. For a newer one, use the Parley that made it.",
        )
        return
    if not facts.people:
        yield note("Store", f"{shown_url(settings)} is empty: no owner, no API key.", START)
    else:
        yield good(
            "Store",
            f"{shown_url(settings)}, schema {head}, {facts.people} {'person' if facts.people == 1 else 'people'}",
        )
    for finding in _check_seals(settings, facts):
        yield finding
    for finding in _check_processes(facts):
        yield finding
    if sqlite_path(settings) is None:
        yield _check_second_net(facts)
        yield _check_clock(settings, facts.skew_seconds)


async def check_server(settings: Settings) -> AsyncIterator[Finding]:
    """Whether a server runs here already, and whether the port is free."""
    topic = "Server"
    held = _is_locked(settings)
    health = await _health(settings)
    if isinstance(health, Finding):
        yield health
        return
    if health is None and held:
        yield note(
            topic,
            f"A Parley uses {settings.data_dir}, but on another port than {settings.port}.",
            "Run this with the server's own PARLEY_PORT.",
        )
    elif health is None:
        yield _check_port(settings)
    elif health != version("parley"):
        yield note(topic, f"A Parley {health} answers; {version('parley')} is installed.", "Restart the server.")
    else:
        yield good(topic, f"A Parley {health} answers on {_own_address(settings)}")


async def check_models(settings: Settings, facts: StoreFacts | None) -> AsyncIterator[Finding]:
    """Where models come from: pooled keys, Ollama, organizations' own keys; else the demo."""
    topic, environment = "Models", settings.environment
    pooled = [
        provider.display_name
        for provider in PROVIDERS
        if provider.name != OLLAMA and pooled_endpoint(provider, environment) is not None
    ]
    async with aiohttp.ClientSession(trust_env=True) as session:
        local = await find_ollama(environment, session)
    if pooled:
        yield good(topic, f"pooled keys for {', '.join(pooled)}")
    if local:
        yield good(topic, f"Ollama with {len(local)} models")
    if facts is not None and facts.model_keys:
        yield good(topic, f"{facts.model_keys} keys of organizations' own")
    if not pooled and not local and not (facts and facts.model_keys):
        yield note(
            topic,
            "There is none, so the demo answers: fixed rules, no intelligence.",
            "Set a provider's key, such as OPENAI_API_KEY, start Ollama, or save a key in the web app.",
        )


# ── the store ───────────────────────────────────────────────────────────────────────────────────


def _check_seals(settings: Settings, facts: StoreFacts) -> list[Finding]:
    """Whether the master keys open what the store seals."""
    topic = "Seals"
    if not facts.seals:
        return []
    try:
        keyring = existing_keyring(settings)
    except (KeyringError, OSError) as error:
        return [
            broken(topic, f"The store's secrets cannot be opened. {error}", "Restore the master keys of this store.")
        ]
    unknown = {key_id: rows for key_id, rows in facts.seals.items() if key_id not in keyring.key_ids}
    if unknown:
        listed = ", ".join(f"{key_id} ({rows})" for key_id, rows in unknown.items())
        return [broken(topic, f"Rows are sealed under keys that are missing: {listed}.", RESTORE)]
    if facts.pepper is not None and not _opens(settings, *facts.pepper):
        return [broken(topic, "The master keys are those of another store.", RESTORE)]
    older = [key_id for key_id in facts.seals if key_id != keyring.primary]
    if older:
        return [note(topic, f"{', '.join(older)} still seals rows.", "Seal them anew with: parley keys rotate")]
    return [good(topic, f"everything is sealed under {keyring.primary}")]


def _opens(settings: Settings, sealed: bytes, key_id: str) -> bool:
    try:
        existing_keyring(settings).open(sealed, key_id=key_id, context=secret_context(PEPPER))
    except SealBroken:
        return False
    return True


def _check_processes(facts: StoreFacts) -> Iterator[Finding]:
    """Who serves the store now, and whether somebody executes turns."""
    topic = "Processes"
    if not facts.processes:
        return
    yield good(topic, "; ".join(_described(process) for process in facts.processes))
    if len({process.version for process in facts.processes}) > 1:
        yield note(topic, "They are of different versions.", "Restart the older ones.")
    if all(process.role == "api" for process in facts.processes):
        waiting = f" {facts.waiting} wait." if facts.waiting else ""
        yield broken(topic, f"None of them executes turns.{waiting}", "Start one: parley serve --role worker")


def _described(process: Process) -> str:
    place = f"{process.host}:{process.pid}" if process.host else process.id
    state = "draining, " if process.draining else ""
    return f"{process.role} {process.version} at {place} ({state}{process.running} running)"


def _check_second_net(facts: StoreFacts) -> Finding:
    topic = "Organizations"
    if facts.second_net:
        return good(topic, "PostgreSQL itself keeps their rows apart too")
    return note(
        topic,
        "Parley keeps their rows apart, but PostgreSQL does not: this role is a superuser or has BYPASSRLS.",
        "Serve with a role of its own: CREATE ROLE parley LOGIN PASSWORD '…'; ALTER DATABASE … OWNER TO parley; "
        "and for the tables: REASSIGN OWNED BY the present role, or ALTER TABLE … OWNER TO parley",
    )


def _check_clock(settings: Settings, skew: float) -> Finding:
    said = f"The database's clock is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    mend = "Let both machines follow a time server, such as: timedatectl set-ntp true"
    if abs(skew) > settings.lease_seconds * SKEW_SHARE:
        return broken("Clock", f"{said}: servers would take turns from each other.", mend)
    if abs(skew) > SLIGHT_SKEW_SECONDS:
        return note("Clock", f"{said}.", mend)
    return good("Clock", "the database's and this machine's agree")


# ── the server ──────────────────────────────────────────────────────────────────────────────────


class _Health(msgspec.Struct):
    service: str
    version: str


async def _health(settings: Settings) -> str | Finding | None:
    """The version of the Parley that answers, None where nothing does."""
    address = _own_address(settings)
    try:
        timeout = aiohttp.ClientTimeout(total=HEALTH_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{address}/system/health") as response,
        ):
            return msgspec.json.decode(await response.read(), type=_Health).version
    except aiohttp.ClientConnectorError:
        return None
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
        return broken(
            "Server",
            f"Another program has {address}.",
            f"Choose another port: PARLEY_PORT={settings.port + 1} parley serve",
        )


def _own_address(settings: Settings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)  # noqa: S104 - what it stands for
    return f"http://{host}:{settings.port}"


def _is_locked(settings: Settings) -> bool:
    """Whether a running server holds the data folder."""
    try:
        descriptor = os.open(settings.data_dir / "serve.lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _check_port(settings: Settings) -> Finding:
    topic = "Server"
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        with socket.socket(family) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((settings.host, settings.port))
    except PermissionError:
        return broken(
            topic, f"This user may not listen on port {settings.port}.", "Choose a port from 1024 on: PARLEY_PORT=8000"
        )
    except OSError as error:
        return broken(
            topic, f"Nothing can listen on {settings.host}:{settings.port}: {error.strerror}.", "Correct PARLEY_HOST."
        )
    return good(topic, f"none runs here; {settings.host}:{settings.port} is free")
