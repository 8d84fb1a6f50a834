"""A text field that proposes countries below itself: typed out, or begun and then chosen from the list."""

from __future__ import annotations

import random
from collections.abc import Collection

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import click, write
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.tasks.into_view import in_view
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector

PROPOSED = ".ui-autocomplete .ui-menu-item"
# Of the proposals, the one the arrow keys have reached; -1 if they are still in the field.
REACHED = f"[...document.querySelectorAll('{PROPOSED}')].findIndex(item => item.querySelector('.ui-state-active'))"


@teaches("use-autocomplete", "use-autocomplete-nodelay")
async def enter_country(eyes: PageInspector, chance: random.Random) -> Action | None:
    """By typing what is given and choosing, with mouse or keys, or by typing a whole name."""
    way = chance.choice(("mouse", "keys", "name"))
    start, end = (*eyes.quoted, "")[:2]
    countries: list[str] = await eyes.read("ui_utils.COUNTRIES")
    right = [country for country in countries if country.startswith(start) and country.endswith(end)]
    field = await eyes.one("#tags")
    # The list hangs over the button.
    if field.value in right and not await eyes.shows(PROPOSED):
        return click(await eyes.one("#subbtn"))
    if chosen := await _choose(eyes, {field.value} if field.value in right else right, way == "keys"):
        return chosen
    # Where the list for the start is too long for the screen, typing the start again would not help.
    typed = right[0] if way == "name" or field.value == start else start
    return write(field, typed, clear=bool(field.value))


async def _choose(eyes: PageInspector, right: Collection[str | None], by_keys: bool) -> Action | None:
    """The way to the first right proposal that can be seen, or None if there is none."""
    proposed, screen = await eyes.all(PROPOSED), await eyes.one("#wrap")
    seen = [index for index, item in enumerate(proposed) if item.text in right and _is_seen(screen, item)]
    if not seen:
        return None
    if not by_keys:
        return click(proposed[seen[0]])
    missing = seen[0] - int(await eyes.read(REACHED))
    if missing == 0:
        return Press(keys="Enter")
    return Press(keys="ArrowDown" if missing > 0 else "ArrowUp", repeat=abs(missing))


def _is_seen(screen: PageElement, item: PageElement) -> bool:
    return item.point is not None and in_view(screen, item)
