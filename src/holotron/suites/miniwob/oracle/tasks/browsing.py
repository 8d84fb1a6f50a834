"""Things to be found by leafing: a search result, a contact, a file in a tree of folders."""

from __future__ import annotations

import random

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, write
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector

RESULTS_A_PAGE = 3
INTO_NAME = 26  # pixels from the left end of a row of the tree: past its icon, on the first letters


@teaches("search-engine")
async def open_search_result(eyes: PageInspector, chance: random.Random) -> Action | None:
    """With the numbers of the pages or with the arrows beside them."""
    by_number = chance.random() < 0.5
    text, place = eyes.quoted[0], int(eyes.said(r"click the (\d)")[1]) - 1
    field = await eyes.one("#search-text")
    if (field.value or "").lower() != text.lower():
        return write(field, text, clear=bool(field.value))
    # Results of a search for something else have no place.
    found = [int(link.attributes["data-result"]) for link in await eyes.all("#page-content a")]
    if not found or found[0] < 0:
        return click(await eyes.one("#search"))
    if place in found:
        return click(await eyes.one(f"#page-content a[data-result='{place}']"))
    page = str(place // RESULTS_A_PAGE + 1) if by_number else ">" if place > found[0] else "<"
    return click(await eyes.one("#pagination .page-link", page))


@teaches("phone-book")
async def use_contact(eyes: PageInspector, chance: random.Random) -> Action | None:
    person, what = eyes.said(r"Find (.+) in the contact book and click on their (phone|email|address)").groups()
    shown = await eyes.one("#contact .name")
    if shown.text == person:
        return click(await eyes.one(f"#contact .{what}"))
    # Whoever leafs through the book from its beginning goes on; whoever has gone past the contact has seen it.
    place = await eyes.peek("chooseContact(generateContacts()).index")
    return click(await eyes.one("#pagination .page-link", ">" if place > int(shown.attributes["data-index"]) else "<"))


@teaches("navigate-tree")
async def find_in_tree(eyes: PageInspector, chance: random.Random) -> Action | None:
    """What is seen is clicked; else the folders are opened from the top, by their names or by their plus signs."""
    by_name = chance.random() < 0.5
    if await eyes.shows("#tree span", eyes.quoted[0]):
        return _click_name(await eyes.one("#tree span", eyes.quoted[0]))
    # Folders within folders are empty in this task: nothing is ever found by opening them.
    if by_name:
        return _click_name(await eyes.one("#tree > li.expandable > .folder"))
    return click(await eyes.one("#tree > li.expandable > .hitarea"))


def _click_name(row: PageElement) -> Action:
    return click((row.left + INTO_NAME, row.center[1]))
