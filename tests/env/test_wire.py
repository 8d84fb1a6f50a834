"""Pages that are asked over a connection of our own: the same events as the driver's, and nobody else gets in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from playwright.async_api import Error

from holotron.env.browser import wire
from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.local_page import LocalPage
from holotron.env.browser.local_pool import EnvironmentPool
from holotron.env.browser.wire import OPEN_PORT, Wire, port_of
from tests.suites.miniwob_driver import needs_chromium

pytestmark = needs_chromium

PAGE = """<body style="margin:0"><input id="field" style="width:100px"><p style="width:200px">some words</p>
<a href="#to" style="position:absolute;left:10px;top:150px">a link to drag</a>
<div id="into" style="position:absolute;left:10px;top:250px;width:200px;height:40px">a place to drop</div>
<script>
window.seen = [];
const told = ["type", "key", "code", "keyCode", "charCode", "which", "location", "repeat", "clientX", "clientY",
  "button", "buttons", "detail", "pressure", "pointerType", "isTrusted", "shiftKey", "ctrlKey", "inputType", "data"];
into.addEventListener("dragover", (event) => event.preventDefault());
for (const kind of ["keydown", "keypress", "keyup", "beforeinput", "input", "mousemove", "mousedown", "mouseup",
    "click", "dblclick", "auxclick", "contextmenu", "pointerdown", "pointerup", "dragstart", "drop", "focusin"])
  addEventListener(kind, (event) => seen.push(told.map((name) => event[name])), { capture: true, passive: true });
</script>"""

REACH = """async (host, target) => {
  const opened = await new Promise((resolve) => {
    const socket = new WebSocket(`ws://${host}/devtools/page/${target}`);
    socket.onopen = () => resolve("opened");
    socket.onerror = () => resolve("refused");
  });
  const read = (path, how) => fetch(`http://${host}/json/${path}`, how).then((found) => found.text(), () => "refused");
  return [opened, await read("list"), await read("new?about:blank", { method: "PUT" })];
}"""


class Shown(LocalPage):
    size = (300, 300)


async def seen_by_page(arguments: tuple[str, ...], work: Callable[[Shown], Awaitable[Any]]) -> Any:
    pool = EnvironmentPool(
        lambda open_page: Shown(open_page, 20),
        1,
        launch=LaunchOptions(arguments=arguments),
        context={"viewport": {"width": 300, "height": 300}, "offline": True},
    )
    async with pool, pool.lease() as env:
        await env.ensure_open()
        await env.opened.page.set_content(PAGE)
        await work(env)
        return await env.evaluate("window.seen")


async def act_by_wire(env: Shown) -> None:
    assert isinstance(env.opened.cdp, Wire)
    await env.click(50, 10)
    await env.type_keys("a Z9 é.")
    await env.type_keys("by heart 05")
    for key in ("Backspace", "ArrowLeft", "Delete", "Tab", "Enter", "Control+a"):
        await env.press(key)
    await env.click(60, 60, "right")
    await env.click(60, 60, "left", 2)
    await env.click(60, 62, "middle")
    await env.hover(100, 100)
    await env.drag((150, 60), (250, 200))
    await env.drag((30, 158), (60, 270))  # a link, which the browser itself drags


async def act_by_driver(env: Shown) -> None:
    mouse, keyboard = env.opened.page.mouse, env.opened.page.keyboard
    await mouse.click(50, 10)
    await keyboard.type("a Z9 é.")
    await keyboard.type("by heart 05")
    for key in ("Backspace", "ArrowLeft", "Delete", "Tab", "Enter", "Control+a"):
        await keyboard.press(key)
    await mouse.click(60, 60, button="right")
    await mouse.click(60, 60, click_count=2)
    await mouse.click(60, 62, button="middle")
    await mouse.move(100, 100)
    for start, end in (((150, 60), (250, 200)), ((30, 158), (60, 270))):
        await mouse.move(*start)
        await mouse.down()
        await mouse.move(*end, steps=5)
        await mouse.up()


def test_a_page_sees_what_it_sees_of_the_driver() -> None:
    wired = asyncio.run(seen_by_page((OPEN_PORT,), act_by_wire))
    driven = asyncio.run(seen_by_page((), act_by_driver))
    assert wired == driven
    kinds = {event[0] for event in wired}
    assert {"keypress", "input", "dblclick", "auxclick", "contextmenu", "dragstart", "drop", "focusin"} <= kinds


def test_answers_of_any_length_and_errors_arrive() -> None:
    async def work(env: Shown) -> None:
        cdp = env.opened.cdp
        for length in (1, 60, 200, 70_000, 3_000_000):
            text = json.dumps("é" * length)
            found = await asyncio.gather(*(env.evaluate(f"{text}.length + {extra}") for extra in range(3)))
            assert found == [length, length + 1, length + 2]
            assert await env.evaluate(text) == "é" * length
        with pytest.raises(Error, match="wasn't found"):
            await cdp.send("No.such")
        waiting = asyncio.ensure_future(
            cdp.send("Runtime.evaluate", {"expression": "new Promise(() => {})", "awaitPromise": True})
        )
        await asyncio.sleep(0.1)
        await env.opened.page.close()
        with pytest.raises(Error, match="closed"):
            await waiting
        with pytest.raises(Error, match="closed"):
            await cdp.send("Runtime.enable")
        await env.ensure_open()

    asyncio.run(seen_by_page((OPEN_PORT,), work))


@pytest.mark.parametrize("more", [(), ("--remote-allow-origins=*",)])
def test_a_page_does_not_reach_the_port(more: tuple[str, ...]) -> None:
    """A websocket tells where it is from, and the browser refuses those of pages. Other answers cannot be read."""

    async def work(env: Shown) -> None:
        browser = env.opened.page.context.browser
        assert browser is not None
        port = await port_of(browser)
        target = (await env.opened.cdp.send("Target.getTargetInfo"))["targetInfo"]["targetId"]
        await env.opened.page.context.set_offline(False)
        found = await env.call(REACH, f"127.0.0.1:{port}", target)
        assert found == ["opened" if more else "refused", "refused", "refused"]
        assert len(browser.contexts[0].pages) == 1

    asyncio.run(seen_by_page((OPEN_PORT, *more), work))


def test_a_browser_without_a_port_is_asked_through_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(env: Shown) -> None:
        assert not isinstance(env.opened.cdp, Wire)
        await env.type_keys("a")
        await env.click(50, 10)

    monkeypatch.setattr(wire, "PORT_FILE", "NoSuchFile")
    monkeypatch.setattr(wire, "PORT_SECONDS", 0.2)
    kinds = [event[0] for event in asyncio.run(seen_by_page((OPEN_PORT,), work))]
    assert kinds[0] == "keydown"
    assert "click" in kinds


def test_the_port_is_opened_only_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for told, arguments in ((None, ()), ("0", ()), ("1", (OPEN_PORT,))):
        monkeypatch.delenv(wire.VARIABLE, raising=False)
        if told is not None:
            monkeypatch.setenv(wire.VARIABLE, told)
        assert wire.port_arguments() == arguments
