"""What deploy/ names exists: settings, commands, files, paths; what can be checked by its own tool is."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from parley.base.settings import Settings, read_settings
from parley.cli import app
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
UNIT = (DEPLOY / "parley.service").read_text()
# Settings that have no field of their own name.
KNOWN = {f"PARLEY_{each.name.upper()}" for each in fields(Settings)} | {"PARLEY_DATABASE_PASSWORD"}


def accepted(words: list[str]) -> bool:
    """Whether ``parley`` has this command with these options."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands"):
        command = command.commands.get(rest.pop(0)) if rest else None
    if command is None:
        return False
    command.make_context("parley", rest)
    return True


@pytest.mark.parametrize("text", [CONTAINERFILE, json.dumps(COMPOSE), UNIT], ids=["image", "compose", "unit"])
def test_every_setting_that_is_named_exists(text: str) -> None:
    named = set(re.findall(r"PARLEY_[A-Z_]+[A-Z]", text))
    assert named
    assert named <= KNOWN


def test_every_command_that_is_named_exists() -> None:
    commands = [each["command"] for each in COMPOSE["services"].values() if "command" in each]
    (in_unit,) = re.findall(r"^ExecStart=\S*/parley (.*)$", UNIT, re.MULTILINE)
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    (usual,) = re.findall(r"^CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    assert json.loads(entry) == ["parley"]
    for words in [*commands, in_unit.split(), json.loads(usual)]:
        assert accepted(words), words
    assert not accepted(["no-such-command"])


def test_the_image_copies_what_is_there_and_runs_as_nobody_special() -> None:
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    users = re.findall(r"^USER (.*)$", CONTAINERFILE, re.MULTILINE)
    assert users == ["10001"]
    assert CONTAINERFILE.index("USER 10001") < CONTAINERFILE.index("ENTRYPOINT")


def test_the_health_check_of_the_image_tells_a_server_from_none(tmp_path: Path) -> None:
    (line,) = re.findall(r"^  CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    _, *rest = json.loads(line)
    asked = subprocess.run(
        [sys.executable, *rest], env={"PARLEY_PORT": "9"}, capture_output=True, text=True, check=False, timeout=50
    )
    assert asked.returncode == 1
    assert "refused" in asked.stderr


def test_the_services_of_the_compose_file_fit_together() -> None:
    services = COMPOSE["services"]
    volumes = {volume.partition(":")[0] for each in services.values() for volume in each.get("volumes", ())}
    assert {name for name in volumes if not name.startswith(".")} == set(COMPOSE["volumes"])
    for name in volumes:
        assert not name.startswith(".") or (DEPLOY / name).is_dir()
    for role in ("api", "worker"):
        service = services[role]
        assert service["depends_on"]["postgres"]["condition"] == "service_healthy"
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        settings = read_settings({name: shown(value) for name, value in service["environment"].items()})
        assert settings.store_url == "postgresql://parley:x@postgres:5432/parley"
        # The drain of a worker must fit into what the engine waits.
        assert int(service["stop_grace_period"].removesuffix("s")) >= 30


def shown(value: str) -> str:
    """A value of the compose file with every variable set to x, or to its default."""
    return re.sub(
        r"\$\{\w+(?:(:?[-?])([^}]*))?}",
        lambda found: found[2] if found[1] == ":-" else "x" if found[1] == ":?" else "",
        value,
    )


def test_the_database_script_is_sound_and_makes_no_superuser() -> None:
    script = DEPLOY / "postgres" / "10-parley.sh"
    assert script.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", str(script)], check=True, timeout=50)
    assert "SUPERUSER" not in script.read_text()
    assert "CREATE DATABASE parley OWNER parley" in script.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "parley.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT, flags=re.MULTILINE))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    complaints = [line for line in verified.stderr.splitlines() if "parley.service" in line]
    assert (verified.returncode, complaints) == (0, [])
    assert shlex.split(UNIT.partition("TimeoutStopSec=")[2])[0] == "40"
