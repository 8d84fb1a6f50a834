"""Flights: searched for in a form, then the best of a list is booked."""

from __future__ import annotations

import random
import re

from holotron.actions.action import Action, Scroll
from holotron.suites.miniwob.oracle.acts import click, scroll, write
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.tasks.calendars import pick_date
from holotron.suites.miniwob.oracle.tasks.into_view import bring_into_view, in_view
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector
from holotron.suites.miniwob.tasks import HEIGHT

ORDER = r"the (\w+) one-way flight from: (.+?) to: (.+?) on (\d\d/\d\d/\d{4})\."
PLACES = "DOMESTIC_FLIGHTS"
FLIGHTS = (
    "[...document.querySelectorAll('.flight')].map(flight => [+flight.querySelector('.flight-price').dataset.price,"
    " +flight.querySelector('.time-duration').dataset.duration])"
)
ROOM_BELOW = "(area => area.scrollHeight - area.clientHeight - area.scrollTop)(document.querySelector('#area'))"
READING = 60  # percent of the screen's height: the list moves so far that every line is wholly in view once
# Pixels. While the list is read, no flight begins so near the top: where one does, it was sought out.
ALIGNED = 6.0
DURATIONS, PRICES = ".flight .flight-duration", ".flight .flight-price"


@teaches("book-flight", "book-flight-nodelay")
async def book_flight(eyes: PageInspector, chance: random.Random) -> Action | None:
    which, origin, destination, date = eyes.said(ORDER).groups()
    if await eyes.shows("#results"):
        return await _in_results(eyes, which, origin, destination, date)
    return (
        await _place(eyes, "#flight-from", origin)
        or await _place(eyes, "#flight-to", destination)
        or await pick_date(eyes, date)
        or click(await eyes.one("#search"))
    )


async def _place(eyes: PageInspector, selector: str, name: str) -> Action | None:
    """Type a city, or an airport's code in brackets as the list has it, and take what is proposed."""
    field = await eyes.one(selector)
    if name in (field.value or "") and field.value in await eyes.read(PLACES):
        return None
    typed = f"({name})" if re.fullmatch("[A-Z]{3}", name) else name
    if field.value == typed:
        for menu, items in await _open_menus(eyes):
            proposed = next((item for item in items if name in item.text), None)
            if proposed:
                return bring_into_view(menu, proposed, 30) or click(proposed)
    return write(field, typed, clear=bool(field.value))


async def _open_menus(eyes: PageInspector) -> list[tuple[PageElement, list[PageElement]]]:
    """Each field has a list of its own; the one that is shown belongs to the field with the focus."""
    shown = [menu for menu in await eyes.all("ul.ui-autocomplete") if menu.point is not None]
    return [(menu, await eyes.all(f"#{menu.attributes['id']} .ui-menu-item")) for menu in shown]


async def _in_results(eyes: PageInspector, which: str, origin: str, destination: str, date: str) -> Action:
    searched = [(await eyes.one(f"#{field}")).value or "" for field in ("flight-from", "flight-to", "datepicker")]
    if origin not in searched[0] or destination not in searched[1] or searched[2] != date:
        back, view = await eyes.one("#menu-back"), await eyes.one("#area")
        return bring_into_view(view, back) or click(back)
    values: list[tuple[int, int]] = await eyes.read(FLIGHTS)
    best = min(range(len(values)), key=lambda index: values[index][0 if which == "cheapest" else 1])
    return await _read_list(eyes, best)


async def _read_list(eyes: PageInspector, best: int) -> Action:
    """Down to the end, where every flight has been seen, then back up so far that the best one comes first."""
    view, flight = await eyes.one("#area"), (await eyes.all(".flight"))[best]
    button, duration = (await eyes.all(PRICES))[best], (await eyes.all(DURATIONS))[best]
    seen = in_view(view, button) and in_view(view, duration)
    at_end = await eyes.read(ROOM_BELOW) <= 1
    if seen and (at_end or abs(flight.top - view.top) <= ALIGNED):
        return click(button)
    if at_end:
        return _back_up(view, flight)
    return scroll(view.point or view.center, True, READING)


def _back_up(view: PageElement, flight: PageElement) -> Scroll:
    return scroll(view.point or view.center, False, round((view.top - flight.top) / HEIGHT * 20) * 5)
