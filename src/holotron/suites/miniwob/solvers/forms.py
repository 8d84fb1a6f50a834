"""Tasks whose answer is typed or chosen with keys, then submitted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from holotron.suites.miniwob.actions import Click, Press, Primitive, TypeText
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.solvers.registry import solves

SUBMIT = "#subbtn"


async def fill_in(eyes: PageInspector, *fields: tuple[str, str]) -> AsyncIterator[Primitive]:
    """Click into each field, type its text, and submit."""
    for selector, text in fields:
        yield await eyes.click(selector)
        yield TypeText(text)
    yield await eyes.click(SUBMIT)


@solves("enter-text", "enter-text-dynamic")
async def enter_text(eyes: PageInspector) -> AsyncIterator[Primitive]:
    async for action in fill_in(eyes, ("#tt", eyes.quoted[0])):
        yield action


@solves("enter-text-2")
async def enter_text_in_case(eyes: PageInspector) -> AsyncIterator[Primitive]:
    text = eyes.quoted[0]
    async for action in fill_in(eyes, ("#tt", text.upper() if "upper case" in eyes.utterance else text.lower())):
        yield action


@solves("enter-password")
async def enter_password(eyes: PageInspector) -> AsyncIterator[Primitive]:
    async for action in fill_in(eyes, ("#password", eyes.quoted[0]), ("#verify", eyes.quoted[0])):
        yield action


@solves("login-user")
async def log_in(eyes: PageInspector) -> AsyncIterator[Primitive]:
    user, password = eyes.quoted
    async for action in fill_in(eyes, ("#username", user), ("#password", password)):
        yield action


@solves("enter-date")
async def enter_date(eyes: PageInspector) -> AsyncIterator[Primitive]:
    date = eyes.said(r"\d\d/\d\d/\d{4}")
    # The field has three parts, month, day and year; wherever the click went, two to the left is the first.
    yield await eyes.click("#tt")
    yield Press("ArrowLeft")
    yield Press("ArrowLeft")
    yield TypeText(date[0].replace("/", ""))
    yield await eyes.click(SUBMIT)


@solves("enter-time")
async def enter_time(eyes: PageInspector) -> AsyncIterator[Primitive]:
    time = eyes.said(r"(\d+):(\d\d)\s*([AP])M")
    yield await eyes.click("#tt")
    yield Press("ArrowLeft")
    yield Press("ArrowLeft")
    yield TypeText(f"{int(time[1]):02}{time[2]}{time[3]}")
    yield await eyes.click(SUBMIT)


@solves("text-transform")
async def read_slanted_text(eyes: PageInspector) -> AsyncIterator[Primitive]:
    text = "".join(letter.text for letter in await eyes.all("#captcha span"))
    async for action in fill_in(eyes, ("#tt", text)):
        yield action


@solves("simple-arithmetic")
async def calculate(eyes: PageInspector) -> AsyncIterator[Primitive]:
    first, operator, second, _ = (await eyes.one("#math-problem")).text.split()
    a, b = int(first), int(second)
    answer = {"+": a + b, "-": a - b, "x": a * b}[operator]
    async for action in fill_in(eyes, ("#math-answer", str(answer))):
        yield action


@solves("simple-algebra")
async def solve_for_x(eyes: PageInspector) -> AsyncIterator[Primitive]:
    first, operator, second, _, total = (await eyes.one("#math-problem")).text.split()
    answer: int
    if operator == "+":
        answer = int(total) - int(second if first == "x" else first)
    else:
        answer = int(total) + int(second) if first == "x" else int(first) - int(total)
    async for action in fill_in(eyes, ("#math-answer", str(answer))):
        yield action


@solves("visual-addition")
async def count_blocks(eyes: PageInspector) -> AsyncIterator[Primitive]:
    blocks = await eyes.all(".addition-block")
    async for action in fill_in(eyes, ("#math-answer", str(len(blocks)))):
        yield action


@solves("read-table")
async def read_table(eyes: PageInspector) -> AsyncIterator[Primitive]:
    key = eyes.said(r"value of (.*) into")
    cells = [cell.text for cell in await eyes.all("#tab td")]
    async for action in fill_in(eyes, ("#tt", cells[cells.index(key[1]) + 1])):
        yield action


@solves("find-word")
async def find_word(eyes: PageInspector) -> AsyncIterator[Primitive]:
    nth = eyes.said(r"(\d+)(st|nd|rd|th) word")
    word = (await eyes.one("#area p")).text.split()[int(nth[1]) - 1]
    async for action in fill_in(eyes, ("#answer-input", re.sub(r"[^a-zA-Z]", "", word))):
        yield action


@solves("choose-list")
async def choose_from_list(eyes: PageInspector) -> AsyncIterator[Primitive]:
    wanted = eyes.said(r"Select (.*) from the list")
    names = await eyes.read("[...document.querySelectorAll('#options option')].map(option => option.textContent)")
    # A mouse cannot reach the options of a native list: its popup is outside the page.
    yield await eyes.click("#options")
    for _ in range(names.index(wanted[1])):
        yield Press("ArrowDown")
    yield Press("Enter")
    yield await eyes.click("#area button")


@solves("use-spinner")
async def turn_spinner(eyes: PageInspector) -> AsyncIterator[Primitive]:
    wanted = eyes.said(r"Select (-?\d+)")
    direction = "up" if int(wanted[1]) > 0 else "down"
    for _ in range(abs(int(wanted[1]))):
        yield await eyes.click(f".ui-spinner-{direction}")
    yield await eyes.click(SUBMIT)


@solves("copy-paste")
async def copy_and_paste(eyes: PageInspector) -> AsyncIterator[Primitive]:
    yield await eyes.click("#to-copy")
    yield Press("Control+a")
    yield Press("Control+c")
    yield await eyes.click("#answer-input")
    yield Press("Control+v")
    yield await eyes.click(SUBMIT)


@solves("guess-number")
async def guess_number(eyes: PageInspector) -> AsyncIterator[Primitive]:
    low, high = 0, 9
    while low <= high:
        guess = (low + high) // 2
        field = await eyes.one("#tt")
        yield Click(round(field.left) + 5, round(field.center[1]))  # its right half is two arrows
        yield Press("Control+a")
        yield TypeText(str(guess))
        yield await eyes.click(SUBMIT)
        if await eyes.shows("#higher"):
            low = guess + 1
        else:
            high = guess - 1
