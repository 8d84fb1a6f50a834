"""Menus to order from and tickets to compare."""

from __future__ import annotations

import random
import re

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, scroll
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.tasks.into_view import bring_into_view, in_view
from holotron.suites.miniwob.page_inspector import PageInspector

TO_THE_END = 400  # percent of the screen's height, more than the menu is long
KINDS = (
    "[...document.querySelectorAll('.food-item')].map(item => [...item.querySelectorAll('img')].map(icon => icon.alt))"
)
TICKETS = (
    "[...document.querySelectorAll('.flight')].map(ticket => "
    "({cost: +ticket.querySelector('.buy-ticket').dataset.price,"
    " duration: +ticket.querySelector('.time-duration').dataset.duration}))"
)


@teaches("buy-ticket")
async def buy_ticket(eyes: PageInspector, chance: random.Random) -> Action | None:
    order = eyes.said(r"with the (.+) (cost|duration)\.")
    tickets: list[dict[str, int]] = await eyes.read(TICKETS)
    values = [ticket[order[2]] for ticket in tickets]
    wanted = max(values) if order[1] in ("longest", "most expensive") else min(values)
    return click((await eyes.all(".buy-ticket"))[values.index(wanted)])


@teaches("order-food")
async def order_food(eyes: PageInspector, chance: random.Random) -> Action | None:
    items, view = await eyes.all(".food-item"), await eyes.one("#area")
    ordered = [int(item.attributes["data-quantity"]) for item in items]
    wanted = await _quantities(eyes, [item.attributes["data-item"].strip() for item in items], ordered)
    wrong = [index for index, _ in enumerate(items) if ordered[index] != wanted[index]]
    for index in [row for row in wrong if in_view(view, items[row])] or wrong[:1]:
        button = (await eyes.all(".food-item .add" if ordered[index] < wanted[index] else ".food-item .remove"))[index]
        return bring_into_view(view, items[index]) or click(button)
    submit = await eyes.one("#submit-order button")
    return click(submit) if in_view(view, submit) else scroll(view.point or view.center, True, TO_THE_END)


async def _quantities(eyes: PageInspector, names: list[str], ordered: list[int]) -> list[int]:
    """How many of each. Of a kind of food, all come from the first such item: the menu has too few of some kinds."""
    by_kind = re.search(r"Order (\d) items that are (\S+)", eyes.utterance)
    if by_kind is None:
        listed = [name.strip() for name in eyes.said("each item: (.+)")[1].split(",")]
        return [int(name in listed) for name in names]
    kinds: list[list[str]] = await eyes.read(KINDS)
    fits = [by_kind[2] in kind for kind in kinds]
    wanted = [number if fit else 0 for number, fit in zip(ordered, fits, strict=True)]
    missing = int(by_kind[1]) - sum(wanted)
    place = fits.index(True) if missing > 0 else wanted.index(max(wanted))
    wanted[place] = max(0, wanted[place] + missing)
    return wanted
