"""``parley integrations``: making and checking house integrations, and importing an API into an organization."""

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from parley.base.settings import Settings
from parley.cli.chat.client import Trouble, choose_organization, connected
from parley.cli.chat.markdown import clean
from parley.integrations.house import TAKEN, UnfitFolder, look, make_sample, subfolders
from parley.integrations.index import SHIPPED, read_index

# As the server takes it in one request; a larger document is imported by its address.
MOST_DOCUMENT_BYTES = 900_000
MANY = 40
NO_FOLDER = "There is no such folder. Set PARLEY_INTEGRATIONS_DIR, or pass --dir."


@dataclass(frozen=True, slots=True)
class ImportWish:
    """Which document goes where. ``confirmed`` leaves out the question."""

    url: str
    key: str
    organization_id: str
    spec: str
    server_url: str
    display_name: str
    confirmed: bool


class _Seen(msgspec.Struct):
    digest: str
    display_name: str
    base_url: str
    actions: list[dict[str, Any]]
    connect_by: list[dict[str, Any]]
    rejected: dict[str, str]
    notes: list[str]


class _Imported(msgspec.Struct):
    integration_name: str
    total_actions: int
    needs_credential: bool


def new(settings: Settings, name: str, root: Path | None) -> int:
    """Write a working sample; the exit code."""
    folder = root or settings.house
    if folder is None:
        return _failed("Say where: set PARLEY_INTEGRATIONS_DIR, or pass --dir.")
    if name in read_index(SHIPPED).names:
        return _failed(f"{name}: {TAKEN}.")
    try:
        made = make_sample(folder, name)
    except UnfitFolder as unfit:
        return _failed(str(unfit))
    print(f"Made {made}: manifest.json, actions.py and test_{name}.py.")
    print(f"Check it with: parley integrations check {name}")
    if settings.house is None:
        print(f"Serve it with: PARLEY_INTEGRATIONS_DIR={folder.absolute()} parley serve")
    return 0


def check(settings: Settings, name: str | None, root: Path | None) -> int:
    """Say of each folder, or of one, what is wrong with it and what to do; the exit code."""
    folder = root or settings.house
    if folder is None:
        return _failed(NO_FOLDER)
    try:
        folders = subfolders(folder.absolute())
    except (FileNotFoundError, NotADirectoryError):
        return _failed(NO_FOLDER)
    except OSError as error:
        return _failed(f"{folder} cannot be listed: {error.strerror}.")
    if name is not None:
        folders = [each for each in folders if each.name == name]
    if not folders:
        return _failed(f"There is no integration {name!r} in {folder}." if name else f"{folder} holds no integration.")
    return asyncio.run(_check(folders, settings))


async def _check(folders: list[Path], settings: Settings) -> int:
    broken, taken = 0, read_index(SHIPPED).names
    for folder in folders:
        report = await look(folder, settings.data_dir)
        problems = (*report.problems, *((f"{TAKEN}.",) if folder.name in taken else ()))
        actions = report.integration.actions if report.integration else ()
        print(f"{folder.name}: {'broken' if problems else f'good, {len(actions)} actions'}")
        for sentence in (*problems, *report.notes):
            print(f"  {sentence}")
        for action in actions:
            print(f"  {action.name}: {action.effect.effect if action.effect else 'destructive (not declared)'}")
        broken += bool(problems)
    return 1 if broken else 0


def import_api(wish: ImportWish) -> int:
    """Show what a document describes, ask, and import it; the exit code."""
    try:
        return asyncio.run(_import(wish))
    except Trouble as trouble:
        return _failed(clean(str(trouble)))


async def _import(wish: ImportWish) -> int:
    body = _document(wish.spec)
    if wish.server_url:
        body["server_url"] = wish.server_url
    if wish.display_name:
        body["display_name"] = wish.display_name
    async with connected(wish.url, wish.key, wish.organization_id) as client:
        await choose_organization(client)
        seen = await client.post("/integrations/openapi", _Seen, body)
        _show(seen)
        if not wish.confirmed and not _agreed(len(seen.actions)):
            print("Nothing was imported.")
            return 1
        made = await client.post("/integrations/openapi", _Imported, {**body, "digest": seen.digest})
    print(f"Imported as {made.integration_name} with {made.total_actions} actions.")
    if made.needs_credential:
        print(f"Connect it: POST /credentials with integration_name {made.integration_name!r}, or when a chat asks.")
    return 0


def _document(spec: str) -> dict[str, Any]:
    if spec.startswith(("https://", "http://")):
        return {"url": spec}
    try:
        text = Path(spec).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise Trouble(f"{spec} cannot be read.") from None
    if len(text.encode()) > MOST_DOCUMENT_BYTES:
        raise Trouble(f"{spec} is larger than {MOST_DOCUMENT_BYTES:,} bytes. Put it on a web address and import that.")
    return {"spec": text}


def _show(seen: _Seen) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{seen.display_name} at {seen.base_url}", markup=False)
    for way in seen.connect_by:
        console.print(f"  signs in by {way['auth_type']}: {way['display_name']}", markup=False)
    for action in seen.actions[:MANY]:
        line = f"  {action['proposed_effect']:12}{action['name']}  {action['method']} {action['path']}"
        console.print(line, markup=False)
    if len(seen.actions) > MANY:
        console.print(f"  and {len(seen.actions) - MANY} more: {_counts(seen.actions)}")
    for name, reason in seen.rejected.items():
        console.print(f"  left out: {name}: {reason}", markup=False)
    for note in seen.notes:
        console.print(f"  note: {note}", markup=False)


def _counts(actions: list[dict[str, Any]]) -> str:
    counts: Mapping[str, int] = Counter(str(action["proposed_effect"]) for action in actions)
    return ", ".join(f"{count} {effect}" for effect, count in counts.items())


def _agreed(count: int) -> bool:
    if not sys.stdin.isatty():
        print("Pass --yes to import without being asked.", file=sys.stderr)
        return False
    return input(f"Import these {count} actions, each doing what its verb promises? [y/N] ").strip().lower() == "y"


def _failed(sentence: str) -> int:
    print(f"parley: {sentence}", file=sys.stderr)
    return 1
