"""Real server processes in a few milliseconds: a parent with everything imported, forked for each server.

``python -m parley.testing.nursery`` reads one JSON object a line from standard input (``environment``,
``role``, ``log``, and ``crash``) and prints the new process's id. A ``crash`` of ``before:NAME:N`` or
``after:NAME:N`` makes the server SIGKILL itself right before or after the N-th transaction whose work
is defined in NAME, such as ``RunJournal._commit``, counted from the first admission on.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parley.base.settings import SettingsError, read_settings
from parley.cli.serve import serve
from parley.storage import ReadTx, Store, WriteTx, open_store

ADMISSION = "Chats.commit"
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class Crash:
    """When to die: ``before:NAME:N`` or ``after:NAME:N``."""

    def __init__(self, order: str) -> None:
        self.moment, self._name, count = order.split(":")
        self._left = int(count)
        self._armed = bool(os.environ.get("PARLEY_CRASH_ARMED"))

    def is_due(self, work: Callable[[WriteTx], Any]) -> bool:
        """Count a transaction; whether it is the one."""
        self._armed = self._armed or work.__qualname__.startswith(ADMISSION)
        if not self._armed or not work.__qualname__.startswith(self._name):
            return False
        self._left -= 1
        return self._left == 0


class CrashingStore:
    """A store whose process dies at a chosen transaction."""

    def __init__(self, store: Store, crash: "Crash") -> None:
        self._store = store
        self.dialect = store.dialect
        self._crash = crash

    @property
    def across(self) -> Store:
        return CrashingStore(self._store.across, self._crash)

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        dies = self._crash.is_due(work)
        if dies and self._crash.moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = await self._store.write(work)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None:
        await self._store.close()


def main() -> None:
    """Fork a server for every line of standard input, until it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become_server(order)
        print(child, flush=True)


def _become_server(order: dict[str, Any]) -> None:
    # Die with the nursery: a test run that is cut off stops nobody.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(order["environment"])
    log = os.open(Path(order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    crash = order.get("crash")
    try:
        serve(
            read_settings(os.environ),
            order.get("role", "all"),
            (lambda url: CrashingStore(open_store(url), Crash(crash))) if crash else open_store,
        )
    except SettingsError as error:
        print(error, flush=True)
    finally:
        sys.stdout.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
