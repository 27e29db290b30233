"""What the child process gives up before it looks at a file: memory, time, writing, and the network."""

import ctypes
import os
import resource
import signal
import sys
from typing import Any, Final

MEMORY_BYTES: Final = 768 * 1024 * 1024
CPU_SECONDS: Final = 30
CPU_SECONDS_PER_MIB: Final = 3
OPEN_FILES: Final = 64
NICENESS: Final = 10
PR_SET_PDEATHSIG: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38

_REFUSED: Final = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "os.spawn", "pty.")


def cpu_seconds(file_bytes: int) -> int:
    """How long a file of this size may be worked on."""
    return CPU_SECONDS + CPU_SECONDS_PER_MIB * file_bytes // (1024 * 1024)


def confine(file_bytes: int) -> None:
    """Take the limits on, for a file of this size. Irreversible; call once, before the first byte of the file is read.

    The network is dropped by the kernel where this process may make a namespace; where it may not, and
    besides, Python itself refuses sockets, processes and programs from here on.
    """
    try:
        os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET)
    except OSError:
        _unshare_network()
    os.nice(NICENESS)
    kernel = ctypes.CDLL(None)
    kernel.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # Nobody waits for the answer of a child whose server was killed.
    kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, cpu_seconds(file_bytes)),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    sys.addaudithook(_refuse)


def _unshare_network() -> None:
    try:
        os.unshare(os.CLONE_NEWNET)
    except OSError:
        return  # not permitted here: what Python refuses below is what is left


def _refuse(event: str, _arguments: tuple[Any, ...]) -> None:
    if event.startswith(_REFUSED):
        raise PermissionError(f"{event} is not allowed while a file is read")
