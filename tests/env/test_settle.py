"""Waiting: long enough for what an action sets off, and no longer."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.env.driver import World
from tests.env.site import Site, slowly

BUTTON = "<style>body { margin: 0 } button { position: absolute; left: 0; top: 0; width: 300px; height: 80px }</style>"


async def click(env: Any) -> float:
    start = time.perf_counter()
    await env.click(50, 40)
    return time.perf_counter() - start


async def two_frames(env: Any) -> float:
    """How long the page takes to draw twice."""
    start = time.perf_counter()
    drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    session = env._driver.tabs.current.session
    await session.send("Runtime.evaluate", {"expression": drawn, "awaitPromise": True})
    return time.perf_counter() - start


async def test_an_action_on_a_page_at_rest_costs_a_frame(world: World, good: Site) -> None:
    good.pages["/"] = "<p>text</p>" * 50
    async with world.at(good.origin, width=1280, height=800) as env:
        await click(env)
        # The best of some averages, beside what frames take: other programs run on this machine.
        averages = [sum([await click(env) for _ in range(5)]) / 5 for _ in range(4)]
        assert min(averages) < max(0.1, 4 * await two_frames(env))
        assert (await env.observe()).settled


async def test_what_an_answer_changes_is_waited_for(world: World, good: Site) -> None:
    good.pages["/"] = f"""{BUTTON}<button onclick="fetch('/data').then(answer => answer.text())
      .then(text => fetch('/more?' + text)).then(answer => answer.text()).then(text => document.title = text)">"""
    good.pages["/data"] = slowly(0.3, "first")
    good.pages["/more"] = slowly(0.3, "second")
    async with world.at(good.origin) as env:
        assert 0.6 < await click(env) < 2
        seen = await env.observe()
        assert (seen.title, seen.settled) == ("second", True)


async def test_a_page_that_builds_itself_is_waited_for(world: World, good: Site) -> None:
    """Changes that follow each other closely, and an animation that ends."""
    good.pages["/"] = f"""{BUTTON}<style>p {{ transition: opacity 200ms; opacity: 1 }}</style><p id=p>text</p>
      <button onclick="let n = 0; const add = () => {{ document.body.append(n); document.title = ++n;
        if (n < 10) return setTimeout(add, 10);
        p.ontransitionend = () => document.title = 'faded'; p.style.opacity = 0 }}; add()">"""
    async with world.at(good.origin) as env:
        await click(env)
        assert (await env.observe()).title == "faded"


async def test_what_never_ends_is_not_waited_for(world: World, good: Site) -> None:
    good.pages["/"] = f"""{BUTTON}<p id=p>0</p><button onclick="fetch('/poll?' + Math.random())">
      <script>new EventSource('/events'); setInterval(() => p.textContent++, 5)</script>"""
    good.pages["/poll"] = slowly(3, "late")
    good.pages["/events"] = slowly(3, (200, {"content-type": "text/event-stream"}, ""))
    async with world.env(good.origin, settle_seconds=2.0, change_seconds=0.2) as env:
        start = time.perf_counter()
        await env.goto(f"{good.origin}/")
        assert time.perf_counter() - start < 2.0
        assert not (await env.observe()).settled
        assert await click(env) > 1.9  # nobody knows yet that this is a long poll
        assert await click(env) < 1.5


@pytest.mark.parametrize(
    "again",
    [
        "<script>location.reload()</script>",
        "<script>onload = () => location.reload()</script>",
        "<script>setInterval(() => location.reload(), 5)</script>",
        "<meta http-equiv=refresh content=0>",
        "<script>location = '/other?' + Math.random()</script>",
    ],
)
async def test_a_page_that_loads_itself_without_end_is_stopped(world: World, good: Site, again: str) -> None:
    good.pages["/"] = good.pages["/other"] = f"{BUTTON}{again}<button onclick='document.title = 1'>"
    async with world.env(good.origin) as env:
        start = time.perf_counter()
        await env.goto(f"{good.origin}/")
        seen = await env.observe()
        assert time.perf_counter() - start < 10  # it took 25 s
        assert any("again and again; it was stopped until the next action" in notice for notice in seen.notices)
        loaded = len(good.hits)
        assert (await env.observe()).notices == ()
        assert len(good.hits) == loaded
        good.pages["/"] = good.pages["/other"] = "<title>through</title>"
        await env.reload()
        seen = await env.observe()
        assert (seen.title, seen.notices, seen.settled) == ("through", (), True)


async def test_a_page_that_comes_back_some_times_is_waited_for(world: World, good: Site) -> None:
    """As logins do: by another site, and home again."""
    visits = []

    def home() -> str:
        visits.append("home")
        return "<title>in</title>" if len(visits) == 5 else f"{BUTTON}<script>location = '/login'</script>"

    good.pages["/"], good.pages["/login"] = home, "<form action=/></form><script>document.forms[0].submit()</script>"
    async with world.at(good.origin) as env:
        seen = await env.observe()
        assert (seen.title, seen.notices, seen.settled) == ("in", (), True)


async def test_a_page_that_is_busy_for_a_while_is_not_given_up(world: World, good: Site) -> None:
    good.pages["/"] = f"""{BUTTON}<button onclick="setTimeout(() => {{
      const end = performance.now() + 1500; while (performance.now() < end); document.title = 'done' }})">"""
    async with world.at(good.origin, settle_seconds=0.5, call_seconds=5) as env:
        await click(env)
        assert (await env.observe()).title == "done"
