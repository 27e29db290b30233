"""The catalog: what can be connected, what it does, and what does not load on this machine.

Start-up reads the index and imports no integration. Where the installed package is of another
version than the shipped index, a child process makes a new index, once, into the data folder.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import msgspec

from parley.integrations.child import making
from parley.integrations.effects.table import UNKNOWN, Effect, effect_of
from parley.integrations.house import NO_HOUSE, House, open_house
from parley.integrations.index import (
    KNOWLEDGE_PROVIDERS,
    SHIPPED,
    Action,
    Index,
    IndexBroken,
    Integration,
    KnowledgeProvider,
    Summary,
    read_index,
    summarized,
    whole,
)
from parley.integrations.loading import Loader

PACKAGE = "modulex-integrations"
BUILD = "parley.integrations.build"
BUILD_SECONDS = 180.0
PROGRESS_EVERY = 25

log = logging.getLogger(__name__)


class Catalog:
    """Everything that can be connected; built from an index, which does not change while the process lives.

    The operator's own integrations stand beside the index's, at the end.
    """

    def __init__(self, index: Index, house: House = NO_HOUSE) -> None:
        self.package_version = index.package_version
        self.loader = Loader(house.folder)
        summaries = (*index.integrations, *(summarized(each, ()) for each in house.integrations.values()))
        self._summaries = {summary.name: summary for summary in summaries}
        self._texts = {summary.name: summary.text for summary in summaries}
        self._whole: dict[str, Integration] = dict(house.integrations)
        # A folder that is left out for its name must not make the catalog's own integration of that name broken.
        left_out = {f"house/{name}" if name in self._summaries else name: why for name, why in house.failures.items()}
        self._unreadable = {**index.failures, **_lacking(index.integrations), **left_out}
        self.knowledge_providers = msgspec.json.decode(
            KNOWLEDGE_PROVIDERS.read_bytes(), type=tuple[KnowledgeProvider, ...]
        )

    def summaries(self) -> Sequence[Summary]:
        """A short description of every integration, by name; cheap."""
        return tuple(self._summaries.values())

    def integrations(self) -> Sequence[Integration]:
        """Every integration whole, by name; the first call decodes the index, about 15 ms."""
        return tuple(filter(None, map(self.find, self._summaries)))

    def find(self, name: str) -> Integration | None:
        """One integration, None where there is none of that name."""
        summary = self._summaries.get(name)
        if summary is None:
            return None
        if name not in self._whole:
            self._whole[name] = whole(summary)
        return self._whole[name]

    def action(self, integration: Integration, name: str) -> Action | None:
        """One action of an integration, None where there is none of that name."""
        return next((action for action in integration.actions if action.name == name), None)

    def effect(self, integration: Integration, action: Action) -> Effect:
        """What an action does to the world: by a house integration's manifest, else by the reviewed table.

        What neither knows counts as destructive.
        """
        if integration.house:
            return action.effect or UNKNOWN
        return effect_of(integration.name, action.name, action.argument_schema)

    def listed_effect(self, integration: Integration, action: Action) -> Effect:
        """The same without a look at whether the action is still what was reviewed: cheap, for lists."""
        return action.effect or UNKNOWN if integration.house else effect_of(integration.name, action.name)

    def search(self, text: str) -> Sequence[Summary]:
        """The integrations whose name, display name, description, a category or an action name contains the text.

        Case does not matter; nothing that matches is ever left out (contract §6).
        """
        wanted = text.strip().lower()
        return tuple(summary for name, summary in self._summaries.items() if wanted in self._texts[name])

    def failures(self) -> Mapping[str, str]:
        """The integrations that do not load on this machine, with the reason; house/NAME has a name of the catalog."""
        return {**self._unreadable, **self.loader.failures}

    def loadable(self) -> int:
        """How many integrations load on this machine, those of the house included."""
        return len(self._summaries.keys() - self.failures().keys())


class BuildFailed(Exception):
    """The child process that makes an index ended badly; the message is its last line."""


async def load_catalog(data_dir: Path, *, shipped: Path = SHIPPED, house: Path | None = None) -> Catalog:
    """The catalog of the installed package, with the operator's integrations of the ``house`` folder.

    Another version than the shipped index's is indexed in a child process, at most 180 s; if that
    fails the shipped index serves, and the log says so.
    """
    index = await _load_index(data_dir, shipped)
    opened = await open_house(house, data_dir, index.names)
    for name, reason in opened.failures.items():
        log.warning("The house integration %s is left out: %s", name, reason)
    return Catalog(index, opened)


async def _load_index(data_dir: Path, shipped: Path) -> Index:
    index = read_index(shipped)
    installed = _installed()
    if installed in (None, index.package_version):
        return index
    cached = data_dir / f"catalog-{installed}.json.gz"
    with suppress(FileNotFoundError, IndexBroken):
        return read_index(cached)
    log.info("Indexing %s %s, once; the shipped index is of %s", PACKAGE, installed, index.package_version)
    try:
        await _build(cached)
        return read_index(cached)
    except (OSError, IndexBroken, TimeoutError, BuildFailed) as error:
        log.warning(
            "The catalog stays that of %s %s, because indexing failed: %s", PACKAGE, index.package_version, error
        )
        return index


async def _build(target: Path) -> None:
    pipe, same = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    async with making(target, BUILD, seconds=BUILD_SECONDS, stdout=pipe, stderr=same) as (child, partial):
        last = await _follow(child)
        if await child.wait() != 0:
            raise BuildFailed(last)
        partial.replace(target)


async def _follow(child: asyncio.subprocess.Process) -> str:
    """Log the child's progress; its last line."""
    assert child.stdout is not None  # asked for above
    count, last = 0, ""
    async for line in child.stdout:
        count, last = count + 1, line.decode(errors="replace").strip()
        if count % PROGRESS_EVERY == 0:
            log.info("Indexed %d integrations", count)
    return last


def _installed() -> str | None:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None


def _lacking(summaries: Sequence[Summary]) -> dict[str, str]:
    """Integrations whose drivers are not installed, found without importing anything."""
    needed = {module for summary in summaries for module in summary.needs}
    missing = {module for module in needed if find_spec(module) is None}
    return {
        summary.name: f"needs {', '.join(lacks)}, which is not installed"
        for summary in summaries
        if (lacks := sorted(missing.intersection(summary.needs)))
    }
