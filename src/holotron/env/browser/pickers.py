"""Lists and calendars that can be clicked: part of the page, in place of those that the browser draws outside of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from playwright.async_api import Error

from holotron.env.browser import dom_queries
from holotron.env.browser.isolated_world import IsolatedWorldGone
from holotron.env.browser.tabs import LiveTab
from holotron.env.errors import ActionFailed

PICKERS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
# A page or frame that is being replaced, or is closed, shows no picker; what else that means is for the action to find.
GOING = (IsolatedWorldGone, ActionFailed, Error)
# Keys that open the list of the field with the focus.
OPENERS = ("Enter", "F4", "Space", " ", "Alt+ArrowDown", "Alt+ArrowUp")
WRITTEN = {
    "time": "14:30",
    "month": "2026-01",
    "week": "2026-W05",
    "datetime-local": "2026-01-31T14:30",
    "color": "#ff8800",
}


async def watch_point(tab: LiveTab, x: float, y: float) -> None:
    """A list that is opened by a click at this point will be ours: the browser's own may hang for thousands of rows."""
    with suppress(*GOING):
        await (await dom_queries.world_at(tab, x, y)).run(PICKERS, "watch")


async def watch_focus(tab: LiveTab) -> None:
    """The same for a key."""
    with suppress(*GOING):
        await (await dom_queries.world_of_focus(tab)).run(PICKERS, "watch")


async def replace_native(tab: LiveTab) -> str | None:
    """Put ours in place of what the browser opened; where there is none, what a policy should know."""
    try:
        world = await dom_queries.world_of_focus(tab)
        kind = await world.run(PICKERS, "native")
        if not kind:
            return None
        await tab.page.keyboard.press("Escape")  # the browser's own takes it, and closes
        if await world.run(PICKERS, "show"):
            return None
    except GOING:
        return None
    form = WRITTEN.get(kind)
    return f"the field's {kind} picker is not shown" + (f"; type its value, such as {form}" if form else "")
