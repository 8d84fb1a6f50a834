"""Browsers that die and pages that hang are nobody's failure but the machine's, and the next reset works."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest

from holotron.env.errors import InfrastructureError, PageCrashed
from holotron.suites.miniwob.pool import MiniWoBPool
from holotron.suites.miniwob.tasks import as_task
from tests.suites.miniwob_driver import click, hover, needs_chromium, with_pages

pytestmark = needs_chromium


async def browser_process(pool: MiniWoBPool, index: int = 0) -> int:
    browser: Any = (await pool.contexts[index].open()).context.browser
    session = await browser.new_browser_cdp_session()
    processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    return next(int(process["id"]) for process in processes if process["type"] == "browser")


def test_a_killed_browser_is_a_crash_and_is_replaced() -> None:
    async def run(pool: MiniWoBPool) -> None:
        one, two, other = pool.envs[0], pool.envs[2], pool.envs[1]
        for env in pool.envs:
            await env.reset(as_task("click-test"), 0)
        before = (await one.observe()).image
        os.kill(await browser_process(pool), signal.SIGKILL)
        with pytest.raises(PageCrashed, match="click-test seed 0"):
            await one.step(click(80, 100))
        with pytest.raises(PageCrashed, match="click-test"):
            await one.result()
        with pytest.raises(PageCrashed):
            await two.observe()
        assert not (await other.step(hover(10, 60)))[1].done  # the other browser's page goes on
        again = await asyncio.gather(one.reset(as_task("click-test"), 0), two.reset(as_task("click-test"), 0))
        assert [seen.image for seen in again] == [before, before]
        assert not (await one.step(hover(10, 60)))[1].done

    with_pages(run, pages=3, browsers=2, timeout=20)
    assert issubclass(PageCrashed, InfrastructureError)


def test_a_browser_killed_in_the_middle_of_an_action() -> None:
    async def run(pool: MiniWoBPool) -> None:
        env = pool.envs[0]
        await env.reset(as_task("drag-box"), 0)
        process = await browser_process(pool)
        drag = asyncio.create_task(env.drag((20, 60), (150, 200), steps=2000))
        await asyncio.sleep(0.05)
        os.kill(process, signal.SIGKILL)
        with pytest.raises(PageCrashed):
            await drag
        await env.reset(as_task("drag-box"), 0)
        os.kill(await browser_process(pool), signal.SIGKILL)
        await asyncio.sleep(0.5)
        await env.reset(as_task("drag-box"), 0)  # a browser that died between episodes harms none

    with_pages(run, timeout=20)


def test_a_hung_page_is_a_crash_and_its_neighbour_goes_on() -> None:
    async def run(pool: MiniWoBPool) -> None:
        hung, fine = pool.envs
        await hung.reset(as_task("click-test"), 0)
        await fine.reset(as_task("click-test"), 0)
        await hung.evaluate("setTimeout(() => { while (true); }, 0), 0")
        with pytest.raises(PageCrashed, match="no answer within 4 s"):
            await hung.step(click(5, 205))
        assert not (await fine.step(hover(10, 60)))[1].done
        await hung.reset(as_task("click-test"), 1)
        assert not (await hung.result()).done

    with_pages(run, pages=2, timeout=4, settle=0.5)


def test_a_crashed_page_is_noticed_at_once() -> None:
    async def run(pool: MiniWoBPool) -> None:
        env = pool.envs[0]
        await env.reset(as_task("click-test"), 0)
        started = time.perf_counter()
        crash = asyncio.create_task(env.opened.cdp.send("Page.crash"))
        with pytest.raises(PageCrashed):
            await env.evaluate("new Promise(() => {})")
        assert time.perf_counter() - started < 15
        crash.cancel()
        await asyncio.gather(crash, return_exceptions=True)
        await env.reset(as_task("click-test"), 0)

    with_pages(run, timeout=30)


def test_a_cancelled_drag_leaves_no_button_pressed() -> None:
    async def run(pool: MiniWoBPool) -> None:
        env = pool.envs[0]
        clean = (await env.reset(as_task("drag-box"), 0)).image
        drag = asyncio.create_task(env.drag((20, 60), (60, 100), steps=100))
        await asyncio.sleep(0.2)
        drag.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drag
        assert (await env.reset(as_task("drag-box"), 0)).image == clean
        await env.evaluate("window.buttons = [], addEventListener('mousemove', e => window.buttons.push(e.buttons))")
        await env.hover(80, 120)
        assert set(await env.evaluate("window.buttons")) == {0}

    with_pages(run)
