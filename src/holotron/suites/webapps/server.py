"""The server of an application: started in a copy of its folder, reset before each task, watched during it."""

from __future__ import annotations

import asyncio
import shutil
import socket
from asyncio.subprocess import Process
from pathlib import Path
from typing import Self

import httpx

from holotron.env.errors import InfrastructureError
from holotron.suites.webapps.processes import end, start_confined

MEGABYTES = 4096
START_SECONDS = 60.0
STARTS = 3  # another process may take a port between its choice and its use
LOOK_SECONDS = 0.02
RESET_SECONDS = 30.0
# Not served: a policy that finds the verifiers of its task has no need to solve it.
LEFT_OUT = shutil.ignore_patterns("*-tasks", "*-tasks.json", "sanity_check*", "results", "__pycache__", ".git")


class ServerFailed(InfrastructureError):
    """An application's server does not start, does not answer or has ended: nothing is said about the policy."""


class AppServer:
    """One application at an address of its own. `start` it, `reset` it before each task, `stop` it."""

    def __init__(self, app: Path, folder: Path, process: Process, port: int) -> None:
        self.app = app
        self.address = f"http://127.0.0.1:{port}"
        self._folder, self._process = folder, process

    @classmethod
    async def start(cls, app: Path, folder: Path) -> Self:
        """Run the application from a folder that does not exist yet, in which it may write."""
        await asyncio.to_thread(shutil.copytree, app, folder / "app", ignore=LEFT_OUT)
        for attempt in range(1, STARTS + 1):
            port, log = free_port(), folder / "log"
            with log.open("wb") as out:
                process = await start_confined(folder / "app", MEGABYTES, "serve", str(port), stdout=out, stderr=out)
            try:
                problem = await _listening(process, port)
            except BaseException:
                await end(process)
                raise
            if problem is None:
                return cls(app, folder, process, port)
            await end(process)
            said = (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            taken = "Address already in use" in said
            if not taken or attempt == STARTS:
                shutil.rmtree(folder, ignore_errors=True)
                raise ServerFailed(f"the server of {app.name} {problem}: {said}")
        raise AssertionError("the last start returns or raises")

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    def check(self) -> None:
        """ServerFailed if it has ended."""
        if not self.alive:
            raise ServerFailed(f"the server of {self.app.name} ended with {self._process.returncode} during the task")

    async def reset(self) -> None:
        """Back to the state that it began with."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=RESET_SECONDS) as client:
                (await client.post(f"{self.address}/api/reset")).raise_for_status()
        except httpx.HTTPError as error:
            told = str(error).splitlines() or [type(error).__name__]
            raise ServerFailed(f"the server of {self.app.name} cannot be reset: {told[0]}") from error

    async def stop(self) -> None:
        await end(self._process)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


async def _listening(process: Process, port: int) -> str | None:
    """Wait until the process itself listens at the port; what went wrong if it does not."""
    try:
        async with asyncio.timeout(START_SECONDS):
            while process.returncode is None:
                if _listens(process.pid, port):
                    return None
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        return f"does not listen after {START_SECONDS:g} s"
    return f"ended with {process.returncode} before it listened"


def _listens(pid: int, port: int) -> bool:
    """Whether a socket that listens at the port is the process's: at a port that was taken, another's would answer."""
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            local, state, inode = (line.split()[column] for column in (1, 3, 9))
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{inode}]")
    try:
        return bool(inodes) and any(str(link.readlink()) in inodes for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it ended, or closed a file meanwhile
        return False
