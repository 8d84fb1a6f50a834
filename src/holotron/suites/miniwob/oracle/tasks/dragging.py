"""Tasks in which things are dragged to where they belong."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, drag
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector, Point

SUBMIT = "#subbtn"
TOP = 50  # pixels of the instruction above every task's area
FIGURES = "#area_svg > :not(#shape-container)"
TAGS = {"rectangles": "rect:not(#shape-container)", "circles": "circle", "triangles": "polygon"}
WAYS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
# The task tells where an item was dragged by its corner, and a figure jumps a little when it is taken up.
FAR_ENOUGH, LENGTH = 4, 35


@teaches("drag-circle", "drag-single-shape")
async def drag_one_way(eyes: PageInspector, chance: random.Random) -> Action | None:
    way = WAYS[eyes.said(r"left|right|up|down")[0]]
    figure = await eyes.one("svg > *")
    moved = await eyes.read(
        "(figure => { const now = shapes.gridCoords(figure), first = figure.getBBox();"
        " return [now.x - first.x, now.y - first.y]; })(document.querySelector('svg > *'))"
    )
    if moved[0] * way[0] + moved[1] * way[1] >= FAR_ENOUGH:
        return click(await eyes.one(SUBMIT))
    x, y = figure.point or figure.center
    bottom = 165
    return drag((x, y), (_within(x + way[0] * LENGTH, 3, 156), _within(y + way[1] * LENGTH, TOP + 3, bottom)))


@teaches("drag-items")
async def drag_in_list(eyes: PageInspector, chance: random.Random) -> Action | None:
    items = await eyes.all("#sortable li")
    said = eyes.said(r"Drag (.*?) (to the|up by|down by) (\w+)")
    start = [item.text for item in items].index(said[1])
    places = {"top": 0, "bottom": len(items) - 1}
    if said[2] == "to the":
        goal = places[said[3]] if said[3] in places else int(said[3][0]) - 1
    else:
        goal = start - 1 if said[2] == "up by" else start + 1
    return drag(items[start], _over(items[start], items[goal]))


@teaches("drag-items-grid")
async def drag_in_grid(eyes: PageInspector, chance: random.Random) -> Action | None:
    items = await eyes.all("#sortable li")
    said = eyes.said(r"Drag (.*?) (to the|up by|down by|left by|right by) (.*)\.")
    start = [item.text for item in items].index(said[1])
    steps = {"up by": -3, "down by": 3, "left by": -1, "right by": 1}
    if said[2] in steps:
        goal = start + steps[said[2]]
    else:
        words = said[3].split()
        row = {"top": 0, "center": 1, "bottom": 2}[words[0]]
        goal = 3 * row + {"left": 0, "center": 1, "right": 2}[words[-1]]
    x, y = items[goal].center
    dx, dy = _off_middle(start, goal)
    return drag(items[start], (x + dx, y + dy))


@teaches("drag-sort-numbers")
async def sort_numbers(eyes: PageInspector, chance: random.Random) -> Action | None:
    items = await eyes.all("#sortable li")
    numbers = [int(item.text) for item in items]
    for place, number in enumerate(sorted(numbers)):
        if numbers[place] != number:
            lowest = place + numbers[place:].index(number)
            return drag(items[lowest], _over(items[lowest], items[place]))
    return click(await eyes.one(SUBMIT))


@teaches("drag-shapes")
async def drag_kind_into_box(eyes: PageInspector, chance: random.Random) -> Action | None:
    kind = eyes.said(r"Drag all (\w+)")[1]
    wanted = await eyes.all(f"#area_svg > {TAGS[kind]}")
    box = await eyes.one("#shape-container")
    places = {(figure.left, figure.top) for figure in wanted}
    for figure in _by_rows(await eyes.all(FIGURES)):
        belongs = (figure.left, figure.top) in places
        if belongs != _inside(figure, box):
            return drag(figure, box.center if belongs else _far_from(box))
    return click(await eyes.one(SUBMIT))


@teaches("drag-shapes-2")
async def sort_into_boxes(eyes: PageInspector, chance: random.Random) -> Action | None:
    kind = eyes.said(r"Drag all (\w+)")[1]
    wanted = TAGS.get(kind, f"[fill={kind}]:not(#shape-container)")
    places = {(figure.left, figure.top) for figure in await eyes.all(f"#area_svg > {wanted}")}
    left, right = sorted(await eyes.all("#shape-container"), key=lambda box: box.left)
    for figure in _by_rows(await eyes.all(FIGURES)):
        box = left if (figure.left, figure.top) in places else right
        if not _inside(figure, box):
            return drag(figure, box.center)
    return click(await eyes.one(SUBMIT))


def _within(value: float, low: float, high: float) -> float:
    return max(low, min(value, high))


def _over(item: PageElement, other: PageElement) -> Point:
    """Where to let go of an item of a list for it to take another's place: a little beyond its middle."""
    x, y = other.center
    return x, y + (8 if y > item.center[1] else -8)


def _off_middle(start: int, goal: int) -> tuple[int, int]:
    """How far from the middle of a cell to let go of an item.

    The others make room while it moves. Tried out for each pair of cells: these points work, also three pixels off.
    """
    columns, rows = goal % 3 - start % 3, goal // 3 - start // 3
    if columns > 0 and rows < 0:
        return -28, -4
    if (columns, rows) == (-2, 1):
        return -14, -12
    if goal < start:
        return -10, -10
    return (10, 12) if columns >= 0 else (-10, 10)


def _inside(figure: PageElement, box: PageElement) -> bool:
    """The task looks at a figure's upper left corner; a figure just outside by it would look inside, or nearly."""
    return box.left < figure.left < box.left + box.width and box.top < figure.top < box.top + box.height


def _far_from(box: PageElement) -> Point:
    corners = ((15.0, TOP + 15.0), (145.0, TOP + 15.0), (15.0, 175.0), (145.0, 175.0))
    return max(corners, key=lambda corner: math.dist(corner, box.center))


def _by_rows(figures: Iterable[PageElement]) -> list[PageElement]:
    return sorted(figures, key=lambda figure: (round(figure.center[1] / 10), figure.left))
