"""``parley doctor``: what is wrong, and the command that mends it."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from rich.console import Console
from rich.text import Text

from parley.base.settings import Settings, SettingsError, read_settings
from parley.cli.doctor import machine, reach
from parley.cli.doctor.finding import Finding, State, broken

MARKS: Mapping[State, tuple[str, str, str]] = {
    "good": ("✓", "ok", "green"),
    "note": ("!", "note", "yellow"),
    "broken": ("✗", "broken", "red"),
}


def doctor(environment: Mapping[str, str]) -> int:
    """Print every finding; the exit code: 1 when something is broken. Changes nothing, prints no secret."""
    console = Console(highlight=False, soft_wrap=True)
    findings = asyncio.run(_report(environment, console))
    count = sum(finding.state == "broken" for finding in findings)
    if not count:
        console.print("Nothing is broken.")
        return 0
    console.print(f"{count} thing{' is' if count == 1 else 's are'} broken.")
    return 1


async def _report(environment: Mapping[str, str], console: Console) -> list[Finding]:
    findings: list[Finding] = []
    async for finding in examine(environment):
        _print(console, finding)
        findings.append(finding)
    return findings


async def examine(environment: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Everything there is to say of the installation that these variables describe."""
    try:
        settings = read_settings(environment)
    except SettingsError as error:
        yield broken("Settings", str(error), "Correct the variable, then run this again: parley doctor")
        return
    for finding in _local(settings, environment):
        yield finding
    async for finding in machine.check_house(settings):
        yield finding
    facts = await reach.look_at_store(settings)
    if isinstance(facts, Finding):
        yield facts
        facts = None
    else:
        async for finding in reach.check_store(settings, facts):
            yield finding
    async for finding in reach.check_server(settings):
        yield finding
    async for finding in reach.check_models(settings, facts):
        yield finding


def _local(settings: Settings, environment: Mapping[str, str]) -> list[Finding]:
    return [
        *machine.check_settings(environment),
        *machine.check_folder(settings),
        *machine.check_keys(settings),
        *machine.check_plans(settings),
        *machine.check_payments(settings),
        *machine.check_addresses(settings),
        *machine.check_catalog(settings),
        *machine.check_web_app(),
    ]


def _print(console: Console, finding: Finding) -> None:
    mark, word, colour = MARKS[finding.state]
    unicode = console.encoding.lower().startswith("utf")
    line = Text(f"{mark if unicode else word:2}", style=colour)
    line.append(f"{finding.topic:16}", style="bold")
    line.append(finding.text)
    console.print(line)
    if finding.mend:
        console.print(Text(f"{'':18}{finding.mend}", style="cyan"))
