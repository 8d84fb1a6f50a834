"""Tasks that are dragged, hovered or scrolled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise

from holotron.suites.miniwob.actions import Drag, Move, Press, Primitive
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.solvers.registry import solves

SUBMIT = "#subbtn"


@solves("drag-box")
async def drag_box_into_box(eyes: PageInspector) -> AsyncIterator[Primitive]:
    small, large = await eyes.one("#draggableSmall"), await eyes.one("#draggableLarge")
    # The small box may be hidden beneath the large one, which then has to go first.
    if small.point is None or _touches_only_edge(small.point, small.center):
        x, y = large.point or large.center
        yield Drag(((x, y), (x, y + 45 if y < 110 else y - 45)))
        small, large = await eyes.one("#draggableSmall"), await eyes.one("#draggableLarge")
    assert small.point is not None
    dx, dy = (large.center[i] - small.center[i] for i in (0, 1))
    x, y = small.point
    yield Drag(((x, y), (round(x + dx), round(y + dy))))
    yield await eyes.click(SUBMIT)


@solves("use-slider")
async def move_slider(eyes: PageInspector) -> AsyncIterator[Primitive]:
    wanted = eyes.said(r"Select (-?\d+)")
    yield await eyes.click(".ui-slider-handle")
    distance = int(wanted[1]) - int((await eyes.one("#val")).text)
    for _ in range(abs(distance)):
        yield Press("ArrowRight" if distance > 0 else "ArrowLeft")
    yield await eyes.click(SUBMIT)


@solves("highlight-text")
async def highlight_paragraph(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click("#randomText", count=3)
    yield await eyes.click(SUBMIT)


@solves("click-menu")
async def walk_menu(eyes: PageInspector) -> AsyncIterator[Primitive]:
    *parents, leaf = eyes.utterance.removeprefix("Select ").split(">")
    for name, child in pairwise([*parents, leaf]):
        item = await eyes.one("#menu li > div", name)
        yield Move(*(item.point or item.center))
        await eyes.wait_for(
            "[...document.querySelectorAll('#menu li > div')]"
            f".some(item => item.offsetParent && item.textContent === {json.dumps(child)})"
        )
    yield await eyes.click("#menu li > div", leaf)


def _touches_only_edge(point: tuple[float, float], center: tuple[float, float]) -> bool:
    return abs(point[0] - center[0]) > 8 or abs(point[1] - center[1]) > 8
