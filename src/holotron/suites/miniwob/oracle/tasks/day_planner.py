"""A day's calendar in which an event is drawn with the mouse and named."""

from __future__ import annotations

import math
import random

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, drag, fill, scroll
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.tasks.into_view import bring_into_view, in_view
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector
from holotron.suites.miniwob.tasks import HEIGHT

WINDOWS = {"8AM and 12PM": 16, "12PM and 4PM": 24, "4PM and 8PM": 32}  # the first of eight half hours
HALF_HOURS = {"0.5 hours": 1, "30 mins": 1, "1 hour": 2, "60 mins": 2, "1.5 hours": 3, "90 mins": 3}
NEW = "(event => event && [+event.dataset.start, +event.dataset.duration])(document.querySelector('#newEvent'))"
EDGE = 4.0  # pixels by which a drag stays inside the half hours it marks


@teaches("daily-calendar")
async def plan_event(eyes: PageInspector, chance: random.Random) -> Action | None:
    order = eyes.said(r'Create a (.+) event named "(.+)", between (.+)\.')
    length, first = HALF_HOURS[order[1]], WINDOWS[order[3]]
    view = await eyes.one("#area")
    if await eyes.all("#create-event"):
        start, duration = await eyes.read(NEW)
        fits = duration == length and first <= start <= first + 8 - length
        return await _in_form(eyes, view, order[2], fits)
    cells = await eyes.all(".half-hour")
    place = _free_place(cells, await eyes.all(".event:not(#newEvent)"), first, length)
    top, bottom = cells[place], cells[place + length - 1]
    if not (in_view(view, top) and in_view(view, bottom)):
        return bring_into_view(view, bottom, far=30) if in_view(view, cells[first]) else _go_to(view, cells[first])
    x = round(top.left + top.width / 2)
    return drag((x, round(top.top + EDGE)), (x, round(bottom.top + bottom.height - EDGE)))


async def _in_form(eyes: PageInspector, view: PageElement, name: str, fits: bool) -> Action:
    if not fits:
        cancel = await eyes.one("#create-event .cancel")
        return bring_into_view(view, cancel) or click(cancel)
    field, create = await eyes.one("#event-name"), await eyes.one("#create-event .create")
    if field.value != name:
        return bring_into_view(view, field) or fill(field, name) or click(create)
    return bring_into_view(view, create) or click(create)


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
    return scroll(view.point or view.center, steps > 0, 5 * abs(steps))
