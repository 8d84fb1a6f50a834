"""Browser processes: shared, replaced when they die, and gone when they should be."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.options import EnvOptions
from holotron.env.browser.pool import Browsers
from holotron.env.errors import ActionFailed, BrowserCrashed, BrowserMissing, InfrastructureError
from holotron.env.safety.policy import SafetyPolicy
from tests.env.driver import descendants
from tests.env.site import Site

ROOT = Path(__file__).parents[2]


def options(site: Site) -> EnvOptions:
    return EnvOptions(width=500, height=320, safety=SafetyPolicy([site.origin]))


def chromiums(pid: int | None = None) -> dict[int, str]:
    """The main process of each Chromium below a process."""
    below = descendants(pid or os.getpid()).items()
    main = {pid: command for pid, command in below if "remote-debugging-pipe" in command and "--type=" not in command}
    return {pid: command for pid, command in main.items() if not command.startswith("/bin/sh")}


def gone(pids: set[int], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not pids & _alive():
            return True
        time.sleep(0.05)
    return False


def _alive() -> set[int]:
    return set(descendants(1)) | {int(name) for name in os.listdir("/proc") if name.isdigit() and not _zombie(name)}


def _zombie(name: str) -> bool:
    try:
        return Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def test_eight_browsers_in_two_processes(good: Site) -> None:
    good.pages["/"] = "<title>start</title><a href=/next style='font-size: 80px'>next</a>"
    good.pages["/next"] = "<script>document.title = location.search + localStorage.length; localStorage.a = 1</script>"

    async def one(browsers: Browsers, number: int) -> str:
        async with await BrowserEnv.open(browsers, options(good)) as env:
            await env.goto(f"{good.origin}/")
            await env.click(50, 50)
            await env.goto(f"{good.origin}/next?{number}-")
            return (await env.observe()).title

    before = set(descendants(os.getpid()))
    async with Browsers(2) as browsers:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(browsers, number)) for number in range(8)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            spread = browsers.contexts
        # Each began where localStorage was touched once before, by itself.
        assert [task.result() for task in tasks] == [f"?{number}-1" for number in range(8)]
        assert browsers.contexts == [0, 0]
        assert max(spread) <= 4
        started = set(descendants(os.getpid())) - before
        assert len([command for pid, command in chromiums().items() if pid in started]) == 2
    assert gone(started)


def test_a_killed_browser_is_noticed_and_replaced(good: Site) -> None:
    good.pages["/"] = "<title>here</title>"

    async def run() -> None:
        before = set(chromiums())
        async with Browsers(1) as browsers:
            lost = await BrowserEnv.open(browsers, options(good))
            await lost.goto(f"{good.origin}/")
            acting = asyncio.create_task(lost.wait(0.3))
            (pid,) = set(chromiums()) - before
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(BrowserCrashed):
                await acting
            with pytest.raises(BrowserCrashed):
                await lost.click(10, 10)
            with pytest.raises(BrowserCrashed):
                await lost.observe()
            async with await BrowserEnv.open(browsers, options(good)) as env:
                await env.goto(f"{good.origin}/")
                assert (await env.observe()).title == "here"
            await lost.close()
            assert browsers.contexts == [0]

    asyncio.run(run())
    assert issubclass(BrowserCrashed, InfrastructureError)
    assert not issubclass(BrowserCrashed, ActionFailed)


def test_a_killed_driver_is_noticed_and_replaced(good: Site, caplog: pytest.LogCaptureFixture) -> None:
    good.pages["/"] = "<title>here</title>"

    async def run() -> None:
        before = set(descendants(os.getpid()))
        async with Browsers(1) as browsers:
            lost = await BrowserEnv.open(browsers, options(good))
            started = {pid: text for pid, text in descendants(os.getpid()).items() if pid not in before}
            (driver,) = [pid for pid, command in started.items() if "run-driver" in command]
            os.kill(driver, signal.SIGKILL)
            with pytest.raises(InfrastructureError):
                await lost.goto(f"{good.origin}/")
            await lost.close()
            assert gone(set(started))
            async with await BrowserEnv.open(browsers, options(good)) as env:
                await env.goto(f"{good.origin}/")
                assert (await env.observe()).title == "here"

    asyncio.run(run())
    gc.collect()  # asyncio tells of errors that were not read when they are forgotten
    assert [record.name for record in caplog.records] == ["holotron.env.browser.pool"]


async def test_cancelling_closes_everything(good: Site) -> None:
    good.pages["/"] = "<title>here</title>"
    before = set(descendants(os.getpid()))
    started: set[int] = set()

    async def agent() -> None:
        async with Browsers(1) as browsers, await BrowserEnv.open(browsers, options(good)) as env:
            await env.goto(f"{good.origin}/")
            started.update(set(descendants(os.getpid())) - before)
            while True:
                await env.click(10, 10)
                await env.observe()

    task = asyncio.create_task(agent())
    while not started:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(started)


@pytest.mark.parametrize("processes", [0, 1, 3])
def test_cancelling_the_start_leaves_nothing(processes: int) -> None:
    """Cancelled before anything runs, once the driver runs, and once Chromium does."""
    before = set(descendants(os.getpid()))

    async def run() -> None:
        async with Browsers(1) as browsers:
            task = asyncio.create_task(BrowserEnv.open(browsers))
            await asyncio.sleep(0)
            while len(set(descendants(os.getpid())) - before) < processes and not task.done():
                await asyncio.sleep(0.005)
            if not task.cancel():  # a starved test: the environment opened between two looks
                await task.result().close()
                return
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert gone(set(descendants(os.getpid())) - before)


def test_an_interrupt_ends_everything(good: Site) -> None:
    """Ctrl-C reaches the program, its drivers and whatever else shares the terminal, all at once."""
    good.pages["/"] = "<title>here</title>"
    program = f"""
import asyncio
import signal
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.pool import Browsers
from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.options import EnvOptions
from holotron.env.safety.policy import SafetyPolicy

async def main():
    async with Browsers(1) as browsers:
        async with await BrowserEnv.open(browsers, EnvOptions(safety=SafetyPolicy(["{good.origin}"]))) as env:
            await env.goto("{good.origin}/")
            print("ready", flush=True)
            while True:
                await env.click(10, 10)

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may be run where interrupts are ignored
asyncio.run(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    started = set(descendants(process.pid))
    assert chromiums(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert "KeyboardInterrupt" in errors
    assert "BrowserCrashed" not in errors
    assert gone(started)


async def test_no_chromium_says_what_to_do(tmp_path: Path) -> None:
    async with Browsers(1, LaunchOptions(executable=tmp_path / "nothing")) as browsers:
        with pytest.raises(BrowserMissing, match="holotron doctor"):
            await BrowserEnv.open(browsers)


async def test_closed_browsers_open_nothing() -> None:
    browsers = Browsers(1)
    await browsers.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await BrowserEnv.open(browsers)
