"""The way through deploy/compose.yaml without its engine: the same commands, variables, order and database script.

No container engine runs where these tests do, so the image is not built and compose itself does not read the file:
each service is a process here, on a PostgreSQL that is as empty as the image's, and only places are put otherwise.
"""

import asyncio
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from parley.testing.server import ServerProcess, server_process
from tests.cli.conftest import command
from tests.durability.cluster import Cluster, cluster
from tests.packaging.test_deploy import COMPOSE, CONTAINERFILE, DEPLOY
from tests.stage import caller

SECONDS = 50
SERVICES: dict[str, Any] = COMPOSE["services"]
CHOSEN = {"POSTGRES_PASSWORD": "choose-one", "PARLEY_DATABASE_PASSWORD": "choose-another"}
# Of the image; where it listens and keeps files is put otherwise.
IMAGE = dict(re.findall(r"(PARLEY_LOG_FORMAT)=(\S+)", CONTAINERFILE))


def variables(service: str, given: dict[str, str], folder: Path, running: Cluster | None = None) -> dict[str, str]:
    """What compose would hand to a service; the database where it is, files in a folder of the service's own."""
    found = {name: filled(str(value), given) for name, value in SERVICES[service]["environment"].items()}
    if running is not None:
        found["PARLEY_DATABASE_URL"] = found["PARLEY_DATABASE_URL"].replace(
            "@postgres:5432", f"@127.0.0.1:{running.port}"
        )
    quiet = {"OLLAMA_HOST": "http://127.0.0.1:9", "PARLEY_HOST": "127.0.0.1"}
    return {**IMAGE, **found, **quiet, "PARLEY_DATA_DIR": str(folder / service)}


def filled(value: str, given: dict[str, str]) -> str:
    """A value with its variables, as compose fills them in. Raises AssertionError for one that must be given."""

    def each(found: re.Match[str]) -> str:
        name, kind, rest = found[1], found[2] or "", found[3] or ""
        assert not kind.endswith("?") or given.get(name), name
        return given.get(name) or (rest if kind.endswith("-") else "")

    return re.sub(r"\$\{(\w+)(?:(:?[-?])([^}]*))?}", each, value)


def at(running: Cluster) -> dict[str, str]:
    """Where PostgreSQL's own programs find it."""
    return {"PATH": f"{running.binaries}:{os.environ['PATH']}", "PGHOST": "127.0.0.1", "PGPORT": str(running.port)}


def furnish(running: Cluster) -> None:
    """What the image of PostgreSQL does with the folder of scripts, and then compose to see whether it is ready."""
    (scripts,) = [each for each in SERVICES["postgres"]["volumes"] if ":/docker-entrypoint-initdb.d" in each]
    given = {name: filled(str(value), CHOSEN) for name, value in SERVICES["postgres"]["environment"].items()}
    for script in sorted((DEPLOY / scripts.partition(":")[0]).iterdir()):
        subprocess.run([str(script)], env={**at(running), **given}, check=True, capture_output=True, timeout=SECONDS)
    kind, *check = SERVICES["postgres"]["healthcheck"]["test"]
    assert kind == "CMD"
    subprocess.run(check, env=at(running), check=True, capture_output=True, timeout=SECONDS)


def role(service: str) -> Any:
    """The ``--role`` of its command."""
    serve, flag, chosen = SERVICES[service]["command"]
    assert (serve, flag) == ("serve", "--role")
    return chosen


async def ended(server: ServerProcess, service: str) -> int:
    """Stop it as compose does; its exit code, within the time that compose gives."""
    server.terminate()
    async with asyncio.timeout(int(SERVICES[service]["stop_grace_period"].removesuffix("s"))):
        return await server.process.wait()


def test_a_variable_that_must_be_chosen_is_asked_for_and_others_have_their_defaults() -> None:
    with pytest.raises(AssertionError, match="PARLEY_DATABASE_PASSWORD"):
        filled(SERVICES["api"]["environment"]["PARLEY_DATABASE_URL"], {})
    assert filled("${A-}${B:-b}${C:?needed}", {"C": "c"}) == "bc"


async def test_the_services_make_a_parley_in_which_a_first_turn_is_answered(tmp_path: Path) -> None:
    # The page makes the master key before anything runs, with a service that has no database yet.
    made = await command("keys", "master", environment=variables("api", CHOSEN, tmp_path))
    assert made.code == 0, made.err
    given = {**CHOSEN, "PARLEY_MASTER_KEYS": made.out.strip()}
    async with cluster() as running:
        furnish(running)
        # Whoever starts first prints the key, and the page looks for it in the log of the api.
        assert "api" in SERVICES["worker"]["depends_on"]
        api_variables = variables("api", given, tmp_path, running)
        async with server_process(api_variables, role("api")) as api:
            said = "".join(api.output)
            (key,) = re.findall(r"^  API key +(\S+)$", said, re.MULTILINE)
            (organization,) = re.findall(r"^  Organization +(\S+)$", said, re.MULTILINE)
            worker_variables = variables("worker", given, tmp_path, running)
            async with (
                server_process(worker_variables, role("worker")) as worker,
                caller(api.base_url, key, organization) as client,
            ):
                assert "API key" not in "".join(worker.output)
                started = await client.post("/assistant/chat", {"message": "What can you do?"})
                assert started.status == 200, started.body
                events = await client.listen(started.body["chat_id"], started.body["run_id"])
                assert events[-1]["type"] == "done"
                assert events[-1]["data"]["response"].startswith("**Demo model**")
                port = api.base_url.rpartition(":")[2]
                examined = await command("doctor", environment={**api_variables, "PARLEY_PORT": port})
                assert "PostgreSQL itself keeps their rows apart too" in examined.out
                assert "Nothing is broken." in examined.out
                assert (await command("verify", environment=api_variables)).code == 0
                for service, server in (("worker", worker), ("api", api)):
                    # A server of HTTP says last which signal it was ended by.
                    assert await ended(server, service) in (0, -signal.SIGTERM)
