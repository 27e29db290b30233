"""A child process that makes one file: an index of the catalog, the report of a folder."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

NOTHING = asyncio.subprocess.DEVNULL


@asynccontextmanager
async def making(
    target: Path, module: str, *arguments: str, seconds: float, stdout: int = NOTHING, stderr: int = NOTHING
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, Path]]:
    """``python -m MODULE … --output PARTIAL``, and the partial file beside ``target``, to be put in its place.

    Leaving ends the child and deletes a partial file that is still there. Raises TimeoutError where the
    block takes longer than ``seconds``, and OSError where nothing can be started.
    """
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}")
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", module, *arguments, "--output", str(partial)),
        stdin=NOTHING,
        stdout=stdout,
        stderr=stderr,
    )
    try:
        async with asyncio.timeout(seconds):
            yield child, partial
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        partial.unlink(missing_ok=True)
