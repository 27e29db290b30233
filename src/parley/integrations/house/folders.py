"""The folder of one house integration: what is in it, what stands for its content, and how it is imported."""

import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import msgspec
from pydantic import BaseModel, ConfigDict, create_model

from parley.integrations.index import Integration

MANIFEST, ACTIONS = "manifest.json", "actions.py"
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
# Names that organizations' own integrations have.
NOT_OURS = ("mcp_", "api_")
MOST_FILES = 200
MOST_BYTES = 8 * 1_048_576
MODULE = "parley_house_"


class UnfitFolder(Exception):
    """The folder cannot be used; the message says why and what to do."""


class Report(msgspec.Struct):
    """What was found in a folder. ``problems`` keep it from being used, ``notes`` do not; ``hash`` is its content's."""

    hash: str = ""
    problems: list[str] = []
    notes: list[str] = []
    integration: Integration | None = None


def name_problem(name: str) -> str | None:
    """Why a house integration cannot have this name, as a sentence; None where it can."""
    if NAME.fullmatch(name) and not name.startswith(NOT_OURS):
        return None
    return f"{name!r} is no name: a-z, 0-9 and '_', at most 40, and not mcp_… or api_…."


def content_hash(folder: Path) -> str:
    """What stands for the code and the manifest of a folder. Raises UnfitFolder for one that is far too large."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".py", ".json") and path.is_file() and not path.name.startswith("test_")
    ]
    if len(files) > MOST_FILES or sum(path.stat().st_size for path in files) > MOST_BYTES:
        raise UnfitFolder(
            f"The folder holds more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB. Keep only its code."
        )
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def import_actions(folder: Path) -> ModuleType:
    """The module ``actions.py``, under a name of its own; it may import its neighbours as ``from . import x``.

    Raises whatever the code raises.
    """
    name = f"{MODULE}{folder.name}"
    place = importlib.util.spec_from_file_location(name, folder / ACTIONS, submodule_search_locations=[str(folder)])
    if place is None or place.loader is None:
        raise UnfitFolder(f"{ACTIONS} is no Python file.")
    module = importlib.util.module_from_spec(place)
    sys.modules[name] = module
    try:
        place.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def found_functions(module: ModuleType) -> Mapping[str, Any]:
    """The module's own async functions by name, less those that begin with an underscore."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.iscoroutinefunction(value) and not name.startswith("_") and value.__module__ == module.__name__
    }


def arguments_model(name: str, function: Any) -> type[BaseModel]:
    """A pydantic model of what a function takes. Raises UnfitFolder for parameters that have no name."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UnfitFolder(f"{name} takes {parameter}. Name each of its parameters instead.")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints.get(parameter.name, Any), default)
    return create_model(name, __config__=ConfigDict(arbitrary_types_allowed=True), **fields)
