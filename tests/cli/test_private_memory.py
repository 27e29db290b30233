"""T30: a server that dies leaves no copy of its memory behind, and nobody beside it reads it while it lives."""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from parley.testing.server import server_process

PR_GET_DUMPABLE = 3
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process may be asked for")


@LINUX
async def test_t30_a_server_may_not_write_a_core_file_whatever_its_parent_allowed(tmp_path: Path) -> None:
    environment = {"PARLEY_DATA_DIR": str(tmp_path / "data"), "OLLAMA_HOST": "http://127.0.0.1:9"}
    async with server_process(environment) as server:
        limits = Path(f"/proc/{server.process.pid}/limits").read_text(encoding="utf-8")
        [core] = [line for line in limits.splitlines() if line.startswith("Max core file size")]
        assert core.split()[4:6] == ["0", "0"]
        server.process.send_signal(signal.SIGABRT)
        assert await server.wait() == -signal.SIGABRT
    assert not list(tmp_path.rglob("core*"))


@LINUX
def test_t30_a_server_cannot_be_looked_into_but_what_it_starts_can() -> None:
    code = (
        "import ctypes, subprocess, sys\n"
        "from parley.cli.serve import keep_memory_private\n"
        "ask = 'import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))'\n"
        "keep_memory_private()\n"
        "exec(ask)\n"
        "sys.stdout.flush()\n"
        "subprocess.run([sys.executable, '-c', ask], check=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["0", "1"], done.stderr
    assert ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1, os.getpid()
