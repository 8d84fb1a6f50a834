"""Calendars: date pickers that turn their pages with keys, and a day in which an event is drawn and named."""

from __future__ import annotations

import math
import re

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import click, click_on, drag, fill, press_toward, submit
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.scrolling import bring_into_view, in_view, reach, scroll
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector
from holotron.suites.miniwob.tasks import HEIGHT

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
PICKER = "#ui-datepicker-div"
WINDOWS = {"8AM and 12PM": 16, "12PM and 4PM": 24, "4PM and 8PM": 32}  # the first of eight half hours
HALF_HOURS = {"0.5 hours": 1, "30 mins": 1, "1 hour": 2, "60 mins": 2, "1.5 hours": 3, "90 mins": 3}
NEW = "(event => event && [+event.dataset.start, +event.dataset.duration])(document.querySelector('#newEvent'))"
EDGE = 4.0  # pixels by which a drag stays inside the half hours it marks


@teaches("choose-date", "choose-date-easy", "choose-date-medium", "choose-date-nodelay")
async def choose_date(page: PageInspector) -> Action:
    return await pick_date(page, page.said(r"\d\d/\d\d/\d{4}")[0]) or await submit(page)


async def pick_date(page: PageInspector, date: str) -> Action | None:
    """The next step towards this date (month/day/year) in the field, or None if it stands there and nothing is open."""
    is_open = await page.shows(PICKER)
    field = await page.one("#datepicker")
    if not is_open and field.value == date:
        return None
    has_focus = await page.has_focus("#datepicker")
    if not is_open:
        # A field that has the focus already does not open its calendar at a click.
        return Press(keys="ctrl+home") if has_focus else click(field)
    month, day, year = date.split("/")
    shown = MONTHS.index((await page.one(f"{PICKER} .ui-datepicker-month")).text)
    shown_year = int((await page.one(f"{PICKER} .ui-datepicker-year")).text)
    ahead = (int(year) - shown_year) * 12 + int(month) - 1 - shown
    if ahead == 0:
        return await click_on(page, f"{PICKER} td a", re.sub("^0", "", day))
    if has_focus:
        return press_toward(ahead, "pageup", "pagedown")
    return await click_on(page, f"{PICKER} .ui-datepicker-{'next' if ahead > 0 else 'prev'}")


@teaches("daily-calendar")
async def plan_event(page: PageInspector) -> Action | None:
    order = page.said(r'Create a (.+) event named "(.+)", between (.+)\.')
    length, first = HALF_HOURS[order[1]], WINDOWS[order[3]]
    view = await page.one("#area")
    if await page.all("#create-event"):
        start, duration = await page.read(NEW)
        fits = duration == length and first <= start <= first + 8 - length
        return await _in_form(page, view, order[2], fits)
    cells = await page.all(".half-hour")
    place = _free_place(cells, await page.all(".event:not(#newEvent)"), first, length)
    top, bottom = cells[place], cells[place + length - 1]
    if not (in_view(view, top) and in_view(view, bottom)):
        return bring_into_view(view, bottom, far=30) if in_view(view, cells[first]) else _go_to(view, cells[first])
    x = round(top.left + top.width / 2)
    return drag((x, round(top.top + EDGE)), (x, round(bottom.top + bottom.height - EDGE)))


async def _in_form(page: PageInspector, view: PageElement, name: str, fits: bool) -> Action:
    if not fits:
        return reach(view, await page.one("#create-event .cancel"))
    field = await page.one("#event-name")
    if typed := fill(field, name):
        return bring_into_view(view, field) or typed
    return reach(view, await page.one("#create-event .create"))


def _free_place(cells: list[PageElement], events: list[PageElement], first: int, length: int) -> int:
    """The first half hour of the window from which on there is room."""
    for place in range(first, first + 9 - length):
        start, end = cells[place].top, cells[place + length - 1].top + cells[place].height
        if all(event.top > end - EDGE or event.top + event.height < start + EDGE for event in events):
            return place
    return first


def _go_to(view: PageElement, cell: PageElement) -> Action:
    """One turn of the wheel that brings this half hour near the top."""
    steps = math.floor((cell.top - view.top) / HEIGHT * 20)
    return scroll(view, steps > 0, 5 * abs(steps))
