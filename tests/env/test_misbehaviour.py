"""Pages that spin, crash or nag: they are replaced, and the agent is told."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holotron.env.errors import ActionFailed
from tests.env.driver import World, title
from tests.env.site import BIG, Site


async def test_a_page_that_spins_for_ever_is_replaced(world: World, good: Site) -> None:
    good.pages["/"] = f"{BIG}<button onclick='for (;;);'>spin</button>"
    good.pages["/fine"] = "<title>fine</title>"
    async with world.at(good.origin, call_seconds=0.7, settle_seconds=0.3) as env:
        with pytest.raises(ActionFailed, match="stopped answering"):
            await env.click(50, 40)
        seen = await env.observe()
        assert seen.url == "about:blank"
        assert seen.errors == (f"the page at {good.origin}/ stopped answering; a blank page took its place",)
        assert len(seen.tabs) == 1
        await env.goto(f"{good.origin}/fine")
        assert await title(env) == "fine"


async def test_a_page_that_never_comes_leaves_the_one_before(world: World, good: Site) -> None:
    """The browser holds back scripts while it waits; what was typed into the page must not be lost to that."""
    ended = threading.Event()

    def late() -> str:
        ended.wait(30)
        return "late"

    good.pages["/late"] = late
    good.pages["/"] = f"{BIG}<title>here</title><a href=/late>go</a>"
    told = f"{good.origin}/late did not answer within"
    options = {"call_seconds": 2.0, "settle_seconds": 0.3, "goto_seconds": 0.5}
    try:
        async with world.env(good.origin, **options) as env:
            await env.goto(f"{good.origin}/")
            await env.evaluate("document.title = 'touched'")
            with pytest.raises(ActionFailed, match=f"{told} 0.5 s"):
                await env.goto(f"{good.origin}/late")
            assert await title(env) == "touched"
            with pytest.raises(ActionFailed, match=f"{told} 2 s"):
                await env.click(50, 40)
            seen = await env.observe()
            assert (seen.url, seen.title) == (f"{good.origin}/", "touched")
            assert told in seen.errors[0]
    finally:
        ended.set()


async def test_a_page_that_spins_while_nobody_acts(world: World, good: Site) -> None:
    good.pages["/"] = "<script>setTimeout(() => { for (;;); }, 100)</script>"
    async with world.at(good.origin, call_seconds=0.7, settle_seconds=0.3) as env:
        await asyncio.sleep(0.2)
        seen = await env.observe()
        assert seen.url == "about:blank"
        assert len(seen.errors) == 1


async def test_a_page_that_crashes_is_replaced(world: World, good: Site) -> None:
    good.pages["/"] = "<title>here</title>"
    async with world.at(good.origin) as env:
        session = env._driver.tabs.current.session
        with pytest.raises(Exception, match=r"crash|closed"):
            await asyncio.wait_for(session.send("Page.crash"), 2)
        seen = await env.observe()
        assert (seen.url, len(seen.tabs)) == ("about:blank", 1)
        assert "crashed" in seen.errors[0]
        await env.goto(f"{good.origin}/")
        assert await title(env) == "here"


async def test_a_page_that_fills_the_screen_is_put_back(world: World, good: Site) -> None:
    good.pages["/"] = f"{BIG}<button onclick='document.documentElement.requestFullscreen()'>fill</button>"
    async with world.at(good.origin) as env:
        await env.click(50, 40)
        seen = await env.observe()
        assert (seen.width, seen.height) == (500, 320)
        assert seen.notices == ("the page asked for the full screen; it was put back into its view",)
        assert await env.evaluate("document.fullscreenElement") is None
        assert (await env.observe()).notices == ()


NOWHERE = ["mailto:a@b.example?subject=hi", "tel:123", "about:config", "data:text/html,hi", "file:///etc/passwd"]


@pytest.mark.parametrize(
    ("address", "target"),
    [*((address, "_self") for address in NOWHERE), *((address, "_blank") for address in NOWHERE[3:])],
)
async def test_a_click_that_leads_nowhere_is_told(world: World, good: Site, address: str, target: str) -> None:
    good.pages["/"] = f"{BIG}<title>here</title><a href='{address}' target={target}>go</a>"
    scheme = address.partition(":")[0]
    async with world.at(good.origin) as env:
        await env.click(50, 40)
        seen = await env.observe()
        assert (seen.url, seen.title) == (f"{good.origin}/", "here")
        rule = f"pages with {scheme}: addresses are not allowed, only http and https"
        assert seen.notices == (f"navigation to {address} was refused: {rule}",)


async def test_endless_dialogs(world: World, good: Site) -> None:
    good.pages["/"] = f"{BIG}<button onclick='for (;;) alert(1)'>go</button>"
    async with world.at(good.origin) as env:
        with pytest.raises(ActionFailed, match="closed"):
            await env.click(50, 40)
        seen = await env.observe()
        assert (seen.url, len(seen.tabs)) == ("about:blank", 1)
        assert len(seen.dialogs) == 50
        assert seen.notices[0] == "an alert said '1' and was answered with 'accepted' (50 times)"
        assert "dialogs without end" in seen.errors[0]
