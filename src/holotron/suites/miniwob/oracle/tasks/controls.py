"""Tasks about one control that is turned, slid, dragged or marked, then submitted."""

from __future__ import annotations

import random

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import click, drag
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector, Point

SUBMIT = "#subbtn"
SLIDER_END = 20  # use-slider-2: its sliders go from 0 to this


@teaches("use-spinner")
async def turn_spinner(eyes: PageInspector, chance: random.Random) -> Action | None:
    """One click on an arrow, which brings the focus there, then the rest of the way by key."""
    missing = int(eyes.said(r"Select (-?\d+)")[1]) - int((await eyes.one("#spinner")).value or 0)
    if missing == 0:
        return click(await eyes.one(SUBMIT))
    if await eyes.read("document.activeElement.id === 'spinner'"):
        return Press(keys="ArrowUp" if missing > 0 else "ArrowDown", repeat=abs(missing))
    return click(await eyes.one(".ui-spinner-up" if missing > 0 else ".ui-spinner-down"))


@teaches("use-slider")
async def move_slider(eyes: PageInspector, chance: random.Random) -> Action | None:
    """By key, since the number is shown but not where the slider's scale begins and ends."""
    missing = int(eyes.said(r"Select (-?\d+)")[1]) - int((await eyes.one("#val")).text)
    if missing == 0:
        return click(await eyes.one(SUBMIT))
    if await eyes.read("document.activeElement.matches('.ui-slider-handle')"):
        return Press(keys="ArrowRight" if missing > 0 else "ArrowLeft", repeat=min(abs(missing), 100))
    return click(await eyes.one(".ui-slider-handle"))


@teaches("use-slider-2")
async def move_three_sliders(eyes: PageInspector, chance: random.Random) -> Action | None:
    wanted = [int(number) for number in eyes.said(r"\[(\d+),(\d+),(\d+)\]").groups()]
    for number, value in enumerate(wanted, start=1):
        if int((await eyes.one(f"#val-{number}")).text) != value:
            bar, handle = await eyes.one(f"#slider-{number}"), await eyes.one(f"#slider-{number} .ui-slider-handle")
            return drag(handle.center, (round(bar.left + bar.width * value / SLIDER_END), handle.center[1]))
    return click(await eyes.one(SUBMIT))


@teaches("drag-box")
async def drag_box_into_box(eyes: PageInspector, chance: random.Random) -> Action | None:
    if await eyes.read("smallBoxContained()"):
        return click(await eyes.one(SUBMIT))
    small, large = await eyes.one("#draggableSmall"), await eyes.one("#draggableLarge")
    if small.point is None:
        x, y = large.point or large.center
        return drag((x, y), (x + 60 if x < 80 else x - 60, y))
    x, y = small.point
    return drag((x, y), (round(x + large.center[0] - small.center[0]), round(y + large.center[1] - small.center[1])))


@teaches("highlight-text")
async def highlight_paragraph(eyes: PageInspector, chance: random.Random) -> Action | None:
    marked, all_of_it = await eyes.read(
        r"[getSelection().toString(), document.querySelector('#randomText').textContent]"
        r".map(text => text.replace(/\s/g, ''))"
    )
    if marked == all_of_it:
        return click(await eyes.one(SUBMIT))
    start, end = await ends_of_text(eyes, "#randomText")
    # A drag that begins on marked text would carry it away.
    return click(end) if marked else drag(start, end)


async def ends_of_text(eyes: PageInspector, selector: str) -> tuple[Point, Point]:
    """Points right before the first and right after the last letter."""
    left, first, right, last = await eyes.read(
        "(element => { const range = document.createRange(); range.selectNodeContents(element);"
        " const lines = [...range.getClientRects()].filter(line => line.width > 0), a = lines[0], b = lines.at(-1);"
        " return [a.left, a.top + a.height / 2, b.right, b.top + b.height / 2]; })"
        f"(document.querySelector('{selector}'))"
    )
    return (left, first), (min(right + 2, 158), last)
