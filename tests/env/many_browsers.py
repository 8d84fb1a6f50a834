"""Many browsers at once on this machine: whether all stay alive, the steps they make, the memory they take."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from holotron.bench.measuring import quantile
from holotron.bench.report import machine, print_figures, write_json
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.errors import EnvError
from holotron.env.safety.policy import SafetyPolicy
from holotron.plan.workload import parse_size
from tests.process_memory import process_memory

PAGE = b"""<!doctype html><title>A form</title><style>body { font: 16px sans-serif; margin: 2rem }</style>
<h1>Order</h1><p>Choose what you like.</p><label>Name <input id=name></label>
<button onclick="this.textContent = 'Added ' + ++n">Add</button><script>let n = 0</script>
<ul>""" + b"".join(b"<li>Item %d <a href='#%d'>more</a>" % (i, i) for i in range(40))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):  # Chromium opens connections that it may not use
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD % len(PAGE) + PAGE)
        await writer.drain()
    writer.close()


async def measure_browsers(sessions: int, processes: int, seconds: float, size: tuple[int, int]) -> dict[str, Any]:
    """Open so many contexts, click and look in all of them for a while."""
    times: list[float] = []
    failures: list[str] = []
    async with await asyncio.start_server(_answer, "127.0.0.1", 0) as site:
        origin = f"http://127.0.0.1:{site.sockets[0].getsockname()[1]}"
        options = EnvOptions(width=size[0], height=size[1], safety=SafetyPolicy([origin]), call_seconds=120)
        async with Browsers(processes) as browsers:
            began = time.monotonic()
            envs = await asyncio.gather(*(BrowserEnv.open(browsers, options) for _ in range(sessions)))
            await asyncio.gather(*(env.goto(origin) for env in envs))
            opened = time.monotonic() - began
            until = time.monotonic() + seconds

            async def live(env: BrowserEnv) -> None:
                while time.monotonic() < until:
                    start = time.monotonic()
                    try:
                        await env.click(200, 190)
                        await env.observe()
                    except EnvError as error:
                        failures.append(f"{type(error).__name__}: {error}")
                        return
                    times.append(time.monotonic() - start)

            start = time.monotonic()
            await asyncio.gather(*(live(env) for env in envs))
            took = time.monotonic() - start
            memory = _memory(os.getpid())
            titles = [(await env.observe()).title for env in envs]
            await asyncio.gather(*(env.close() for env in envs))
    return {
        "sessions": sessions,
        "processes": processes,
        "viewport": list(size),
        "seconds_to_open": opened,
        "seconds": took,
        "alive_after": sum(title == "A form" for title in titles),
        "failures": failures,
        "steps": len(times),
        "steps_per_second": len(times) / took,
        "step_seconds_p50": quantile(times, 0.5),
        "step_seconds_p95": quantile(times, 0.95),
        "memory_mib": memory / 2**20,
        "memory_mib_per_session": memory / 2**20 / sessions,
    }


def _memory(root: int) -> int:
    """Bytes of this process and all below it."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
    family = {root}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(map(process_memory, family))


def main() -> None:
    parser = argparse.ArgumentParser(description="many browsers at once: alive, steps/s, memory")
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--size", default="1280x800", help="WIDTHxHEIGHT of the view")
    parser.add_argument("--out", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    size = parse_size("--size", options.size)
    report = machine() | {"command": "python -m tests.env.many_browsers " + " ".join(sys.argv[1:])}
    report |= asyncio.run(measure_browsers(options.sessions, options.processes, options.seconds, size))
    print_figures(report, digits=2)
    if options.out:
        write_json(options.out, report)


if __name__ == "__main__":
    main()
