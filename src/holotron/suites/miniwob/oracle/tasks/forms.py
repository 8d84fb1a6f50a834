"""Tasks whose answer is typed into a field, then submitted."""

from __future__ import annotations

import random
import re

from holotron.actions.action import Action, Press
from holotron.suites.miniwob.oracle.acts import click, fill, write
from holotron.suites.miniwob.oracle.registry import teaches
from holotron.suites.miniwob.page_inspector import PageInspector

SUBMIT = "#subbtn"
# The page tells nobody what was copied. Whoever asks first begins to listen; a copy that nobody heard is made again.
LAST_COPIED = """(window.last_copied ??= (() => {
  const heard = { text: null };
  addEventListener("copy", () => {
    const field = document.activeElement;
    heard.text = field.value?.slice(field.selectionStart, field.selectionEnd);
  });
  return heard;
})()).text"""


async def fill_in(eyes: PageInspector, *fields: tuple[str, str]) -> Action:
    """Correct the first field that does not hold its text; where all do, submit."""
    for selector, text in fields:
        action = fill(await eyes.one(selector), text)
        if action is not None:
            return action
    return click(await eyes.one(SUBMIT))


@teaches("enter-text", "enter-text-dynamic")
async def enter_text(eyes: PageInspector, chance: random.Random) -> Action | None:
    return await fill_in(eyes, ("#tt", eyes.quoted[0]))


@teaches("enter-text-2")
async def enter_text_in_case(eyes: PageInspector, chance: random.Random) -> Action | None:
    text = eyes.quoted[0]
    return await fill_in(eyes, ("#tt", text.upper() if "upper case" in eyes.utterance else text.lower()))


@teaches("enter-password")
async def enter_password(eyes: PageInspector, chance: random.Random) -> Action | None:
    return await fill_in(eyes, ("#password", eyes.quoted[0]), ("#verify", eyes.quoted[0]))


@teaches("login-user")
async def log_in(eyes: PageInspector, chance: random.Random) -> Action | None:
    user, password = eyes.quoted
    return await fill_in(eyes, ("#username", user), ("#password", password))


async def type_in_parts(eyes: PageInspector, value: str, digits: str) -> Action:
    """A date or a time is typed from its first part on, which is the one at the left, over whatever stands there."""
    field = await eyes.one("#tt")
    if field.value == value:
        return click(await eyes.one(SUBMIT))
    return write((field.left + 8, field.center[1]), digits)


@teaches("enter-date")
async def enter_date(eyes: PageInspector, chance: random.Random) -> Action | None:
    month, day, year = eyes.said(r"(\d\d)/(\d\d)/(\d{4})").groups()
    return await type_in_parts(eyes, f"{year}-{month}-{day}", f"{month}{day}{year}")


@teaches("enter-time")
async def enter_time(eyes: PageInspector, chance: random.Random) -> Action | None:
    hour, minute, half = eyes.said(r"(\d+):(\d\d)\s*([AP]M)").groups()
    of_day = int(hour) % 12 + (12 if half == "PM" else 0)
    return await type_in_parts(eyes, f"{of_day:02}:{minute}", f"{int(hour):02}{minute}{half}")


@teaches("text-transform")
async def read_slanted_text(eyes: PageInspector, chance: random.Random) -> Action | None:
    return await fill_in(eyes, ("#tt", "".join(letter.text for letter in await eyes.all("#captcha span"))))


@teaches("simple-arithmetic")
async def calculate(eyes: PageInspector, chance: random.Random) -> Action | None:
    first, operator, second, _ = (await eyes.one("#math-problem")).text.split()
    a, b = int(first), int(second)
    return await fill_in(eyes, ("#math-answer", str({"+": a + b, "-": a - b, "x": a * b}[operator])))


@teaches("simple-algebra")
async def solve_for_x(eyes: PageInspector, chance: random.Random) -> Action | None:
    first, operator, second, _, total = (await eyes.one("#math-problem")).text.split()
    if operator == "+":
        answer = int(total) - int(second if first == "x" else first)
    else:
        answer = int(total) + int(second) if first == "x" else int(first) - int(total)
    return await fill_in(eyes, ("#math-answer", str(answer)))


@teaches("visual-addition")
async def count_blocks(eyes: PageInspector, chance: random.Random) -> Action | None:
    return await fill_in(eyes, ("#math-answer", str(len(await eyes.all(".addition-block")))))


@teaches("read-table")
async def read_table(eyes: PageInspector, chance: random.Random) -> Action | None:
    cells = await table(eyes)
    return await fill_in(eyes, ("#tt", cells[eyes.said(r"value of (.*) into")[1]]))


@teaches("read-table-2")
async def read_two_of_table(eyes: PageInspector, chance: random.Random) -> Action | None:
    cells = await table(eyes)
    keys = [(await eyes.one(label)).text.rstrip(":") for label in ("#ll1", "#ll2")]
    return await fill_in(eyes, ("#tt1", cells[keys[0]]), ("#tt2", cells[keys[1]]))


async def table(eyes: PageInspector) -> dict[str, str]:
    cells = [cell.text for cell in await eyes.all("#tab td")]
    return dict(zip(cells[::2], cells[1::2], strict=True))


@teaches("find-word")
async def find_word(eyes: PageInspector, chance: random.Random) -> Action | None:
    word = (await eyes.one("#area p")).text.split()[int(eyes.said(r"(\d+)(st|nd|rd|th) word")[1]) - 1]
    return await fill_in(eyes, ("#answer-input", re.sub(r"[^a-zA-Z]", "", word)))


@teaches("copy-paste")
async def copy_and_paste(eyes: PageInspector, chance: random.Random) -> Action | None:
    source, target = await eyes.one("#to-copy"), await eyes.one("#answer-input")
    if target.value == source.value:
        return click(await eyes.one(SUBMIT))
    copied = await eyes.read(LAST_COPIED) == source.value
    place = target if copied else source
    focused, marked = await eyes.read(
        "(field => [field.id, field.value ? field.selectionEnd - field.selectionStart === field.value.length : false])"
        "(document.activeElement)"
    )
    if focused != place.attributes["id"]:
        return click(place)
    if place.value and not marked:
        return Press(keys="Control+A")
    return Press(keys="Control+V" if copied else "Control+C")
