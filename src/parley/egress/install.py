"""Putting the guard into the clients of this process: those loaded now, and each one when it is first imported.

Importing none of them here keeps the start fast; an integration's driver often loads only in its first call.
"""

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from parley.egress.bounds import BOUNDS
from parley.egress.clients import HTTP_CLIENTS
from parley.egress.drivers import DRIVERS
from parley.egress.guard import Guard
from parley.egress.isolation import ISOLATED
from parley.egress.patches import Patches

type Guarding = Callable[[Any, Guard, Patches], None]

PARTS = (HTTP_CLIENTS, BOUNDS, DRIVERS, ISOLATED)
GUARDED: Mapping[str, tuple[Guarding, ...]] = {
    name: tuple(guarding for part in PARTS for guarding in part.get(name, ())) for part in PARTS for name in part
}


# requests and botocore read these where OpenSSL, httpx and aiohttp read SSL_CERT_FILE.
CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE")


@contextmanager
def installed(guard: Guard, ca_file: str) -> Generator[None]:
    """Guard this process for the time of the block; ``ca_file`` is SSL_CERT_FILE, empty where it is not set.

    Raises RuntimeError when it is guarded already.
    """
    if any(isinstance(finder, ImportWatch) for finder in sys.meta_path):
        raise RuntimeError("The egress guard is installed in this process already")
    patches = Patches()

    def apply(module: ModuleType) -> None:
        for guarding in GUARDED[module.__name__]:
            guarding(module, guard, patches)

    watch = ImportWatch(apply)
    sys.meta_path.insert(0, watch)
    try:
        for variable in CA_VARIABLES if ca_file else ():
            patches.set_variable(variable, ca_file)
        for name in GUARDED:
            if name in sys.modules:
                apply(sys.modules[name])
        yield
    finally:
        sys.meta_path.remove(watch)
        patches.undo()


class ImportWatch(MetaPathFinder):
    """Finds the guarded modules as the other finders do, and applies the guard once one has run."""

    def __init__(self, apply: Callable[[ModuleType], None]) -> None:
        self._apply = apply

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in GUARDED:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            self._apply(module)

        loader.exec_module = exec_module
