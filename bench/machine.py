"""What the kernel says of a process: CPU, memory, core. Linux only."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
NANO = 1e-9


def cores() -> list[int]:
    """The cores this bench may use."""
    return sorted(os.sched_getaffinity(0))


@contextmanager
def on_core(core: int | None) -> Generator[None]:
    """What is started within runs on that core for good; None leaves it to the kernel."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_by_thread(pid: int) -> dict[int, float]:
    """Seconds of CPU, user and system, that each living thread of a process has used."""
    seconds: dict[int, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            seconds[int(task.name)] = int((task / "schedstat").read_text().split()[0]) * NANO
        except FileNotFoundError:  # the thread has just ended
            continue
    return seconds


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU, user and system, that a process has used."""
    return sum(cpu_by_thread(pid).values())


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def processes_that_say(word: str) -> list[int]:
    """The ids of the processes with this word in their title."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def load() -> float:
    """How many processes wanted a core over the last minute."""
    return os.getloadavg()[0]


def description() -> str:
    """The machine in one line."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "unknown CPU",
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return (
        f"{len(cores())} cores of {model}, {memory:.0f} GB, {os.uname().sysname} {os.uname().release.partition('-')[0]}"
    )
