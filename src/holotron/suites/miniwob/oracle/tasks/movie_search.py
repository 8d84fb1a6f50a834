"""Search forms whose fields stand in any order, and a login that a popup interrupts."""

from __future__ import annotations

import random

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, fill
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

LABELS = (
    "[...document.querySelectorAll('#area input[type=text]')]"
    ".map(field => (field.closest('p, tr, .row, .field, .ui-entry')).textContent.toLowerCase())"
)
SUBMIT = "#area button, #area .final, #area .ui-submit"


@teaches("multi-layouts", "multi-orderings")
async def search_movies(eyes: PageInspector, chance: random.Random) -> Action | None:
    genre, director, year = eyes.said(r"Search for (.+) movies directed by (.+) from year (\d+)").groups()
    wanted = {"genre": genre, "director": director, "year": year, "date": year}
    labels: list[str] = await eyes.read(LABELS)
    for label, field in zip(labels, await eyes.all("#area input[type=text]"), strict=True):
        text = next(text for name, text in wanted.items() if name in label)
        if typed := fill(field, text):
            return typed
    return click(await eyes.one(SUBMIT))


@teaches("login-user-popup")
async def log_in_past_popup(eyes: PageInspector, chance: random.Random) -> Action | None:
    if await eyes.shows("#popup-cancel"):
        return click(await eyes.one("#popup-cancel"))
    user, password = eyes.quoted
    return (
        fill(await eyes.one("#username"), user)
        or fill(await eyes.one("#password"), password)
        or click(await eyes.one("#subbtn"))
    )
