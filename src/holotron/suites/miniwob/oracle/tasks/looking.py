"""Tasks in which the thing to click has to be found first: behind tabs, sections and menus, or by trying."""

from __future__ import annotations

import random

from holotron.actions.action import Action
from holotron.suites.miniwob.oracle.acts import click, double_click, hover, write
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageElement, PageInspector


async def look_behind(eyes: PageInspector, headers: str) -> Action:
    """Click the link if it is to be seen, else open what comes after that which is open, and the first after all."""
    if await eyes.shows(".alink", eyes.quoted[0]):
        return click(await eyes.one(".alink", eyes.quoted[0]))
    found = await eyes.all(headers)
    opened = [index for index, header in enumerate(found) if header.attributes.get("aria-expanded") == "true"]
    return click(found[(opened[0] + 1) % len(found) if opened else 0])


@teaches("click-tab-2", "click-tab-2-easy", "click-tab-2-medium", "click-tab-2-hard")
async def click_link_behind_tabs(eyes: PageInspector, chance: random.Random) -> Action | None:
    return await look_behind(eyes, "#area ul li")


@teaches("click-collapsible-2", "click-collapsible-2-nodelay")
async def click_link_behind_sections(eyes: PageInspector, chance: random.Random) -> Action | None:
    return await look_behind(eyes, "#area h3")


@teaches("click-collapsible", "click-collapsible-nodelay")
async def open_section(eyes: PageInspector, chance: random.Random) -> Action | None:
    header = await eyes.one("#area h3")
    return click(await eyes.one("#subbtn") if header.attributes["aria-expanded"] == "true" else header)


@teaches("click-menu")
async def walk_menu(eyes: PageInspector, chance: random.Random) -> Action | None:
    """A click on an entry that leads on ends the episode: menus are opened by hovering."""
    path = eyes.said(r"Select (.*)")[1].split(">")
    entries = {entry.text: entry for entry in await eyes.all("#menu li > div") if entry.point is not None}
    if path[-1] in entries:
        return click(entries[path[-1]])
    deepest = next((name for name in reversed(path[:-1]) if name in entries), path[0])
    return hover(entries[deepest]) if deepest in entries else hover((155, 205))


@teaches("click-menu-2")
async def click_in_menu(eyes: PageInspector, chance: random.Random) -> Action | None:
    wanted: str = await eyes.read(
        "(icon => Object.keys(PROBLEM_SET).find(name => icon && icon.classList.contains(PROBLEM_SET[name])) || '')"
        "(document.querySelector('#query .ui-icon'))"
    )
    entries = {entry.text: entry for entry in await eyes.all("#menu li > div") if entry.point is not None}
    if (wanted or eyes.quoted[-1]) in entries:
        return click(entries[wanted or eyes.quoted[-1]])
    return hover(entries["Playback"]) if "Playback" in entries else click(await eyes.one("#open-menu"))


@teaches("click-pie", "click-pie-nodelay")
async def click_in_pie(eyes: PageInspector, chance: random.Random) -> Action | None:
    if await eyes.shows("#divWheel svg text", "+"):
        return click(await eyes.one("#divWheel svg text", "+"))
    return click(await eyes.one("#divWheel svg text[id*='-title-']", eyes.quoted[0]))


@teaches("find-greatest")
async def find_greatest(eyes: PageInspector, chance: random.Random) -> Action | None:
    """Turn the cards over one by one, then pick the greatest by a double click.

    A card that is turned over hides the one before. That the double click leaves a card's number marked tells the card
    that was picked from one that was only looked at.
    """
    cards: list[PageElement] = await eyes.all(".card")
    numbers: list[str] = await eyes.read("[...document.querySelectorAll('.card')].map(card => card.textContent)")
    greatest = max(range(len(cards)), key=lambda index: int(numbers[index]))
    opened = [index for index, card in enumerate(cards) if "hidden" not in card.attributes["class"]]
    last = len(cards) - 1
    picked = await eyes.read("getSelection().type === 'Range'")
    if opened == [greatest] and (picked or greatest == last):
        return click(await eyes.one("#submit"))
    if opened == [last]:
        return double_click(cards[greatest])
    return click(cards[opened[0] + 1 if opened else 0])


@teaches("generate-number")
async def generate_number(eyes: PageInspector, chance: random.Random) -> Action | None:
    shown = (await eyes.one("#display-number")).text
    return click(await eyes.one("#submit" if shown.isdigit() and is_wanted(eyes, int(shown)) else "#generate"))


def is_wanted(eyes: PageInspector, number: int) -> bool:
    if "odd" in eyes.utterance or "even" in eyes.utterance:
        return number % 2 == ("odd" in eyes.utterance)
    kind, bound = eyes.said(r"(less|greater) than (\d+)").groups()
    return number < int(bound) if kind == "less" else number > int(bound)


@teaches("guess-number")
async def guess_number(eyes: PageInspector, chance: random.Random) -> Action | None:
    guess = 4
    for direction in ("higher", "lower"):
        said = await eyes.one(f"#{direction}")
        if said.height > 0:
            guess = next_guess(int((await eyes.one(f"#{direction} span")).text), direction == "higher")
    field = await eyes.one("#tt")
    # The right half of the field is two arrows.
    return write((field.left + field.width / 4, field.center[1]), str(guess), clear=bool(field.value), enter=True)


def next_guess(last: int, higher: bool) -> int:
    """Halving: each number stands at one place in the tree of guesses, so the last one tells which came before."""
    low, high = 0, 9
    if not low <= last <= high:
        return (low + high) // 2
    while (middle := (low + high) // 2) != last:
        low, high = (middle + 1, high) if last > middle else (low, middle - 1)
    low, high = (last + 1, high) if higher else (low, last - 1)
    return (low + high) // 2 if low <= high else last + 1 if higher else last - 1
