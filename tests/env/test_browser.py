"""What an agent can do in a browser, and what it gets to see."""

from __future__ import annotations

import io
import shutil
import ssl
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from holotron.env.browser import dom_queries
from holotron.env.errors import ActionFailed, InfrastructureError
from tests.env.driver import World, title
from tests.env.site import BIG, Site, redirect, slowly


async def test_screenshots_have_the_size_of_the_viewport(world: World, good: Site) -> None:
    good.pages["/"] = "<body style='background: rgb(10, 200, 30); width: 3000px; height: 3000px'>"
    for width, height in ((1280, 800), (500, 320), (333, 777)):
        async with world.at(good.origin, width=width, height=height) as env:
            seen = await env.observe()
            assert (seen.width, seen.height) == (width, height)
            assert struct.unpack(">II", seen.image[16:24]) == (width, height)
            image = Image.open(io.BytesIO(seen.image)).convert("RGB")
            assert image.getpixel((width - 1, height - 1)) == (10, 200, 30)


async def test_clicks_carry_their_button_and_count(world: World, good: Site) -> None:
    good.pages["/"] = """<body style="height: 300px"><script>
      const log = [];
      for (const kind of ["click", "dblclick", "auxclick", "contextmenu", "mouseover"])
        addEventListener(kind, event => { log.push(kind + "@" + event.clientX + "," + event.clientY);
                                          document.title = log.slice(-3).join(" "); });
    </script>"""
    async with world.at(good.origin) as env:
        await env.click(100, 50)
        assert (await title(env)).endswith("click@100,50")
        await env.click(200, 60, count=2)
        assert (await title(env)).endswith("dblclick@200,60")
        await env.click(210, 70, button="right")
        assert "contextmenu@210,70" in await title(env)
        with pytest.raises(ActionFailed, match="outside"):
            await env.click(500, 10)


async def test_hover_and_drag(world: World, good: Site) -> None:
    good.pages["/"] = """<body style="height: 300px"><script>
      let from = "";
      addEventListener("mousemove", event => { if (!event.buttons) document.title = "over " + event.clientX; });
      addEventListener("mousedown", event => { from = event.clientX + "," + event.clientY; });
      addEventListener("mouseup", event => { document.title = from + " to " + event.clientX + "," + event.clientY; });
    </script>"""
    async with world.at(good.origin) as env:
        await env.hover(123, 45)
        assert await title(env) == "over 123"
        await env.drag((10, 20), (300, 200))
        assert await title(env) == "10,20 to 300,200"


async def test_typing_any_script(world: World, good: Site) -> None:
    good.pages["/"] = "<textarea autofocus oninput='document.title = value'></textarea>"
    text = "Grüße, 世界! 🦊 e\u0301 “quoted” — łódź \t"
    async with world.at(good.origin) as env:
        await env.type_text(text.strip())
        assert await title(env) == text.strip()
        await env.press("ctrl+a")
        await env.press("Backspace")
        await env.type_text("x" * 3000)
        assert await title(env) == "x" * 3000


async def test_keys(world: World, good: Site) -> None:
    good.pages["/"] = """<input autofocus value="abc"><script>
      addEventListener("keydown", event => document.title +=
        (event.ctrlKey ? "^" : "") + (event.shiftKey ? "+" : "") + event.key + "|")</script>"""
    async with world.at(good.origin) as env:
        for keys in ("Control+A", "delete", "pgdn", "+", "shift+b"):
            await env.press(keys)
        await env.press("down", repeat=3)
        pressed = ["^Control", "^a", "Delete", "PageDown", "+", "+Shift", "+B", *["ArrowDown"] * 3]
        assert (await title(env)).split("|")[:-1] == pressed
        with pytest.raises(ActionFailed, match="no key"):
            await env.press("Hyper+x")
        with pytest.raises(ActionFailed, match="no key"):
            await env.press("nonsense")


async def test_scrolling(world: World, good: Site) -> None:
    good.pages["/"] = """<body style="margin: 0; height: 5000px">
      <div id=box style="position: fixed; left: 0; top: 0; width: 100px; height: 100px; overflow: auto">
        <div style="height: 1000px"></div></div>
      <script>
        addEventListener("scroll", () => document.title = "page " + scrollY);
        box.addEventListener("scroll", () => document.title = "box " + box.scrollTop);
      </script>"""
    async with world.at(good.origin) as env:
        await env.scroll(0, 240)
        assert await title(env) == "page 240"
        await env.scroll(0, 60, at=(50, 50))
        assert await title(env) == "box 60"
        await env.scroll(0, -100)
        assert await title(env) == "page 140"


