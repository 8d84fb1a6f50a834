"""Tasks whose answer is a point or a line in a drawing."""

from __future__ import annotations

import math
from collections.abc import Callable

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import QUERY_HEIGHT, click, click_on, drag, submit
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector, Point

# These tasks draw a click at the page's coordinates less the height of the instruction, two pixels off the mouse.
# Below: where such a point may lie, in the drawing's own coordinates.
LEFT, TOP, RIGHT, BOTTOM = 4, 4, 145, 125
FAR, STEP = 70, 5


@teaches("circle-center")
async def click_center(page: PageInspector) -> Action:
    (center,) = await _circles(page, ".black-circle")
    if center in await _circles(page, "#blue-circle"):
        return await submit(page)
    return click((center[0], center[1] + QUERY_HEIGHT))


@teaches("find-midpoint")
async def find_midpoint(page: PageInspector) -> Action:
    a, b = await _circles(page, ".black-circle")
    middle = round((a[0] + b[0]) / 2), round((a[1] + b[1]) / 2)
    return await _put_point(page, lambda point: -math.dist(point, middle), middle, 1)


@teaches("right-angle")
async def make_right_angle(page: PageInspector) -> Action:
    (end,) = await _circles(page, "#init-black")
    (vertex,) = await _circles(page, "#init-blue")
    along = _direction(vertex, end)

    def goodness(point: Point) -> float:
        # The task compares corners of boxes, and the new circle is half a pixel smaller than the others.
        return -abs(_angle(end, (point[0] + 0.5, point[1] + 0.5), vertex) - math.pi / 2)

    rays = [_ray(vertex, along + side * math.pi / 2) for side in (-1, 1)]
    return await _put_point(page, goodness, max(rays, key=len)[-1], math.radians(1.5))


@teaches("bisect-angle")
async def bisect_angle(page: PageInspector) -> Action:
    a, b = await _circles(page, ".init-black")
    (vertex,) = await _circles(page, ".init-blue")
    first, second = _direction(vertex, a), _direction(vertex, b)
    between = first + math.remainder(second - first, math.tau) / 2

    def goodness(point: Point) -> float:
        return -abs(_angle(a, point, vertex) - _angle(b, point, vertex))

    return await _put_point(page, goodness, _ray(vertex, between)[-1], _angle(a, b, vertex) * 0.06)


@teaches("draw-line")
async def draw_line(page: PageInspector) -> Action:
    kind = page.said("horizontal|vertical")[0]
    reward = await page.read(
        "(() => { const path = document.querySelector('path'), dot = document.querySelector('#circ');"
        " if (!path || arrayPoints.length < 3) return -1;"
        " const mark = [dot.getAttribute('cx') - 4, dot.getAttribute('cy') - 4];"
        f" return properDirection('{kind}', findStandardDevs(arrayPoints)) * 0.8"
        " + touchesPoint(arrayPoints, mark) * 0.2; })()"
    )
    if reward > 0.99:
        return await click_on(page, "#controls button")
    dot = await page.one("#circ")
    # The task looks for the line a little above and left of the dot's middle.
    x, y = math.floor(dot.center[0] - 1.5), math.floor(dot.center[1] - 1.5)
    return drag((x - 20, y), (x + 20, y)) if kind == "horizontal" else drag((x, y - 20), (x, y + 20))


async def _circles(page: PageInspector, selector: str) -> list[tuple[int, int]]:
    found = await page.all(f"svg {selector}")
    return [(int(circle.attributes["cx"]), int(circle.attributes["cy"])) for circle in found]


async def _put_point(
    page: PageInspector, goodness: Callable[[Point], float], near: tuple[int, int], tolerance: float
) -> Action:
    """Click the best pixel near a place, or submit if the point that is there will do."""
    x, y = near
    best = max(((x + dx, y + dy) for dx in range(-2, 3) for dy in range(-2, 3)), key=goodness)
    blue = await _circles(page, "#blue-circle")
    if blue and goodness(blue[0]) >= goodness(best) - tolerance:
        return await submit(page)
    return click((best[0], best[1] + QUERY_HEIGHT))


def _ray(start: Point, direction: float) -> list[tuple[int, int]]:
    """Points from a start on, further and further, as far as the drawing goes."""
    dx, dy = math.cos(direction), math.sin(direction)
    points = [(round(start[0] + dx * far), round(start[1] + dy * far)) for far in range(STEP, FAR + 1, STEP)]
    inside = [point for point in points if LEFT <= point[0] <= RIGHT and TOP <= point[1] <= BOTTOM]
    return inside or points[:1]


def _direction(vertex: Point, end: Point) -> float:
    return math.atan2(end[1] - vertex[1], end[0] - vertex[0])


def _angle(a: Point, b: Point, vertex: Point) -> float:
    return abs(math.remainder(_direction(vertex, b) - _direction(vertex, a), math.tau))
