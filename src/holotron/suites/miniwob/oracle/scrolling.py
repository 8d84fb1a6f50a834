"""Scrolling a box until something in it is in view, by steps that skip nothing."""

from __future__ import annotations

from holotron.actions.action import Click, Scroll
from holotron.suites.miniwob.oracle.acts import at, click
from holotron.suites.miniwob.page_inspector import PageElement, Point
from holotron.suites.miniwob.tasks import HEIGHT

FAR, NEAR = 60, 30  # percent of the screen's height: nearly a whole box of 150 pixels, and less than half of one
SLACK = 2.0  # pixels of an element's edge that may be out of view


def scroll(place: PageElement | Point, down: bool, amount: int) -> Scroll:
    """Turn the wheel over a pixel, or over an element: at its middle where no click reaches it."""
    x, y = at(place.point or place.center if isinstance(place, PageElement) else place)
    return Scroll(direction="down" if down else "up", amount=amount, x=x, y=y)


def in_view(view: PageElement, target: PageElement) -> bool:
    return target.height > 0 and _above(view, target) <= SLACK and _below(view, target) <= SLACK


def bring_into_view(view: PageElement, target: PageElement, far: int = FAR) -> Scroll | None:
    """The next turn of the wheel towards the target, never past it, or None if all of it is in view."""
    if in_view(view, target):
        return None
    down = _below(view, target) > SLACK
    room = -_above(view, target) if down else -_below(view, target)
    return scroll(view, down, far if room + SLACK >= far * HEIGHT / 100 else NEAR)


def reach(view: PageElement, target: PageElement, far: int = FAR) -> Scroll | Click:
    """Bring the target into view, then click it."""
    return bring_into_view(view, target, far) or click(target)


def reach_at_end(view: PageElement, target: PageElement, amount: int) -> Scroll | Click:
    """Click the target, which stands at the end of the box, as soon as it is in view; until then scroll down."""
    return click(target) if in_view(view, target) else scroll(view, True, amount)


def _above(view: PageElement, target: PageElement) -> float:
    return view.top - target.top


def _below(view: PageElement, target: PageElement) -> float:
    return target.top + target.height - min(view.top + view.height, HEIGHT)