@pytest.mark.parametrize("framed", [False, True])
async def test_native_selects(world: World, good: Site, framed: bool) -> None:
    select = f"""{BIG}<select oninput="top.document.title = 'input'" onchange="top.document.title += ' ' + value">
      <option value=a>Apple<option value=b>Banana  split<option value=c disabled>Cherry</select>"""
    good.pages["/select"] = select
    good.pages["/"] = "<iframe src=/select style='border: 5px solid' width=400 height=200>" if framed else select
    async with world.at(good.origin) as env:
        await env.select_option(60, 60, "Banana split")
        assert await title(env) == "input b"
        await env.select_option(60, 60, "a")
        assert await title(env) == "input a"
        with pytest.raises(ActionFailed, match=r"no option \"Durian\"; there are:\n- Apple\n- Banana split"):
            await env.select_option(60, 60, "Durian")
        with pytest.raises(ActionFailed, match="disabled"):
            await env.select_option(60, 60, "Cherry")
        with pytest.raises(ActionFailed, match="no <select>"):
            await env.select_option(450, 300, "Apple")


async def test_a_select_in_a_frame_of_another_origin(world: World, good: Site) -> None:
    """Such a frame lives in a process of its own."""
    good.pages["/select"] = f"""{BIG}<select onchange="parent.postMessage(value, '*')">
      <option value=a>Apple<option value=b>Banana</select>"""
    good.pages["/"] = f"""<script>onmessage = event => document.title = event.data</script>
      <iframe src="http://localhost:{good.port}/select" width=400 height=200>"""
    async with world.at(good.origin, f"http://localhost:{good.port}") as env:
        await env.select_option(60, 60, "Banana")
        assert await title(env) == "b"


LISTS = f"""{BIG}<select onchange="top.document.title = value" oninput="top.document.title = 'input'">
  <option>Apple<option>Banana<optgroup label=More><option>Cherry<option disabled>Durian</optgroup></select>
  <button style="top: 90px; height: 200px" onclick="top.document.title = 'behind'">behind</button>"""


async def find_row(env: Any, text: str, left: float = 30, top: float = 80, right: float = 300) -> tuple[float, float]:
    """Where a list or a calendar shows this text, as the screenshot does: asked of what a click would find there."""
    tab = env._driver.tabs.current
    for x in range(int(left), int(right), 16):  # a row of a list is found in the first column
        for y in range(int(top) + 4, 316, 8):
            if await dom_queries.label_at(tab, x, y) == text:
                return x, y
    raise AssertionError(f"{text} is not shown")


PLACES = {
    "page": LISTS,
    "frame": "<body style='margin: 0'><iframe src=/list style='border: 0' width=490 height=310>",
    "closed shadow root": f"<div><template shadowrootmode=closed>{LISTS}</template></div>",
}


@pytest.mark.parametrize("place", PLACES)
async def test_a_click_on_a_drawn_option_chooses_it(world: World, good: Site, place: str) -> None:
    good.pages |= {"/list": LISTS, "/": PLACES[place]}
    async with world.at(good.origin) as env:
        before = (await env.observe()).image
        await env.click(50, 40)
        assert (await env.observe()).image != before
        await env.click(*await find_row(env, "Durian", right=60))  # it is disabled
        await env.click(*await find_row(env, "Cherry", right=60))
        assert await title(env) == "Cherry"
        await env.click(50, 40)
        await env.click(50, 40)  # closes it again
        await env.click(50, 150)
        assert await title(env) == "behind"


async def test_keys_in_an_open_list(world: World, good: Site) -> None:
    good.pages["/"] = LISTS
    async with world.at(good.origin) as env:
        await env.click(50, 40)
        await env.press("ArrowDown", repeat=2)
        assert await title(env) == ""  # nothing is chosen yet
        await env.press("Enter")
        assert await title(env) == "Cherry"
        await env.press("Space")
        await env.type_text("ba")
        await env.press("Enter")
        assert await title(env) == "Banana"
        await env.press("alt+ArrowDown")
        await env.press("ArrowUp")
        await env.press("Escape")
        assert await title(env) == "Banana"


async def test_a_list_of_a_hundred_thousand(world: World, good: Site) -> None:
    good.pages["/"] = f"""{BIG}<select onchange="document.title = value"></select><script>
      const list = document.querySelector("select");
      for (let i = 0; i < 100000; i += 1) list.add(new Option("row " + i));</script>"""
    async with world.at(good.origin) as env:
        await env.click(50, 40)
        await env.press("End")
        await env.press("Enter")
        assert await title(env) == "row 99999"
        await env.click(50, 40)
        await env.scroll(0, -56 * 3, at=(50, 200))
        await env.click(*await find_row(env, "row 99995"))
        assert await title(env) == "row 99995"
        await env.select_option(50, 40, "row 500")
        seen = await env.observe()
        assert (seen.title, seen.errors) == ("row 500", ())


async def test_calendars(world: World, good: Site) -> None:
    good.pages["/"] = f"""{BIG}<input type=date value=2026-01-15 min=2026-01-10 onchange="document.title = value">
      <button style="top: 90px; height: 200px" onclick="document.title = 'behind'">behind</button>"""
    good.pages["/time"] = f"{BIG}<input type=time onclick='this.showPicker()' onchange='document.title = value'>"
    async with world.at(good.origin) as env:
        field = await env.evaluate("document.querySelector('input').getBoundingClientRect().right")
        await env.click(field - 30, 40)
        await env.click(*await find_row(env, "9"))  # before the first day that is allowed
        await env.click(*await find_row(env, "23"))
        assert await title(env) == "2026-01-23"
        await env.click(field - 30, 40)
        await env.click(*await find_row(env, "›"))
        await env.click(*await find_row(env, "28"))
        assert await title(env) == "2026-02-28"
        await env.goto(f"{good.origin}/time")
        await env.click(50, 40)
        assert (await env.observe()).notices == ("the field's time picker is not shown; type its value, such as 14:30",)
        await env.type_text("14:30")
        assert await title(env) == "14:30"
        await env.goto(f"{good.origin}/")
        await env.click(20, 40)
        await env.type_text("2026-03-01")
        assert await title(env) == "2026-03-01"


