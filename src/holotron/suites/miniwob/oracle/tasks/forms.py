"""Tasks whose answer is typed into text fields, then submitted."""

from __future__ import annotations

import re
from collections.abc import Collection

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import click, click_on, fill_in, overwrite, press_toward, submit, write
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.oracle.scrolling import in_view
from holotron.suites.miniwob.page_inspector import PageInspector

MOVIE_LABELS = (
    "[...document.querySelectorAll('#area input[type=text]')]"
    ".map(field => (field.closest('p, tr, .row, .field, .ui-entry')).textContent.toLowerCase())"
)
PROPOSED = ".ui-autocomplete .ui-menu-item"
# Of the proposals, the one the arrow keys have reached; -1 if they are still in the field.
REACHED = f"[...document.querySelectorAll('{PROPOSED}')].findIndex(item => item.querySelector('.ui-state-active'))"


@teaches("enter-text", "enter-text-dynamic", "enter-text-2")
async def enter_text(page: PageInspector) -> Action:
    text = page.quoted[0]
    if page.task == "enter-text-2":
        text = text.upper() if "upper case" in page.utterance else text.lower()
    return await fill_in(page, ("#tt", text))


@teaches("enter-password")
async def enter_password(page: PageInspector) -> Action:
    return await fill_in(page, ("#password", page.quoted[0]), ("#verify", page.quoted[0]))


@teaches("login-user", "login-user-popup")
async def log_in(page: PageInspector) -> Action:
    if await page.shows("#popup-cancel"):
        return await click_on(page, "#popup-cancel")
    user, password = page.quoted
    return await fill_in(page, ("#username", user), ("#password", password))


@teaches("enter-date")
async def enter_date(page: PageInspector) -> Action:
    month, day, year = page.said(r"(\d\d)/(\d\d)/(\d{4})").groups()
    return await _type_in_parts(page, f"{year}-{month}-{day}", f"{month}{day}{year}")


@teaches("enter-time")
async def enter_time(page: PageInspector) -> Action:
    hour, minute, half = page.said(r"(\d+):(\d\d)\s*([AP]M)").groups()
    of_day = int(hour) % 12 + (12 if half == "PM" else 0)
    return await _type_in_parts(page, f"{of_day:02}:{minute}", f"{int(hour):02}{minute}{half}")


async def _type_in_parts(page: PageInspector, value: str, digits: str) -> Action:
    """A date or a time is typed from its first part on, which is the one at the left, over what stands there."""
    field = await page.one("#tt")
    if field.value == value:
        return await submit(page)
    return write((field.left + 8, field.center[1]), digits)


@teaches("text-transform")
async def read_slanted_text(page: PageInspector) -> Action:
    return await fill_in(page, ("#tt", "".join(letter.text for letter in await page.all("#captcha span"))))


@teaches("simple-arithmetic")
async def calculate(page: PageInspector) -> Action:
    first, operator, second, _ = (await page.one("#math-problem")).text.split()
    a, b = int(first), int(second)
    return await fill_in(page, ("#math-answer", str({"+": a + b, "-": a - b, "x": a * b}[operator])))


@teaches("simple-algebra")
async def solve_for_x(page: PageInspector) -> Action:
    first, operator, second, _, total = (await page.one("#math-problem")).text.split()
    if operator == "+":
        answer = int(total) - int(second if first == "x" else first)
    else:
        answer = int(total) + int(second) if first == "x" else int(first) - int(total)
    return await fill_in(page, ("#math-answer", str(answer)))


@teaches("visual-addition")
async def count_blocks(page: PageInspector) -> Action:
    return await fill_in(page, ("#math-answer", str(len(await page.all(".addition-block")))))


@teaches("read-table")
async def read_table(page: PageInspector) -> Action:
    return await fill_in(page, ("#tt", (await _table(page))[page.said(r"value of (.*) into")[1]]))


@teaches("read-table-2")
async def read_two_of_table(page: PageInspector) -> Action:
    cells = await _table(page)
    keys = [(await page.one(label)).text.rstrip(":") for label in ("#ll1", "#ll2")]
    return await fill_in(page, ("#tt1", cells[keys[0]]), ("#tt2", cells[keys[1]]))


async def _table(page: PageInspector) -> dict[str, str]:
    cells = [cell.text for cell in await page.all("#tab td")]
    return dict(zip(cells[::2], cells[1::2], strict=True))


@teaches("find-word")
async def find_word(page: PageInspector) -> Action:
    word = (await page.one("#area p")).text.split()[int(page.said(r"(\d+)(st|nd|rd|th) word")[1]) - 1]
    return await fill_in(page, ("#answer-input", re.sub(r"[^a-zA-Z]", "", word)))


@teaches("multi-layouts", "multi-orderings")
async def search_movies(page: PageInspector) -> Action:
    genre, director, year = page.said(r"Search for (.+) movies directed by (.+) from year (\d+)").groups()
    wanted = {"genre": genre, "director": director, "year": year, "date": year}
    texts = [next(text for name, text in wanted.items() if name in label) for label in await page.read(MOVIE_LABELS)]
    fields = zip(await page.all("#area input[type=text]"), texts, strict=True)
    return await fill_in(page, *fields, then="#area button, #area .final, #area .ui-submit")


@teaches("use-autocomplete", "use-autocomplete-nodelay")
async def enter_country(page: PageInspector) -> Action:
    """By typing what is given and choosing from the list below, with mouse or keys, or by typing a whole name."""
    way = page.chance.choice(("mouse", "keys", "name"))
    start, end = (*page.quoted, "")[:2]
    countries: list[str] = await page.read("ui_utils.COUNTRIES")
    right = [country for country in countries if country.startswith(start) and country.endswith(end)]
    field = await page.one("#tags")
    # The list hangs over the button.
    if field.value in right and not await page.shows(PROPOSED):
        return await submit(page)
    if chosen := await _choose(page, {field.value} if field.value in right else right, way == "keys"):
        return chosen
    # Where the list for the start is too long for the screen, typing the start again would not help.
    return overwrite(field, right[0] if way == "name" or field.value == start else start)


async def _choose(page: PageInspector, right: Collection[str | None], by_keys: bool) -> Action | None:
    """The way to the first right proposal that can be seen, or None if there is none."""
    screen = await page.one("#wrap")
    for index, item in enumerate(await page.all(PROPOSED)):
        if item.text in right and item.point is not None and in_view(screen, item):
            if not by_keys:
                return click(item)
            missing = index - int(await page.read(REACHED))
            return press_toward(missing, "ArrowUp", "ArrowDown") if missing else Press(keys="Enter")
    return None
