"""Every folder under ``PARLEY_INTEGRATIONS_DIR``: what was found in each, kept by what is in it.

A folder is looked at once for each content: by a child process, whose report stays in the data
folder. Start-up with nothing changed reads reports and imports nothing. A folder that is broken is a
reason beside the others; nothing here raises for one.
"""

import asyncio
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from parley.integrations.child import making
from parley.integrations.house.folders import Report, UnfitFolder, content_hash
from parley.integrations.index import Integration

SETTING = "PARLEY_INTEGRATIONS_DIR"
CHECK = "parley.integrations.house.checking"
CHECK_SECONDS = 60.0
REPORTS = "house"
LAST_CHARACTERS = 300
TAKEN = "the catalog has an integration of this name; call the folder otherwise"


@dataclass(frozen=True, slots=True)
class House:
    """The house integrations that can be used, and of the others why not, by the names of their folders."""

    folder: Path | None = None
    integrations: Mapping[str, Integration] = field(default_factory=dict[str, Integration])
    failures: Mapping[str, str] = field(default_factory=dict[str, str])


NO_HOUSE = House()


async def open_house(folder: Path | None, data_dir: Path, taken: Collection[str]) -> House:
    """What is in the operator's folder; ``taken`` are the catalog's names, which stay the catalog's. Never raises.

    A folder that cannot be listed is a failure under the name of its setting.
    """
    if folder is None:
        return NO_HOUSE
    try:
        folders = subfolders(folder)
    except (FileNotFoundError, NotADirectoryError):
        return House(folder, {}, {SETTING: "it names no folder"})
    except OSError as error:
        return House(folder, {}, {SETTING: f"its folder cannot be listed: {error.strerror}"})
    integrations: dict[str, Integration] = {}
    failures: dict[str, str] = {}
    for each in folders:
        if each.name in taken:
            failures[each.name] = TAKEN
            continue
        report = await look(each, data_dir)
        if report.integration is None:
            failures[each.name] = " ".join(report.problems)
        else:
            integrations[each.name] = report.integration
    return House(folder, integrations, failures)


def subfolders(folder: Path) -> list[Path]:
    """The folders that are integrations: all but hidden and private ones. Raises OSError."""
    return [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] not in "._"]


async def look(folder: Path, data_dir: Path) -> Report:
    """The report of one folder: the kept one of the same content, else a new one. Never raises."""
    try:
        mark = await asyncio.to_thread(content_hash, folder)
        kept = data_dir / REPORTS / f"{folder.name}-{mark[:32]}-{sys.version_info[0]}.{sys.version_info[1]}.json"
        with suppress(FileNotFoundError, msgspec.DecodeError):
            found = msgspec.json.decode(kept.read_bytes(), type=Report)
            if found.hash == mark:
                return found
        return await _looked(folder, kept)
    except UnfitFolder as unfit:
        return Report(problems=[str(unfit)])
    except OSError as error:
        return Report(problems=[f"The folder cannot be read: {error.strerror}."])


async def _looked(folder: Path, kept: Path) -> Report:
    """Let a child look. Only a report without problems is kept: what is missing today may be there tomorrow."""
    kept.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    pipe = asyncio.subprocess.PIPE
    said = b""
    try:
        async with making(kept, CHECK, str(folder), seconds=CHECK_SECONDS, stderr=pipe) as (child, partial):
            _, said = await child.communicate()
            found = msgspec.json.decode(partial.read_bytes(), type=Report)
            if not found.problems:
                for old in kept.parent.glob(f"{folder.name}-*.json"):
                    old.unlink(missing_ok=True)
                partial.replace(kept)
    except TimeoutError:
        return Report(problems=[f"Importing it took longer than {CHECK_SECONDS:g} s."])
    except (FileNotFoundError, msgspec.DecodeError):
        last = said.decode(errors="replace").strip().rpartition("\n")[2][:LAST_CHARACTERS]
        return Report(problems=[f"Importing it ended the process that looked at it. {last}".strip()])
    return found
