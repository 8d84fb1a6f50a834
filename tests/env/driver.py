"""Running the browser in tests: one event loop and one set of processes for many tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.environment import Observation
from holotron.env.safety.policy import SafetyPolicy

T = TypeVar("T")


class World:
    """An event loop in a thread with a pool of browsers, shared because starting them is what takes long."""

    def __init__(self, processes: int = 1) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.browsers = Browsers(processes)

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 240) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=seconds)

    def close(self) -> None:
        self.run(self.browsers.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    @asynccontextmanager
    async def env(self, *origins: str, **options: Any) -> Any:
        """A browser that may go to these origins, and to nowhere else."""
        settings = {"width": 500, "height": 320, "safety": SafetyPolicy(origins)} | options
        async with await BrowserEnv.open(self.browsers, EnvOptions(**settings)) as env:
            yield env

    @asynccontextmanager
    async def at(self, origin: str, *others: str, **options: Any) -> Any:
        """The same, at the first page of the first of these origins."""
        async with self.env(origin, *others, **options) as env:
            await env.goto(f"{origin}/")
            yield env


async def title(env: Any) -> str:
    return str((await env.observe()).title)


async def observe_until(
    env: BrowserEnv, condition: Callable[[list[Observation]], object], seconds: float = 30.0
) -> list[Observation]:
    """Observations until they satisfy the condition; in the end they may not."""
    seen = [await env.observe()]
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition(seen) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.02)
        seen.append(await env.observe())
    return seen


def descendants(root: int) -> dict[int, str]:
    """Every process below one, by its id, with its command line."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for pid, parent, command in _processes():
        parents[pid] = parent
        commands[pid] = command
    below: dict[int, str] = {}
    for pid in parents:
        ancestor = pid
        while ancestor in parents and ancestor != root:
            ancestor = parents[ancestor]
        if ancestor == root and pid != root:
            below[pid] = commands[pid]
    return below


def _processes() -> Iterator[tuple[int, int, str]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if status[0] != "Z":
                yield int(folder.name), int(status[1]), command
