"""How long a server takes to be ready, what that costs, and what it has loaded by then."""

import asyncio
import os
import subprocess
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from uuid import uuid4

from bench.contestants import parley_environment
from bench.machine import cpu_seconds, on_core, resident_bytes
from bench.report import Report

START_SECONDS = 60.0
READY = b"Parley answers on "
# How many modules of integrations are loaded in a process that has everything open.
LOADED = """
import asyncio, os, sys
from parley.base.settings import read_settings
from parley.wiring import open_parley

async def main():
    async with open_parley(read_settings(os.environ)):
        print(sum(name.startswith("modulex_integrations.tools.") for name in sys.modules))

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Start:
    """One start: seconds until it answered, seconds of CPU, bytes in memory."""

    wall: float
    cpu: float
    resident: int


async def _start(folder: Path, core: int | None) -> Start:
    environment = {
        **os.environ,
        **parley_environment(folder, f"mx_live_{uuid4().hex}"),
        "PARLEY_PORT": "0",
        "PYTHONUNBUFFERED": "1",
    }
    began = time.perf_counter()
    with on_core(core):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "parley", "serve", env=environment, stdout=PIPE, stderr=DEVNULL
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            async for line in process.stdout:
                if line.startswith(READY):
                    break
        return Start(time.perf_counter() - began, cpu_seconds(process.pid), resident_bytes(process.pid))
    finally:
        process.kill()
        await process.wait()


async def measure_start(report: Report, folder: Path, core: int | None, *, count: int) -> None:
    """Starts on an empty data folder, and starts on one that is there already."""
    source = Path(__file__).parent.parent / "src"
    compiling = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(source)], env=compiling, check=True)
    firsts = [await _start(folder / f"first-{number}", core) for number in range(count)]
    again = [await _start(folder / "first-0", core) for _ in range(count)]
    report.most("first start: ready after", median(start.wall for start in firsts), 1.5, "{:.2f} s")
    report.most("later start: ready after", median(start.wall for start in again), 1.5, "{:.2f} s")
    report.add("later start: CPU", f"{median(start.cpu for start in again):.2f} s")
    report.most("memory once ready", median(start.resident for start in again) / 1e6, 150, "{:.0f} MB")
    environment = {**os.environ, **parley_environment(folder / "first-0", ""), "PARLEY_PORT": "0"}
    probe = subprocess.run([sys.executable, "-c", LOADED], env=environment, check=True, capture_output=True, text=True)
    report.most("integrations loaded once ready", int(probe.stdout.split()[-1]), 0, "{:.0f}")
    report.figures["start"] = {
        name: [{"seconds": start.wall, "cpu_seconds": start.cpu, "bytes": start.resident} for start in starts]
        for name, starts in (("first", firsts), ("later", again))
    }
