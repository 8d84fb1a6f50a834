"""Tabs, and what pages do on their own: dialogs, downloads, file choosers; and actions somebody must agree to."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotron.env.errors import ActionFailed, Refused
from holotron.env.safety.confirm import Confirmation, Question
from tests.env.driver import World, observe_until, title
from tests.env.site import BIG, Site


async def test_tabs(world: World, good: Site) -> None:
    good.pages["/"] = f"<title>first</title>{BIG}<a href=/popup target=_blank rel=opener>open</a>"
    good.pages["/popup"] = f"<title>popup</title>{BIG}<button onclick='window.close()'>close</button>"
    async with world.at(good.origin) as env:
        await env.click(50, 40)
        seen = await env.observe()
        assert (seen.title, seen.load_state, seen.settled) == ("popup", "complete", True)
        assert [tab.current for tab in seen.tabs] == [False, True]
        await env.switch_tab(0)
        assert await title(env) == "first"
        await env.switch_tab(1)
        await env.click(50, 40)  # closes itself
        seen = await env.observe()
        assert (seen.title, len(seen.tabs)) == ("first", 1)
        for _ in range(5):  # sooner or later the tab is gone before the driver has said that the click was made
            await env.click(50, 40)
            assert len((await env.observe()).tabs) == 2
            await env.press("Tab")
            await env.press("Enter")
            assert len((await env.observe()).tabs) == 1
        await env.new_tab(f"{good.origin}/popup")
        assert [tab.current for tab in (await env.observe()).tabs] == [False, True]
        await env.close_tab(0)
        await env.close_tab()
        seen = await env.observe()
        assert ([tab.url for tab in seen.tabs], seen.url) == (["about:blank"], "about:blank")
        with pytest.raises(ActionFailed, match="no tab 3"):
            await env.switch_tab(3)


async def test_windows_get_the_size_of_the_viewport_and_a_limit(world: World, good: Site) -> None:
    good.pages["/"] = f"""{BIG}<button onclick="window.open('/small', '', 'width=200,height=100')">open</button>"""
    good.pages["/many"] = f"{BIG}<button onclick='for (let i = 0; i < 9; i++) window.open(\"/small\")'>open</button>"
    good.pages["/small"] = "<title>small</title>"
    async with world.at(good.origin, most_tabs=3) as env:
        await env.click(50, 40)
        seen = await env.observe()
        assert (seen.title, seen.width, seen.height) == ("small", 500, 320)
        await env.goto(f"{good.origin}/many")
        await env.click(50, 40)
        seen = await env.observe()
        assert len(seen.tabs) == 3
        assert seen.notices


async def test_dialogs_are_answered_and_reported(world: World, good: Site) -> None:
    good.pages["/"] = f"""{BIG}<button onclick="alert('careful');
      document.title = confirm('sure?') + ' ' + prompt('name?', 'nobody')">ask</button>"""
    good.pages["/leave"] = f"{BIG}<button>x</button><script>onbeforeunload = event => event.preventDefault()</script>"
    async with world.at(good.origin) as env:
        await env.click(50, 40)
        seen = await env.observe()
        assert seen.title == "true null"
        assert [(dialog.kind, dialog.message, dialog.answer) for dialog in seen.dialogs] == [
            ("alert", "careful", "accepted"),
            ("confirm", "sure?", "accepted"),
            ("prompt", "name?", "dismissed"),
        ]
        assert (await env.observe()).dialogs == ()
        await env.goto(f"{good.origin}/leave")
        await env.click(50, 40)
        await env.goto(f"{good.origin}/")
        seen = await env.observe()
        assert seen.url == f"{good.origin}/"
        assert [dialog.kind for dialog in seen.dialogs] == ["beforeunload"]
    async with world.at(good.origin, accept_confirms=False, prompt_answer="Ada") as env:
        await env.click(50, 40)
        assert await title(env) == "false Ada"


async def test_downloads(world: World, good: Site, tmp_path: Path) -> None:
    good.pages["/file"] = (200, {"content-disposition": 'attachment; filename="../../a.txt"'}, "content")
    good.pages["/"] = f"<title>here</title>{BIG}<a href=/file>get</a>"
    async with world.at(good.origin) as env:
        await env.click(50, 40)
        seen = (await observe_until(env, lambda seen: seen[-1].downloads))[-1]
        assert [(file.url, file.path) for file in seen.downloads] == [(f"{good.origin}/file", "")]
        assert seen.title == "here"
    async with world.at(good.origin, downloads=tmp_path) as env:
        await env.click(50, 40)
        seen = (await observe_until(env, lambda seen: seen[-1].downloads))[-1]
        path = Path(seen.downloads[0].path)
        assert path.parent == tmp_path
        assert path.read_text() == "content"


async def test_file_choosers_and_permissions(world: World, good: Site) -> None:
    good.pages["/"] = f"{BIG}<input type=file>"
    good.pages["/ask"] = """<script>
      const names = ["geolocation", "notifications", "camera", "microphone", "clipboard-read"];
      Promise.all(names.map(name => navigator.permissions.query({name}).then(status => status.state)))
        .then(states => document.title = [...new Set(states)].join())
    </script>"""
    async with world.at(good.origin) as env:
        await env.click(50, 40)
        seen = await observe_until(env, lambda seen: seen[-1].notices)
        assert seen[-1].notices == ("the page asked for a file; it got none",)
        await env.goto(f"{good.origin}/ask")
        assert await title(env) == "denied"


def test_confirmation(world: World, good: Site) -> None:
    good.pages["/"] = f"""{BIG}<form onsubmit="document.title = 'bought'; return false">
      <button><b>Buy now</b></button><input style="top: 100px" id=i></form>"""
    asked: list[Question] = []
    answer = False

    async def ask(question: Question) -> bool:
        asked.append(question)
        return answer

    async def run() -> None:
        nonlocal answer
        async with world.at(good.origin, confirmation=Confirmation([r"\bbuy\b"], ask)) as env:
            with pytest.raises(Refused, match="not confirmed"):
                await env.click(50, 40)
            assert asked[0].text == "Buy now"
            assert asked[0].rule == r"\bbuy\b"
            # The full browser has refusals of its own: it tries to reach its maker about forms.
            assert "confirmation" in [refusal.kind for refusal in (await env.observe()).refusals]
            await env.click(50, 140)
            await env.type_text("x")
            assert len(asked) == 1
            with pytest.raises(Refused):
                await env.press("Enter")  # which would push the same button
            with pytest.raises(Refused):
                await env.type_text("y\n")
            assert await title(env) != "bought"
            answer = True
            await env.click(50, 40)
            assert await title(env) == "bought"

    world.run(run())
