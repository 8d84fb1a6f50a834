"""Processes for code of others: their environment holds no secrets, and what they start ends with them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path
from typing import Any

CONFINED = Path(__file__).with_name("confined.py")


async def start_confined(folder: Path, megabytes: int, *words: str, **streams: Any) -> Process:
    """`confined.py` with these words in a folder, which is all that it is told of this machine."""
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # where `requests` is
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        str(CONFINED),
        str(os.getpid()),
        str(megabytes),
        *words,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        **streams,
    )


async def end(process: Process) -> None:
    """Kill it with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
