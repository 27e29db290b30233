"""Every folder under ``PARLEY_INTEGRATIONS_DIR``: what was found in each, kept by what is in it.

A folder is looked at once for each content: by a child process, whose report stays in the data
folder. Start-up with nothing changed reads reports and imports nothing. A folder that is broken is a
reason beside the others; nothing here raises for one.
"""

import asyncio
import os
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from parley.integrations.house.folders import UnfitFolder, content_hash
from parley.integrations.index import Integration

SETTING = "PARLEY_INTEGRATIONS_DIR"
CHECK_SECONDS = 60.0
REPORTS = "house"
LAST_CHARACTERS = 300
TAKEN = "the catalog has an integration of this name; call the folder otherwise"


class Looked(msgspec.Struct, frozen=True):
    """The report of one folder; the same as ``checking.Report``, without what it takes to make one."""

    hash: str = ""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    integration: Integration | None = None


@dataclass(frozen=True, slots=True)
class House:
    """The house integrations that can be used, and of the others why not, by the names of their folders."""

    folder: Path | None = None
    integrations: Mapping[str, Integration] = field(default_factory=dict[str, Integration])
    failures: Mapping[str, str] = field(default_factory=dict[str, str])


NO_HOUSE = House()


async def open_house(folder: Path | None, data_dir: Path, taken: Collection[str]) -> House:
    """What is in the operator's folder; ``taken`` are the catalog's names, which stay the catalog's."""
    if folder is None:
        return NO_HOUSE
    if not folder.is_dir():  # noqa: ASYNC240 - before anything is served
        return House(folder, {}, {SETTING: "it names no folder"})
    integrations: dict[str, Integration] = {}
    failures: dict[str, str] = {}
    for each in subfolders(folder):
        looked = await look(each, data_dir)
        if each.name in taken:
            failures[each.name] = TAKEN
        elif looked.integration is None:
            failures[each.name] = " ".join(looked.problems)
        else:
            integrations[each.name] = looked.integration
    return House(folder, integrations, failures)


def subfolders(folder: Path) -> list[Path]:
    """The folders that are integrations: all but hidden and private ones."""
    return [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] not in "._"]


async def look(folder: Path, data_dir: Path) -> Looked:
    """The report of one folder: the kept one of the same content, else a new one. Never raises."""
    try:
        mark = await asyncio.to_thread(content_hash, folder)
        kept = data_dir / REPORTS / f"{folder.name}-{mark[:32]}-{sys.version_info[0]}.{sys.version_info[1]}.json"
        with suppress(FileNotFoundError, msgspec.DecodeError):
            found = msgspec.json.decode(kept.read_bytes(), type=Looked)
            if found.hash == mark:
                return found
        return await _looked(folder, kept)
    except UnfitFolder as unfit:
        return Looked(problems=(str(unfit),))
    except OSError as error:
        return Looked(problems=(f"The folder cannot be read: {error.strerror}.",))


async def _looked(folder: Path, kept: Path) -> Looked:
    """Let a child look. Only a report without problems is kept: what is missing today may be there tomorrow."""
    kept.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept.parent.mkdir(mode=0o700, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}")
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "parley.integrations.house.checking", str(folder), "--output", str(partial)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    said = b""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            _, said = await child.communicate()
        found = msgspec.json.decode(partial.read_bytes(), type=Looked)
    except TimeoutError:
        return Looked(problems=(f"Importing it took longer than {CHECK_SECONDS:g} s.",))
    except (FileNotFoundError, msgspec.DecodeError):
        last = said.decode(errors="replace").strip().rpartition("\n")[2][:LAST_CHARACTERS]
        return Looked(problems=(f"Importing it ended the process that looked at it. {last}".strip(),))
    else:
        if not found.problems:
            for old in kept.parent.glob(f"{folder.name}-*.json"):
                old.unlink(missing_ok=True)
            partial.replace(kept)
        return found
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        partial.unlink(missing_ok=True)
