"""Pages that spin, crash or nag: they are replaced, and the agent is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holotron.env.errors import ActionFailed
from tests.env.driver import World
from tests.env.site import BIG, Site


async def title(env: Any) -> str:
    return str((await env.observe()).title)


def test_a_page_that_spins_for_ever_is_replaced(world: World, good: Site) -> None:
    good.pages["/"] = f"{BIG}<button onclick='for (;;);'>spin</button>"
    good.pages["/fine"] = "<title>fine</title>"

    async def run() -> None:
        async with world.env(good.origin, call_seconds=0.7, settle_seconds=0.3) as env:
            await env.goto(f"{good.origin}/")
            with pytest.raises(ActionFailed, match="stopped answering"):
                await env.click(50, 40)
            seen = await env.observe()
            assert seen.url == "about:blank"
            assert seen.errors == (f"the page at {good.origin}/ stopped answering; a blank page took its place",)
            assert len(seen.tabs) == 1
            await env.goto(f"{good.origin}/fine")
            assert await title(env) == "fine"

    world.run(run())


def test_a_page_that_spins_while_nobody_acts(world: World, good: Site) -> None:
    good.pages["/"] = "<script>setTimeout(() => { for (;;); }, 100)</script>"

    async def run() -> None:
        async with world.env(good.origin, call_seconds=0.7, settle_seconds=0.3) as env:
            await env.goto(f"{good.origin}/")
            await asyncio.sleep(0.2)
            seen = await env.observe()
            assert seen.url == "about:blank"
            assert len(seen.errors) == 1

    world.run(run())


def test_a_page_that_crashes_is_replaced(world: World, good: Site) -> None:
    good.pages["/"] = "<title>here</title>"

    async def run() -> None:
        async with world.env(good.origin) as env:
            await env.goto(f"{good.origin}/")
            session = env._driver.tabs.current.session
            with pytest.raises(Exception, match=r"crash|closed"):
                await asyncio.wait_for(session.send("Page.crash"), 2)
            seen = await env.observe()
            assert (seen.url, len(seen.tabs)) == ("about:blank", 1)
            assert "crashed" in seen.errors[0]
            await env.goto(f"{good.origin}/")
            assert await title(env) == "here"

    world.run(run())


def test_a_page_that_fills_the_screen_is_put_back(world: World, good: Site) -> None:
    good.pages["/"] = f"{BIG}<button onclick='document.documentElement.requestFullscreen()'>fill</button>"

    async def run() -> None:
        async with world.env(good.origin) as env:
            await env.goto(f"{good.origin}/")
            await env.click(50, 40)
            seen = await env.observe()
            assert (seen.width, seen.height) == (500, 320)
            assert seen.notices == ("the page asked for the full screen; it was put back into its view",)
            assert await env.evaluate("document.fullscreenElement") is None
            assert (await env.observe()).notices == ()

    world.run(run())


NOWHERE = ["mailto:a@b.example?subject=hi", "tel:123", "about:config", "data:text/html,hi", "file:///etc/passwd"]


@pytest.mark.parametrize(
    ("address", "target"),
    [*((address, "_self") for address in NOWHERE), *((address, "_blank") for address in NOWHERE[3:])],
)
def test_a_click_that_leads_nowhere_is_told(world: World, good: Site, address: str, target: str) -> None:
    good.pages["/"] = f"{BIG}<title>here</title><a href='{address}' target={target}>go</a>"
    scheme = address.partition(":")[0]

    async def run() -> None:
        async with world.env(good.origin) as env:
            await env.goto(f"{good.origin}/")
            await env.click(50, 40)
            seen = await env.observe()
            assert (seen.url, seen.title) == (f"{good.origin}/", "here")
            rule = f"pages with {scheme}: addresses are not allowed, only http and https"
            assert seen.notices == (f"navigation to {address} was refused: {rule}",)

    world.run(run())


def test_endless_dialogs(world: World, good: Site) -> None:
    good.pages["/"] = f"{BIG}<button onclick='for (;;) alert(1)'>go</button>"

    async def run() -> None:
        async with world.env(good.origin) as env:
            await env.goto(f"{good.origin}/")
            with pytest.raises(ActionFailed, match="closed"):
                await env.click(50, 40)
            seen = await env.observe()
            assert (seen.url, len(seen.tabs)) == ("about:blank", 1)
            assert len(seen.dialogs) == 50
            assert "dialogs without end" in seen.errors[0]

    world.run(run())
