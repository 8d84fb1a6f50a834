"""One function executes actions and one starts browsers, wherever the page comes from."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from holotron.actions.action import KINDS, parse_action
from holotron.env.browser.launch import LaunchOptions
from holotron.env.environment import Environment
from holotron.env.errors import ActionFailed
from holotron.env.executor import Surface, execute
from holotron.env.task import Task
from tests.env.driver import World
from tests.env.site import Site

SOURCE = Path(__file__).parents[2] / "src" / "holotron"
PRIMITIVES = ("click", "hover", "drag", "type_text", "press", "scroll", "select_option", "wait")


class Recording(Surface):
    """Writes down what it is asked to do, and can do no more than touch one page."""

    reason = "this is paper"
    size = (200, 100)

    def __init__(self) -> None:
        self.done: list[Any] = []
        for name in PRIMITIVES:
            setattr(self, name, self._note(name))

    def _note(self, name: str) -> Any:
        async def note(*given: Any, **named: Any) -> None:
            self.done.append((name, *given, *named.values()))

        return note


Recording.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


def did(text: str) -> list[Any]:
    surface = Recording()
    asyncio.run(execute(surface, parse_action(text)))
    return surface.done


def test_points_become_pixels_and_actions_primitives() -> None:
    assert did('{"action":"click","x":500,"y":1000,"button":"right"}') == [("click", 100, 99, "right")]
    assert did('{"action":"double_click","x":0,"y":0}') == [("click", 0, 0, 2)]
    assert did('{"action":"hover","x":1000,"y":500}') == [("hover", 199, 50)]
    assert did('{"action":"drag","x":0,"y":0,"to_x":500,"to_y":500}') == [("drag", (0, 0), (100, 50))]
    assert did('{"action":"press","keys":"ctrl+a","repeat":3}') == [("press", "Control+A", 3)]
    assert did('{"action":"select","x":500,"y":500,"option":"b"}') == [("select_option", 100, 50, "b")]
    assert did('{"action":"wait","seconds":1.5}') == [("wait", 1.5)]


def test_typing_clicks_clears_types_and_sends() -> None:
    assert did('{"action":"type","text":"a","x":500,"y":500,"clear":true,"enter":true}') == [
        ("click", 100, 50),
        ("press", "Control+a"),
        ("press", "Delete"),
        ("type_text", "a"),
        ("press", "Enter"),
    ]
    assert did('{"action":"type","text":""}') == []


def test_a_scroll_is_a_share_of_its_side() -> None:
    assert did('{"action":"scroll","direction":"down","amount":50}') == [("scroll", 0.0, 50.0, None)]
    assert did('{"action":"scroll","direction":"left","amount":10,"x":500,"y":500}') == [
        ("scroll", -20.0, 0.0, (100, 50))
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"action":"goto","url":"http://x/"}',
        '{"action":"back"}',
        '{"action":"forward"}',
        '{"action":"refresh"}',
        '{"action":"new_tab"}',
        '{"action":"switch_tab","index":0}',
        '{"action":"close_tab"}',
        '{"action":"answer","text":"a"}',
        '{"action":"infeasible","reason":"a"}',
    ],
)
def test_what_a_surface_cannot_do_is_said(text: str) -> None:
    kind = parse_action(text).action
    assert kind in KINDS
    with pytest.raises(ActionFailed, match=f"{kind} does nothing here: this is paper"):
        did(text)


async def test_a_browser_is_an_environment(world: World, good: Site) -> None:
    good.pages["/"] = "<title>start</title><script>alert('hello')</script><button>go</button>"
    async with world.env(good.origin) as env:
        played: Environment = env
        first = await played.reset(Task(text="Press go.", url=f"{good.origin}/"), 0)
        assert (first.title, (first.width, first.height), played.instruction) == ("start", (500, 320), "Press go.")
        said = ("an alert said 'hello' and was answered with 'accepted'",)
        assert first.notices == said
        # Nobody has seen these yet who was not told of the reset.
        again = await played.observe()
        assert (again.notices, again.image) == (said, first.image)
        assert (await played.observe()).notices == ()
        assert [str(tab) for tab in again.tabs] == ["*0: start"]
        assert not (await played.status()).done
        with pytest.raises(ActionFailed, match="answer does nothing here"):
            await played.act(parse_action('{"action":"answer","text":"done"}'))
        with pytest.raises(ValueError, match="has no url"):
            await played.reset(Task(text="Press go."), 0)


def test_there_is_one_of_each() -> None:
    files = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    assert [path.name for path, text in files.items() if "chromium.launch(" in text] == ["launch.py"]
    executes = re.compile(r"match action:\n\s+case (a\.)?Click\(.*\):\n\s+await")
    assert [path.name for path, text in files.items() if executes.search(text)] == ["executor.py"]
    assert LaunchOptions().arguments
