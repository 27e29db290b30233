"""Starting the child that reads one file, and bearing whatever becomes of it."""

import asyncio
import os
import signal
import sys
import time
from typing import IO

import msgspec

from parley.knowledge.model import Chunking, FileType
from parley.knowledge.parsing.confine import cpu_seconds
from parley.knowledge.parsing.verdict import Verdict

# A busy machine gives the child a share of a processor only.
WALL_SECONDS_PER_CPU_SECOND = 4
MOST_ANSWER_BYTES = 256 * 1024 * 1024
READ_BYTES = 1 << 20

TOO_SLOW = "The file takes too long to read. Split it into smaller files and upload those."
GAVE_UP = "The file cannot be read: its reader stopped. It may be damaged; save it again and try again."


class ChildKilled(Exception):
    """Somebody else stopped the child, such as a machine without memory: that says nothing about the file."""


async def read(file: IO[bytes], file_type: FileType, chunking: Chunking) -> Verdict:
    """The passages of an open file, or why there are none. Ends in bounded time. Raises ChildKilled for no file."""
    processor_seconds = cpu_seconds(os.fstat(file.fileno()).st_size)
    seconds = WALL_SECONDS_PER_CPU_SECOND * processor_seconds
    began = time.monotonic()
    command = (
        sys.executable,
        "-I",
        "-m",
        "parley.knowledge.parsing",
        file_type,
        msgspec.json.encode(chunking).decode(),
    )
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=file,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment(),
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            answer = await _answer(process)
            code = await process.wait()
    except TimeoutError:
        return Verdict(fault=TOO_SLOW)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # The kernel kills as well, but not before the processor time that a child may have is over.
    if code == -signal.SIGKILL and answer is not None and time.monotonic() - began < processor_seconds:
        raise ChildKilled
    return verdict_of(answer, code)


def environment() -> dict[str, str]:
    """No credential and no proxy: only what lets Python run as fast as one file may."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAYON_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",
    }


async def _answer(process: asyncio.subprocess.Process) -> bytes | None:
    """What the child wrote; None where that is more than any file comes to."""
    if process.stdout is None:
        raise AssertionError("started with a pipe")
    parts: list[bytes] = []
    size = 0
    while part := await process.stdout.read(READ_BYTES):
        size += len(part)
        if size > MOST_ANSWER_BYTES:
            process.kill()
            return None
        parts.append(part)
    return b"".join(parts)


def verdict_of(answer: bytes | None, code: int) -> Verdict:
    """What to make of a child that wrote this and ended with this code; negative codes are signals."""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return Verdict(fault=TOO_SLOW, reason=f"signal {-code}")
    if code != 0 or answer is None:
        return Verdict(fault=GAVE_UP, reason=f"exit code {code}")
    try:
        return msgspec.msgpack.decode(answer, type=Verdict)
    except msgspec.DecodeError:
        return Verdict(fault=GAVE_UP, reason="its answer cannot be understood")
