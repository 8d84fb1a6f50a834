"""Offers to compare and buy: flights to search for and book, tickets, dishes of a menu."""

from __future__ import annotations

import re

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, click_on, overwrite
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.scrolling import bring_into_view, in_view, reach, reach_at_end, scroll
from holotron.suites.miniwob.oracle.tasks.calendars import pick_date
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.tasks import HEIGHT

ORDER = r"the (\w+) one-way flight from: (.+?) to: (.+?) on (\d\d/\d\d/\d{4})\."
# Cost and duration of each flight; {} is the element that holds its price.
FLIGHTS = (
    "[...document.querySelectorAll('.flight')].map(flight => [+flight.querySelector('{}').dataset.price,"
    " +flight.querySelector('.time-duration').dataset.duration])"
)
READING = 60  # percent of the screen's height: the list moves so far that every line is wholly in view once
# Pixels. While the list is read, no flight begins so near the top: where one does, it was sought out.
ALIGNED = 6.0
TO_THE_END = 400  # percent of the screen's height, more than the menu is long
KINDS = (
    "[...document.querySelectorAll('.food-item')].map(item => [...item.querySelectorAll('img')].map(icon => icon.alt))"
)


@teaches("book-flight", "book-flight-nodelay")
async def book_flight(page: PageInspector) -> Action:
    which, origin, destination, date = page.said(ORDER).groups()
    if not await page.shows("#results"):
        return (
            await _place(page, "#flight-from", origin)
            or await _place(page, "#flight-to", destination)
            or await pick_date(page, date)
            or await click_on(page, "#search")
        )
    searched = [(await page.one(f"#{field}")).value or "" for field in ("flight-from", "flight-to", "datepicker")]
    if origin not in searched[0] or destination not in searched[1] or searched[2] != date:
        return reach(await page.one("#area"), await page.one("#menu-back"))
    values: list[tuple[int, int]] = await page.read(FLIGHTS.format(".flight-price"))
    best = min(range(len(values)), key=lambda index: values[index][0 if which == "cheapest" else 1])
    return await _read_list(page, best)


async def _place(page: PageInspector, selector: str, name: str) -> Action | None:
    """Type a city, or an airport's code in brackets as the list has it, and take what is proposed."""
    field = await page.one(selector)
    if name in (field.value or "") and field.value in await page.read("DOMESTIC_FLIGHTS"):
        return None
    typed = f"({name})" if re.fullmatch("[A-Z]{3}", name) else name
    if field.value == typed:
        # Each field has a list of its own; the one that is shown belongs to the field with the focus.
        for menu in [menu for menu in await page.all("ul.ui-autocomplete") if menu.point is not None]:
            items = await page.all(f"#{menu.attributes['id']} .ui-menu-item")
            if proposed := next((item for item in items if name in item.text), None):
                return reach(menu, proposed, 30)
    return overwrite(field, typed)


async def _read_list(page: PageInspector, best: int) -> Action:
    """Down to the end, where every flight has been seen, then back up so far that the best one comes first."""
    view, flight = await page.one("#area"), (await page.all(".flight"))[best]
    button = (await page.all(".flight .flight-price"))[best]
    duration = (await page.all(".flight .flight-duration"))[best]
    at_end = await page.room_below("#area") <= 1
    if in_view(view, button) and in_view(view, duration) and (at_end or abs(flight.top - view.top) <= ALIGNED):
        return click(button)
    if at_end:
        return scroll(view, False, round((view.top - flight.top) / HEIGHT * 20) * 5)
    return scroll(view, True, READING)


@teaches("buy-ticket")
async def buy_ticket(page: PageInspector) -> Action:
    order = page.said(r"with the (.+) (cost|duration)\.")
    tickets: list[tuple[int, int]] = await page.read(FLIGHTS.format(".buy-ticket"))
    values = [cost if order[2] == "cost" else duration for cost, duration in tickets]
    wanted = max(values) if order[1] in ("longest", "most expensive") else min(values)
    return click((await page.all(".buy-ticket"))[values.index(wanted)])


@teaches("order-food")
async def order_food(page: PageInspector) -> Action:
    items, view = await page.all(".food-item"), await page.one("#area")
    ordered = [int(item.attributes["data-quantity"]) for item in items]
    wanted = await _quantities(page, [item.attributes["data-item"].strip() for item in items], ordered)
    wrong = [index for index, _ in enumerate(items) if ordered[index] != wanted[index]]
    for index in [row for row in wrong if in_view(view, items[row])] or wrong[:1]:
        button = (await page.all(".food-item .add" if ordered[index] < wanted[index] else ".food-item .remove"))[index]
        return bring_into_view(view, items[index]) or click(button)
    return reach_at_end(view, await page.one("#submit-order button"), TO_THE_END)


async def _quantities(page: PageInspector, names: list[str], ordered: list[int]) -> list[int]:
    """How many of each. Of a kind of food, all come from the first such item: the menu has too few of some kinds."""
    by_kind = re.search(r"Order (\d) items that are (\S+)", page.utterance)
    if by_kind is None:
        listed = [name.strip() for name in page.said("each item: (.+)")[1].split(",")]
        return [int(name in listed) for name in names]
    kinds: list[list[str]] = await page.read(KINDS)
    fits = [by_kind[2] in kind for kind in kinds]
    wanted = [number if fit else 0 for number, fit in zip(ordered, fits, strict=True)]
    missing = int(by_kind[1]) - sum(wanted)
    place = fits.index(True) if missing > 0 else wanted.index(max(wanted))
    wanted[place] = max(0, wanted[place] + missing)
    return wanted
