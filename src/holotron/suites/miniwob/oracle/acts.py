"""The moves of oracles: actions on points and elements of a page, and the moves that many tasks share."""

from __future__ import annotations

from collections.abc import Iterable

from holotron.actions.action import Action, Click, DoubleClick, Drag, Hover, Press, Select, Type
from holotron.suites.miniwob.environment import SPACE
from holotron.suites.miniwob.page_inspector import NotFound, PageElement, PageInspector, Point

SUBMIT = "#subbtn"
QUERY_HEIGHT = 50  # pixels of the instruction, above every task's area


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


def overwrite(field: PageElement, text: str) -> Type:
    """Type into a text field; text that is already there is cleared first."""
    return write(field, text, clear=bool(field.value))


def fill(field: PageElement, text: str) -> Type | None:
    """Make a text field hold this text, or None if it does."""
    return None if field.value == text else overwrite(field, text)


def select(place: PageElement | Point, option: str) -> Select:
    x, y = at(place)
    return Select(x=x, y=y, option=option)


def press_toward(missing: int, less: str, more: str) -> Press:
    """One of two keys, as often as steps are missing: `less` where the number is negative."""
    return Press(keys=more if missing > 0 else less, repeat=abs(missing))


# ---- moves that begin with a search in the page ----


async def click_on(page: PageInspector, selector: str, text: str | None = None) -> Click:
    return click(await page.one(selector, text))


async def submit(page: PageInspector) -> Click:
    return await click_on(page, SUBMIT)


async def click_wrong(page: PageInspector, marks: Iterable[tuple[PageElement, bool]], then: str = SUBMIT) -> Click:
    """Click the first element that is marked as wrong; where none is, submit (`then`)."""
    return click(next((element for element, wrong in marks if wrong), None) or await page.one(then))


async def fill_in(page: PageInspector, *fields: tuple[str | PageElement, str], then: str = SUBMIT) -> Action:
    """Correct the first field that does not hold its text; where all do, submit (`then`)."""
    for field, text in fields:
        if typed := fill(await page.one(field) if isinstance(field, str) else field, text):
            return typed
    return await click_on(page, then)
