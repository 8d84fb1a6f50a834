"""Actions on elements: the points of a page turned into those of actions."""

from __future__ import annotations

from holotron.actions.action import Click, DoubleClick, Drag, Hover, Scroll, Select, Type
from holotron.suites.miniwob.environment import SPACE
from holotron.suites.miniwob.page_inspector import NotFound, PageElement, Point


def at(place: PageElement | Point) -> tuple[int, int]:
    """Where an action points to meet this element or pixel."""
    if isinstance(place, PageElement):
        if place.point is None:
            raise NotFound(f"no click reaches <{place.text or place.attributes}>")
        place = place.point
    return SPACE.to_relative(*place)


def click(place: PageElement | Point) -> Click:
    x, y = at(place)
    return Click(x=x, y=y)


def double_click(place: PageElement | Point) -> DoubleClick:
    x, y = at(place)
    return DoubleClick(x=x, y=y)


def hover(place: PageElement | Point) -> Hover:
    x, y = at(place)
    return Hover(x=x, y=y)


def drag(start: PageElement | Point, end: PageElement | Point) -> Drag:
    (x, y), (to_x, to_y) = at(start), at(end)
    return Drag(x=x, y=y, to_x=to_x, to_y=to_y)


def write(place: PageElement | Point, text: str, clear: bool = False, enter: bool = False) -> Type:
    """Click there and type, as one action."""
    x, y = at(place)
    return Type(text=text, x=x, y=y, clear=clear, enter=enter)


def select(place: PageElement | Point, option: str) -> Select:
    x, y = at(place)
    return Select(x=x, y=y, option=option)


def scroll(place: PageElement | Point, down: bool, amount: int = 50) -> Scroll:
    x, y = at(place)
    return Scroll(direction="down" if down else "up", amount=amount, x=x, y=y)


def fill(field: PageElement, text: str) -> Type | None:
    """What makes a text field hold this text, or None if it does: what stands there wrongly is cleared first."""
    return None if field.value == text else write(field, text, clear=bool(field.value))
