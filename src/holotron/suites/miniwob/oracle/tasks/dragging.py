"""Tasks in which things are dragged to where they belong."""

from __future__ import annotations

import math
from collections.abc import Iterable

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import QUERY_HEIGHT, drag, submit
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector, Point

FIGURES = "#area_svg > :not(#shape-container)"
TAGS = {"rectangles": "rect:not(#shape-container)", "circles": "circle", "triangles": "polygon"}
WAYS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
# The task tells where an item was dragged by its corner, and a figure jumps a little when it is taken up.
FAR_ENOUGH, LENGTH = 4, 35


@teaches("drag-box")
async def drag_box_into_box(page: PageInspector) -> Action:
    if await page.read("smallBoxContained()"):
        return await submit(page)
    small, large = await page.one("#draggableSmall"), await page.one("#draggableLarge")
    if small.point is None:
        x, y = large.point or large.center
        return drag((x, y), (x + 60 if x < 80 else x - 60, y))
    x, y = small.point
    return drag((x, y), (round(x + large.center[0] - small.center[0]), round(y + large.center[1] - small.center[1])))


@teaches("drag-circle", "drag-single-shape")
async def drag_one_way(page: PageInspector) -> Action:
    way = WAYS[page.said(r"left|right|up|down")[0]]
    figure = await page.one("svg > *")
    moved = await page.read(
        "(figure => { const now = shapes.gridCoords(figure), first = figure.getBBox();"
        " return [now.x - first.x, now.y - first.y]; })(document.querySelector('svg > *'))"
    )
    if moved[0] * way[0] + moved[1] * way[1] >= FAR_ENOUGH:
        return await submit(page)
    x, y = figure.point or figure.center
    to_x, to_y = x + way[0] * LENGTH, y + way[1] * LENGTH
    return drag((x, y), (max(3, min(to_x, 156)), max(QUERY_HEIGHT + 3, min(to_y, 165))))


@teaches("drag-items")
async def drag_in_list(page: PageInspector) -> Action:
    items = await page.all("#sortable li")
    name, way, place = page.said(r"Drag (.*?) (to the|up by|down by) (\w+)").groups()
    start = [item.text for item in items].index(name)
    places = {"top": 0, "bottom": len(items) - 1}
    if way == "to the":
        goal = places[place] if place in places else int(place[0]) - 1
    else:
        goal = start - 1 if way == "up by" else start + 1
    return drag(items[start], _over(items[start], items[goal]))


@teaches("drag-items-grid")
async def drag_in_grid(page: PageInspector) -> Action:
    items = await page.all("#sortable li")
    name, way, place = page.said(r"Drag (.*?) (to the|up by|down by|left by|right by) (.*)\.").groups()
    start = [item.text for item in items].index(name)
    steps = {"up by": -3, "down by": 3, "left by": -1, "right by": 1}
    if way in steps:
        goal = start + steps[way]
    else:
        words = place.split()
        goal = 3 * ("top", "center", "bottom").index(words[0]) + ("left", "center", "right").index(words[-1])
    x, y = items[goal].center
    dx, dy = _off_middle(start, goal)
    return drag(items[start], (x + dx, y + dy))


@teaches("drag-sort-numbers")
async def sort_numbers(page: PageInspector) -> Action:
    items = await page.all("#sortable li")
    numbers = [int(item.text) for item in items]
    for place, number in enumerate(sorted(numbers)):
        if numbers[place] != number:
            lowest = place + numbers[place:].index(number)
            return drag(items[lowest], _over(items[lowest], items[place]))
    return await submit(page)


@teaches("drag-shapes", "drag-shapes-2")
async def sort_into_boxes(page: PageInspector) -> Action:
    """Figures of a kind go into the left box; the others into the right one, or out of the only one."""
    kind = page.said(r"Drag all (\w+)")[1]
    wanted = TAGS.get(kind, f"[fill={kind}]:not(#shape-container)")
    places = {(figure.left, figure.top) for figure in await page.all(f"#area_svg > {wanted}")}
    left, *right = sorted(await page.all("#shape-container"), key=lambda box: box.left)
    for figure in _by_rows(await page.all(FIGURES)):
        boxes = [left] if (figure.left, figure.top) in places else right
        if boxes and not _inside(figure, boxes[0]):
            return drag(figure, boxes[0].center)
        if not boxes and _inside(figure, left):
            return drag(figure, _far_from(left))
    return await submit(page)


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
    corners = [(x, y) for y in (QUERY_HEIGHT + 15.0, 175.0) for x in (15.0, 145.0)]
    return max(corners, key=lambda corner: math.dist(corner, box.center))


def _by_rows(figures: Iterable[PageElement]) -> list[PageElement]:
    return sorted(figures, key=lambda figure: (round(figure.center[1] / 10), figure.left))