async def test_history(world: World, good: Site) -> None:
    good.pages |= {"/1": "<title>one</title>", "/2": "<title>two</title>"}
    async with world.env(good.origin) as env:
        with pytest.raises(ActionFailed, match="no page to go back to"):
            await env.back()
        await env.goto(f"{good.origin}/1")
        await env.goto(f"{good.origin}/2")
        await env.back()
        assert await title(env) == "one"
        await env.forward()
        assert await title(env) == "two"
        with pytest.raises(ActionFailed, match="no page to go forward to"):
            await env.forward()
        before = len(good.hits)
        await env.reload()
        assert len(good.hits) > before


async def test_pages_that_do_not_exist(world: World, good: Site) -> None:
    good.pages["/"] = "<title>here</title>"
    with Site() as closed:
        gone = closed.origin
    async with world.at(good.origin, gone, "http://nowhere.invalid") as env:
        reason = f"{gone}/ could not be loaded: nothing listens at {gone.removeprefix('http://')}"
        with pytest.raises(ActionFailed, match=reason):
            await env.goto(f"{gone}/")
        assert (await env.observe()).errors == (reason,)
        with pytest.raises(ActionFailed, match=r"there is no host named nowhere\.invalid"):
            await env.goto("http://nowhere.invalid/")
        await env.goto(f"{good.origin}/")
        assert await title(env) == "here"


async def test_addresses_without_a_page_say_what_is_there(world: World, good: Site) -> None:
    good.pages["/nothing"] = (204, {}, "")
    good.pages["/file"] = (200, {"content-type": "application/octet-stream"}, "12345")
    good.pages["/circle"] = redirect("/circle")
    told = {
        "/nothing": "the server answered without a page",
        "/file": "it is a file to download and no page",
        "/circle": "it redirects in circles",
    }
    async with world.env(good.origin, "http://127.0.0.1:1") as env:
        for path, words in told.items():
            with pytest.raises(ActionFailed, match=f"{good.origin}{path} could not be loaded: {words}"):
                await env.goto(f"{good.origin}{path}")
        with pytest.raises(ActionFailed, match="browsers open no pages at this port"):
            await env.goto("http://127.0.0.1:1/")


def test_a_certificate_that_nobody_signed(world: World, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=a.test -keyout {key} -out {certificate}"
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def run(url: str) -> None:
        async with world.env(url) as env:
            with pytest.raises(ActionFailed, match=r"certificate is not trusted here \(ERR_CERT_\w+\); to trust"):
                await env.goto(url)

    with Site() as site:
        site._server.socket = context.wrap_socket(site._server.socket, server_side=True)
        world.run(run(site.origin.replace("http:", "https:")))


# ---- what browsers share ----


async def test_a_closed_browser_says_so(world: World, good: Site) -> None:
    async with world.env(good.origin) as env:
        pass
    with pytest.raises(InfrastructureError, match="closed"):
        await env.click(1, 1)


async def test_contexts_share_nothing(world: World, good: Site) -> None:
    good.pages["/"] = "<script>document.title = document.cookie + localStorage.a; document.cookie = 'a=1'; "
    good.pages["/"] += "localStorage.a = 1</script>"
    for _ in range(2):
        async with world.at(good.origin) as env:
            assert await title(env) == "undefined"


async def test_clipboards_are_private(world: World, good: Site) -> None:
    """Chromium has one clipboard for all; an agent gets what it copied itself, and nobody else does."""
    good.pages["/"] = "<textarea autofocus oninput='document.title = value'></textarea>"
    async with world.env(good.origin) as first, world.env(good.origin) as second:
        for env, text in ((first, "one "), (second, "two ")):
            await env.goto(f"{good.origin}/")
            await env.type_text(text)
        await second.press("ctrl+v")  # nothing yet
        assert await title(second) == "two"
        for env in (first, second):
            await env.press("ctrl+a")
            await env.press("ctrl+c")
        for env, text in ((first, "one one"), (second, "two two")):
            await env.press("End")
            await env.press("ctrl+v")
            assert await title(env) == text


async def test_slow_pages_are_shown_when_they_are_there(world: World, good: Site) -> None:
    good.pages["/"] = f"{BIG}<a href=/slow>go</a>"
    good.pages["/slow"] = slowly(0.4, "<title>slow</title><img src=/picture>")
    good.pages["/picture"] = slowly(0.2, (200, {"content-type": "image/png"}, b""))
    async with world.at(good.origin) as env:
        await env.click(50, 40)
        seen = await env.observe()
        assert (seen.title, seen.load_state, seen.settled) == ("slow", "complete", True)
