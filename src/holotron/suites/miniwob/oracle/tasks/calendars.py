"""Date pickers that open at a click and turn their pages with keys."""

from __future__ import annotations

import random
import re

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import click
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
FIELD_HAS_FOCUS = "document.activeElement === document.querySelector('#datepicker')"


@teaches("choose-date", "choose-date-easy", "choose-date-medium", "choose-date-nodelay")
async def choose_date(eyes: PageInspector, chance: random.Random) -> Action | None:
    return await pick_date(eyes, eyes.said(r"\d\d/\d\d/\d{4}")[0]) or click(await eyes.one("#subbtn"))


async def pick_date(eyes: PageInspector, date: str) -> Action | None:
    """The next step towards this date (month/day/year) in the field, or None if it stands there and nothing is open."""
    is_open = await eyes.shows("#ui-datepicker-div")
    field = await eyes.one("#datepicker")
    if not is_open and field.value == date:
        return None
    has_focus: bool = await eyes.read(FIELD_HAS_FOCUS)
    if not is_open:
        # A field that has the focus already does not open its calendar at a click.
        return Press(keys="ctrl+home") if has_focus else click(field)
    return await _turn_pages(eyes, date, has_focus) or click(await eyes.one(*_day(date)))


async def _turn_pages(eyes: PageInspector, date: str, has_focus: bool) -> Action | None:
    month, _, year = (int(part) for part in date.split("/"))
    shown = await eyes.one("#ui-datepicker-div .ui-datepicker-month")
    shown_year = await eyes.one("#ui-datepicker-div .ui-datepicker-year")
    ahead = (year - int(shown_year.text)) * 12 + month - 1 - MONTHS.index(shown.text)
    if ahead == 0:
        return None
    if has_focus:
        return Press(keys="pagedown" if ahead > 0 else "pageup", repeat=abs(ahead))
    return click(await eyes.one(f"#ui-datepicker-div .ui-datepicker-{'next' if ahead > 0 else 'prev'}"))


def _day(date: str) -> tuple[str, str]:
    return "#ui-datepicker-div td a", re.sub("^0", "", date.split("/")[1])
