"""What ``--help`` says: every argument and option of every command in words."""

from collections.abc import Iterator
from typing import Any

import typer.main

from parley.cli import app
from tests.cli.conftest import command


def walked(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command under its whole name."""
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from walked(each, (*path, name))
        else:
            yield " ".join((*path, name)), each


def test_every_parameter_of_every_command_says_what_it_is() -> None:
    commands = dict(walked(typer.main.get_command(app)))
    assert {"chat", "keys create", "billing grant", "integrations import"} <= commands.keys()
    silent = [f"{name} {each.name}" for name, found in commands.items() for each in found.params if not each.help]
    assert silent == []


async def test_the_help_of_a_shared_argument_is_shown() -> None:
    shown = await command("keys", "create", "--help", environment={"COLUMNS": "200", "TERM": "dumb"})
    assert (shown.code, "The person's e-mail address." in shown.out) == (0, True)
